// Python frames of frameworks that only pass a call on: taken out, with what runs inside of them moved up.

/** Where each mark of a line stands without the wrappers: a lane, or -1 for a wrapper. A wrapper spends half of its
 * time or more in what it calls. @param {Marks} marks @param {Set<number>} wrappers names @param {number} line
 * @returns {number[][]} the marks of each lane, in time order */
function lanesWithout(marks, wrappers, line) {
  const {begin, end, name, occurrences, busy, children, row} = marks;
  const top = marks.head.lines[line].row;
  const rows = marks.rowsOf(line);
  const inOrder = Array.from({length: marks.first[top + rows] - marks.first[top]}, (_, at) => marks.first[top] + at);
  inOrder.sort((a, b) => begin[a] - begin[b] || row[a] - row[b]);
  /** The last mark of each row, and where what it calls belongs. */
  const last = new Int32Array(rows).fill(-1);
  const inside = new Int32Array(rows);
  /** @type {number[][]} */
  const lanes = [];
  for (const mark of inOrder) {
    const own = row[mark] - top;
    let above = own - 1;
    while (above >= 0 && (last[above] < 0 || end[last[above]] <= begin[mark])) above--;
    let lane = above < 0 ? 0 : inside[above];
    last[own] = mark;
    if (wrappers.has(name[mark]) && occurrences[mark] === 1 && children[mark] * 2 >= busy[mark] && children[mark]) {
      inside[own] = lane;
      continue;
    }
    while (lane < lanes.length && end[lanes[lane][lanes[lane].length - 1]] > begin[mark]) lane++;
    while (lanes.length <= lane) lanes.push([]);
    lanes[lane].push(mark);
    inside[own] = lane + 1;
  }
  return lanes.filter((lane) => lane.length);
}

/** The same marks without wrappers; the same object where there are none. @param {Marks} marks @returns {Marks} */
function withoutWrappers(marks) {
  const wrappers = new Set(marks.head.wrappers);
  if (!wrappers.size) return marks;
  const named = new Uint8Array(marks.head.rows);  // the rows that hold one
  for (let m = 0; m < marks.head.marks; m++) if (wrappers.has(marks.name[m])) named[marks.row[m]] = 1;
  /** @type {number[]} */
  const kept = [];
  const first = [0];
  const lines = marks.head.lines.map((line, index) => {
    const at = first.length - 1;
    const rows = Array.from({length: marks.rowsOf(index)}, (_, depth) => line.row + depth);
    const lanes = rows.some((row) => named[row]) ? lanesWithout(marks, wrappers, index)
      : rows.map((row) => Array.from({length: marks.first[row + 1] - marks.first[row]}, (_, mark) => marks.first[row] + mark));
    for (const lane of lanes.length ? lanes : [[]]) {
      for (const mark of lane) kept.push(mark);
      first.push(kept.length);
    }
    return {...line, row: at};
  });
  if (kept.length === marks.head.marks) return marks;
  return marks.arranged(Uint32Array.from(kept), Uint32Array.from(first), lines);
}
