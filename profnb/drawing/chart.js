// Draws the charts of a report as inline SVG, from the same values that plotly is given: bars (stacked, or laid by hand),
// lines, areas and points on linear, logarithmic or named axes. As wide as the place they stand in, and drawn again when
// that changes. All text goes in through textContent: names in a trace are data.

class Chart {
  /** @param {HTMLElement} place @param {any} figure @param {(data: any) => void} follow what a click on a mark does */
  constructor(place, figure, follow) {
    this.place = place;
    this.figure = figure;
    this.follow = follow;
    this.layout = figure.layout || {};
    this.width = 0;
    this.room = {left: 0, right: 0, top: 0, bottom: 0};
    this.stacks = /** @type {[number, number][][]} */ ([]);
    this.svg = /** @type {SVGElement | null} */ (null);
    this.parts = new BarParts(this);
    this.zoom = new Zoom(this);
    new ResizeObserver(() => this.fit()).observe(place);
    this.fit();
  }

  fit() {
    const width = Math.floor(this.place.clientWidth);
    if (width < 40 || width === this.width) return;
    this.width = width;
    this.draw();
  }

  draw() {
    const {layout, place, width} = this;
    const isHeld = document.activeElement !== null && place.contains(document.activeElement);
    place.replaceChildren();
    if (layout.title?.text) addElement('div', place, 'font-weight:600;margin:8px 0 2px', plainText(layout.title.text));
    const traces = this.figure.data;
    const named = traces.filter((/** @type {any} */ t) => t.name && t.showlegend !== false);
    if (layout.showlegend !== false && (named.length > 1 || layout.showlegend)) this.legend(named);
    const margin = {l: 56, r: 12, t: 8, b: 30, ...layout.margin};
    margin.t = layout.title || layout.legend ? 8 : margin.t;
    const height = Math.max((layout.height || 260) - ((layout.margin?.t ?? margin.t) - margin.t), 24);
    if (layout.yaxis?.automargin && layout.yaxis.ticktext) {
      const longest = Math.max(...layout.yaxis.ticktext.map((/** @type {string} */ t) => plainText(t).length));
      margin.l = Math.min(longest * LETTER + 14, width * 0.4);
    } else if (layout.yaxis?.automargin) margin.l = 64;
    const svg = addShape(place, 'svg', {width, height, role: 'img', 'aria-label': plainText(layout.title?.text || layout.meta || 'chart'), style: 'display:block;overflow:visible', 'font-size': 11, fill: 'currentColor'});
    this.svg = svg;
    this.room = {left: margin.l, right: width - margin.r, top: margin.t, bottom: height - margin.b};
    this.stacks = this.stack(traces);
    this.x = makeAxis(this.figure, this.stacks, 'x', this.room.left, this.room.right, Math.max(3, Math.round(width / 110)), this.zoom.x);
    this.y = makeAxis(this.figure, this.stacks, 'y', this.room.bottom, this.room.top, Math.max(2, Math.round(height / 60)), this.zoom.y);
    this.frame();
    if (this.zoom.isIn) this.cut();
    traces.forEach((/** @type {any} */ trace, /** @type {number} */ at) => trace.type === 'bar' ? this.bars(trace, at) : this.scatter(trace, at));
    this.marginalia();
    if (!traces.some((/** @type {any} */ t) => t.orientation === 'h')) this.columns(traces);
    this.svg = svg;
    this.zoom.attach(svg);
    this.parts.draw();
    if (isHeld) svg.focus({preventScroll: true});
  }

  /** What is drawn from here on ends at the frame. */
  cut() {
    const {svg, room} = this, wide = room.right - room.left, high = room.bottom - room.top;
    if (svg) this.svg = addShape(svg, 'svg', {x: room.left, y: room.top, width: wide, height: high, viewBox: `${room.left} ${room.top} ${wide} ${high}`, style: 'overflow:hidden'});
  }

  /** @param {any[]} named */
  legend(named) {
    const row = addElement('div', this.place, 'display:flex;flex-wrap:wrap;gap:0 14px;font-size:11px;opacity:.85');
    for (const trace of named) {
      const item = addElement('span', row, '');
      addElement('span', item, `color:${trace.fillcolor || nth(trace.marker?.color, 0) || trace.line?.color}`, trace.type === 'scatter' && trace.mode === 'lines' && !trace.fillcolor ? '━ ' : '■ ');
      item.appendChild(document.createTextNode(plainText(trace.name)));
    }
  }

