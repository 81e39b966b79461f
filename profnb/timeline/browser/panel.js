// What the viewer says beside the lanes, above them on a narrow page: details of an event, a measured range, what a search
// found, the keys.

const HELP = [
  ['W  S', 'zoom in, out (also Ctrl + wheel, pinch)'], ['A  D', 'move left, right (also Shift + wheel, Shift + drag)'],
  ['Home  End', 'the begin, the end'], ['drag', 'measure a range'], ['click', 'details; launch and kernel are joined'], ['double click', 'zoom to an event'],
  ['[  ]', 'previous, next step'], ['/', 'search'], ['Enter N  P', 'next, next, previous match'], ['M', 'zoom to the range'],
  ['0', 'everything'], ['R', 'measure what is shown'], ['Esc', 'clear'], ['click a name', 'fold or unfold its rows'], ['O', 'fold or unfold the rows of the selected event'], ['G', 'show or fold frames of frameworks'],
  ['↑ ↓  , .', 'select the event above, below, before, after'], ['L', 'hide and pin lanes'], ['F', 'full height'],
  ['search', 'words; >2ms <50us for how long; step:4; lane:gpu'],
];

const MOST_FOUND = 50;
const LONGEST_FOUND = 24;  // characters

class Panel {
  /** @param {Element} parent @param {Viewer} viewer */
  constructor(parent, viewer) {
    this.viewer = viewer;
    this.picture = viewer.picture;
    this.helps = false;
    this.parent = parent;
    this.beside = 0;
    this.box = addElement('div', parent, 'overflow:auto;position:sticky;top:0;overflow-wrap:anywhere;box-sizing:border-box;padding:2px;outline-offset:-2px');
    this.box.tabIndex = 0;
    this.box.setAttribute('role', 'region');
    this.box.setAttribute('aria-label', 'details');
    this.element = addElement('div', this.box, '');
    this.element.setAttribute('aria-live', 'polite');
    this.found = addElement('div', this.box, '');
  }

  /** Take the room there is: beside the lanes so high, or above them, where what is pointed at must not move them.
   * @param {number} beside in pixels, or 0; as before by default */
  fit(beside = this.beside) {
    this.beside = beside;
    const isLong = this.helps || this.viewer.search.query || this.picture.range;
    const height = beside || (isLong ? ABOVE_WITH_TABLE : ABOVE);
    this.parent.setAttribute('style', beside ? 'flex:0 0 clamp(260px,36%,430px);min-width:0' : '');
    this.box.style[beside ? 'maxHeight' : 'height'] = `${height}px`;
    this.box.style[beside ? 'height' : 'maxHeight'] = '';
  }

  /** What a search found: how many, how long in all and on average, and the longest. */
  sayFound() {
    const {found, viewer} = this;
    const {search, whole} = viewer;
    found.textContent = '';
    this.fit();
    if (!search.query) return;
    const {head, begin, end, step, row, name, lineOfRow} = whole;
    const alone = search.found.filter((mark) => whole.occurrences[mark] === 1);
    /** @param {number} mark */
    const length = (mark) => (end[mark] - begin[mark]) * head.unit_ps;
    const total = alone.reduce((sum, mark) => sum + length(mark), 0);
    const summary = addElement('div', found, 'margin-top:6px');
    addElement('b', summary, '', alone.length === 1 ? '1 match' : `${countText(alone.length)} matches`);
    const times = alone.length ? ` · ${durationText(total)} in all · ${durationText(total / alone.length)} on average` : ` among ${countText(head.events)} events`;
    addElement('span', summary, '', `${times} ${search.inside}`);
    if (!alone.length) return;
    const longest = alone.sort((a, b) => length(b) - length(a)).slice(0, MOST_FOUND);
    /** @param {number} mark */
    const stepOf = (mark) => step[mark] ? head.steps.num[step[mark] - 1] : -1;
    /** Names of ops begin alike and end differently; those of kernels do not. @param {number} mark */
    const shortOf = (mark) => {
      const functor = functorOf(head.names[name[mark]]);
      const isPath = functor.includes('/') && functor.length > LONGEST_FOUND;
      return isPath ? `…${functor.slice(1 - LONGEST_FOUND)}` : shortened(functor, LONGEST_FOUND);
    };
    const table = new RangeTable(found, longest, [
      {heading: 'longest', title: 'name; a click goes there', isNumber: false, of: (mark) => head.names[name[mark]], text: shortOf},
      {heading: 'time', title: 'how long it took', isNumber: true, of: length, text: (mark) => durationText(length(mark))},
      {heading: 'step', title: 'in which step', isNumber: true, of: stepOf, text: (mark) => stepOf(mark) < 0 ? '' : String(stepOf(mark))},
      {heading: 'lane', title: 'on which thread or stream', isNumber: false, of: (mark) => head.lines[lineOfRow[row[mark]]].label, text: (mark) => head.lines[lineOfRow[row[mark]]].label},
    ], 1, (mark) => search.goToFound(mark));
    table.box.setAttribute('aria-label', 'the longest matches');
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
      addElement('span', element, 'opacity:.72', 'Point at an event for its name. Click for details, drag to measure, press ? for keys.');
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
    this.fit();
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
    this.fit();
    this.element.textContent = '';
    if (!this.helps) { this.say(); return; }
    const list = addElement('div', this.element, 'display:grid;grid-template-columns:repeat(auto-fill,minmax(250px,1fr));gap:2px 18px');
    for (const [keys, what] of HELP) {
      const item = addElement('div', list, 'display:flex');
      addElement('b', item, 'flex:none;width:100px', keys);
      addElement('span', item, '', what);
    }
  }
}
