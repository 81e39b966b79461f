// Makes a table of the report sortable by its headings; shows the rest of its rows when asked; finds the ops of the row
// that is clicked. Where the table has more to ask of (ops have), it is searched, one side is chosen, kinds are summed.
// The first rows stand in the page, the rest comes as text. Names in a trace are data: all goes in as text.

/**
 * @typedef {{up: number, of: (number | null)[]}} Ranks
 * @typedef {{rest: string, ranks: (Ranks | number | null)[], palette: string[], colours: number[], searches?: string, words?: string,
 *   noun: string, hidden: number, sides: number[], weights: number[]}} Part
 * @typedef {{shown: number, numbers: number[], by: number, parts: Part[], wholes?: Record<string, number>,
 *   measure: string, running: number, kind_of: number[]}} TableData
 * @typedef {{at: number, tr: HTMLTableRowElement, name: string, text: string}} Row
 */

const PAGE = 25;
const CONTROL = 'font:inherit;color:inherit;background:transparent;border:1px solid rgba(128,128,128,.5);' +
  'border-radius:3px;padding:2px 7px;margin:0 8px 4px 0;';

/** Long names may break between the parts of a path, never inside a word. @param {Element} place @param {string} text */
function fillBreakable(place, text) {
  text.split(/(?<=[/:])(?=[^/:])/).forEach((part, i) => {
    if (i) addElement('wbr', place, '');
    place.appendChild(document.createTextNode(part));
  });
}

/** A bar of at most eight characters. @param {number} fraction */
function barText(fraction) {
  const eighths = Math.max(Math.round(fraction * 64), fraction > 0 ? 1 : 0);
  return '█'.repeat(eighths >> 3) + ' ▏▎▍▌▋▊▉'[eighths & 7].trim();
}

/** Writes a bar, which is a picture: nobody wants it read out. @param {Element} cell @param {string} text */
function writeBar(cell, text) {
  cell.textContent = '';
  addElement('span', cell, '', text).setAttribute('aria-hidden', 'true');
}

/** Makes headings of the first cells of a table, for whom the table is read to. @param {HTMLElement} table */
function upgradeHead(table) {
  table.querySelectorAll('td[role=columnheader]').forEach((found) => {
    const head = document.createElement('th');
    head.scope = 'col';
    for (const name of ['style', 'align']) head.setAttribute(name, found.getAttribute(name) || '');
    head.title = /** @type {HTMLElement} */ (found).title;
    head.replaceChildren(...found.childNodes);
    found.replaceWith(head);
  });
}

class ReportTable {
  /** @param {HTMLElement} box */
  constructor(box) {
    this.box = box;
    /** @type {TableData} */
    this.data = JSON.parse(box.dataset.rows || '');
    this.ranks = this.data.parts.map(({ranks}) => ranks.map((one) => typeof one === 'number' ? ranks[one] : one));  // a number: those of that column
    this.body = /** @type {HTMLTableElement} */ (box.querySelector('table')).tBodies[0];
    this.head = this.body.rows[0];
    this.styles = Array.from(this.body.rows[1].cells, (cell) => cell.getAttribute('style') || '');
    this.sides = Object.keys(this.data.wholes || {});
    this.state = {part: 0, side: -1, page: -1, words: '', kind: -1};  // page -1: the first few rows; kind -1: rows of all
    this.sorted = new SortedTable({by: this.data.by, down: true}, () => this.draw());
    box.querySelector('.profnb-more')?.remove();
    this.rows = this.data.parts.map((part, i) => this.makeRows(part, i ? [] : Array.from(this.body.rows).slice(1)));
    this.makeHeadings();
    if (this.data.wholes) this.makeControls();
    if (this.data.wholes) this.foot = addElement('span', box, 'opacity:.72;margin-right:10px');
    if (this.rows.some((rows) => rows.length > this.data.shown)) {
      /** @type {[string, () => number][]} */
      const turns = [['show all', () => this.state.page < 0 ? 0 : -1], ['‹ before', () => this.state.page - 1], ['next ›', () => this.state.page + 1]];
      this.buttons = turns.map(([text, page]) => {
        const button = addElement('button', box, CONTROL + 'cursor:pointer', text);
        button.type = 'button';
        button.onclick = () => { this.state.page = page(); this.draw(); };
        return button;
      });
    }
    this.draw();
  }

