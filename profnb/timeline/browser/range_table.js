// What a measured range holds as a table: one row for each name, sorted by a click on a heading.

const CELL_STYLE = 'padding:1px 10px 1px 0;border:0;background:none;white-space:nowrap;font-variant-numeric:tabular-nums;';
const LINK_STYLE = 'font:inherit;color:inherit;background:none;border:0;padding:0;cursor:pointer;text-decoration:underline;text-align:left';
const MOST_ROWS = 200;

/** @template T @typedef {{heading: string, title: string, isNumber: boolean, of: (row: T) => number | string, text: (row: T) => string}} RangeColumn */

/** What is said of each name in a range. @param {Measurement} measured @param {Header} head @returns {RangeColumn<Total>[]} */
function rangeColumns(measured, head) {
  /** @param {number} units */
  const time = (units) => durationText(units * head.unit_ps);
  /** @param {Total} total */
  const category = (total) => total.category < 0 ? '' : head.categories[total.category][0];
  /** @param {Total} total */
  const mean = (total) => total.own / total.occurrences;
  return [
    {heading: 'event', title: 'its name', isNumber: false, of: (t) => t.name, text: (t) => t.name},
    {heading: 'own time', title: 'time in the range, less what its children on the same line take', isNumber: true, of: (t) => t.own, text: (t) => time(t.own)},
    {heading: 'of the range', title: 'own time over the length of the range; several lines may run at once', isNumber: true, of: (t) => t.own, text: (t) => percentText(t.own / measured.wall)},
    {heading: 'occurrences', title: 'how many touch the range', isNumber: true, of: (t) => t.occurrences, text: (t) => countText(t.occurrences)},
    {heading: 'mean', title: 'own time over occurrences', isNumber: true, of: mean, text: (t) => time(mean(t))},
    {heading: 'longest', title: 'the longest one, with its children and what lies outside the range', isNumber: true, of: (t) => t.longest, text: (t) => t.category < 0 ? '—' : time(t.longest)},
    {heading: 'category', title: 'what its time counts as', isNumber: false, of: category, text: category},
  ];
}

/** @template T */
class RangeTable {
  /** @param {Element} parent @param {T[]} rows @param {RangeColumn<T>[]} columns the first is the name @param {number} by
   * which sorts it at first @param {(row: T) => void} [pick] what a click on a name does */
  constructor(parent, rows, columns, by, pick) {
    this.rows = rows;
    this.columns = columns;
    this.pick = pick;
    this.sorted = new SortedTable({by, down: true}, () => this.draw());
    const bar = addElement('div', parent, 'margin:4px 0 2px');
    const copy = addElement('button', bar, BUTTON, 'copy table');
    copy.onclick = () => {
      copyText(this.asText()).then((done) => { copy.textContent = done ? 'copied' : 'the browser refuses to copy'; });
    };
    const box = this.box = addElement('div', parent, 'overflow-x:auto');
    box.tabIndex = 0;
    box.setAttribute('role', 'region');
    box.setAttribute('aria-label', 'events in the measured range');
    const table = addElement('table', box, 'border-collapse:collapse;margin:0;color:inherit;width:100%');
    const head = addElement('tr', addElement('thead', table, ''), 'background:none');
    columns.forEach((column, index) => {
      const cell = addElement('th', head, CELL_STYLE + `text-align:${column.isNumber ? 'right' : 'left'}`);
      cell.scope = 'col';
      cell.title = column.title;
      this.sorted.addHead(cell, column.heading, index, !column.isNumber);
    });
    this.body = addElement('tbody', table, '');
    if (rows.length > MOST_ROWS) {
      addElement('div', box, 'opacity:.72', `and ${countText(rows.length - MOST_ROWS)} more names; "copy table" has all`);
    }
    this.draw();
  }

  /** @returns {T[]} */
  inOrder() {
    return this.sorted.sort([...this.rows], this.columns[this.sorted.order.by].of);
  }

  draw() {
    this.body.textContent = '';
    const fits = this.columns.length < 5;  // beside the lanes, without being scrolled
    const name = `;width:100%;min-width:${fits ? '90px' : 'clamp(110px, 15vw, 260px)'};max-width:0;overflow:hidden;text-overflow:ellipsis`;
    const other = fits ? ';white-space:normal;overflow-wrap:normal' : '';
    for (const one of this.inOrder().slice(0, MOST_ROWS)) {
      const row = addElement('tr', this.body, 'background:none');
      this.columns.forEach((column, index) => {
        const style = CELL_STYLE + (column.isNumber ? 'text-align:right' : 'text-align:left') + (index ? other : name);
        const cell = addElement('td', row, style, index || !this.pick ? column.text(one) : '');
        if (index) return;
        cell.title = String(column.of(one));
        const {pick} = this;
        if (pick) addElement('button', cell, LINK_STYLE, column.text(one)).onclick = () => pick(one);
      });
    }
    this.sorted.markHeads();
  }

  /** Every row, with tabs between the cells. */
  asText() {
    const rows = this.inOrder().map((one) => this.columns.map((column) => (column.isNumber ? column.text(one) : String(column.of(one))).replace(/[\t\r\n]/g, ' ')).join('\t'));
    return [this.columns.map((column) => column.heading).join('\t'), ...rows].join('\n');
  }
}

/** @param {string} text @returns {Promise<boolean>} whether the browser took it */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {  // not in every frame, nor on a page that is a file
    const area = addElement('textarea', document.body, 'position:fixed;opacity:0');
    area.value = text;
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}
