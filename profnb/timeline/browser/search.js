// The search field: words of the name, how long, which step, which lane; a category beside it. How many match, and
// walking from one to the next in time.

/** What is looked for: every word, and every bound that is given. */
class Query {
  /** @param {string} text such as `conv >2ms <1s step:4 lane:gpu` @param {number} category or -1 for any */
  constructor(text, category) {
    this.text = `${text}|${category}`;
    this.category = category;
    /** @type {string[]} */
    this.words = [];
    /** @type {string[]} */
    this.lanes = [];
    /** @type {number | null} */
    this.step = null;
    this.least = 0;
    this.most = Infinity;
    for (const token of text.toLowerCase().split(/\s+/).filter(Boolean)) {
      const bound = /^([<>])=?(\d+(?:\.\d*)?|\.\d+)(s|ms|us|µs|μs|ns)$/.exec(token);
      const named = /^(step|lane):(.+)$/.exec(token);
      if (bound) {
        const ps = Number(bound[2]) * {s: 1e12, ms: 1e9, us: 1e6, µs: 1e6, μs: 1e6, ns: 1e3}[/** @type {'s'} */ (bound[3])];
        if (bound[1] === '>') this.least = ps; else this.most = ps;
      } else if (named && named[1] === 'lane') this.lanes.push(named[2]);
      else if (named && /^\d+$/.test(named[2])) this.step = Number(named[2]);
      else this.words.push(token);
    }
    /** @type {WeakMap<Marks, Uint8Array>} */
    this.known = new WeakMap();
  }

  get isEmpty() { return !this.words.length && !this.isOfMarks; }
  /** Whether more than the name decides, so that events inside blocks cannot be counted. */
  get isOfMarks() { return this.category >= 0 || this.step !== null || this.lanes.length > 0 || this.isOfTime; }
  get isOfTime() { return this.least > 0 || this.most < Infinity; }

  /** @param {string} name */
  matchesName(name) {
    const lower = name.toLowerCase();
    return this.words.every((word) => lower.includes(word));
  }

  /** For each mark 1 where it matches. A block matches by its longest event's name, and never by time.
   * @param {Marks} marks @returns {Uint8Array} */
  flagsOf(marks) {
    const known = this.known.get(marks);
    if (known) return known;
    const {head, name, category, begin, end, step, occurrences, lineOfRow, row} = marks;
    const names = head.names.map((text) => this.matchesName(text));
    const lines = head.lines.map(({label, recorded}) => this.lanes.every((word) => `${label} ${recorded}`.toLowerCase().includes(word)));
    const least = this.least / head.unit_ps;
    const most = this.most / head.unit_ps;
    const flags = new Uint8Array(head.marks);
    for (let m = 0; m < flags.length; m++) {
      if (!names[name[m]] || (this.category >= 0 && category[m] !== this.category) || !lines[lineOfRow[row[m]]]) continue;
      if (this.step !== null && (!step[m] || head.steps.num[step[m] - 1] !== this.step)) continue;
      if (this.isOfTime && (occurrences[m] > 1 || end[m] - begin[m] < least || end[m] - begin[m] > most)) continue;
      flags[m] = 1;
    }
    this.known.set(marks, flags);
    return flags;
  }
}

class Search {
  /**
   * @param {Element} bar where the field stands @param {Marks} marks the whole trace
   * @param {(mark: number) => void} goTo @param {() => void} changed @param {() => void} tell what was found
   */
  constructor(bar, marks, goTo, changed, tell) {
    this.marks = marks;
    this.goTo = goTo;
    this.changed = changed;
    this.tell = tell;
    /** @type {Query | null} */
    this.query = null;
    /** @type {number[]} */
    this.found = [];
    this.at = -1;
    this.events = 0;
    const style = BUTTON.replace('cursor:pointer;', '');
    this.input = addElement('input', bar, style + 'flex:1 1 100px;min-width:0;max-width:220px');
    this.input.type = 'search';
    this.input.placeholder = 'search events';
    this.input.title = 'words of the name; >2ms or <50us for how long; step:4; lane:gpu';
    this.input.setAttribute('aria-label', 'search events');
    this.input.oninput = () => this.find();
    this.category = addElement('select', bar, style + 'max-width:130px;background:Canvas;color:CanvasText');
    this.category.setAttribute('aria-label', 'category to search');
    addElement('option', this.category, '', 'any category').value = '-1';
    marks.head.categories.forEach(([name], index) => {
      if (marks.occurs[index]) addElement('option', this.category, '', name).value = String(index);
    });
    this.category.onchange = () => this.find();
    for (const [text, title, by] of /** @type {[string, string, number][]} */ (
      [['↑', 'previous match (P)', -1], ['↓', 'next match (N)', 1]])) {
      const button = addElement('button', bar, BUTTON, text);
      button.title = title;
      button.setAttribute('aria-label', title);
      button.onclick = () => this.move(by);
    }
    this.count = addElement('span', bar, 'opacity:.72;margin:0 0 4px');
    this.count.setAttribute('role', 'status');
  }

  find() {
    const {head, begin, row} = this.marks;
    const query = new Query(this.input.value, Number(this.category.value));
    this.query = query.isEmpty ? null : query;
    this.found = [];
    this.events = 0;
    this.at = -1;
    if (this.query) {
      const flags = query.flagsOf(this.marks);
      for (let m = 0; m < head.marks; m++) if (flags[m]) this.found.push(m);
      this.found.sort((a, b) => begin[a] - begin[b] || row[a] - row[b]);
      head.names.forEach((name, index) => { if (query.matchesName(name)) this.events += head.counts[index]; });
    }
    this.say();
    this.changed();
    this.tell();
  }

  clear() {
    this.input.value = '';
    this.category.value = '-1';
    this.find();
  }

  /** What of the matches can't be walked to: those inside of blocks, and in folded frames. */
  get inside() {
    const {query, found, events, marks} = this;
    if (query?.isOfTime && marks.head.merged) return '(events in blocks are not searched by time)';
    if (!query || query.isOfMarks || events <= found.length) return '';
    const where = [marks.head.merged ? 'blocks' : '', marks.recordedRow ? 'folded frames' : ''].filter(Boolean).join(' or ');
    return `(${countText(events)} with those in ${where || 'blocks'})`;
  }

  /** How many there are. */
  say() {
    const which = this.at >= 0 ? `${countText(this.at + 1)} of ` : '';
    this.count.textContent = this.query ? `${which}${countText(this.found.length)}` : '';
    this.count.style.marginRight = this.query ? '8px' : '0';
  }

  /** Go to one of them, and on from there. @param {number} mark */
  goToFound(mark) {
    this.at = this.found.indexOf(mark);
    this.goTo(mark);
    this.say();
  }

  /** @param {number} by */
  move(by) {
    const {length} = this.found;
    if (!length) return;
    this.goToFound(this.found[this.at < 0 && by < 0 ? length - 1 : (this.at + by + length) % length]);
  }
}
