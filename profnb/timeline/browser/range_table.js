// What a measured range holds as a table: one row for each name, sorted by a click on a heading.

const CELL_STYLE = 'padding:1px 10px 1px 0;border:0;background:none;white-space:nowrap;font-variant-numeric:tabular-nums;';
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
   * which sorts it at first */
  constructor(parent, rows, columns, by) {
    this.rows = rows;
    this.columns = columns;
    this.by = by;
    this.down = true;
    const bar = addElement('div', parent, 'margin:4px 0 2px');
    const copy = addElement('button', bar, BUTTON, 'copy table');
    copy.onclick = () => {
      copyText(this.asText()).then((done) => { copy.textContent = done ? 'copied' : 'the browser refuses to copy'; });
    };
    this.box = addElement('div', parent, 'overflow:auto;max-height:230px');
    this.box.tabIndex = 0;
    this.box.setAttribute('role', 'region');
    this.box.setAttribute('aria-label', 'events in the measured range');
    this.fill();
  }

  /** @returns {T[]} */
  get sorted() {
    const {of, isNumber} = this.columns[this.by];
    const sign = this.down ? -1 : 1;
    return [...this.rows].sort((a, b) => sign * (isNumber ? Number(of(a)) - Number(of(b)) : String(of(a)).localeCompare(String(of(b)))));
  }

  fill() {
    this.box.textContent = '';
    const table = addElement('table', this.box, 'border-collapse:collapse;margin:0;color:inherit;width:auto');
    const head = addElement('tr', addElement('thead', table, ''), 'background:none');
    this.columns.forEach((column, index) => {
      const cell = addElement('th', head, CELL_STYLE + `text-align:${column.isNumber ? 'right' : 'left'}`);
      cell.scope = 'col';
      const isBy = index === this.by;
      cell.setAttribute('aria-sort', isBy ? this.down ? 'descending' : 'ascending' : 'none');
      const button = addElement('button', cell, 'font:inherit;font-weight:600;color:inherit;background:none;border:0;padding:0;cursor:pointer',
        column.heading + (isBy ? this.down ? ' ▾' : ' ▴' : ''));
      button.title = column.title;
      button.onclick = () => {
        this.down = isBy ? !this.down : column.isNumber;
        this.by = index;
        this.fill();
        /** @type {HTMLElement} */ (this.box.querySelectorAll('th button')[index]).focus();
      };
    });
    const body = addElement('tbody', table, '');
    for (const one of this.sorted.slice(0, MOST_ROWS)) {
      const row = addElement('tr', body, 'background:none');
      this.columns.forEach((column, index) => {
        const style = CELL_STYLE + (column.isNumber ? 'text-align:right' : 'text-align:left') +
          (index ? '' : ';max-width:clamp(120px, 24vw, 340px);overflow:hidden;text-overflow:ellipsis');
        const cell = addElement('td', row, style, column.text(one));
        if (!index) cell.title = column.text(one);
      });
    }
    if (this.rows.length > MOST_ROWS) {
      addElement('div', this.box, 'opacity:.72', `and ${countText(this.rows.length - MOST_ROWS)} more names; "copy table" has all`);
    }
  }

  /** Every row, with tabs between the cells. */
  asText() {
    const rows = this.sorted.map((one) => this.columns.map((column) => column.text(one).replace(/[\t\r\n]/g, ' ')).join('\t'));
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
