// Two runs on one axis of time: 0 is where a step of each begins, what moves one moves the other, and a range that is
// measured in one is measured in both, with a table of what differs.

/** @typedef {{name: string, first: number, second: number}} Both */

class Pair {
  /** @param {HTMLElement} root @param {Viewer[]} sides */
  constructor(root, sides) {
    this.root = root;
    this.sides = sides;
    this.labels = [root.dataset.first || 'A', root.dataset.second || 'B'];
    this.isFollowing = false;
    this.at = sides.map(({whole}) => whole.head.opens ? whole.head.opens[0] : 0);
    const bar = document.createElement('div');
    bar.setAttribute('style', 'display:flex;flex-wrap:wrap;align-items:center;margin:4px 0');
    root.insertBefore(bar, root.firstChild);
    addElement('span', bar, 'margin:0 6px 4px 0', 'aligned at the begin of');
    this.inputs = sides.map((side, index) => {
      addElement('label', bar, 'margin:0 4px 4px 0', `${index ? 'and ' : ''}${this.labels[index]} step`);
      const input = addElement('input', bar, BUTTON.replace('cursor:pointer;', '') + 'width:64px');
      input.setAttribute('aria-label', `step of ${this.labels[index]} to align`);
      input.onchange = () => this.choose(index, Number(input.value));
      input.disabled = !side.whole.head.steps.num.length;
      return input;
    });
    for (const [text, title, by] of /** @type {[string, string, number][]} */ (
      [['‹', 'previous step of both', -1], ['›', 'next step of both', 1]])) {
      const button = addElement('button', bar, BUTTON, text);
      button.title = title;
      button.setAttribute('aria-label', title);
      button.onclick = () => this.move(by);
    }
    this.status = addElement('span', bar, 'opacity:.72;margin:0 8px 4px 0');
    this.status.setAttribute('role', 'status');
    this.below = document.createElement('div');
    this.below.setAttribute('style', 'padding:5px 2px;max-height:190px;overflow:auto');
    this.below.setAttribute('aria-live', 'polite');
    root.insertBefore(this.below, bar.nextSibling);
    sides.forEach((side, index) => {
      side.follower = this;
      side.short = 300;
      side.note('');
      side.resize();
      // Each button is there twice: a screen reader says in which run it is.
      side.box.setAttribute('role', 'group');
      side.box.setAttribute('aria-label', this.labels[index]);
    });
    this.align();
  }

  /** The length of the steps that a side opens on, in picoseconds. @param {number} index */
  lengthOf(index) {
    const {head} = this.sides[index].whole;
    const {begin, end} = head.steps;
    if (!begin.length) return head.span * head.unit_ps;
    const count = head.opens ? head.opens[1] - head.opens[0] : 0;
    const first = this.at[index];
    return (end[Math.min(first + count, end.length - 1)] - begin[first]) * head.unit_ps;
  }

  /** Put 0 where the chosen steps begin, and show as much of both as the longer one needs. */
  align() {
    const length = Math.max(this.lengthOf(0), this.lengthOf(1));
    this.sides.forEach((side, index) => {
      const {steps} = side.whole.head;
      side.picture.zero = steps.begin.length ? steps.begin[this.at[index]] : 0;
      this.inputs[index].value = steps.num.length ? String(steps.num[this.at[index]]) : '';
    });
    this.sides.forEach((side) => {
      const {unit_ps, span} = side.whole.head;
      const other = this.otherOf(side);
      const ends = [0, other.whole.head.span].map((time) => Pair.across(other, side, time));
      side.reach = [Math.min(0, ends[0]), Math.max(span, ends[1])];
      side.place(side.picture.zero - 0.04 * length / unit_ps, side.picture.zero + 1.04 * length / unit_ps);
    });
  }

  /** @param {number} index @param {number} number */
  choose(index, number) {
    const {num} = this.sides[index].whole.head.steps;
    const row = num.indexOf(number);
    this.status.textContent = row < 0 ? `no step ${number} (${num[0]} to ${num[num.length - 1]})` : '';
    if (row >= 0) this.at[index] = row;
    this.align();
  }

  /** @param {number} by */
  move(by) {
    const last = (/** @type {number} */ index) => Math.max(this.sides[index].whole.head.steps.num.length - 1, 0);
    if (this.at.some((row, index) => row + by < 0 || row + by > last(index))) return;
    this.at = this.at.map((row) => row + by);
    this.align();
  }

  /** A time of one side as the other's. @param {Viewer} from @param {Viewer} to @param {number} time */
  static across(from, to, time) {
    return to.picture.zero + (time - from.picture.zero) * from.whole.head.unit_ps / to.whole.head.unit_ps;
  }

  /** @param {Viewer} viewer @returns {Viewer} */
  otherOf(viewer) { return viewer === this.sides[0] ? this.sides[1] : this.sides[0]; }

  /** @param {Viewer} viewer */
  follow(viewer) {
    const other = this.otherOf(viewer);
    other.place(Pair.across(viewer, other, viewer.picture.from), Pair.across(viewer, other, viewer.picture.to));
  }

  /** @param {Viewer} viewer @param {number} line */
  measured(viewer, line) {
    const {range} = viewer.picture;
    if (this.isFollowing || !range) return;
    const other = this.otherOf(viewer);
    const {label} = viewer.whole.head.lines[line];
    const same = other.whole.head.lines.findIndex((one) => one.label === label);
    this.isFollowing = true;
    other.measure(Pair.across(viewer, other, range[0]), Pair.across(viewer, other, range[1]), Math.max(same, 0), true);
    this.isFollowing = false;
    this.tell();
  }

  /** The own time of each name in the measured range of both. */
  tell() {
    /** @type {Map<string, Both>} */
    const both = new Map();
    this.sides.forEach((side, index) => {
      for (const {name, own} of side.panel.totals || []) {
        const row = both.get(name) || {name, first: 0, second: 0};
        row[index ? 'second' : 'first'] += own * side.whole.head.unit_ps;
        both.set(name, row);
      }
    });
    /** @param {Both} row */
    const more = (row) => row.second - row.first;
    /** @param {number} ps */
    const signed = (ps) => (ps > 0 ? '+' : ps < 0 ? '−' : '') + durationText(Math.abs(ps));
    this.below.textContent = '';
    addElement('b', this.below, '', `the same stretch in both: ${this.labels[1]} against ${this.labels[0]}`);
    this.table = new RangeTable(this.below, [...both.values()], [
      {heading: 'event', title: 'its name', isNumber: false, of: (t) => t.name, text: (t) => t.name},
      {heading: this.labels[0], title: 'own time in the range', isNumber: true, of: (t) => t.first, text: (t) => durationText(t.first)},
      {heading: this.labels[1], title: 'own time in the range', isNumber: true, of: (t) => t.second, text: (t) => durationText(t.second)},
      {heading: 'difference', title: 'own time of the second less the first; sorted by its size', isNumber: true, of: (t) => Math.abs(more(t)), text: (t) => signed(more(t))},
    ], 3);
  }
}

/** Join the two timelines of every pair whose viewers both stand. */
function joinPairs() {
  document.querySelectorAll('.profnb-pair').forEach((element) => {
    const root = /** @type {HTMLElement} */ (element);
    const sides = [...root.querySelectorAll(':scope > .profnb-timeline')].map((one) => /** @type {any} */ (one).viewer);
    if (root.dataset.joined || sides.length < 2 || !sides.every(Boolean)) return;
    root.dataset.joined = '1';
    /** @type {any} */ (root).pair = new Pair(root, sides);
  });
}
