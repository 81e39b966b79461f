// The whole trace in one strip above the lanes, with a window on what is shown: dragged, clicked, or moved by keys.

const MAP_ROW = 4;
const MOST_MAP_ROWS = 7;

class Minimap {
  /** @param {Element} parent @param {Viewer} viewer */
  constructor(parent, viewer) {
    this.viewer = viewer;
    this.canvas = addElement('canvas', parent, 'display:block;width:100%;margin-bottom:3px;outline-offset:-2px;cursor:grab;touch-action:none');
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'slider');
    this.canvas.setAttribute('aria-label', 'what is shown of the whole trace');
    this.canvas.setAttribute('aria-valuemin', '0');
    this.canvas.setAttribute('aria-valuemax', '100');
    this.still = document.createElement('canvas');
    this.drawnFor = '';
    const {head} = viewer.whole;
    const told = head.lines.map((line, index) => ({line, index})).filter(({line}) => !line.derived);
    this.lines = told.slice(0, MOST_MAP_ROWS).map(({index}) => index);
    this.height = 12 + this.lines.length * MAP_ROW + 2;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.addEventListener('pointerdown', (event) => this.press(event));
  }

  get left() { return this.viewer.picture.labelWidth; }
  get width() { return this.viewer.picture.plotWidth; }

  /** @param {number} x @returns {number} */
  timeAt(x) { return (x - this.left) / this.width * this.viewer.whole.head.span; }

  /** @param {PointerEvent} event */
  press(event) {
    const {viewer, canvas} = this;
    const {picture} = viewer;
    const half = (picture.to - picture.from) / 2;
    const time = this.timeAt(event.offsetX);
    const isInside = time >= picture.from && time <= picture.to;
    const offset = isInside ? (picture.from + picture.to) / 2 - time : 0;
    /** @param {PointerEvent} now */
    const move = (now) => {
      const middle = this.timeAt(now.offsetX) + offset;
      viewer.show(middle - half, middle + half);
    };
    if (!isInside) move(event);
    canvas.setPointerCapture(event.pointerId);
    canvas.addEventListener('pointermove', move);
    canvas.addEventListener('pointerup', () => canvas.removeEventListener('pointermove', move), {once: true});
  }

  /** The strip without the window, drawn once for each size. @param {number} ratio */
  drawStill(ratio) {
    const {still, viewer} = this;
    const {whole, picture} = viewer;
    const key = [this.canvas.width, this.canvas.height, picture.colour, ratio, picture.query?.text].join();
    if (key === this.drawnFor) return;
    this.drawnFor = key;
    still.width = this.canvas.width;
    still.height = this.canvas.height;
    const context = /** @type {CanvasRenderingContext2D} */ (still.getContext('2d'));
    const left = Math.round(this.left * ratio);
    const columns = Math.max(1, Math.round(this.width * ratio));
    const image = context.createImageData(columns, still.height);
    const target = new Uint32Array(image.data.buffer);
    this.lines.forEach((line, index) => {
      const pixels = picture.rowPixels(whole, whole.head.lines[line].row, 0, whole.head.span, columns);
      const y0 = Math.round((12 + index * MAP_ROW) * ratio);
      for (let y = y0; y < y0 + Math.round((MAP_ROW - 1) * ratio); y++) target.set(pixels, y * columns);
    });
    context.putImageData(image, left, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = picture.colour;
    const {begin, end, warm} = whole.head.steps;
    const scale = this.width / whole.head.span;
    let drawn = -1e9;
    for (let s = 0; s < begin.length; s++) {
      const x = this.left + begin[s] * scale;
      if (x < drawn + 1) continue;  // closer than a pixel
      drawn = x;
      context.globalAlpha = warm[s] ? 0.15 : s % 2 ? 0.5 : 0.32;
      context.fillRect(x, 2, Math.max((end[s] - begin[s]) * scale - 0.5, 0.5), 7);
    }
    context.globalAlpha = 0.72;
    context.font = `11px ${picture.font}`;
    context.textBaseline = 'middle';
    context.fillText(`whole: ${durationText(whole.length * whole.head.unit_ps)}`, 16, this.height / 2);
  }

  draw() {
    const {canvas, viewer} = this;
    const {picture, whole} = viewer;
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * ratio);
    const height = Math.round(this.height * ratio);
    if (!width) return;
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    this.drawStill(ratio);
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, width, height);
    context.drawImage(this.still, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const {span} = whole.head;
    const x0 = this.left + Math.max(0, picture.from / span) * this.width;
    const x1 = Math.max(this.left + Math.min(1, picture.to / span) * this.width, x0 + 3);
    context.fillStyle = picture.colour;
    context.globalAlpha = 0.13;
    context.fillRect(this.left, 0, x0 - this.left, this.height);
    context.fillRect(x1, 0, this.left + this.width - x1, this.height);
    context.globalAlpha = 0.8;
    context.strokeStyle = picture.colour;
    context.lineWidth = 1.5;
    context.strokeRect(x0, 0.75, x1 - x0, this.height - 1.5);
    context.globalAlpha = 1;
    canvas.setAttribute('aria-valuenow', String(Math.round((picture.from + picture.to) / 2 / span * 100)));
    canvas.setAttribute('aria-valuetext', viewer.whereText());
  }
}