  /**
   * The rows of a part, each led to what it is made of: a layer to its ops, a kind to those of it, an op to its events.
   * @param {Part} part @param {HTMLTableRowElement[]} inPage @returns {Row[]}
   */
  makeRows(part, inPage) {
    const rest = part.rest ? part.rest.split('\n').map((line, i) => this.makeRow(line, part.palette[part.colours[i]])) : [];
    const searches = (part.searches || '').split('\n'), words = (part.words || '').split('\n');
    const isKinds = part !== this.data.parts[0], isOps = Boolean(this.data.wholes) && hasTimeline();
    return [...inPage, ...rest].map((tr, at) => {
      const cell = tr.cells[1], name = (cell.title || cell.textContent || '').split(' ')[0];  // as it was recorded
      if (searches[at]) makeLink(tr, 'find its ops', () => findOps(this.box, searches[at]));
      else if (isKinds) makeLink(tr, `show its ${this.data.parts[0].noun}`, () => this.open(at));
      else if (isOps) makeLink(tr, 'find its events in the timeline', () => follow(this.box, ['', name, 'timeline']));
      return {at, tr, name, text: `${cell.textContent} ${cell.title} ${words[at] || ''}`.toLowerCase()};
    });
  }

  /** @param {string} line @param {string} colour */
  makeRow(line, colour) {
    const tr = document.createElement('tr');
    line.split('\t').forEach((cell, column) => {
      const [text, faint, whole] = cell.split('\f');
      const td = addElement('td', tr, this.styles[column]);
      if (this.data.numbers[column]) td.align = 'right';
      if (column === 0) td.style.color = colour;
      if (whole) td.title = whole;
      if (column === 0) writeBar(td, text); else if (this.data.numbers[column]) td.textContent = text; else fillBreakable(td, text);
      if (!faint) return;
      td.appendChild(document.createTextNode(' '));
      fillBreakable(addElement('span', td, 'opacity:.72'), faint);
    });
    return tr;
  }

  makeHeadings() {
    Array.from(this.head.cells).forEach((head, column) => {
      const ranks = /** @type {Ranks | null} */ (this.ranks[0][column]);
      const words = head.textContent;
      if (!words || !ranks) return;
      head.title = head.title ? head.title + '\nclick to sort' : 'sort';
      head.textContent = '';
      this.sorted.addHead(head, words, column, Boolean(ranks.up));
    });
  }

  makeControls() {
    const {state} = this;
    const bar = document.createElement('div');
    bar.className = 'profnb-bar';
    bar.style.margin = '6px 0 2px';
    this.box.prepend(bar);
    const search = this.search = addElement('input', bar, CONTROL + 'width:180px');
    search.type = 'search';
    search.placeholder = `search ${this.data.parts[0].noun}`;
    search.setAttribute('aria-label', search.placeholder);
    search.oninput = () => { state.words = search.value; state.kind = -1; state.page = Math.min(state.page, 0); this.draw(); };
    // A notebook must not take letters typed here for its own commands.
    search.onkeydown = (event) => event.stopPropagation();
    if (this.sides.length > 1) {
      this.makeChoice(bar, 'side', [this.sides.join(' and '), ...this.sides], (chosen) => { state.side = chosen - 1; });
    } else {
      state.side = 0;
    }
    if (this.data.parts.length > 1) {
      const nouns = this.data.parts.map((part) => 'by ' + part.noun.replace(/s$/, ''));
      this.rowsChoice = this.makeChoice(bar, 'rows', nouns, (chosen) => { state.part = chosen; state.kind = -1; });
      this.only = addElement('button', bar, CONTROL + 'cursor:pointer');
      this.only.type = 'button';
      this.only.onclick = () => { state.kind = -1; this.draw(); };
    }
  }

  /** Shows what a kind is made of. @param {number} kind */
  open(kind) {
    Object.assign(this.state, {kind, part: 0, page: -1, words: ''});
    if (this.search) this.search.value = '';
    if (this.rowsChoice) this.rowsChoice.selectedIndex = 0;
    this.draw();
    this.only?.focus({preventScroll: true});
  }

  /** @param {Element} bar @param {string} name @param {string[]} labels @param {(chosen: number) => void} apply */
  makeChoice(bar, name, labels, apply) {
    const select = addElement('select', bar, CONTROL);
    select.setAttribute('aria-label', name);
    for (const label of labels) addElement('option', select, 'color:#222;background:#fff', label);
    select.onchange = () => { apply(select.selectedIndex); this.draw(); };
    return select;
  }

  /** The rows that are asked for, in order. */
  chosen() {
    const {part, words, side, kind} = this.state;
    const {sides} = this.data.parts[part];
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (/** @type {Row} */ row) => wanted.every((word) => row.text.includes(word));
    let rows = this.rows[part].filter((row) => !sides?.length || side < 0 || sides[row.at] === side);
    if (kind >= 0) rows = rows.filter((row) => this.data.kind_of[row.at] === kind);
    // A kind is found by its own name and by those of its ops.
    const kinds = new Set(part && wanted.length ? this.rows[0].filter(matches).map((row) => this.data.kind_of[row.at]) : []);
    if (wanted.length) rows = rows.filter((row) => matches(row) || kinds.has(row.at));
    const rank = /** @type {Ranks | null | undefined} */ (this.ranks[part][this.sorted.order.by])?.of;
    return rank ? this.sorted.sort(rows, (row) => rank[row.at]) : rows;
  }

