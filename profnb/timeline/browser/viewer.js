// A timeline that a person works with: buttons, keys, pointer, search, steps, measuring, details.
// Everything from a trace goes in through textContent or the canvas: names are data.

const BUTTON = 'font:inherit;color:inherit;background:transparent;border:1px solid rgba(128,128,128,.5);' +
  'border-radius:3px;padding:2px 8px;margin:0 4px 4px 0;cursor:pointer;';

const MOST_TALL = 4000;  // far below what a canvas may be, on any screen
const WIDE = 860;  // from here on details stand beside the lanes
const BESIDE = 560;  // as high as details beside the lanes may be, above them less
const [ABOVE, ABOVE_WITH_TABLE] = [116, 210];

/** @typedef {{follow: (viewer: Viewer) => void, measured: (viewer: Viewer, line: number) => void}} Follower */

class Viewer {
  /** @param {HTMLElement} root @param {Element} place @param {Marks} marks */
  constructor(root, place, marks) {
    this.root = root;
    this.recorded = marks;
    /** Frames of frameworks are shown. */
    this.unfolded = false;
    /** @type {WeakMap<Marks, Marks>} */
    this.arranged = new WeakMap();
    this.whole = this.folded(marks);
    this.detail = new Detail(this);
    this.bands = new Bands(this.whole);
    this.pending = 0;
    this.isTall = false;
    this.boxWidth = 0;
    this.short = 470;
    /** How far the view may go: the whole trace, or beside another run both. @type {[number, number]} */
    this.reach = [0, marks.head.span];
    /** Told of every move and every measured range; a second run beside this one follows. @type {Follower | null} */
    this.follower = null;
    this.box = addElement('div', place, 'margin:4px 0');
    this.bar = addElement('div', this.box, 'display:flex;flex-wrap:wrap;align-items:center');
    const below = addElement('div', this.box, '');
    this.search = this.buildTools(below);
    this.main = addElement('div', this.box, 'display:flex;gap:12px');
    const panel = addElement('div', this.main, '');
    this.column = addElement('div', this.main, 'flex:1;min-width:0');
    this.map = new Minimap(this.column, this);
    const lane = addElement('div', this.column, 'overflow-x:hidden;overflow-y:auto;position:relative;' +
      'border:1px solid rgba(128,128,128,.35);border-radius:3px');
    const canvas = addElement('canvas', lane, 'position:sticky;top:0;display:block;width:100%;outline-offset:-2px;' +
      'touch-action:pan-y;cursor:crosshair');
    canvas.tabIndex = 0;
    canvas.setAttribute('role', 'application');
    canvas.setAttribute('aria-roledescription', 'timeline');
    canvas.setAttribute('aria-label', `timeline of ${countText(marks.head.events)} events; press ? for help`);
    this.canvas = canvas;
    this.lane = lane;
    this.spacer = addElement('div', lane, '');
    this.picture = new Picture(canvas, this.whole, this.bands);
    this.tracks = new Tracks(this.column, this);
    this.panel = new Panel(panel, this);
    this.open();
    this.panel.say();
    this.resize();
    this.drawFirst();
    new Hands(this).listen();
  }

