// What a bar of stacked values is made of, below its chart: a click on it, or Enter on the chart and then the arrow keys, tells each
// part beside what is usual. Escape puts it away.

class BarParts {
  /** @param {Chart} chart */
  constructor(chart) {
    this.chart = chart;
    this.bar = -1;  // which is shown; -1 for none
    this.isAsked = Boolean(chart.layout.labels);
    this.traces = /** @type {any[]} */ (chart.figure.data.filter((/** @type {any} */ trace) => trace.type === 'bar'));
    this.mark = /** @type {SVGElement | null} */ (null);
    this.box = /** @type {HTMLElement | null} */ (null);
  }

  /** What the parts of a bar add up to. @param {number} bar */
  whole(bar) { return this.traces.reduce((sum, trace) => sum + (trace.y[bar] || 0), 0); }

  /** @param {number} bar -1 for none */
  show(bar) {
    this.bar = bar;
    this.draw();
  }

  /** Writes the parts of the bar that is shown below a chart that was just drawn. */
  draw() {
    const {chart, bar} = this, {svg, x, room, place, layout} = chart;
    this.mark?.remove();
    this.box?.remove();
    if (bar < 0 || !svg || !x) return;
    const wide = Math.abs(x.at(1) - x.at(0));
    if (x.at(bar) >= room.left && x.at(bar) <= room.right) {
      this.mark = addShape(svg, 'rect', {x: x.at(bar) - wide / 2, y: room.top, width: wide, height: room.bottom - room.top, fill: 'none', stroke: 'currentColor', 'pointer-events': 'none'});
    }
    const threeDigits = (/** @type {number} */ value) => axisText(+value.toPrecision(3), false);
    const unit = layout.yaxis?.title?.text || '', whole = this.whole(bar) || 1;
    const box = this.box = addElement('div', place, 'margin:2px 0 6px');
    box.setAttribute('role', 'status');  // read out as the bar changes
    addElement('b', box, '', plainText(layout.labels[bar]));
    const table = addElement('table', addElement('div', box, 'overflow-x:auto'), '');
    table.setAttribute('cellpadding', '4');
    this.addRow(table, 'th', '', ['part', unit, 'share', `usual ${unit}`]);
    for (const trace of [...this.traces].sort((a, b) => b.y[bar] - a.y[bar])) {
      const value = trace.y[bar] || 0, sorted = [...trace.y].sort((a, b) => a - b), usual = sorted[sorted.length >> 1];
      if (value || usual) this.addRow(table, 'td', nth(trace.marker?.color, bar), [plainText(trace.name), threeDigits(value), percentText(value / whole), threeDigits(usual)]);
    }
  }

  /** @param {Element} table @param {'td' | 'th'} tag @param {string} colour @param {string[]} cells */
  addRow(table, tag, colour, cells) {
    const tr = addElement('tr', table, '');
    cells.forEach((text, column) => {
      const cell = addElement(tag, tr, (column ? '' : 'text-align:left;') + (tag === 'th' ? 'font-weight:600' : ''), column ? text : '');
      if (column) { cell.align = 'right'; return; }
      if (colour) addElement('span', cell, `color:${colour}`, '■ ');
      cell.append(text);
    });
  }

  /** Whether a key was meant for a bar. @param {string} key */
  press(key) {
    if (!this.isAsked) return false;
    const bars = this.chart.layout.labels.length, way = key === 'ArrowLeft' ? -1 : key === 'ArrowRight' ? 1 : 0;
    if (key === 'Enter' && this.bar < 0) {  // the longest first
      let longest = 0;
      for (let at = 1; at < bars; at += 1) if (this.whole(at) > this.whole(longest)) longest = at;
      this.show(longest);
    } else if (this.bar >= 0 && (key === 'Enter' || key === 'Escape')) this.show(-1);
    else if (this.bar >= 0 && way) this.show(Math.min(Math.max(this.bar + way, 0), bars - 1));
    else return false;
    return true;
  }
}
