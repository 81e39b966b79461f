// Upgrades every report on the page, in place: tables can be sorted and searched, its parts become tabs, what qualifies
// it is folded, charts are drawn. Runs as an output of its own after the report; needs no library, no network and no id. All text goes in
// through textContent: names in a trace are data.

const FEW = 8;

/** What plotly.js is to us, where the page has it. */
function plotly() { return /** @type {any} */ (window).Plotly; }

/**
 * Makes tabs of the parts of a report: one bar of buttons, one part shown at a time. Where no script runs the parts
 * stand one below the other. @param {HTMLElement} root
 */
function upgradeTabs(root) {
  const parts = /** @type {HTMLElement[]} */ (Array.from(root.querySelectorAll('.profnb-tab')));
  if (parts.length < 2) return;
  const bar = document.createElement('div');
  bar.setAttribute('role', 'tablist');
  bar.setAttribute('style', 'margin:12px 0 4px;border-bottom:1px solid rgba(128,128,128,.35)');
  root.insertBefore(bar, parts[0]);
  const buttons = parts.map((part, i) => {
    const name = part.dataset.tab || '';
    const button = addElement('button', bar, '', name);
    button.setAttribute('role', 'tab');
    part.setAttribute('role', 'tabpanel');
    part.setAttribute('aria-label', name);
    button.onclick = () => show(i);
    // Arrow keys move between tabs, as everywhere; a notebook must not take them for its own.
    button.onkeydown = (event) => {
      const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
      if (!step) return;
      event.stopPropagation();
      event.preventDefault();
      const next = (i + step + parts.length) % parts.length;
      show(next);
      buttons[next].focus();
    };
    return button;
  });
  /** @param {number} which */
  function show(which) {
    parts.forEach((part, i) => {
      const on = i === which;
      part.style.display = on ? '' : 'none';
      buttons[i].setAttribute('aria-selected', on ? 'true' : 'false');
      buttons[i].tabIndex = on ? 0 : -1;
      buttons[i].setAttribute('style', 'font:inherit;color:inherit;background:none;border:0;cursor:pointer;' +
        'padding:4px 12px;margin:0;border-bottom:2px solid ' + (on ? '#2489fd' : 'transparent') +
        ';opacity:' + (on ? '1;font-weight:600' : '.72'));
    });
    parts[which].querySelectorAll('div[style*="overflow-x"]').forEach(letScroll);
    // A chart drawn while its part was hidden does not know how wide it is.
    parts[which].querySelectorAll('.js-plotly-plot').forEach((plot) => plotly()?.Plots.resize(plot));
  }
  show(0);
}

/** What is wider than its place can be scrolled by keyboard. @param {Element} box */
function letScroll(box) {
  if (box.scrollWidth <= box.clientWidth) return;
  for (const [name, value] of [['tabindex', '0'], ['role', 'region'], ['aria-label', 'table']]) box.setAttribute(name, value);
}

/**
 * Draws the figure of `root` in place of what stands there: as inline SVG of ours, and in a page of its own, which has
 * plotly.js inside, by that where there is something to zoom into. @param {HTMLElement} root
 */
function upgradeFigure(root) {
  const figure = JSON.parse(root.dataset.figure || '');
  if (root.dataset.plotly && plotly()) {
    const place = document.createElement('div');
    const fallback = root.firstElementChild;
    root.insertBefore(place, fallback);
    // No buttons: one of them would send the figure to a server.
    plotly().newPlot(place, figure.data, figure.layout, {displayModeBar: false, responsive: true}).then(
      () => { fallback?.remove(); /** @type {any} */ (place).on('plotly_click', (/** @type {any} */ event) => follow(root, event.points[0]?.customdata)); },
      () => { place.remove(); });
    return;
  }
  root.replaceChildren();
  /** @type {any} */ (root).chart = new Chart(root, figure, (data) => follow(root, data));
}

/**
 * A mark that names events was clicked: they are searched in the ops of its report, or in the timeline of the page.
 * @param {Element} from @param {any} data of the mark: a text, words to search, and where
 */
function follow(from, data) {
  if (!Array.isArray(data)) return;
  const [, words, where] = data;
  if (where === 'ops') { findOps(from, words); return; }
  if (where === 'run') { openRun(from, words); return; }
  const box = document.querySelector('.profnb-timeline input[type=search]');
  if (!(box instanceof HTMLInputElement) || typeof words !== 'string') return;
  box.value = words;
  box.dispatchEvent(new Event('input', {bubbles: true}));
  box.closest('.profnb-timeline')?.scrollIntoView({block: 'nearest', behavior: 'smooth'});
}

/** Shows the report of a run below the picture in which it was clicked. @param {Element} from @param {string} key */
async function openRun(from, key) {
  const root = /** @type {HTMLElement | null} */ (from.closest('[data-answers]')), place = root?.querySelector('.profnb-run');
  if (!root || !place) return;
  place.textContent = 'Opening the run …';
  const reply = await findSource(root.dataset.answers || '')?.ask(key);
  if (reply) { place.innerHTML = reply; run(); } else place.textContent = 'The kernel does not answer.';
  place.scrollIntoView({block: 'nearest', behavior: 'smooth'});
}

