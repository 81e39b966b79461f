// A timeline that a person works with: buttons, keys, pointer, search, steps, measuring, details.
// Everything from a trace goes in through textContent or the canvas: names are data.

const BUTTON = 'font:inherit;color:inherit;background:transparent;border:1px solid rgba(128,128,128,.5);' +
  'border-radius:3px;padding:2px 8px;margin:0 4px 4px 0;cursor:pointer;';

class Viewer {
  /** @param {HTMLElement} root @param {Marks} marks */
  constructor(root, marks) {
    this.root = root;
    this.whole = marks;
    this.detail = new Detail(this);
    this.pending = 0;
    // A notebook must not take keys typed here for its own commands (Lumino, Phosphor, classic Notebook).
    root.setAttribute('data-lm-suppress-shortcuts', 'true');
    root.setAttribute('data-p-suppress-shortcuts', 'true');
    this.box = addElement('div', root, 'margin:4px 0');
    this.search = this.buildTools();
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
    button('all', 'all of it (0)', () => this.show(0, this.whole.head.span));
    const input = BUTTON.replace('cursor:pointer;', '');
    if (this.whole.head.steps.num.length) {
      button('‹', 'previous step ([)', () => this.moveStep(-1));
      this.stepInput = addElement('input', bar, input + 'width:64px');
      this.stepInput.placeholder = 'step';
      this.stepInput.setAttribute('aria-label', 'go to step');
      this.stepInput.onchange = () => this.goToStep(/** @type {HTMLInputElement} */ (this.stepInput).value);
      button('›', 'next step (])', () => this.moveStep(1));
    }
    const search = new Search(bar, this.whole, (mark) => this.goToMatch(mark), () => this.markMatches());
    this.status = addElement('span', bar, 'opacity:.72;margin:0 8px 4px 0');
    button('?', 'keyboard and mouse (?)', () => this.panel.toggleHelp());
    return search;
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
    this.detail.use();
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
      if (event.key === 'Enter' && event.target === this.search.input) this.search.move(event.shiftKey ? -1 : 1);
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    /** @type {Object<string, () => void>} */
    const actions = {
      w: () => this.zoom(0.6, this.pointerX), s: () => this.zoom(1 / 0.6, this.pointerX), '+': () => this.zoom(0.5),
      '-': () => this.zoom(2), a: () => this.pan(-0.15), d: () => this.pan(0.15), arrowleft: () => this.pan(-0.15),
      arrowright: () => this.pan(0.15), '0': () => this.show(0, this.whole.head.span), '[': () => this.moveStep(-1),
      ']': () => this.moveStep(1), '/': () => this.search.input.focus(), n: () => this.search.move(1),
      p: () => this.search.move(-1), '?': () => this.panel.toggleHelp(), m: () => this.picture.range && this.show(...this.picture.range),
      escape: () => this.clear(),
    };
    const action = actions[event.key.toLowerCase()];
    if (action) { event.preventDefault(); action(); }
  }

  clear() {
    this.picture.range = null;
    this.picture.selected = -1;
    this.search.clear();
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
    if (picture.selected >= 0) this.detail.askStats(picture.selected);
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

  /** Fade what does not match the search. */
  markMatches() {
    const {names} = this.picture.marks.head;
    this.picture.isMatch = this.search.isMatch ?
      Uint8Array.from(names, (name) => this.search.matches(name) ? 1 : 0) : null;
    this.draw();
  }

  /** @param {number} mark of the whole trace */
  goToMatch(mark) {
    const {picture, whole} = this;
    const {begin, end, row} = whole;
    const width = Math.max((end[mark] - begin[mark]) * 8, Math.min(picture.to - picture.from, whole.head.span / 50));
    const middle = (begin[mark] + end[mark]) / 2;
    this.show(middle - width / 2, middle + width / 2);
    this.select(picture.marks === whole ? mark : picture.marks.at(row[mark], begin[mark]));
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
}
