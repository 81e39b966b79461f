// A timeline that a person works with: buttons, keys, pointer, search, steps, measuring, details.
// Everything from a trace goes in through textContent or the canvas: names are data.

const BUTTON = 'font:inherit;color:inherit;background:transparent;border:1px solid rgba(128,128,128,.5);' +
  'border-radius:3px;padding:2px 8px;margin:0 4px 4px 0;cursor:pointer;';

class Viewer {
  /** @param {HTMLElement} root @param {Marks} marks */
  constructor(root, marks) {
    this.root = root;
    this.whole = marks;
    /** @type {DetailSource | null} */
    this.source = null;
    /** @type {number[]} */
    this.found = [];
    this.match = -1;
    this.pending = 0;
    // A notebook must not take keys typed here for its own commands (Lumino, Phosphor, classic Notebook).
    root.setAttribute('data-lm-suppress-shortcuts', 'true');
    root.setAttribute('data-p-suppress-shortcuts', 'true');
    this.box = addElement('div', root, 'margin:4px 0');
    this.buildTools();
    const lane = addElement('div', this.box, 'overflow-x:hidden;overflow-y:auto;position:relative;' +
      'border:1px solid rgba(128,128,128,.35);border-radius:3px');
    const canvas = addElement('canvas', lane, 'position:sticky;top:0;display:block;width:100%;outline-offset:-2px;' +
      'touch-action:pan-y;cursor:crosshair');
    canvas.tabIndex = 0;
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', `timeline of ${countText(marks.head.events)} events; press ? for help`);
    this.canvas = canvas;
    this.lane = lane;
    this.spacer = addElement('div', lane, '');
    this.picture = new Picture(canvas, marks);
    this.panel = new Panel(this.box, this.picture);
    const lines = marks.head.lines;
    // Many threads: the first ten open, the rest folded to their outermost events.
    lines.forEach((line, index) => { if (index >= 10 && !line.device && !line.steps) this.picture.folded.add(index); });
    this.resize();
    this.listen();
    this.panel.say();
    this.draw();
  }

  buildTools() {
    const bar = addElement('div', this.box, 'display:flex;flex-wrap:wrap;align-items:center');
    /** @param {string} text @param {string} title @param {() => void} action */
    const button = (text, title, action) => {
      const made = addElement('button', bar, BUTTON, text);
      made.title = title;
      made.setAttribute('aria-label', title);
      made.onclick = () => { action(); };
      return made;
    };
    button('−', 'zoom out (S)', () => this.zoom(2));
    button('+', 'zoom in (W)', () => this.zoom(0.5));
    button('all', 'everything (0)', () => this.show(0, this.whole.head.span));
    const input = BUTTON.replace('cursor:pointer;', '');
    if (this.whole.head.steps.num.length) {
      button('‹', 'previous step ([)', () => this.moveStep(-1));
      this.stepInput = addElement('input', bar, input + 'width:64px');
      this.stepInput.placeholder = 'step';
      this.stepInput.setAttribute('aria-label', 'go to step');
      this.stepInput.onchange = () => this.goToStep(/** @type {HTMLInputElement} */ (this.stepInput).value);
      button('›', 'next step (])', () => this.moveStep(1));
    }
    this.searchInput = addElement('input', bar, input + 'width:150px;margin-left:8px');
    this.searchInput.type = 'search';
    this.searchInput.placeholder = 'search events';
    this.searchInput.setAttribute('aria-label', 'search events');
    this.searchInput.oninput = () => this.search();
    button('↑', 'previous match (P)', () => this.moveMatch(-1));
    button('↓', 'next match (N)', () => this.moveMatch(1));
    this.count = addElement('span', bar, 'opacity:.72;margin:0 8px 4px 0;min-width:40px');
    this.status = addElement('span', bar, 'opacity:.72;margin:0 8px 4px 0');
    button('?', 'keyboard and mouse (?)', () => this.panel.toggleHelp());
  }

