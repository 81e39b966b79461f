// More detail than the page holds, from the kernel where there is one.

const MORE_DETAIL = 'zooming in loads every event from the kernel';

class Detail {
  /** @param {Viewer} viewer */
  constructor(viewer) {
    this.viewer = viewer;
    /** @type {DetailSource | null} */
    this.source = null;
    /** @type {{from: number, to: number, marks: Marks} | null} */
    this.loaded = null;
    this.waiting = 0;
  }

  /** Use the detail that was loaded where the view lies inside it, else the whole; ask for more when still. */
  use() {
    const {viewer, loaded} = this;
    const {picture} = viewer;
    const fits = loaded && picture.from >= loaded.from && picture.to <= loaded.to;
    const marks = fits ? viewer.folded(loaded.marks) : viewer.whole;
    if (marks !== picture.marks) this.exchange(marks);
    if (!this.source) return;
    clearTimeout(this.waiting);
    if (!fits) this.waiting = window.setTimeout(() => this.load(), 180);
  }

  /** @param {Marks} marks */
  exchange(marks) {
    const {picture} = this.viewer;
    picture.selected = marks.sameAs(picture.marks, picture.selected);
    picture.hovered = -1;
    picture.marks = marks;
    this.viewer.markMatches();
  }

  async load() {
    const {viewer, source} = this;
    const {head} = viewer.whole;
    const {from, to, plotWidth} = viewer.picture;
    const pixel = (to - from) / plotWidth;
    if (!source || !head.merged || head.resolution_ps / head.unit_ps < pixel) return;  // nothing to gain
    const margin = (to - from) / 2;
    const window = {from: Math.floor(from - margin), to: Math.ceil(to + margin)};
    viewer.note('loading detail …');
    const reply = await source.ask(`window ${window.from} ${window.to}`);
    viewer.note(reply ? MORE_DETAIL : '');
    if (!reply) return;
    this.loaded = {...window, marks: await readMarks(reply)};
    this.use();
    viewer.panel.say();
    viewer.draw();
  }

  /** @param {number} mark */
  async askStats(mark) {
    const {picture, panel} = this.viewer;
    const {marks} = picture;
    if (!this.source || marks.head.details[mark] || marks.occurrences[mark] > 1) return;
    const row = (marks.recordedRow ?? marks.row)[mark];
    const text = await this.source.ask(`event ${row} ${marks.begin[mark]}`);
    if (text) marks.head.details[mark] = text;
    if (picture.selected === mark && picture.marks === marks) panel.say();
  }
}
