// What a person does with a timeline: keys, wheel, pointer.

class Hands {
  /** @param {Viewer} viewer */
  constructor(viewer) { this.viewer = viewer; }

  listen() {
    const {root, box, canvas, lane} = this.viewer;
    // A notebook must not take keys typed here for its own commands (Lumino, Phosphor, classic Notebook).
    root.setAttribute('data-lm-suppress-shortcuts', 'true');
    root.setAttribute('data-p-suppress-shortcuts', 'true');
    box.addEventListener('keydown', (event) => this.key(event));
    lane.addEventListener('scroll', () => { this.viewer.picture.scroll = lane.scrollTop; this.viewer.draw(); });
    canvas.addEventListener('wheel', (event) => this.wheel(event), {passive: false});
    canvas.addEventListener('pointerdown', (event) => this.press(event));
    canvas.addEventListener('pointermove', (event) => this.hover(event));
    canvas.addEventListener('pointerleave', () => { this.viewer.picture.hovered = -1; this.viewer.panel.say(); this.viewer.draw(); });
    canvas.addEventListener('dblclick', (event) => {
      const mark = this.markAt(event);
      if (mark < 0) return;
      const {begin, end} = this.viewer.picture.marks;
      const room = Math.max(end[mark] - begin[mark], 20) * 0.2;
      this.viewer.show(begin[mark] - room, Math.max(end[mark], begin[mark] + 20) + room);
    });
    new ResizeObserver(() => {
      if (box.clientWidth === this.viewer.boxWidth) return;
      this.viewer.resize();
      this.viewer.draw();
    }).observe(box);
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    const {viewer} = this;
    const across = event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      viewer.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006), event.offsetX);
    } else if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
      event.preventDefault();
      viewer.pan(across / viewer.picture.plotWidth);
    }
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const {viewer} = this;
    const {search} = viewer;
    event.stopPropagation();
    if (event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement) {
      if (event.key === 'Escape') viewer.canvas.focus();
      if (event.key === 'Enter' && event.target === search.input) search.move(event.shiftKey ? -1 : 1);
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isInTable = event.target instanceof Element && event.target.closest('[role=region]');
    if (isInTable && /^(Arrow|Home|End)/.test(event.key)) return;  // they scroll it
    /** @type {Object<string, () => void>} */
    const actions = {
      w: () => viewer.zoom(0.6, this.pointerX), s: () => viewer.zoom(1 / 0.6, this.pointerX),
      '+': () => viewer.zoom(0.5), '-': () => viewer.zoom(2), a: () => viewer.pan(-0.15), d: () => viewer.pan(0.15),
      arrowleft: () => viewer.pan(-0.15), arrowright: () => viewer.pan(0.15), arrowup: () => this.walk(-1, 0),
      arrowdown: () => this.walk(1, 0), ',': () => this.walk(0, -1), '.': () => this.walk(0, 1),
      home: () => viewer.pan(-1e9), end: () => viewer.pan(1e9), o: () => this.fold(),
      '0': () => viewer.show(0, viewer.whole.head.span), '[': () => viewer.moveStep(-1), ']': () => viewer.moveStep(1),
      '/': () => search.input.focus(), n: () => search.move(1), p: () => search.move(-1), r: () => viewer.measureView(),
      l: () => viewer.menu?.toggle(), g: () => viewer.toggleFrames(), f: () => viewer.toggleHeight(), '?': () => viewer.panel.toggleHelp(),
      m: () => { const {range} = viewer.picture; if (range) viewer.show(...range); }, escape: () => viewer.clear(),
    };
    const action = actions[event.key.toLowerCase()];
    if (action) { event.preventDefault(); action(); }
  }

  /** Fold or unfold the line of the selected event. */
  fold() {
    const {viewer} = this;
    const {picture, bands} = viewer;
    if (picture.selected < 0) return;
    const {lineOfRow, row, head, begin} = picture.marks;
    const line = lineOfRow[row[picture.selected]];
    const band = bands.ofLine[line];
    if (!band) return;
    bands.toggle(band);
    // What a fold hides is told by what stands above it.
    const {row: top} = head.lines[line];
    if (bands.folded.has(line) && row[picture.selected] !== top) {
      const [first, last] = picture.marks.within(top, begin[picture.selected], begin[picture.selected] + 1);
      picture.selected = last > first ? first : -1;
    }
    viewer.relay();
    viewer.panel.say();
  }

  /** From the selected event to its neighbour on the lane, or to what runs then one lane further up or down.
   * @param {number} across @param {number} along */
  walk(across, along) {
    const {viewer} = this;
    const {picture} = viewer;
    const {marks} = picture;
    const rows = viewer.bands.bands.filter((band) => !band.group)
      .flatMap((band) => Array.from({length: band.rows}, (_, depth) => marks.head.lines[band.line].row + depth));
    let mark = picture.selected;
    if (mark < 0) {
      for (const row of rows) {
        const [first, last] = marks.within(row, picture.from, picture.to);
        if (last > first) { mark = first; break; }
      }
    } else if (along) {
      const row = marks.row[mark];
      mark = Math.min(Math.max(mark + along, marks.first[row]), marks.first[row + 1] - 1);
    } else {
      const middle = (Math.max(marks.begin[mark], picture.from) + Math.min(marks.end[mark], picture.to)) / 2;
      for (let at = rows.indexOf(marks.row[mark]) + across; at >= 0 && at < rows.length; at += across) {
        const found = Math.min(marks.firstAfter(rows[at], middle), marks.first[rows[at] + 1] - 1);
        if (found >= marks.first[rows[at]]) { mark = found; break; }
      }
    }
    if (mark < 0) return;
    const width = picture.to - picture.from;
    if (marks.end[mark] < picture.from || marks.begin[mark] > picture.to) {
      viewer.show((marks.begin[mark] + marks.end[mark] - width) / 2, (marks.begin[mark] + marks.end[mark] + width) / 2);
    }
    mark = picture.marks.sameAs(marks, mark);
    viewer.select(mark);
    if (mark >= 0) viewer.detail.askStats(mark);
  }

  /** @param {PointerEvent} event */
  press(event) {
    const {viewer} = this;
    const {picture, canvas} = viewer;
    canvas.focus({preventScroll: true});
    const x = event.offsetX;
    const place = event.offsetY >= RULER ? picture.placeAt(event.offsetY) : null;
    if (x < picture.labelWidth || place?.band.group) {
      if (place) { viewer.bands.toggle(place.band); viewer.relay(); }
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
        viewer.show(start.from + by, start.to + by);
      } else this.measureTo(now, start.time, place, false);
    };
    /** @param {PointerEvent} now */
    const up = (now) => {
      canvas.removeEventListener('pointermove', move);
      if (!moved) this.click(event);
      else if (!pans) this.measureTo(now, start.time, place, true);
    };
    canvas.addEventListener('pointermove', move);
    canvas.addEventListener('pointerup', up, {once: true});
  }

  /** @param {PointerEvent} event @param {number} time where the drag began @param {{line: number} | null} place
   * @param {boolean} isDone */
  measureTo(event, time, place, isDone) {
    const {picture} = this.viewer;
    const now = picture.timeAt(Math.max(event.offsetX, picture.labelWidth));
    this.viewer.measure(Math.min(time, now), Math.max(time, now), place ? place.line : 0, isDone);
  }

  /** @param {PointerEvent} event */
  click(event) {
    const {viewer} = this;
    const {picture} = viewer;
    if (event.offsetY < RULER) {
      const time = picture.timeAt(event.offsetX);
      const [step] = picture.marks.stepsWithin(time, time + 1);
      if (step !== undefined) viewer.showStep(step);
      return;
    }
    picture.range = null;
    picture.selected = this.markAt(event);
    viewer.panel.say();
    viewer.draw();
    if (picture.selected >= 0) viewer.detail.askStats(picture.selected);
  }

  /** @param {MouseEvent} event @returns {number} the mark under the pointer, the longest of several, or -1 */
  markAt(event) {
    const {picture} = this.viewer;
    const span = picture.marksAt(event.offsetX, event.offsetY);
    if (!span) return -1;
    const {begin, end} = picture.marks;
    let best = span[0];
    for (let m = span[0]; m < span[1]; m++) if (end[m] - begin[m] > end[best] - begin[best]) best = m;
    return best;
  }

  /** @param {PointerEvent} event */
  hover(event) {
    this.pointerX = event.offsetX;
    if (event.buttons) return;
    const {viewer} = this;
    const {picture, canvas, panel} = viewer;
    const under = event.offsetY >= RULER ? picture.placeAt(event.offsetY) : null;
    const place = event.offsetX < picture.labelWidth || under?.band.group ? under : null;
    canvas.style.cursor = place ? 'pointer' : 'crosshair';
    const before = picture.hovered;
    picture.hovered = this.markAt(event);
    if (place?.band.group) canvas.title = `lines that repeat the work of ${place.band.group} in other words; click to open`;
    else if (place) {
      const line = picture.marks.head.lines[place.line];
      canvas.title = `${line.label} · recorded as ${line.recorded} on ${line.plane}: ${countText(line.events)} events, busy ${durationText(line.busy)}`;
    } else if (picture.hovered !== before || !canvas.title) {
      const span = picture.marksAt(event.offsetX, event.offsetY);
      canvas.title = span && picture.hovered >= 0 ? panel.describe(picture.hovered, span) : '';
    }
    if (picture.hovered !== before) { panel.say(); viewer.draw(); }
  }
}
