// The packed marks of a timeline (see pack.py) to columns, and questions about them.
// A mark is an event, or a block of several. Times are in units of `unit_ps`.

/**
 * @typedef {{label: string, plane: string, device: boolean, steps: boolean, busy: number, events: number,
 *   row: number, recorded: string, derived: string}} Line
 * @typedef {{label: string, title: string, unit: string, samples: number, held: boolean, least: number, largest: number,
 *   scale: number, thinned: number}} TrackHead
 * @typedef {{head: TrackHead, time: Uint32Array, value: Uint32Array}} Track
 * @typedef {{unit_ps: number, begin_ps: number, span: number, marks: number, rows: number, flows: number,
 *   events: number, merged: number, resolution_ps: number, names: string[],
 *   counts: number[], categories: [string, string][], lines: Line[], details: Object<string, string>,
 *   steps: {begin: number[], end: number[], num: number[], warm: number[]}, opens: [number, number] | null,
 *   tracks: TrackHead[]}} Header
 * @typedef {{name: string, own: number, occurrences: number, longest: number, category: number}} Total
 * @typedef {{wall: number, busy: number, events: number, totals: Total[]}} Measurement
 */

/** @param {string} base64 @returns {Uint8Array<ArrayBuffer>} */
function bytesOf(base64) {
  const {fromBase64} = /** @type {any} */ (Uint8Array);
  if (fromBase64) return fromBase64.call(Uint8Array, base64);  // several times as fast, in browsers of 2025
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** @param {string} base64 @returns {Promise<Marks>} */
async function readMarks(base64) {
  const stream = new Blob([bytesOf(base64)]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Marks(new Uint8Array(await new Response(stream).arrayBuffer()));
}

class Marks {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    const size = new DataView(bytes.buffer).getUint32(0, true);
    /** @type {Header} */
    this.head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
    let at = 4 + size;
    /** @param {number} count */
    const column = (count) => {
      const out = new Uint32Array(count);
      for (let i = 0; i < count; i++) {
        out[i] = bytes[at + i] | bytes[at + count + i] << 8 | bytes[at + 2 * count + i] << 16 |
          bytes[at + 3 * count + i] << 24;
      }
      at += 4 * count;
      return out;
    };
    const {marks, rows, flows} = this.head;
    this.first = column(rows + 1);
    this.begin = column(marks);
    this.end = column(marks);
    this.busy = column(marks);
    this.children = column(marks);
    this.occurrences = column(marks);
    this.name = column(marks);
    this.step = column(marks);
    this.category = bytes.slice(at, at + marks);
    at += marks;
    this.launch = column(flows);
    this.kernel = column(flows);
    /** @type {Track[]} */
    this.tracks = this.head.tracks.map((head) => {
      const time = column(head.samples);
      for (let i = 1; i < time.length; i++) time[i] += time[i - 1];
      return {head, time, value: column(head.samples)};
    });
    /** Which categories occur, by their index. */
    this.occurs = new Uint8Array(256);
    for (let m = 0; m < marks; m++) this.occurs[this.category[m]] = 1;
    this.row = new Uint32Array(marks);
    for (let row = 0; row < rows; row++) {
      let previous = 0;
      for (let m = this.first[row]; m < this.first[row + 1]; m++) {
        previous = this.begin[m] += previous;
        this.busy[m] = this.busy[m] || this.end[m];
        this.end[m] += previous;
        this.row[m] = row;
      }
    }
    this.lineOfRow = new Uint32Array(rows);
    this.head.lines.forEach((line, index) => this.lineOfRow.fill(index, line.row));
  }

  /** The first mark of a row that ends after a time. @param {number} row @param {number} time */
  firstAfter(row, time) {
    let low = this.first[row];
    let high = this.first[row + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] > time) high = middle; else low = middle + 1;
    }
    return low;
  }

  /** How many rows a line has. @param {number} line */
  rowsOf(line) {
    const lines = this.head.lines;
    return (line + 1 < lines.length ? lines[line + 1].row : this.head.rows) - lines[line].row;
  }

  /** The marks of a row that touch [from, to): [first, after the last]. An instant touches its time.
   * @param {number} row @param {number} from @param {number} to */
  within(row, from, to) {
    let low = this.first[row];
    let high = this.first[row + 1];
    while (low < high) {  // the first that begins at `to` or later
      const middle = (low + high) >> 1;
      if (this.begin[middle] >= to) high = middle; else low = middle + 1;
    }
    let first = Math.min(this.firstAfter(row, from), low);
    while (first > this.first[row] && this.begin[first - 1] >= from) first--;
    return [first, low];
  }

  /** The mark of a row that begins at a time, or -1. @param {number} row @param {number} begin */
  at(row, begin) {
    const [first, last] = this.within(row, begin, begin + 1);
    for (let m = first; m < last; m++) if (this.begin[m] === begin) return m;
    return -1;
  }

  /** The steps that touch [from, to). @param {number} from @param {number} to @returns {number[]} */
  stepsWithin(from, to) {
    const {begin, end} = this.head.steps;
    const found = [];
    for (let s = 0; s < begin.length; s++) if (end[s] > from && begin[s] < to) found.push(s);
    return found;
  }

  /** The last sample of a track at or before a time, or -1. @param {Track} track @param {number} time */
  sampleAt(track, time) {
    let low = 0;
    let high = track.time.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (track.time[middle] > time) high = middle; else low = middle + 1;
    }
    return low - 1;
  }

  /** @param {Track} track @param {number} sample */
  valueOf(track, sample) { return track.head.least + track.value[sample] * track.head.scale; }

  /**
   * What happens in [from, to): how long the line is busy, and the own time of each name on some lines. A mark that is
   * partly inside counts by its part; events in blocks count together, since only the longest of each is known by name.
   * @param {number} line @param {number} from @param {number} to @param {number[]} lines @returns {Measurement}
   */
  measure(line, from, to, lines) {
    /** @type {Map<number, Total>} */
    const totals = new Map();
    let events = 0;
    let busy = 0;
    for (const one of lines) {
      const {row: top} = this.head.lines[one];
      for (let row = top; row < top + this.rowsOf(one); row++) {
        const [first, last] = this.within(row, from, to);
        for (let m = first; m < last; m++) {
          const whole = this.end[m] - this.begin[m];
          const part = whole ? (Math.min(this.end[m], to) - Math.max(this.begin[m], from)) / whole : 1;
          if (row === this.head.lines[line].row) busy += this.busy[m] * part;
          events += this.occurrences[m];
          const key = this.occurrences[m] > 1 ? -1 : this.name[m] * 16 + this.category[m];
          let total = totals.get(key);
          if (!total) {
            const name = key < 0 ? 'events in blocks' : this.head.names[this.name[m]];
            total = {name, own: 0, occurrences: 0, longest: 0, category: key < 0 ? -1 : this.category[m]};
            totals.set(key, total);
          }
          total.own += (this.busy[m] - this.children[m]) * part;
          total.occurrences += this.occurrences[m];
          if (key >= 0) total.longest = Math.max(total.longest, whole);
        }
      }
    }
    return {wall: to - from, busy, events, totals: [...totals.values()]};
  }
}