  listen() {
    const {canvas, lane} = this;
    this.root.addEventListener('keydown', (event) => this.key(event));
    lane.addEventListener('scroll', () => { this.picture.scroll = lane.scrollTop; this.draw(); });
    canvas.addEventListener('wheel', (event) => this.wheel(event), {passive: false});
    canvas.addEventListener('pointerdown', (event) => this.press(event));
    canvas.addEventListener('pointermove', (event) => this.hover(event));
    canvas.addEventListener('pointerleave', () => { this.picture.hovered = -1; this.panel.say(); this.draw(); });
    canvas.addEventListener('dblclick', (event) => {
      const mark = this.markAt(event);
      if (mark < 0) return;
      const {begin, end} = this.picture.marks;
      const room = Math.max(end[mark] - begin[mark], 20) * 0.2;
      this.show(begin[mark] - room, Math.max(end[mark], begin[mark] + 20) + room);
    });
    new ResizeObserver(() => { this.resize(); this.draw(); }).observe(this.box);
  }

  resize() {
    const height = Math.min(this.picture.height + RULER + 4, 470);
    this.lane.style.height = `${height}px`;
    this.canvas.style.height = `${height}px`;
    this.spacer.style.height = `${Math.max(0, this.picture.height + RULER + 4 - height)}px`;
  }

