// Lets a reader into a chart: dragging over a stretch of it shows that stretch alone, over a box of points that box; with
// the keyboard + and - and the arrows. Escape, a double click, or the button shows all again. Charts of names stay whole.

/** @typedef {[number, number]} Stretch */

const FEWEST = 6;  // pixels that are no click any more
const KEYS = 'drag, or + - ← →, to zoom; Esc shows all';

class Zoom {
  /** @param {Chart} chart */
  constructor(chart) {
    this.chart = chart;
    this.x = /** @type {Stretch | null} */ (null);  // what is shown; null for all
    this.y = /** @type {Stretch | null} */ (null);
    this.whole = /** @type {Stretch} */ ([0, 1]);
    this.byMouse = false;
  }

  get isIn() { return this.x !== null || this.y !== null; }
  /** Whether points lie freely, so that a box of them can be asked for. */
  get isFree() { return this.chart.figure.data.every((/** @type {any} */ t) => t.type === 'scatter' && !t.stackgroup && !t.fill); }

  /** Listens on a chart that was just drawn. @param {SVGElement} svg */
  attach(svg) {
    const {chart} = this;
    if (!chart.x || chart.x.isNamed) return;
    if (!this.x) this.whole = /** @type {Stretch} */ ([chart.x.low, chart.x.high]);
    svg.setAttribute('tabindex', '0');
    svg.setAttribute('aria-description', chart.parts.isAsked ? `${KEYS}; Enter tells the parts of a bar, ← → of the next` : KEYS);
    svg.style.userSelect = 'none';
    svg.style.outline = this.byMouse ? 'none' : '';
    svg.onpointerdown = (event) => { this.byMouse = true; svg.style.outline = 'none'; if (event.button === 0 && event.pointerType !== 'touch') this.drag(svg, event); };
    svg.ondblclick = () => this.show(null, null);
    svg.onkeydown = (event) => { this.byMouse = false; svg.style.outline = ''; if (this.press(event.key)) { event.preventDefault(); event.stopPropagation(); } };
    chart.place.style.position = 'relative';
    chart.place.onpointerenter = chart.place.onpointerleave = null;
    if (!this.isIn) {
      if (!chart.layout.title?.text) return;
      const hint = addElement('span', chart.place, 'position:absolute;right:0;top:8px;font-size:11px;visibility:hidden;opacity:.72', 'drag to zoom');
      hint.setAttribute('aria-hidden', 'true');
      chart.place.onpointerenter = () => { hint.style.visibility = ''; };
      chart.place.onpointerleave = () => { hint.style.visibility = 'hidden'; };
      return;
    }
    const button = addElement('button', chart.place, 'position:absolute;right:0;top:0;font:inherit;font-size:11px;' +
      'color:inherit;background:var(--jp-layout-color0,Canvas);border:1px solid ' + FAINT + ';border-radius:3px;padding:1px 6px;cursor:pointer', 'show all');
    button.onclick = () => this.show(null, null);
  }

  /** @param {SVGElement} svg @param {PointerEvent} first */
  drag(svg, first) {
    const {room} = this.chart, box = svg.getBoundingClientRect();
    const at = (/** @type {PointerEvent} */ e) => [Math.min(Math.max(e.clientX - box.left, room.left), room.right), Math.min(Math.max(e.clientY - box.top, room.top), room.bottom)];
    if (first.clientX < box.left + room.left - 2 || first.clientX > box.left + room.right + 2) return;
    const [x0, y0] = at(first);
    let [x1, y1] = [x0, y0];
    const mark = addShape(svg, 'rect', {fill: '#2489fd', opacity: 0.25, 'pointer-events': 'none', height: 0, width: 0});
    const isBox = () => this.isFree && Math.abs(y1 - y0) > 4 * FEWEST;
    const moved = (/** @type {PointerEvent} */ event) => {
      [x1, y1] = at(event);
      const isDrag = Math.abs(x1 - x0) > FEWEST;
      if (isDrag && !svg.hasPointerCapture(event.pointerId)) svg.setPointerCapture(event.pointerId);
      const [top, high] = isBox() ? [Math.min(y0, y1), Math.abs(y1 - y0)] : [room.top, room.bottom - room.top];
      for (const [name, value] of Object.entries({x: Math.min(x0, x1), y: top, width: isDrag ? Math.abs(x1 - x0) : 0, height: high})) mark.setAttribute(name, String(value));
    };
    const ended = (/** @type {PointerEvent} */ event) => {
      svg.removeEventListener('pointermove', moved);
      mark.remove();
      const {x, y} = this.chart;
      if (event.type !== 'pointerup' || !x || !y || Math.abs(x1 - x0) <= FEWEST) return;
      const ends = [y.value(y0), y.value(y1)];
      this.show([x.value(Math.min(x0, x1)), x.value(Math.max(x0, x1))], isBox() ? [Math.min(...ends), Math.max(...ends)] : this.y);
    };
    svg.addEventListener('pointermove', moved);
    for (const end of ['pointerup', 'pointercancel']) svg.addEventListener(end, /** @type {EventListener} */ (ended), {once: true});
  }

  /** Whether a key was meant for the chart. @param {string} key */
  press(key) {
    if (this.chart.parts.press(key)) return true;
    if (key === 'Escape' && this.isIn) { this.show(null, null); return true; }
    if (key === '+' || key === '=') { this.move(0.5, 0); return true; }
    const way = key === 'ArrowLeft' ? -0.25 : key === 'ArrowRight' ? 0.25 : 0;
    if (!this.x || (!way && key !== '-')) return false;
    this.move(way ? 1 : 2, way);
    return true;
  }

  /** Shows a stretch that is so much as long, and so much of its length further. @param {number} factor @param {number} way */
  move(factor, way) {
    const {x, room} = this.chart;
    if (!x) return;
    const wide = room.right - room.left, middle = room.left + wide * (0.5 + way), half = wide * factor / 2;
    let [from, to] = [middle - half, middle + half];
    const ends = this.whole.map(x.at);
    if (from < ends[0]) [from, to] = [ends[0], ends[0] + to - from];
    if (to > ends[1]) [from, to] = [Math.max(ends[1] - (to - from), ends[0]), ends[1]];
    this.show([x.value(from), x.value(to)], this.y);
  }

  /** @param {Stretch | null} x @param {Stretch | null} y */
  show(x, y) {
    const {chart, whole} = this;
    const span = whole[1] - whole[0];
    if (x && x[1] - x[0] < span * 1e-4) return;
    if (x && x[0] <= whole[0] + span * 1e-6 && x[1] >= whole[1] - span * 1e-6) x = null;
    [this.x, this.y] = [x, y];
    chart.draw();
  }
}
