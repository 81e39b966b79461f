// Draws the visible part of a timeline into a canvas: each row as a line of pixels, so that a million
// marks cost no more than the pixels they fall on.

const RULER = 40;

class Picture {
  /** @param {HTMLCanvasElement} canvas @param {Marks} marks @param {Bands} bands */
  constructor(canvas, marks, bands) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    this.marks = marks;
    this.from = 0;
    this.to = marks.head.span;
    this.scroll = 0;
    this.bands = bands;
    this.width = 0;  // asked once a drawing: each time costs a layout
    this.colour = '#888';
    this.font = 'sans-serif';
    /** Of names in that font. @type {Map<string, number>} */
    this.widths = new Map();
    /** The time that the ruler calls 0. */
    this.zero = 0;
    /** @type {Query | null} */
    this.query = null;
    this.selected = -1;
    this.hovered = -1;
    /** @type {[number, number] | null} */
    this.range = null;
    // Neighbours of one category are told apart by five shades, chosen by name.
    this.shades = [0.8, 0.87, 0.93, 0.98, 1.04];
    this.pixels = marks.head.categories.map(([, hex]) =>
      [255, 150, 60].map((alpha) => this.shades.map((shade) => pixelOf(hex, shade, alpha))));
    this.inks = this.pixels.map(([full]) => full.map(inkOn));
  }

  get labelWidth() { return this.width < 560 ? 92 : 168; }
  get plotWidth() { return Math.max(50, this.width - this.labelWidth); }

  /** @param {number} time @returns {number} */
  xOf(time) { return this.labelWidth + (time - this.from) / (this.to - this.from) * this.plotWidth; }
  /** @param {number} x @returns {number} */
  timeAt(x) { return this.from + (x - this.labelWidth) / this.plotWidth * (this.to - this.from); }
  /** Where what scrolls begins. */
  get edge() { return RULER + this.bands.pinnedHeight; }
  /** @param {Band} band @returns {number} */
  topOf(band) { return RULER + band.top - (band.pinned ? 0 : this.scroll); }
  /** The top of a row on the canvas, or null where it is not shown. @param {number} row */
  yOf(row) {
    const line = this.marks.lineOfRow[row];
    const band = this.bands.ofLine[line];
    const depth = row - this.marks.head.lines[line].row;
    return band && depth < band.rows ? this.topOf(band) + depth * ROW : null;
  }
  /** The band at a height, and the row or -1. @param {number} y */
  placeAt(y) {
    const inPinned = y < this.edge;
    for (const band of this.bands.bands) {
      const top = this.topOf(band);
      if (band.pinned === inPinned && y >= top && y < top + band.rows * ROW + LINE_GAP) {
        const depth = Math.floor((y - top) / ROW);
        return {band, line: band.line, row: depth < band.rows && !band.group ? this.marks.head.lines[band.line].row + depth : -1};
      }
    }
    return null;
  }

  /** The marks under a point: [first, after the last], at least three pixels around it.
   * @param {number} x @param {number} y */
  marksAt(x, y) {
    if (y < RULER || x < this.labelWidth) return null;
    const place = this.placeAt(y);
    if (!place || place.row < 0) return null;
    for (const slack of [0.5, 2]) {
      const [first, last] = this.marks.within(place.row, this.timeAt(x - slack), this.timeAt(x + slack));
      if (last > first) return [first, last];
    }
    return null;
  }

  draw() {
    const {canvas, context} = this;
    const ratio = window.devicePixelRatio || 1;
    const width = this.width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!width || !height) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const style = getComputedStyle(canvas);
    if (this.colour !== style.color) {
      this.colour = style.color;
      // Lists of choices and scrollbars as dark as the notebook, which need not tell the browser that it is.
      const [red, green, blue] = (style.color.match(/[\d.]+/g) ?? []).map(Number);
      const root = /** @type {HTMLElement | null} */ (canvas.closest('.profnb-timeline'));
      if (root) root.style.colorScheme = red * 0.3 + green * 0.6 + blue * 0.1 > 127 ? 'dark' : 'light';
    }
    if (this.font !== style.fontFamily) { this.font = style.fontFamily; this.widths.clear(); }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    this.drawRows(ratio, height);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.textBaseline = 'middle';
    for (const pinned of [false, true]) {
      const top = pinned ? RULER : this.edge;
      context.save();
      context.beginPath();
      context.rect(0, top, width, pinned ? this.edge - RULER : height - top);
      context.clip();
      this.drawNames(height, pinned);
      this.drawLabels(height, pinned);
      context.restore();
    }
    context.save();
    context.beginPath();
    context.rect(this.labelWidth, RULER, width, height);
    context.clip();
    this.drawFlow();
    this.drawSelection(height);
    context.restore();
    drawSteps(this, height);
    drawRuler(this, width);
  }

  /** The rows that are on the canvas: [row, top, where it may begin]. @param {number} height
   * @param {boolean} [pinned] only these @returns {[number, number, number][]} */
  visibleRows(height, pinned) {
    /** @type {[number, number, number][]} */
    const rows = [];
    for (const band of this.bands.bands) {
      if (band.group || (pinned !== undefined && band.pinned !== pinned)) continue;
      const edge = band.pinned ? RULER : this.edge;
      for (let depth = 0; depth < band.rows; depth++) {
        const top = this.topOf(band) + depth * ROW;
        if (top + ROW > edge && top < height) rows.push([this.marks.head.lines[band.line].row + depth, top, edge]);
      }
    }
    return rows;
  }

  /** One row of a stretch of time as pixels. @param {Marks} marks @param {number} row @param {number} from
   * @param {number} to @param {number} columns @returns {Uint32Array} */
  rowPixels(marks, row, from, to, columns) {
    const line = new Uint32Array(columns);
    const scale = columns / (to - from);
    const flags = this.query && this.query.flagsOf(marks);
    let [mark, last] = marks.within(row, from, to);
    for (; mark < last; mark++) {
      const begin = Math.max(0, Math.floor((marks.begin[mark] - from) * scale));
      const end = Math.min(columns, Math.ceil((marks.end[mark] - from) * scale));
      const fade = flags && !flags[mark] ? 2 : marks.occurrences[mark] > 1 ? 1 : 0;
      const pixel = this.pixels[marks.category[mark]][fade][marks.name[mark] * 7 % 5];
      // A gap of one pixel after what is wide enough tells neighbours apart.
      const until = Math.max(begin + 1, end - begin > 3 ? end - 1 : end);
      for (let x = begin; x < until; x++) line[x] = pixel;
      if (end - begin <= 1 && !flags) {  // on to the first mark that reaches the next pixel
        const next = marks.firstAfter(row, from + (begin + 1) / scale);
        if (next > mark + 1) mark = Math.min(next, last) - 1;
      }
    }
    return line;
  }

  /** @param {number} ratio @param {number} height */
  drawRows(ratio, height) {
    const left = Math.round(this.labelWidth * ratio);
    const columns = this.canvas.width - left;
    const image = this.context.createImageData(columns, this.canvas.height);
    const target = new Uint32Array(image.data.buffer);
    const thickness = Math.round((ROW - 2) * ratio);
    for (const [row, top, edge] of this.visibleRows(height)) {
      const line = this.rowPixels(this.marks, row, this.from, this.to, columns);
      const y0 = Math.max(Math.round(top * ratio), Math.round(edge * ratio));
      const y1 = Math.min(Math.round(top * ratio) + thickness, this.canvas.height);
      for (let y = y0; y < y1; y++) target.set(line, y * columns);
    }
    this.context.putImageData(image, left, 0);
  }

  /** How many characters of a name fit into a width, at the width that its characters have on average.
   * @param {string} name @param {number} width */
  roomFor(name, width) {
    let full = this.widths.get(name);
    if (full === undefined) {
      full = this.context.measureText(name).width;
      this.widths.set(name, full);
    }
    return full <= width ? name.length : Math.floor(name.length * width / full);
  }

  /** @param {number} height @param {boolean} pinned */
  drawNames(height, pinned) {
    const {context, marks} = this;
    context.font = `11px ${this.font}`;
    const scale = this.plotWidth / (this.to - this.from);
    const flags = this.query && this.query.flagsOf(marks);
    for (const [row, top] of this.visibleRows(height, pinned)) {
      const [first, last] = marks.within(row, this.from, this.to);
      if (last - first > 20000) continue;  // none of so many is wide enough
      for (let m = first; m < last; m++) {
        if ((marks.end[m] - marks.begin[m]) * scale < 30) continue;
        const x0 = Math.max(this.xOf(marks.begin[m]), this.labelWidth);
        const x1 = Math.min(this.xOf(marks.end[m]), this.labelWidth + this.plotWidth);
        const isBlock = marks.occurrences[m] > 1;
        const width = x1 - x0 - 7;
        let name = isBlock ? `${countText(marks.occurrences[m])} events` : marks.head.names[marks.name[m]];
        let room = this.roomFor(name, width);
        if (isBlock && name.length > room) { name = `${marks.occurrences[m]}×`; room = this.roomFor(name, width); }
        if (!isBlock && name.length > room) { name = functorOf(name); room = this.roomFor(name, width); }
        if (room < 3) continue;
        context.fillStyle = isBlock ? this.colour : this.inks[marks.category[m]][marks.name[m] * 7 % 5];
        context.globalAlpha = flags && !flags[m] ? 0.35 : 1;
        context.fillText(shortened(name, room), x0 + 4, top + ROW / 2 - 0.5, width);
      }
    }
    context.globalAlpha = 1;
  }

  /** @param {number} height @param {boolean} pinned */
  drawLabels(height, pinned) {
    const {context, marks, labelWidth} = this;
    context.font = `12px ${this.font}`;
    const room = Math.floor((labelWidth - 24) / 6.4);
    const edge = pinned ? RULER : this.edge;
    for (const band of this.bands.bands) {
      const top = this.topOf(band);
      if (band.pinned !== pinned || top + band.rows * ROW < edge || top > height) continue;
      const y = Math.max(top, edge) + ROW / 2 - 1;
      if (y > top + band.rows * ROW) continue;
      context.fillStyle = this.colour;
      if (band.group || marks.rowsOf(band.line) > 1) {
        const isOpen = band.group ? this.bands.opened.has(band.group) : !this.bands.folded.has(band.line);
        context.globalAlpha = 0.7;
        context.beginPath();
        if (isOpen) { context.moveTo(3, y - 3); context.lineTo(11, y - 3); context.lineTo(7, y + 3); }
        else { context.moveTo(4, y - 4); context.lineTo(10, y); context.lineTo(4, y + 4); }
        context.fill();
      }
      context.globalAlpha = band.group ? 0.72 : 1;
      context.fillText(shortened(this.bands.labelOf(band), room), 16, y);
      context.globalAlpha = 0.14;
      context.fillRect(0, top + band.rows * ROW + 1, this.canvas.clientWidth, 1);
      if (pinned) { context.globalAlpha = 0.05; context.fillRect(0, top, this.canvas.clientWidth, band.rows * ROW); }
    }
    context.globalAlpha = 1;
  }

  drawFlow() {
    if (this.selected < 0) return;
    const {context, marks} = this;
    const y0 = this.yOf(marks.row[this.selected]);
    if (y0 === null) return;
    context.strokeStyle = this.colour;
    context.lineWidth = 1.5;
    for (const other of marks.flowsOf(this.selected)) {
      const y1 = this.yOf(marks.row[other]);
      if (y1 === null) continue;
      const [from, to] = marks.begin[other] > marks.begin[this.selected] ? [this.selected, other] : [other, this.selected];
      const [ya, yb] = from === other ? [y1, y0] : [y0, y1];
      const xa = this.xOf(marks.begin[from]);
      const xb = this.xOf(marks.begin[to]);
      context.beginPath();
      context.moveTo(xa, ya + ROW / 2);
      context.bezierCurveTo((xa + xb) / 2, ya + ROW / 2, (xa + xb) / 2, yb + ROW / 2, xb, yb + ROW / 2);
      context.stroke();
    }
  }

  /** @param {number} height */
  drawSelection(height) {
    const {context, marks} = this;
    context.strokeStyle = this.colour;
    for (const [mark, weight] of [[this.hovered, 1], [this.selected, 2]]) {
      if (mark < 0) continue;
      const y = this.yOf(marks.row[mark]);
      if (y === null || y + ROW < RULER) continue;
      const x0 = Math.max(this.xOf(marks.begin[mark]), this.labelWidth);
      const x1 = Math.min(this.xOf(marks.end[mark]), this.labelWidth + this.plotWidth);
      if (x1 < this.labelWidth || x0 > this.labelWidth + this.plotWidth) continue;
      context.lineWidth = weight;
      context.strokeRect(x0 - 0.5, y - 0.5, Math.max(x1 - x0, 2), ROW - 1);
    }
    if (this.range) {
      const [x0, x1] = this.range.map((time) => this.xOf(time));
      context.fillStyle = this.colour;
      context.globalAlpha = 0.12;
      context.fillRect(x0, RULER, x1 - x0, height);
      context.globalAlpha = 0.8;
      context.fillRect(x0, RULER, 1, height);
      context.fillRect(x1, RULER, 1, height);
      context.globalAlpha = 1;
    }
  }
}