  draw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => { this.pending = 0; this.picture.draw(); });
  }

  /** Show [from, to), never less than 20 units and never more than a little around everything.
   * @param {number} from @param {number} to */
  show(from, to) {
    const span = this.whole.head.span;
    const width = Math.min(Math.max(to - from, 20), span * 1.04);
    const begin = Math.min(Math.max((from + to - width) / 2, -0.02 * span), 1.02 * span - width);
    this.picture.from = begin;
    this.picture.to = begin + width;
    this.useDetail();
    this.draw();
  }

  /** @param {number} factor @param {number} [x] */
  zoom(factor, x) {
    const {picture} = this;
    const time = x === undefined || x < picture.labelWidth ? (picture.from + picture.to) / 2 : picture.timeAt(x);
    this.show(time - (time - picture.from) * factor, time + (picture.to - time) * factor);
  }

  /** @param {number} fraction */
  pan(fraction) {
    const by = (this.picture.to - this.picture.from) * fraction;
    this.show(this.picture.from + by, this.picture.to + by);
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    const across = event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006), event.offsetX);
    } else if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
      event.preventDefault();
      this.pan(across / this.picture.plotWidth);
    }
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    event.stopPropagation();
    if (event.target instanceof HTMLInputElement) {
      if (event.key === 'Escape') this.canvas.focus();
      if (event.key === 'Enter' && event.target === this.searchInput) this.moveMatch(event.shiftKey ? -1 : 1);
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    /** @type {Object<string, () => void>} */
    const actions = {
      w: () => this.zoom(0.6, this.pointerX), s: () => this.zoom(1 / 0.6, this.pointerX), '+': () => this.zoom(0.5),
      '-': () => this.zoom(2), a: () => this.pan(-0.15), d: () => this.pan(0.15), arrowleft: () => this.pan(-0.15),
      arrowright: () => this.pan(0.15), '0': () => this.show(0, this.whole.head.span), '[': () => this.moveStep(-1),
      ']': () => this.moveStep(1), '/': () => this.searchInput && this.searchInput.focus(), n: () => this.moveMatch(1),
      p: () => this.moveMatch(-1), '?': () => this.panel.toggleHelp(), m: () => this.picture.range && this.show(...this.picture.range),
      escape: () => this.clear(),
    };
    const action = actions[event.key.toLowerCase()];
    if (action) { event.preventDefault(); action(); }
  }

  clear() {
    this.picture.range = null;
    this.picture.selected = -1;
    if (this.searchInput) this.searchInput.value = '';
    this.search();
    this.panel.say();
  }

  /** @param {PointerEvent} event */
  press(event) {
    const {picture, canvas} = this;
    canvas.focus({preventScroll: true});
    const x = event.offsetX;
    if (x < picture.labelWidth) {
      const place = event.offsetY >= RULER ? picture.placeAt(event.offsetY) : null;
      if (place) this.fold(place.line);
      return;
    }
    const pans = event.shiftKey || event.button === 1 || event.offsetY < RULER - 20;
    const start = {from: picture.from, to: picture.to, time: picture.timeAt(x)};
    let moved = false;
    canvas.setPointerCapture(event.pointerId);
    /** @param {PointerEvent} now */
    const move = (now) => {
      moved = moved || Math.abs(now.offsetX - x) > 3;
      if (!moved) return;
      if (pans) {
        const by = (x - now.offsetX) / picture.plotWidth * (start.to - start.from);
        this.show(start.from + by, start.to + by);
      } else {
        const time = picture.timeAt(Math.max(now.offsetX, picture.labelWidth));
        picture.range = [Math.min(start.time, time), Math.max(start.time, time)];
        this.panel.measure(event.offsetY);
        this.draw();
      }
    };
    const up = () => {
      canvas.removeEventListener('pointermove', move);
      if (!moved) this.click(event);
    };
    canvas.addEventListener('pointermove', move);
    canvas.addEventListener('pointerup', up, {once: true});
  }

  /** @param {PointerEvent} event */
  click(event) {
    const {picture} = this;
    if (event.offsetY < RULER) {
      const time = picture.timeAt(event.offsetX);
      const [step] = picture.marks.stepsWithin(time, time + 1);
      if (step !== undefined) this.showStep(step);
      return;
    }
    picture.range = null;
    picture.selected = this.markAt(event);
    this.panel.say();
    this.draw();
    if (picture.selected >= 0 && this.source) this.askStats(picture.selected);
  }

  /** @param {MouseEvent} event @returns {number} the mark under the pointer, the longest of several, or -1 */
  markAt(event) {
    const span = this.picture.marksAt(event.offsetX, event.offsetY);
    if (!span) return -1;
    const {begin, end} = this.picture.marks;
    let best = span[0];
    for (let m = span[0]; m < span[1]; m++) if (end[m] - begin[m] > end[best] - begin[best]) best = m;
    return best;
  }

  /** @param {PointerEvent} event */
  hover(event) {
    this.pointerX = event.offsetX;
    if (event.buttons) return;
    const {picture} = this;
    const place = event.offsetX < picture.labelWidth && event.offsetY >= RULER ? picture.placeAt(event.offsetY) : null;
    this.canvas.style.cursor = place ? 'pointer' : 'crosshair';
    const before = picture.hovered;
    picture.hovered = this.markAt(event);
    if (place) {
      const line = picture.marks.head.lines[place.line];
      this.canvas.title = `${line.plane} · ${line.label}: ${countText(line.events)} events, busy ${durationText(line.busy)}`;
    } else if (picture.hovered !== before || !this.canvas.title) {
      const span = picture.marksAt(event.offsetX, event.offsetY);
      this.canvas.title = span && picture.hovered >= 0 ? this.panel.describe(picture.hovered, span) : '';
    }
    if (picture.hovered !== before) { this.panel.say(); this.draw(); }
  }

  /** @param {number} line */
  fold(line) {
    const {folded} = this.picture;
    if (!folded.delete(line)) folded.add(line);
    this.picture.layOut();
    this.resize();
    this.picture.scroll = this.lane.scrollTop;
    this.draw();
  }

  /** @param {number} step its place in the header's steps */
  showStep(step) {
    const {begin, end, num} = this.whole.head.steps;
    const room = (end[step] - begin[step]) * 0.04;
    this.currentStep = step;
    if (this.stepInput) this.stepInput.value = String(num[step]);
    this.show(begin[step] - room, end[step] + room);
  }

  /** @param {string} text */
  goToStep(text) {
    const {num} = this.whole.head.steps;
    const step = num.indexOf(Number(text));
    this.note(step < 0 ? `no step ${text} (${num[0]} to ${num[num.length - 1]})` : '');
    if (step >= 0) this.showStep(step);
  }

  /** @param {number} by */
  moveStep(by) {
    const {begin} = this.whole.head.steps;
    if (!begin.length) return;
    const inView = this.whole.stepsWithin(this.picture.from, this.picture.to);
    // From a view of several steps to its first or last, from one step to its neighbour.
    let step = this.currentStep === undefined || inView.length > 3 ? inView[by > 0 ? 0 : inView.length - 1] : this.currentStep + by;
    if (step === undefined) step = Math.max(0, begin.findIndex((time) => time > this.picture.from));
    this.showStep(Math.min(Math.max(step, 0), begin.length - 1));
  }

  search() {
    const text = this.searchInput ? this.searchInput.value : '';
    const {marks} = this.picture;
    this.found = marks.search(text);
    this.match = -1;
    this.picture.isMatch = null;
    if (text.trim()) {
      this.picture.isMatch = new Uint8Array(marks.head.names.length);
      for (const mark of this.found) this.picture.isMatch[marks.name[mark]] = 1;
    }
    this.sayMatch();
    this.draw();
  }

  sayMatch() {
    const text = this.searchInput ? this.searchInput.value.trim() : '';
    const which = this.match >= 0 ? `${countText(this.match + 1)} of ` : '';
    if (this.count) this.count.textContent = text ? `${which}${countText(this.found.length)}` : '';
  }

  /** @param {number} by */
  moveMatch(by) {
    if (!this.found.length) return;
    const {picture} = this;
    this.match = this.match < 0 && by < 0 ? this.found.length - 1 :
      (this.match + by + this.found.length) % this.found.length;
    const mark = this.found[this.match];
    const {begin, end, row} = picture.marks;
    const width = Math.max((end[mark] - begin[mark]) * 8, Math.min(picture.to - picture.from, this.whole.head.span / 50));
    const middle = (begin[mark] + end[mark]) / 2;
    const shown = picture.marks;
    this.show(middle - width / 2, middle + width / 2);
    if (picture.marks === shown) this.select(mark); else this.select(picture.marks.at(row[mark], begin[mark]));
    this.sayMatch();
  }

  /** @param {number} mark */
  select(mark) {
    const {picture} = this;
    picture.range = null;
    picture.selected = mark;
    if (mark >= 0) {
      const line = picture.marks.lineOfRow[picture.marks.row[mark]];
      if (picture.yOf(picture.marks.row[mark]) === null) this.fold(line);
      const y = /** @type {number} */ (picture.yOf(picture.marks.row[mark]));
      if (y < RULER || y + ROW > this.canvas.clientHeight) this.lane.scrollTop += y - this.canvas.clientHeight / 2;
    }
    this.panel.say();
    this.draw();
  }

  /** @param {string} text */
  note(text) { if (this.status) this.status.textContent = text; }

  // More detail from the kernel, where there is one.

  /** Use the detail that was loaded where the view lies inside it, else the whole; ask for more when still. */
  useDetail() {
    const {picture} = this;
    const fits = this.detail && picture.from >= this.detail.from && picture.to <= this.detail.to;
    const marks = fits && this.detail ? this.detail.marks : this.whole;
    if (marks !== picture.marks) this.exchange(marks);
    if (!this.source) return;
    clearTimeout(this.waiting);
    if (!fits) this.waiting = window.setTimeout(() => this.askDetail(), 180);
  }

  /** @param {Marks} marks */
  exchange(marks) {
    const {picture} = this;
    const moved = (/** @type {number} */ mark) =>
      mark < 0 ? -1 : marks.at(picture.marks.row[mark], picture.marks.begin[mark]);
    const selected = moved(picture.selected);
    picture.marks = marks;
    picture.selected = selected;
    picture.hovered = -1;
    const match = this.match;
    this.search();
    this.match = marks === this.whole ? match : -1;
  }

  async askDetail() {
    const {picture, source} = this;
    if (!source || !this.whole.head.merged) return;
    const pixel = (picture.to - picture.from) / picture.plotWidth;
    if (this.whole.head.resolution_ps / this.whole.head.unit_ps < pixel) return;  // nothing to gain
    const margin = (picture.to - picture.from) / 2;
    const from = Math.floor(picture.from - margin);
    const to = Math.ceil(picture.to + margin);
    this.note('loading detail …');
    const reply = await source.ask(`window ${from} ${to}`);
    this.note('');
    if (!reply) return;
    this.detail = {from, to, marks: await readMarks(reply)};
    this.useDetail();
    this.panel.say();
    this.draw();
  }

  /** @param {number} mark */
  async askStats(mark) {
    const {marks} = this.picture;
    if (!this.source || marks.head.details[mark] || marks.occurrences[mark] > 1) return;
    const text = await this.source.ask(`event ${marks.row[mark]} ${marks.begin[mark]}`);
    if (text) marks.head.details[mark] = text;
    if (this.picture.selected === mark && this.picture.marks === marks) this.panel.say();
  }
}
