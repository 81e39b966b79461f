// Upgrades every report on the page, in place: tables can be sorted and searched, its parts become tabs, charts are
// drawn. Runs as an output of its own after the report; needs no library, no network and no id. All text goes in
// through textContent: names in a trace are data.

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
        'padding:4px 12px;margin:0;border-bottom:2px solid ' + (on ? '#3d85d1' : 'transparent') +
        ';opacity:' + (on ? '1;font-weight:600' : '.72'));
    });
    // A chart drawn while its part was hidden does not know how wide it is.
    parts[which].querySelectorAll('.js-plotly-plot').forEach((plot) => plotly()?.Plots.resize(plot));
  }
  show(0);
}

/**
 * Draws the plotly figure of `root`, replacing the table inside it. Uses the page's plotly.js if there is one, else
 * fetches the basic bundle; if that fails (no network, a strict page) the table stays. RequireJS, where a page has it,
 * is kept out of the way and restored. @param {HTMLElement} root
 */
function upgradeFigure(root) {
  const figure = JSON.parse(root.dataset.figure || '');
  const table = root.firstElementChild;
  function draw() {
    const place = document.createElement('div');
    root.insertBefore(place, table);
    plotly().newPlot(place, figure.data, figure.layout, {displaylogo: false, responsive: true})
      .then(() => { table?.remove(); searchOnClick(place); }, () => place.remove());
  }
  if (plotly()) { draw(); return; }
  if (!root.dataset.source) return;
  const page = /** @type {any} */ (window);
  const hidden = page.define;
  function restore() { if (hidden) page.define = hidden; }
  if (hidden) page.define = undefined;
  const script = document.createElement('script');
  script.src = root.dataset.source;
  script.onload = () => { restore(); if (plotly()) draw(); };
  script.onerror = restore;
  document.head.appendChild(script);
}

/**
 * A bar that names events: a click on it searches them in the timeline of the page, if there is one.
 * @param {any} plot a place that plotly.js has drawn in
 */
function searchOnClick(plot) {
  plot.on('plotly_click', (/** @type {any} */ event) => {
    const data = event.points[0] && event.points[0].customdata;
    if (!Array.isArray(data)) return;
    const [, words, where] = data;
    if (where === 'ops') { findOps(plot, words); return; }
    const box = document.querySelector('.profnb-timeline input[type=search]');
    if (!(box instanceof HTMLInputElement) || typeof words !== 'string') return;
    box.value = words;
    box.dispatchEvent(new Event('input', {bubbles: true}));
    box.closest('.profnb-timeline')?.scrollIntoView({block: 'nearest', behavior: 'smooth'});
  });
}

/**
 * A saved notebook that is opened again has lost the live controls below the report, and JupyterLab says "Error
 * displaying widget"; a sentence that helps is put in its place.
 */
function explainLostControls() {
  document.querySelectorAll('.jp-OutputArea-output.jupyter-widgets').forEach((output) => {
    const area = output.closest('.jp-OutputArea');
    if (!/^Error displaying widget/.test(output.textContent || '') || !area?.querySelector('.profnb')) return;
    output.textContent = 'Live controls need the kernel that made them: run the cell again.';
    /** @type {HTMLElement} */ (output).style.opacity = '.6';
  });
}

/** @param {string} selector @param {(element: HTMLElement) => void} upgrade @param {string} mark */
function once(selector, upgrade, mark) {
  document.querySelectorAll(selector).forEach((found) => {
    const element = /** @type {HTMLElement} */ (found);
    if (element.dataset[mark]) return;
    element.dataset[mark] = '1';
    upgrade(element);
  });
}

function run() {
  once('.profnb-table[data-rows]', (box) => { new ReportTable(box); }, 'ready');
  once('.profnb-code', upgradeCode, 'ready');
  once('.profnb-advice', upgradeAdvice, 'ready');
  once('.profnb', upgradeTabs, 'tabs');
  once('.profnb-figure[data-figure]', upgradeFigure, 'ready');
  explainLostControls();
}
// Outputs may be put on the page after this one, and widgets give up only after a while.
run();
[50, 300, 1000, 3000, 8000, 20000].forEach((delay) => setTimeout(run, delay));
