// The search field: which events match, how many they are, and walking from one to the next in time.

class Search {
  /**
   * @param {Element} bar where the field stands @param {Marks} marks the whole trace
   * @param {(mark: number) => void} goTo @param {() => void} changed
   */
  constructor(bar, marks, goTo, changed) {
    this.marks = marks;
    this.goTo = goTo;
    this.changed = changed;
    /** @type {string[]} */
    this.words = [];
    /** @type {number[]} */
    this.found = [];
    this.at = -1;
    this.input = addElement('input', bar, BUTTON.replace('cursor:pointer;', '') + 'width:150px;margin-left:8px');
    this.input.type = 'search';
    this.input.placeholder = 'search events';
    this.input.setAttribute('aria-label', 'search events');
    this.input.oninput = () => this.find();
    for (const [text, title, by] of /** @type {[string, string, number][]} */ (
      [['↑', 'previous match (P)', -1], ['↓', 'next match (N)', 1]])) {
      const button = addElement('button', bar, BUTTON, text);
      button.title = title;
      button.setAttribute('aria-label', title);
      button.onclick = () => this.move(by);
    }
    this.count = addElement('span', bar, 'opacity:.72;margin:0 8px 4px 0;min-width:40px');
  }

  get isMatch() { return this.words.length > 0; }

  /** @param {string} name */
  matches(name) {
    const lower = name.toLowerCase();
    return this.words.every((word) => lower.includes(word));
  }

  find() {
    const {head, name, begin, row} = this.marks;
    this.words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.found = [];
    this.events = 0;
    this.at = -1;
    if (this.isMatch) {
      const isMatch = head.names.map((text) => this.matches(text));
      for (let m = 0; m < head.marks; m++) if (isMatch[name[m]]) this.found.push(m);
      this.found.sort((a, b) => begin[a] - begin[b] || row[a] - row[b]);
      isMatch.forEach((is, index) => { if (is) this.events = (this.events || 0) + head.counts[index]; });
    }
    this.say();
    this.changed();
  }

  clear() {
    this.input.value = '';
    this.find();
  }

  /** How many there are; those inside a block of others can't be walked to, and that is said. */
  say() {
    const which = this.at >= 0 ? `${countText(this.at + 1)} of ` : '';
    const inside = (this.events || 0) > this.found.length ? ` (${countText(this.events || 0)} with those in blocks)` : '';
    this.count.textContent = this.isMatch ? `${which}${countText(this.found.length)}${inside}` : '';
  }

  /** @param {number} by */
  move(by) {
    const {length} = this.found;
    if (!length) return;
    this.at = this.at < 0 && by < 0 ? length - 1 : (this.at + by + length) % length;
    this.goTo(this.found[this.at]);
    this.say();
  }
}
