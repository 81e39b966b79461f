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
 *   counts: number[], wrappers: number[], categories: [string, string][], lines: Line[], details: Object<string, string>,
 *   steps: {begin: number[], end: number[], num: number[], warm: number[]}, opens: [number, number] | null,
 *   tracks: TrackHead[], widths: number[]}} Header
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
  const {readable, writable} = new DecompressionStream('gzip');
  const writer = writable.getWriter();  // a Blob's stream would go through another process
  Promise.all([writer.write(bytesOf(base64)), writer.close()]).catch(() => {});  // the reader says what is wrong
  return new Marks(new Uint8Array(await new Response(readable).arrayBuffer()));
}

/** A column: its lowest bytes, then the next, as many as its largest number needs. @param {Uint8Array} bytes
 * @param {number} at @param {number} count @param {number} width */
function numbersOf(bytes, at, count, width) {
  const out = new Uint32Array(count);
  for (let place = 0; place < width; place++) {
    const from = at + place * count;
    for (let i = 0; i < count; i++) out[i] |= bytes[from + i] << 8 * place;
  }
  return out;
}

class Marks {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    const size = new DataView(bytes.buffer).getUint32(0, true);
    /** @type {Header} */
    this.head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
    const {marks, rows, flows, tracks, widths} = this.head;
    const counts = [rows + 1, ...new Array(8).fill(marks), flows, flows, ...tracks.flatMap(({samples}) => [samples, samples])];
    let at = 4 + size;
    const columns = counts.map((count, index) => {
      const from = at;
      at += count * widths[index];
      return () => numbersOf(bytes, from, count, widths[index]);
    });
    const [first, begin, duration, busy, children, occurrences, name, step, category, launch, kernel, ...samples] = columns;
    this.first = first();
    this.begin = begin();
    this.end = duration();
    this.occurrences = occurrences();
    this.name = name();
    this.category = category();
    // What no picture needs is unpacked when it is asked for.
    this.later = {busy, children, step, launch, kernel};
    /** @type {Map<string, Uint32Array>} */
    this.known = new Map();
    /** @type {Track[]} */
    this.tracks = tracks.map((head, index) => {
      const time = samples[2 * index]();
      for (let i = 1; i < time.length; i++) time[i] += time[i - 1];
      return {head, time, value: samples[2 * index + 1]()};
    });
    /** Which categories occur, by their index. */
    this.occurs = new Uint8Array(256);
    for (let m = 0; m < marks; m++) this.occurs[this.category[m]] = 1;
    for (let row = 0; row < rows; row++) {
      let previous = 0;
      for (let m = this.first[row]; m < this.first[row + 1]; m++) {
        previous = this.begin[m] += previous;
        this.end[m] += previous;
      }
    }
    /** The row that the kernel knows a mark by, where marks are arranged anew. @type {Uint32Array | null} */
    this.recordedRow = null;
    this.lineOfRow = new Uint32Array(rows);
    this.head.lines.forEach((line, index) => this.lineOfRow.fill(index, line.row));
  }

  /** Some of the marks on lanes of their own. @param {Uint32Array} kept which, lane by lane @param {Uint32Array<ArrayBuffer>} first
   * mark of each lane @param {Line[]} lines @returns {Marks} */
  arranged(kept, first, lines) {
    /** @type {Marks} */
    const made = Object.create(this);
    const after = new Map([...kept].map((mark, at) => [mark, at]));
    const {head, launch, kernel} = this;
    /** @param {Uint32Array} column */
    const pick = (column) => kept.map((mark) => column[mark]);
    const flows = launch.map((_, flow) => flow).filter((flow) => after.has(launch[flow]) && after.has(kernel[flow]));
    /** @param {Uint32Array} column */
    const moved = (column) => flows.map((flow) => after.get(column[flow]) ?? 0);
    const details = Object.fromEntries(Object.entries(head.details).flatMap(([mark, text]) => {
      const at = after.get(Number(mark));
      return at === undefined ? [] : [[at, text]];
    }));
    made.head = {...head, marks: kept.length, rows: first.length - 1, lines, details};
    made.first = first;
    for (const column of /** @type {('begin' | 'end' | 'occurrences' | 'name' | 'category')[]} */ (
      ['begin', 'end', 'occurrences', 'name', 'category'])) made[column] = pick(this[column]);
    made.known = new Map();
    made.later = {
      busy: () => pick(this.busy), children: () => pick(this.children), step: () => pick(this.step),
      launch: () => moved(launch), kernel: () => moved(kernel),
    };
    made.recordedRow = pick(this.row);
    made.lineOfRow = new Uint32Array(made.head.rows);
    lines.forEach((line, index) => made.lineOfRow.fill(index, line.row));
    return made;
  }

  /** From the first event's begin to the last one's end; 0 is where the recording began. */
  get length() {
    let least = this.head.span;
    for (let row = 0; row < this.head.rows; row++) if (this.first[row] < this.first[row + 1]) least = Math.min(least, this.begin[this.first[row]]);
    return this.head.span - least;
  }

  /** @param {string} name @param {() => Uint32Array} unpack @returns {Uint32Array} */
  once(name, unpack) {
    const known = this.known.get(name) || unpack();
    this.known.set(name, known);
    return known;
  }

  get children() { return this.once('children', this.later.children); }
  get step() { return this.once('step', this.later.step); }
  get launch() { return this.once('launch', this.later.launch); }
  get kernel() { return this.once('kernel', this.later.kernel); }
  /** 0 stands for all of it. */
  get busy() {
    return this.once('busy', () => this.later.busy().map((time, m) => time || this.end[m] - this.begin[m]));
  }
  get row() {
    return this.once('row', () => {
      const rows = new Uint32Array(this.head.marks);
      for (let row = 0; row < this.head.rows; row++) rows.fill(row, this.first[row], this.first[row + 1]);
      return rows;
    });
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

  /** The mark that stands for another arrangement's mark, or -1. @param {Marks} other @param {number} mark */
  sameAs(other, mark) {
    if (mark < 0 || other === this) return mark;
    const row = (other.recordedRow ?? other.row)[mark];
    const begin = other.begin[mark];
    return this.recordedRow ? this.recordedRow.findIndex((one, at) => one === row && this.begin[at] === begin) : this.at(row, begin);
  }

  /** The marks a mark launched, or was launched by. @param {number} mark @returns {number[]} */
  flowsOf(mark) {
    const {launch, kernel} = this;
    const found = [];
    for (let f = 0; f < launch.length; f++) {
      if (launch[f] === mark) found.push(kernel[f]);
      if (kernel[f] === mark) found.push(launch[f]);
    }
    return found;
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
    const {begin, end, children, occurrences, busy: busyTimes} = this;
    let events = 0;
    let busy = 0;
    for (const one of lines) {
      const {row: top} = this.head.lines[one];
      for (let row = top; row < top + this.rowsOf(one); row++) {
        const [first, last] = this.within(row, from, to);
        for (let m = first; m < last; m++) {
          const whole = end[m] - begin[m];
          const part = whole ? (Math.min(end[m], to) - Math.max(begin[m], from)) / whole : 1;
          if (row === this.head.lines[line].row) busy += busyTimes[m] * part;
          events += occurrences[m];
          const key = occurrences[m] > 1 ? -1 : this.name[m] * 16 + this.category[m];
          let total = totals.get(key);
          if (!total) {
            const name = key < 0 ? 'events in blocks' : this.head.names[this.name[m]];
            total = {name, own: 0, occurrences: 0, longest: 0, category: key < 0 ? -1 : this.category[m]};
            totals.set(key, total);
          }
          total.own += (busyTimes[m] - children[m]) * part;
          total.occurrences += occurrences[m];
          if (key >= 0) total.longest = Math.max(total.longest, whole);
        }
      }
    }
    return {wall: to - from, busy, events, totals: [...totals.values()]};
  }
}