/** Keys typed here are not a notebook's: of JupyterLab two d would delete the cell. @param {HTMLElement} root */
function keepKeys(root) {
  root.setAttribute('data-lm-suppress-shortcuts', 'true');  // JupyterLab hears keys before the page does, and asks for this
  for (const name of ['keydown', 'keypress', 'keyup']) root.addEventListener(name, (event) => event.stopPropagation());
}

/** Leads from a part of the mean step to the tab that has more of it. @param {HTMLElement} piece */
function upgradePiece(piece) {
  const [tab, side] = (piece.dataset.leads || '').split('\t');
  if (!tab || !findTab(piece, tab)) return;
  piece.setAttribute('role', 'button');
  piece.setAttribute('aria-label', `${piece.textContent?.trim() || piece.title}; opens ${tab}`);
  piece.title += `\nclick: opens ${tab}`;
  piece.tabIndex = 0;
  piece.style.cursor = 'pointer';
  piece.onclick = () => {
    openTab(piece, tab);
    const select = /** @type {HTMLSelectElement | null | undefined} */ (findTab(piece, tab)?.querySelector('select[aria-label=side]'));
    const at = Array.from(select?.options || []).findIndex((option) => option.text === side);
    if (!select || at < 0) return;
    select.selectedIndex = at;
    select.dispatchEvent(new Event('change'));
  };
  piece.onkeydown = (event) => { if (event.key === 'Enter') piece.click(); };
}

/** Folds what qualifies a report behind its title. @param {HTMLElement} box */
function upgradeFold(box) {
  const button = addElement('button', box, 'font:inherit;color:inherit;background:none;border:0;cursor:pointer;' +
    'padding:4px 0;margin:4px 0 0;opacity:.8');
  const inside = document.createElement('div');
  inside.append(...Array.from(box.childNodes).filter((node) => node !== button));
  box.append(inside);
  /** @param {boolean} isOpen */
  function show(isOpen) {
    inside.style.display = isOpen ? '' : 'none';
    button.setAttribute('aria-expanded', String(isOpen));
    button.textContent = `${isOpen ? '▾' : '▸'} ${box.dataset.title}`;
  }
  button.onclick = () => show(inside.style.display === 'none');
  show(false);
}

/** A long table that has no order of its own to choose shows its first rows, and the rest in a box that scrolls. @param {HTMLElement} box */
function upgradeLong(box) {
  const rows = Array.from(box.querySelectorAll('tr')).slice(FEW + 1);
  if (rows.length < 3 || box.closest('.profnb-table')) return;
  const button = document.createElement('button');
  button.type = 'button';
  button.setAttribute('style', CONTROL + 'cursor:pointer');
  box.after(button);
  box.setAttribute('aria-label', 'table');
  let isOpen = true;
  button.onclick = () => {
    isOpen = !isOpen;
    for (const row of rows) row.style.display = isOpen ? '' : 'none';
    box.style.maxHeight = isOpen ? '480px' : '';
    box.style.overflowY = isOpen ? 'auto' : '';
    if (isOpen) { box.tabIndex = 0; box.setAttribute('role', 'region'); } else { box.removeAttribute('tabindex'); box.removeAttribute('role'); letScroll(box); }
    button.textContent = isOpen ? 'show fewer' : `show all ${FEW + rows.length}`;
  };
  button.click();
}

/** Whether all of an element is there: a page that is still being read may have the first half of a report. @param {Element} element */
function isWhole(element) {
  if (document.readyState !== 'loading') return true;
  for (let at = /** @type {Element | null} */ (element); at; at = at.parentElement) if (at.nextSibling) return true;
  return false;
}

/** @param {string} selector @param {(element: HTMLElement) => void} upgrade @param {string} mark */
function once(selector, upgrade, mark) {
  document.querySelectorAll(selector).forEach((found) => {
    const element = /** @type {HTMLElement} */ (found);
    if (element.dataset[mark] || !isWhole(element)) return;
    element.dataset[mark] = '1';
    upgrade(element);
  });
}

function run() {
  once('.profnb table', upgradeHead, 'head');
  once('.profnb-table[data-rows]', (box) => { new ReportTable(box); }, 'ready');
  once('.profnb-code', upgradeCode, 'ready');
  once('.profnb-fold', upgradeFold, 'ready');
  once('.profnb:not(.profnb-timeline) div:has(> table)', upgradeLong, 'long');
  once('.profnb-figure[data-figure]', upgradeFigure, 'ready');
  once('.profnb', upgradeTabs, 'tabs');
  once('.profnb[data-live]', goLive, 'asked');
  once('.profnb-icicle', (box) => { /** @type {any} */ (box).icicle = new Icicle(box); }, 'ready');
  once('.profnb-name', upgradeName, 'ready');
  once('.profnb-named', upgradeNamed, 'ready');
  once('.profnb-piece', upgradePiece, 'ready');
  once('.profnb:not(.profnb-timeline)', upgradeScreen, 'screen');
  once('.profnb', keepKeys, 'keys');
  once('.profnb:not(.profnb-timeline)', showTips, 'tips');
}
// Outputs may be put on the page after this one, and widgets give up only after a while.
run();
document.addEventListener('DOMContentLoaded', run);
[50, 300, 1000, 3000, 8000, 20000].forEach((delay) => setTimeout(run, delay));