  /** @param {Element} below where the list of lanes opens */
  buildTools(below) {
    const {bar} = this;
    /** @param {string} text @param {string} title @param {() => void} action */
    const button = (text, title, action) => {
      const made = addElement('button', bar, BUTTON, text);
      made.title = title;
      // What is read aloud begins with what is seen; a sign alone is read by what it does.
      made.setAttribute('aria-label', /[a-z]/.test(text) && !title.startsWith(text) ? `${text}: ${title}` : title);
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
    const search = new Search(bar, this.whole, (mark) => this.goToMatch(mark), () => this.markMatches(), () => this.panel.sayFound());
    this.menu = new LaneMenu(bar, below, this);
    button('measure', 'measure what is shown (R)', () => this.measureView());
    const tall = button('full height', 'every lane without scrolling, or a short picture (F)', () => this.toggleHeight());
    tall.setAttribute('aria-pressed', 'false');
    this.tall = tall;
    if (this.whole !== this.recorded) {
      const frames = button('framework frames', 'show the frames that only pass a call on, or fold them (G)', () => this.toggleFrames());
      frames.setAttribute('aria-pressed', 'false');
      this.frames = frames;
    }
    button('?', 'keyboard and mouse (?)', () => this.panel.toggleHelp());
    this.status = addElement('span', bar, 'opacity:.72;margin:0 8px 4px 0');
    this.status.setAttribute('role', 'status');
    return search;
  }

  /** Show the typical steps, or everything where there are none. */
  open() {
    const {opens, steps} = this.whole.head;
    if (!opens || opens[1] >= steps.num.length) { this.show(0, this.whole.head.span); return; }
    const [first, last] = opens;
    const room = (steps.end[last] - steps.begin[first]) * 0.04;
    this.show(steps.begin[first] - room, steps.end[last] + room);
    if (last - first + 1 < steps.num.length) {
      const which = first === last ? `step ${steps.num[first]} is` : `steps ${steps.num[first]} to ${steps.num[last]} are`;
      this.note(`${which} typical of ${countText(steps.num.length)}`);
    }
  }

  /** Draw more marks of the same lanes from now on. @param {Marks} marks */
  take(marks) {
    this.recorded = marks;
    this.whole = this.bands.marks = this.search.marks = this.folded(marks);
    this.bands.lines = this.whole.head.lines;
    this.map.drawnFor = '';
    if (this.search.query) this.search.find();
    this.detail.use();
    this.panel.say();
    this.relay();
  }

  /** Marks as they are shown: without the frames of frameworks, where these are folded. @param {Marks} marks @returns {Marks} */
  folded(marks) {
    if (this.unfolded) return marks;
    const arranged = this.arranged.get(marks) ?? withoutWrappers(marks);
    this.arranged.set(marks, arranged);
    return arranged;
  }

  toggleFrames() {
    if (!this.frames) return;
    this.unfolded = !this.unfolded;
    this.frames.setAttribute('aria-pressed', String(this.unfolded));
    this.take(this.recorded);
  }

  /** Lanes were folded, hidden or pinned. */
  relay() {
    this.bands.layOut();
    this.tracks.resize();
    this.resize();
    this.picture.scroll = this.lane.scrollTop;
    this.draw();
  }

  resize() {
    this.boxWidth = this.box.clientWidth;
    const isWide = this.boxWidth >= WIDE;
    this.main.style.flexDirection = isWide ? 'row-reverse' : 'column';
    const whole = this.bands.height + RULER + 4;
    const height = Math.min(whole, this.isTall ? MOST_TALL : this.short + this.bands.pinnedHeight);
    this.lane.style.height = `${height}px`;
    this.canvas.style.height = `${height}px`;
    this.spacer.style.height = `${Math.max(0, whole - height)}px`;
    this.panel.fit(isWide ? Math.min(Math.max(height + this.map.height + this.tracks.height, 240), BESIDE) : 0);
    this.picture.width = this.canvas.clientWidth;  // after all is written: a layout
  }

  toggleHeight() {
    this.isTall = !this.isTall;
    this.tall?.setAttribute('aria-pressed', String(this.isTall));
    this.relay();
  }

  draw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => { this.pending = 0; this.drawNow(); });
  }

  /** The lanes at once; what stands around them after the frame that shows them. */
  drawFirst() {
    cancelAnimationFrame(this.pending);
    this.pending = 0;
    this.picture.draw();
    requestAnimationFrame(() => setTimeout(() => { this.map.draw(); this.tracks.draw(); }));
  }

  drawNow() {
    this.picture.draw();
    this.map.draw();
    this.tracks.draw();
  }

  /** What is shown, in words. */
  whereText() {
    const {picture, whole} = this;
    const {head} = whole;
    const inView = whole.stepsWithin(picture.from, picture.to);
    const steps = inView.length ? `steps ${head.steps.num[inView[0]]} to ${head.steps.num[inView[inView.length - 1]]}, ` : '';
    return `${steps}${durationText((picture.to - picture.from) * head.unit_ps)} from ` +
      `${durationText(Math.max(0, picture.from) * head.unit_ps)} on, of ${durationText(head.span * head.unit_ps)}`;
  }

  /** Show [from, to), never less than 20 units and never more than a little around everything.
   * @param {number} from @param {number} to */
  show(from, to) {
    const [low, high] = this.reach;
    const room = 0.02 * (high - low);
    const width = Math.min(Math.max(to - from, 20), high - low + 2 * room);
    const begin = Math.min(Math.max((from + to - width) / 2, low - room), high + room - width);
    this.place(begin, begin + width);
    this.follower?.follow(this);
  }

  /** Show [from, to) as it is. @param {number} from @param {number} to */
  place(from, to) {
    this.picture.from = from;
    this.picture.to = to;
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

  clear() {
    this.picture.range = null;
    this.picture.selected = -1;
    this.search.clear();
    this.panel.say();
    this.draw();
  }

  /** Measure [from, to). @param {number} from @param {number} to @param {number} line whose busy time is told
   * @param {boolean} isDone whether the range stays, so that its table is worth making */
  measure(from, to, line, isDone) {
    this.picture.range = [from, to];
    this.panel.measure(line, isDone);
    this.draw();
    if (isDone) this.follower?.measured(this, line);
  }

  measureView() {
    const {picture, whole} = this;
    const steps = whole.head.lines.findIndex((line) => line.steps);
    const line = picture.selected >= 0 ? picture.marks.lineOfRow[picture.marks.row[picture.selected]] : Math.max(steps, 0);
    this.measure(Math.max(picture.from, 0), Math.min(picture.to, whole.head.span), line, true);
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
    this.picture.query = this.search.query;
    this.draw();
  }

  /** @param {number} mark of the whole trace */
  goToMatch(mark) {
    const {picture, whole} = this;
    const {begin, end} = whole;
    const width = Math.max((end[mark] - begin[mark]) * 8, Math.min(picture.to - picture.from, whole.head.span / 50));
    const middle = (begin[mark] + end[mark]) / 2;
    this.show(middle - width / 2, middle + width / 2);
    this.select(picture.marks.sameAs(whole, mark));
  }

  /** @param {number} mark */
  select(mark) {
    const {picture} = this;
    picture.range = null;
    picture.selected = mark;
    if (mark >= 0) {
      const line = picture.marks.lineOfRow[picture.marks.row[mark]];
      if (picture.yOf(picture.marks.row[mark]) === null) { this.bands.reveal(line); this.relay(); }
      const y = picture.yOf(picture.marks.row[mark]);
      if (y !== null && !this.bands.pinned.has(line) && (y < picture.edge || y + ROW > this.canvas.clientHeight)) {
        this.lane.scrollTop += y - this.canvas.clientHeight / 2;
      }
    }
    this.panel.say();
    this.draw();
  }

  /** @param {string} text */
  note(text) { if (this.status) this.status.textContent = text; }
}
