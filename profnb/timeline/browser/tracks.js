// Sampled quantities below the lanes, on the same time axis: memory in use, elements in buffers. Between samples the last
// one holds; before the first and after the last of what is not held, nothing is drawn.

const TRACK = 34;
const FIRST_TRACKS = 4;

/** @param {number} value @param {string} unit */
function amountText(value, unit) {
  if (unit === 'bytes') return bytesText(value);
  const text = Number.isInteger(value) ? countText(value) : fixedText(value, Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2);
  return unit ? `${text} ${unit}` : text;
}

class Tracks {
  /** @param {Element} parent @param {Viewer} viewer */
  constructor(parent, viewer) {
    this.viewer = viewer;
    /** @type {Set<number>} */
    this.hidden = new Set();
    viewer.whole.head.tracks.forEach((_, index) => { if (index >= FIRST_TRACKS) this.hidden.add(index); });
    this.canvas = addElement('canvas', parent, 'display:block;width:100%;margin-top:3px');
    this.canvas.setAttribute('role', 'img');
    /** @type {number | null} */
    this.pointed = null;
    this.canvas.addEventListener('pointermove', (event) => {
      this.pointed = event.offsetX;
      this.canvas.title = viewer.whole.head.tracks[this.shown[Math.floor(event.offsetY / TRACK)]]?.title || '';
      viewer.draw();
    });
    this.canvas.addEventListener('pointerleave', () => { this.pointed = null; viewer.draw(); });
    this.colours = ['#3d85d1', '#9068c4', '#3a9a5d', '#c2702f'];
    this.resize();
  }

  get shown() { return this.viewer.whole.head.tracks.map((_, index) => index).filter((index) => !this.hidden.has(index)); }

  get height() { return this.shown.length * TRACK; }

  resize() {
    const {tracks} = this.viewer.whole.head;
    this.canvas.style.display = this.shown.length ? 'block' : 'none';
    this.canvas.style.height = `${this.height}px`;
    const text = this.shown.map((index) => `${tracks[index].title}: ${amountText(tracks[index].least, tracks[index].unit)} to ` +
      amountText(tracks[index].largest, tracks[index].unit));
    this.canvas.setAttribute('aria-label', text.join('; '));
  }

  /** Least and most of a track in [from, to), in words; '' where it has no sample. @param {number} index
   * @param {number} from @param {number} to */
  rangeText(index, from, to) {
    const {marks} = this.viewer.picture;
    const track = marks.tracks[index];
    const first = Math.max(marks.sampleAt(track, from), 0);
    let least = Infinity;
    let most = -Infinity;
    for (let s = first; s < track.time.length && track.time[s] < to; s++) {
      const value = marks.valueOf(track, s);
      if (value < least) least = value;
      if (value > most) most = value;
    }
    if (least > most) return '';
    const {title, unit} = track.head;
    return least === most ? `${title} ${amountText(most, unit)}` : `${title} ${amountText(least, unit)} to ${amountText(most, unit)}`;
  }

  draw() {
    const {canvas, viewer} = this;
    const {picture} = viewer;
    const ratio = window.devicePixelRatio || 1;
    const {clientWidth, clientHeight} = canvas;
    if (!clientWidth || !clientHeight) return;
    const width = Math.round(clientWidth * ratio);
    const height = Math.round(clientHeight * ratio);
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, clientWidth, clientHeight);
    context.textBaseline = 'middle';
    this.shown.forEach((index, place) => this.drawTrack(context, index, place * TRACK));
    if (picture.range) {
      const [x0, x1] = picture.range.map((time) => Math.max(picture.xOf(time), picture.labelWidth));
      context.fillStyle = picture.colour;
      context.globalAlpha = 0.12;
      context.fillRect(x0, 0, x1 - x0, clientHeight);
      context.globalAlpha = 1;
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {number} index @param {number} top */
  drawTrack(context, index, top) {
    const {picture} = this.viewer;
    const {marks, labelWidth, plotWidth} = picture;
    const track = marks.tracks[index];
    const {head} = track;
    const low = Math.min(head.least, 0);
    const range = Math.max(head.largest, 0) - low || 1;
    const bottom = top + TRACK - 4;
    /** @param {number} value */
    const yOf = (value) => bottom - (value - low) / range * (TRACK - 8);
    const colour = this.colours[index % this.colours.length];
    // Of all samples that one pixel holds, the most; what stood at its left edge counts as well.
    let sample = marks.sampleAt(track, picture.from);
    const perPixel = (picture.to - picture.from) / plotWidth;
    const until = head.held ? marks.head.span : track.time[track.time.length - 1];
    const area = new Path2D();
    const edge = new Path2D();
    let before = NaN;
    let x = 0;
    /** @param {number} y where the next stretch of pixels stands, or NaN for none */
    const step = (y) => {
      if (y === before || (Number.isNaN(y) && Number.isNaN(before))) return;
      const at = labelWidth + x;
      if (Number.isNaN(before)) { area.moveTo(at, bottom); edge.moveTo(at, y); } else { area.lineTo(at, before); edge.lineTo(at, before); }
      if (Number.isNaN(y)) area.lineTo(at, bottom); else { area.lineTo(at, y); edge.lineTo(at, y); }
      before = y;
    };
    for (; x < plotWidth; x++) {
      const to = picture.from + (x + 1) * perPixel;
      let value = sample >= 0 && picture.from + x * perPixel <= until ? marks.valueOf(track, sample) : NaN;
      while (sample + 1 < track.time.length && track.time[sample + 1] < to) {
        const next = marks.valueOf(track, ++sample);
        if (!(value >= next)) value = next;
      }
      step(Number.isNaN(value) ? NaN : yOf(value));
    }
    step(NaN);
    context.fillStyle = context.strokeStyle = colour;
    context.globalAlpha = 0.45;
    context.fill(area);
    context.globalAlpha = 1;
    context.lineWidth = 1.5;
    context.stroke(edge);
    this.drawLabel(context, track, top);
  }

  /** Its name, and what it is where the pointer is, or the most. @param {CanvasRenderingContext2D} context
   * @param {Track} track @param {number} top */
  drawLabel(context, track, top) {
    const {picture} = this.viewer;
    const {marks, labelWidth} = picture;
    const {label, unit, largest} = track.head;
    let said = `up to ${amountText(largest, unit)}`;
    if (this.pointed !== null && this.pointed >= labelWidth) {
      const sample = marks.sampleAt(track, picture.timeAt(this.pointed));
      said = sample < 0 ? 'no sample yet' : `${amountText(marks.valueOf(track, sample), unit)} here`;
    }
    context.fillStyle = picture.colour;
    context.font = `12px ${picture.font}`;
    context.fillText(shortened(label, Math.floor((labelWidth - 24) / 6.4)), 16, top + 11);
    context.font = `11px ${picture.font}`;
    context.globalAlpha = 0.72;
    context.fillText(said, 16, top + 25);
    context.globalAlpha = 0.14;
    context.fillRect(0, top + TRACK - 1, this.canvas.clientWidth, 1);
    context.globalAlpha = 1;
  }
}