  /** Where each value of each trace begins and ends along its axis. @param {any[]} traces @returns {[number, number][][]} */
  stack(traces) {
    const sums = /** @type {Map<string, number>} */ (new Map());
    return traces.map((trace) => {
      const along = trace.orientation === 'h' ? trace.x : trace.y, across = trace.orientation === 'h' ? trace.y : trace.x;
      const piles = trace.type === 'bar' ? this.layout.barmode === 'stack' : trace.stackgroup;
      return along.map((/** @type {number} */ value, /** @type {number} */ i) => {
        const from = trace.base ? trace.base[i] : piles ? sums.get(trace.type + across[i]) || 0 : trace.type === 'bar' ? 0 : value;
        const to = trace.type === 'bar' || piles ? from + value : value;
        if (piles) sums.set(trace.type + across[i], to);
        return [from, to];
      });
    });
  }

  /** Rules, ticks and titles. */
  frame() {
    const {svg, x, y, room, layout} = this;
    if (!svg || !x || !y || !room) return;
    for (const [value, text] of y.ticks) {
      const at = y.at(value);
      if (layout.yaxis?.showgrid !== false) addShape(svg, 'line', {x1: room.left, x2: room.right, y1: at, y2: at, stroke: FAINT});
      const most = Math.max(Math.floor((room.left - 8) / LETTER), 3);
      addShape(svg, 'text', {x: room.left - 6, y: at + 4, 'text-anchor': 'end', opacity: 0.75}, text.length > most ? text.slice(0, most - 1) + '…' : text);
    }
    for (const [value, text] of x.ticks) {
      const at = x.at(value);
      if (layout.xaxis?.showgrid !== false) addShape(svg, 'line', {x1: at, x2: at, y1: room.top, y2: room.bottom, stroke: FAINT});
      addShape(svg, 'text', {x: at, y: room.bottom + 14, 'text-anchor': 'middle', opacity: 0.75}, text);
    }
    if (layout.xaxis?.visible !== false) addShape(svg, 'line', {x1: room.left, x2: room.right, y1: room.bottom, y2: room.bottom, stroke: FAINT});
    const below = layout.xaxis?.title?.text, beside = layout.yaxis?.title?.text;
    if (below) addShape(svg, 'text', {x: (room.left + room.right) / 2, y: room.bottom + 28, 'text-anchor': 'middle', opacity: 0.75}, plainText(below));
    const middle = (room.top + room.bottom) / 2;
    if (beside) addShape(svg, 'text', {x: 10, y: middle, transform: `rotate(-90 10 ${middle})`, 'text-anchor': 'middle', opacity: 0.75}, plainText(beside));
  }

  /** @param {any} trace @param {number} at */
  bars(trace, at) {
    const {svg, x, y, layout} = this;
    if (!svg || !x || !y) return;
    const isFlat = trace.orientation === 'h', across = isFlat ? y : x;
    const one = Math.abs(across.at(1) - across.at(0)) || 20;
    const thick = Math.max(one * (trace.width || 1 - (layout.bargap ?? 0.2)), 0.5);
    this.stacks[at].forEach(([from, to], i) => {
      const middle = across.at((isFlat ? trace.y : trace.x)[i]);
      const ends = isFlat ? [x.at(from), x.at(to)] : [y.at(to), Math.min(y.at(from), this.room.bottom)];
      const begin = Math.max(Math.min(...ends), isFlat ? this.room.left : this.room.top);
      const size = Math.max(Math.min(Math.max(...ends), isFlat ? this.room.right : this.room.bottom) - begin, 0);
      if (!size) return;
      const box = isFlat ? {x: begin, y: middle - thick / 2, width: size, height: thick} : {x: middle - thick / 2, y: begin, width: thick, height: size};
      const {marker} = trace;
      const shape = addShape(svg, 'rect', {...box, fill: nth(marker?.color, i) || '#888', opacity: nth(marker?.opacity, i) ?? 1, class: 'profnb-bar'});
      const edge = nth(marker?.line?.width, i);
      if (edge) { shape.setAttribute('stroke', marker.line.color); shape.setAttribute('stroke-width', edge); }
      this.tell(shape, trace, i);
      const most = Math.floor((size - 6) / LETTER);
      const words = trace.text ? this.wordsOf(trace, i, most) : '';
      if (words && most > 2) {
        const cut = words.length > most ? words.slice(0, most - 1) + '…' : words;
        addShape(svg, 'text', {x: begin + size / 2, y: middle + 4, 'text-anchor': 'middle', fill: nth(trace.insidetextfont?.color, i) || '#fff', 'pointer-events': 'none'}, cut);
      }
      if (trace.error_x) this.interval(x.at(to - nth(trace.error_x.arrayminus, i)), x.at(to + nth(trace.error_x.array, i)), middle);
    });
  }

