// A table that is sorted by a click on a heading, in the report and in the timeline: the headings' buttons, the mark at
// the one that sorts, what a screen reader is told, and the order of the rows.

/** @typedef {{by: number, down: boolean}} Order which column sorts, and whether the largest come first */

class SortedTable {
  /** @param {Order} order how it is sorted at first @param {() => void} draw shows the rows in the order of now */
  constructor(order, draw) {
    this.order = order;
    this.draw = draw;
    /** @type {{cell: HTMLTableCellElement, column: number, mark: Element}[]} */
    this.heads = [];
  }

  /**
   * Makes a button of a heading. @param {HTMLTableCellElement} cell empty @param {string} words @param {number} column
   * @param {boolean} isUp whether a first click brings the smallest to the top
   */
  addHead(cell, words, column, isUp) {
    const button = addElement('button', cell, 'font:inherit;font-weight:600;color:inherit;background:none;border:0;' +
      'padding:2px 0;margin:0;cursor:pointer;text-align:inherit', words);
    const mark = addElement('span', button, '');
    mark.setAttribute('aria-hidden', 'true');
    button.type = 'button';
    button.onclick = () => {
      this.order.down = this.order.by === column ? !this.order.down : !isUp;
      this.order.by = column;
      this.draw();
    };
    this.heads.push({cell, column, mark});
  }

  /** Says at the headings which of them sorts. */
  markHeads() {
    for (const {cell, column, mark} of this.heads) {
      const isBy = column === this.order.by;
      mark.textContent = isBy ? (this.order.down ? ' ▾' : ' ▴') : '';
      cell.setAttribute('aria-sort', isBy ? (this.order.down ? 'descending' : 'ascending') : 'none');
    }
  }

  /**
   * Sorts rows in place; equal ones stay as they are, and what is not known comes last, whichever way the rest is.
   * @template T @param {T[]} rows @param {(row: T) => number | string | null} of @returns {T[]}
   */
  sort(rows, of) {
    const sign = this.order.down ? -1 : 1;
    return rows.sort((a, b) => {
      const x = of(a), y = of(b);
      if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1;
      return sign * (typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y)));
    });
  }
}