  draw() {
    const {state, data} = this;
    const rows = this.chosen(), pages = Math.ceil(rows.length / PAGE);
    state.page = Math.min(state.page, pages - 1);
    const first = Math.max(state.page, 0) * PAGE, end = state.page < 0 ? data.shown : first + PAGE;
    const shown = rows.slice(first, end);
    while (this.body.lastChild !== this.head) this.body.lastChild?.remove();  // the headings keep the focus
    this.body.append(...shown.map((row) => row.tr));
    this.sorted.markHeads();
    if (this.only) {
      this.only.style.display = state.kind < 0 ? 'none' : '';
      this.only.textContent = state.kind < 0 ? '' : `only ${this.rows[1][state.kind].name} ×`;
    }
    if (!rows.length) this.sayEmpty();
    if (this.buttons) {
      const isPaged = state.page >= 0 && pages > 1;
      const seen = [rows.length > data.shown, isPaged && state.page > 0, isPaged && state.page < pages - 1];
      this.buttons.forEach((button, i) => { button.style.display = seen[i] ? '' : 'none'; });
      this.buttons[0].textContent = state.page >= 0 ? 'show fewer' : data.parts[state.part].hidden ? `show the ${rows.length} largest` : `show all ${rows.length}`;
    }
    if (data.wholes && this.foot) this.sum(shown, first, rows, data.wholes, this.foot);
  }

  /** Says what was searched where nothing was found. */
  sayEmpty() {
    const {words, side, part} = this.state, {noun, sides} = this.data.parts[part];
    const tr = addElement('tr', this.body, ''), td = addElement('td', tr, 'padding:8px 10px');
    td.colSpan = this.head.cells.length;
    const all = this.rows[part].length, of = sides?.length && side >= 0 ? ` of the ${this.sides[side]}` : '';
    td.textContent = `None of the ${all} ${noun || 'rows'}${of} has “${words}” in its name or type.`;
  }

  /**
   * Draws the bars as long as the longest allows, writes the running share and what is shown of how many.
   * @param {Row[]} shown @param {number} first @param {Row[]} found @param {Record<string, number>} wholes @param {Element} foot
   */
  sum(shown, first, found, wholes, foot) {
    const {part, side, words} = this.state;
    const {sides, weights, noun, hidden} = this.data.parts[part];
    const sideOf = (/** @type {Row} */ row) => sides.length ? sides[row.at] : 0;
    const share = (/** @type {Row} */ row) => weights[row.at] / (wholes[this.sides[sideOf(row)]] || 1);
    const longest = found.reduce((most, row) => Math.max(most, share(row)), 0) || 1;
    const sums = this.sides.map(() => 0);
    for (const row of found.slice(0, first)) sums[sideOf(row)] += share(row);
    for (const row of shown) {
      const {tr} = row, own = sideOf(row);
      sums[own] += share(row);
      writeBar(tr.cells[0], barText(share(row) / longest));
      tr.cells[this.data.running].textContent = percentText(sums[own]);
    }
    const all = this.data.parts[0];
    const isPart = all.hidden && (words || (sides.length && side >= 0));
    const range = first ? `${first + 1} to ${first + shown.length}` : `${shown.length}`;
    foot.textContent = `${range} of ${found.length + (isPart ? 0 : hidden)} ${noun}` +
      (isPart ? ` among the ${this.rows[0].length} largest ${all.noun}` : '') +
      (side < 0 ? '' : `, ${percentText(sums[side])} of ${this.sides[side]} ${this.data.measure}`);
  }
}

/** Whether the page has a timeline of what its one report is of. */
function hasTimeline() {
  return document.querySelector('.profnb-timeline[data-timeline]') !== null && document.querySelectorAll('.profnb:not(.profnb-timeline)').length === 1;
}

/** Makes a row lead somewhere: by a click, and by Enter. @param {HTMLTableRowElement} tr @param {string} tip @param {() => void} act */
function makeLink(tr, tip, act) {
  tr.style.cursor = 'pointer';
  tr.title = tip;
  tr.tabIndex = 0;
  tr.onclick = act;
  tr.onkeydown = (event) => {
    if (event.key !== 'Enter' || event.target !== tr) return;
    event.stopPropagation();  // a notebook would run the cell, or edit it
    event.preventDefault();
    act();
  };
}

/** Shows the ops that have these words in their names, in the op table of the same report. @param {Element} from @param {string} words */
function findOps(from, words) {
  const root = from.closest('.profnb');
  const box = root?.querySelector('.profnb-tab[data-tab=Ops] input[type=search]');
  if (!root || !(box instanceof HTMLInputElement) || !words) return;
  root.querySelectorAll('[role=tab]').forEach((tab) => {
    if (tab.textContent === 'Ops') /** @type {HTMLElement} */ (tab).click();
  });
  box.value = words;
  box.dispatchEvent(new Event('input', {bubbles: true}));
  box.scrollIntoView({block: 'nearest', behavior: 'smooth'});
}