  /** What stands in a bar: where the chart is zoomed, what had no room before. @param {any} trace @param {number} i @param {number} most letters */
  wordsOf(trace, i, most) {
    const short = plainText(nth(trace.text, i)), whole = this.zoom.isIn ? plainText(trace.customdata?.[i]?.[0] || '') : '';
    if (!whole || (short && !short.endsWith('…') && whole.length > most)) return short;
    return whole.length > most ? whole.split(': ')[0].split('/').pop() || '' : whole;
  }

  /** An interval along x; an arrow where it goes on. @param {number} from @param {number} to @param {number} at */
  interval(from, to, at) {
    const {svg, room} = this;
    if (!svg || !room) return;
    const end = Math.min(to, room.right);
    addShape(svg, 'path', {d: `M${Math.max(from, room.left)},${at}H${end}` + (to > room.right + 1 ? `m-5,-4l5,4l-5,4` : `m0,-4v8`) + `M${Math.max(from, room.left)},${at - 4}v8`, fill: 'none', stroke: '#888', 'stroke-width': 1.5});
  }

  /** @param {any} trace @param {number} at */
  scatter(trace, at) {
    const {svg, x, y, room} = this;
    if (!svg || !x || !y) return;
    const isStair = trace.line?.shape === 'hv';
    const points = trace.x.map((/** @type {any} */ v, /** @type {number} */ i) => trace.y[i] === null ? null : [x.at(v), y.at(trace.stackgroup ? this.stacks[at][i][1] : trace.y[i]), y.at(this.stacks[at][i][0])]);
    const path = (/** @type {number} */ which, /** @type {any[]} */ list) => list.map((p, i) => (i ? (isStair ? `H${p[0].toFixed(1)}V` : `L${p[0].toFixed(1)},`) + p[which].toFixed(1) : `M${p[0].toFixed(1)},${p[which].toFixed(1)}`)).join('');
    if (/lines/.test(trace.mode)) {
      const runs = /** @type {any[][]} */ ([[]]);
      for (const p of points) if (p) runs[runs.length - 1].push(p); else runs.push([]);
      for (const run of runs.filter((one) => one.length)) {
        if (trace.stackgroup) {
          const back = run.map((p, i) => [p, run[i + 1]]).reverse().map(([p, next]) => (isStair && next ? `V${p[2].toFixed(1)}` : '') + `L${p[0].toFixed(1)},${p[2].toFixed(1)}`).join('');
          addShape(svg, 'path', {d: path(1, run) + back + 'Z', fill: trace.fillcolor || trace.line?.color, class: 'profnb-area'});
        }
        const width = trace.line?.width ?? 1.5;
        if (width) addShape(svg, 'path', {d: path(1, run), fill: 'none', stroke: trace.line?.color || '#888', 'stroke-width': width, 'stroke-dasharray': trace.line?.dash ? '2 3' : '', class: 'profnb-line'});
      }
    }
    if (!/markers/.test(trace.mode || '')) return;
    points.forEach((/** @type {number[] | null} */ p, /** @type {number} */ i) => {
      if (!p || p[0] < room.left - 1 || p[0] > room.right + 1) return;
      const {marker} = trace, size = nth(marker?.size, i) || 6, colour = nth(marker?.color, i) || '#888', symbol = marker?.symbol || '';
      const isLine = /^line-/.test(symbol), flat = symbol.includes('-ew') ? size / 2 : 0, high = symbol.includes('-ns') ? size / 2 : 0;
      const shape = isLine
        ? addShape(svg, 'path', {d: `M${p[0] - flat},${p[1] - high}L${p[0] + flat},${p[1] + high}`, stroke: colour, 'stroke-width': marker.line?.width || 1.5})
        : addShape(svg, 'circle', {cx: p[0], cy: p[1], r: size / 2, fill: colour, opacity: marker?.opacity ?? 1, class: 'profnb-point'});
      this.tell(shape, trace, i);
      const words = /text/.test(trace.mode) ? plainText(nth(trace.text, i) || '') : '';
      const isLeft = /left/.test(nth(trace.textposition, i) || '');
      if (words) addShape(svg, 'text', {x: p[0] + (isLeft ? -8 : 8), y: p[1] + 4, 'text-anchor': isLeft ? 'end' : 'start', opacity: 0.8}, words);
    });
  }

