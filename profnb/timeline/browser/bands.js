// Which lanes stand where: pinned ones on top, hidden and filtered ones nowhere, those that only repeat a device's work
// behind one row until somebody opens it.

const ROW = 17;
const LINE_GAP = 5;

/** @typedef {{line: number, top: number, rows: number, pinned: boolean, group: string}} Band */

class Bands {
  /** @param {Marks} marks */
  constructor(marks) {
    this.marks = marks;
    this.lines = marks.head.lines;
    /** @type {Set<number>} */
    this.folded = new Set();
    /** @type {Set<number>} */
    this.hidden = new Set();
    /** @type {Set<number>} */
    this.pinned = new Set();
    /** @type {Set<string>} */
    this.opened = new Set();
    /** @type {string[]} */
    this.words = [];
    // Many threads: the first ten open, the rest folded to their outermost events.
    this.lines.forEach((line, index) => { if (index >= 10 && !line.device && !line.steps) this.folded.add(index); });
    /** @type {Band[]} */
    this.bands = [];
    /** @type {(Band | null)[]} */
    this.ofLine = [];
    this.height = 0;
    this.pinnedHeight = 0;
    this.layOut();
  }

  /** Whether a line is neither hidden nor left out by the filter. @param {number} line */
  isWanted(line) {
    const {label, recorded} = this.lines[line];
    const text = `${label} ${recorded}`.toLowerCase();
    return !this.hidden.has(line) && this.words.every((word) => text.includes(word));
  }

  /** The lines whose own events are wanted, derived ones only where they are open. */
  get wanted() { return this.lines.map((_, line) => line).filter((line) => this.ofLine[line]); }

  layOut() {
    let top = 0;
    this.bands = [];
    this.ofLine = this.lines.map(() => null);
    /** @param {number} line @param {boolean} pinned @param {string} group */
    const place = (line, pinned, group) => {
      const rows = group || this.folded.has(line) ? 1 : this.marks.rowsOf(line);
      const band = {line, top, rows, pinned, group};
      this.bands.push(band);
      if (!group) this.ofLine[line] = band;
      top += rows * ROW + LINE_GAP;
    };
    for (const line of this.pinned) if (this.isWanted(line)) place(line, true, '');
    this.pinnedHeight = top;
    const grouped = new Set();
    this.lines.forEach(({derived}, line) => {
      if (this.pinned.has(line) || !this.isWanted(line)) return;
      if (derived && !this.words.length) {
        if (!grouped.has(derived)) place(line, false, derived);
        grouped.add(derived);
        if (!this.opened.has(derived)) return;
      }
      place(line, false, '');
    });
    this.height = top;
  }

  /** Open or close what a band stands for: the derived lanes of a device, or the rows of a line. @param {Band} band */
  toggle(band) {
    if (band.group) flip(this.opened, band.group); else flip(this.folded, band.line);
    this.layOut();
  }

  /** Make a line's row visible, whatever hides it. @param {number} line */
  reveal(line) {
    const {derived} = this.lines[line];
    this.hidden.delete(line);
    if (!this.isWanted(line)) this.words = [];
    if (derived) this.opened.add(derived);
    this.folded.delete(line);
    this.layOut();
  }

  /** @param {Band} band */
  labelOf(band) {
    if (!band.group) return this.lines[band.line].label;
    const count = this.lines.filter((line, index) => line.derived === band.group && this.isWanted(index)).length;
    return `${band.group} derived (${count})`;
  }
}

/** @template T @param {Set<T>} set @param {T} value */
function flip(set, value) { if (!set.delete(value)) set.add(value); }
