// What the viewer says below the picture: details of an event, a measured range, the keys.

const HELP = [
  ['W  S', 'zoom in, out (also Ctrl + wheel, pinch)'], ['A  D', 'move left, right (also Shift + wheel, Shift + drag)'],
  ['Home  End', 'the begin, the end'], ['drag', 'measure a range'], ['click', 'details; launch and kernel are joined'], ['double click', 'zoom to an event'],
  ['[  ]', 'previous, next step'], ['/', 'search'], ['N  P', 'next, previous match'], ['M', 'zoom to the range'],
  ['0', 'everything'], ['R', 'measure what is shown'], ['Esc', 'clear'], ['click a name', 'fold or unfold its rows'], ['O', 'fold or unfold the rows of the selected event'],
  ['↑ ↓  , .', 'select the event above, below, before, after'], ['L', 'hide and pin lanes'], ['F', 'full height'],
  ['search', 'words; >2ms <50us for how long; step:4; lane:gpu'],
];

class Panel {
  /** @param {Element} parent @param {Viewer} viewer */
  constructor(parent, viewer) {
    this.viewer = viewer;
    this.picture = viewer.picture;
    this.helps = false;
    this.element = addElement('div', parent, 'min-height:66px;padding:5px 2px;overflow-wrap:anywhere');
    this.element.setAttribute('aria-live', 'polite');
  }

  /** @param {number} mark @param {number[]} span the marks on the same pixels */
  describe(mark, span) {
    const {marks} = this.picture;
    let events = 0;
    for (let m = span[0]; m < span[1]; m++) events += marks.occurrences[m];
    const name = `${marks.head.names[marks.name[mark]]}\n${durationText((marks.end[mark] - marks.begin[mark]) * marks.head.unit_ps)}`;
    return events > 1 ? `${countText(events)} events here, the longest:\n${name}` : name;
  }

  /** Details of what is measured, selected or pointed at, in that order. */
  say() {
    const {picture, element} = this;
    if (this.helps || picture.range) return;
    element.textContent = '';
    const mark = picture.selected >= 0 ? picture.selected : picture.hovered;
    if (mark < 0) {
      addElement('span', element, 'opacity:.72', 'Point at an event for its name, click for details, drag to measure; press ? for keys.');
      this.sayCategories();
      return;
    }
    const {marks} = picture;
    const {head} = marks;
    const unit = head.unit_ps;
    const row = marks.row[mark];
    const wall = (marks.end[mark] - marks.begin[mark]) * unit;
    const name = head.names[marks.name[mark]];
    const isBlock = marks.occurrences[mark] > 1;
    addElement('b', element, '', isBlock ? `${countText(marks.occurrences[mark])} events, the longest ${name}` : name);
    const step = marks.step[mark] ? head.steps.num[marks.step[mark] - 1] : undefined;
    const facts = [
      isBlock ? `${durationText(wall)} wall, ${durationText(marks.busy[mark] * unit)} busy` : durationText(wall),
      `self ${durationText((marks.busy[mark] - marks.children[mark]) * unit)}`,
      `begins at ${durationText(marks.begin[mark] * unit)}`,
      step === undefined ? '' : `step ${step}`,
      head.categories[marks.category[mark]][0],
      head.lines[marks.lineOfRow[row]].label,
    ];
    const flows = marks.flowsOf(mark);
    if (flows.length === 1) {
      const later = Math.max(marks.begin[flows[0]], marks.begin[mark]) - Math.min(marks.begin[flows[0]], marks.begin[mark]);
      facts.push(`launch to start ${durationText(later * unit)}`);
    } else if (flows.length) facts.push(`launched ${flows.length}`);
    addElement('div', element, '', facts.filter(Boolean).join(' · '));
    const stats = head.details[mark];
    if (stats) addElement('div', element, 'white-space:pre-wrap;opacity:.72;max-height:120px;overflow:auto', stats);
  }

  /** @param {number} line whose busy time is told @param {boolean} isDone whether to make the table */
  measure(line, isDone) {
    const {picture, element, viewer} = this;
    if (!picture.range) return;
    this.helps = false;
    const {head} = picture.marks;
    const [from, to] = picture.range;
    const {derived} = head.lines[line];
    // What only repeats a device's work would count it twice; asked for itself, it stands alone.
    const lines = derived ? [line] : viewer.bands.wanted.filter((one) => !head.lines[one].derived);
    const result = picture.marks.measure(line, from, to, isDone ? lines : [line]);
    const busy = `${head.lines[line].label} busy ${durationText(result.busy * head.unit_ps)} (${percentText(result.busy / result.wall)})`;
    element.textContent = '';
    addElement('b', element, '', `${durationText(result.wall * head.unit_ps)} wall`);
    addElement('span', element, '', ` · ${busy}` + (isDone ? ` · ${countText(result.events)} events on ${derived ? 'this lane' : 'the lanes shown'}` : ''));
    if (!isDone) return;
    this.totals = result.totals;
    const tracks = viewer.tracks.shown.map((index) => viewer.tracks.rangeText(index, from, to)).filter(Boolean);
    if (tracks.length) addElement('div', element, 'opacity:.8', tracks.join(' · '));
    if (!viewer.follower) this.table = new RangeTable(element, result.totals, rangeColumns(result, head), 1);
  }

  /** Which colour means what, for the categories that occur. */
  sayCategories() {
    const {marks} = this.picture;
    const legend = addElement('div', this.element, 'display:flex;flex-wrap:wrap;gap:2px 14px;margin-top:4px;opacity:.85');
    marks.head.categories.forEach(([name, colour], index) => {
      if (!marks.occurs[index]) return;
      const item = addElement('span', legend, 'white-space:nowrap');
      addElement('span', item, `display:inline-block;width:10px;height:10px;margin-right:5px;background:${colour}`);
      addElement('span', item, '', name);
    });
  }

  toggleHelp() {
    this.helps = !this.helps;
    this.element.textContent = '';
    if (!this.helps) { this.say(); return; }
    const list = addElement('div', this.element, 'display:grid;grid-template-columns:repeat(auto-fill,minmax(280px,1fr));gap:2px 18px');
    for (const [keys, what] of HELP) {
      const item = addElement('div', list, 'display:flex');
      addElement('b', item, 'flex:none;width:100px', keys);
      addElement('span', item, '', what);
    }
  }
}