  /** Lines and words that the layout lays over the marks. */
  marginalia() {
    const {svg, x, y, room, layout} = this;
    if (!svg || !x || !y) return;
    for (const line of layout.shapes || []) {
      const ys = line.yref === 'paper' ? [room.bottom, room.top] : [y.at(line.y0), y.at(line.y1)];
      addShape(svg, 'line', {x1: x.at(line.x0), x2: x.at(line.x1), y1: ys[0], y2: ys[1], stroke: line.line?.color || FAINT});
    }
    let free = 0;
    for (const one of layout.annotations || []) {
      const words = plainText(one.text), long = words.length * LETTER;
      const from = Math.min(x.at(one.x) + (one.xshift || 0), room.right - long);
      if (this.zoom.isIn && (x.at(one.x) < room.left || x.at(one.x) > room.right)) continue;
      if (from < free) continue;  // the hover has it
      free = from + long + 6;
      const at = room.bottom - (room.bottom - room.top) * one.y + 10;
      addShape(svg, 'text', {x: from, y: at, 'paint-order': 'stroke', stroke: 'var(--jp-layout-color0,Canvas)', 'stroke-width': 3}, words);
    }
  }

  /** Where values share their place along x: one strip each, which says them all. @param {any[]} traces */
  columns(traces) {
    const {svg, x, room, follow} = this;
    const told = traces.filter((trace) => trace.hovertemplate && (trace.type === 'bar' || /lines/.test(trace.mode)));
    if (!svg || !x || !told.length) return;
    const places = [...new Set(told.flatMap((trace) => trace.x))].sort((a, b) => a - b);
    places.forEach((value, i) => {
      const isBar = told[0].type === 'bar', one = x.at(1) - x.at(0);
      const from = isBar ? x.at(value) - one / 2 : x.at(value), to = isBar ? from + one : i + 1 < places.length ? x.at(places[i + 1]) : from;
      const hit = addShape(svg, 'rect', {x: from, y: room.top, width: Math.max(to - from, 1), height: room.bottom - room.top, fill: 'transparent', class: 'profnb-column'});
      const lines = new Set(told.flatMap((trace) => {
        const at = trace.x.indexOf(value);
        return at >= 0 && trace.y[at] ? hoverText(trace, at).split('\n') : [];
      }));
      const label = this.layout.labels ? [plainText(this.layout.labels[i])] : [];
      addShape(hit, 'title', {}, [...label, ...lines, ...(this.parts.isAsked ? ['click: beside what is usual'] : [])].join('\n'));
      const data = told[0].customdata?.[told[0].x.indexOf(value)];
      if (this.layout.clickmode) { hit.style.cursor = 'pointer'; hit.onclick = () => follow([data, value, this.layout.clickmode]); }
      if (this.parts.isAsked) { hit.style.cursor = 'pointer'; hit.onclick = () => this.parts.show(i === this.parts.bar ? -1 : i); }
    });
  }

  /** @param {SVGElement} shape @param {any} trace @param {number} i */
  tell(shape, trace, i) {
    const words = hoverText(trace, i);
    if (words) addShape(shape, 'title', {}, words);
    const data = trace.customdata?.[i];
    if (!Array.isArray(data) || data.length < 2) return;
    shape.style.cursor = 'pointer';
    shape.onclick = () => this.follow(data);
    this.svg?.setAttribute('role', 'group');  // a picture would hide what is inside of it
    for (const [name, value] of [['role', 'button'], ['tabindex', '0'], ['aria-label', words]]) shape.setAttribute(name, value);
    shape.onkeydown = (event) => { if (event.key === 'Enter') this.follow(data); };
  }
}
