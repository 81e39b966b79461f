// Upgrades every report on the page, in place: the op table becomes sortable, searchable and
// groupable, the step chart is drawn. Runs as an output of its own after the report; needs no library,
// no network and no id. All text goes in through textContent: names in a trace are data.
function upgradeOps(box) {
  var data = JSON.parse(box.dataset.ops);
  var state = {key: 4, down: true, side: 'all', group: false, all: false, text: ''};
  var table = box.querySelector('table');
  var more = box.querySelector('.profnb-more');
  var body = table.tBodies[0];
  var heads = body.rows[0].cells;
  var cellStyles = [];
  for (var h = 0; h < heads.length; h++) cellStyles.push(body.rows[1].cells[h].getAttribute('style'));

  function bar(f) {
    var eighths = Math.max(Math.round(f * 64), f > 0 ? 1 : 0);
    return '█'.repeat(eighths >> 3) + (' ▏▎▍▌▋▊▉'[eighths & 7] || '').trim();
  }
  // Rows are [side, type, name, runs, self ps, total ps, self fraction].
  function chosen() {
    var words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
    var rows = data.rows.filter(function (r) {
      var text = (r[1] + ' ' + r[2]).toLowerCase();
      return (state.side === 'all' || r[0] === state.side) &&
        words.every(function (w) { return text.indexOf(w) >= 0; });
    });
    if (state.group) {
      var groups = new Map();
      rows.forEach(function (r) {
        var key = r[0] + ' ' + r[1];
        var g = groups.get(key) || [r[0], r[1], 0, 0, 0, 0, 0];
        g[2] += 1; g[3] += r[3]; g[4] += r[4]; g[5] += r[5]; g[6] += r[6];
        groups.set(key, g);
      });
      rows = Array.from(groups.values()).map(function (g) {
        g[2] = g[2] + (g[2] === 1 ? ' op' : ' ops');
        return g;
      });
    }
    var k = state.key, sign = state.down ? -1 : 1;
    return rows.sort(function (a, b) { return (a[k] < b[k] ? -1 : a[k] > b[k] ? 1 : 0) * sign; });
  }
  // Long names may break after a separator and before a capital, as in the table it replaces.
  function fill(cell, text) {
    text.split(/(?<=[/:_.])(?=[^/:_.])|(?<=[a-z0-9])(?=[A-Z])/).forEach(function (part, i) {
      if (i) cell.appendChild(document.createElement('wbr'));
      cell.appendChild(document.createTextNode(part));
    });
  }
  function cell(tr, text, faint) {
    var td = tr.insertCell();
    td.setAttribute('style', cellStyles[tr.cells.length - 1]);
    if (tr.cells.length !== 2) { td.textContent = text; return; }
    fill(td, text);
    if (!faint) return;
    td.appendChild(document.createTextNode(' '));
    var span = document.createElement('span');
    span.style.opacity = '.72';
    fill(span, faint);
    td.appendChild(span);
  }
  function draw() {
    var rows = chosen();
    var shown = state.all ? rows : rows.slice(0, data.shown);
    var longest = rows.reduce(function (m, r) { return Math.max(m, r[6]); }, 0) || 1;
    while (body.rows.length > 1) body.deleteRow(1);
    var sums = {};  // running share of self time, per side
    shown.forEach(function (r) {
      var tr = body.insertRow();
      cell(tr, bar(r[6] / longest));
      tr.cells[0].style.color = data.colours[r[0]];
      if (state.group) cell(tr, r[1] || '-', r[2]); else cell(tr, r[2], r[1]);
      if (twoSides) cell(tr, r[0]);
      cell(tr, countText(r[3]));
      cell(tr, durationText(r[4]));
      cell(tr, percentText(r[6]));
      sums[r[0]] = (sums[r[0]] || 0) + r[6];
      cell(tr, percentText(sums[r[0]]));
      cell(tr, durationText(r[5]));
    });
    var share = shown.reduce(function (s, r) { return s + r[6]; }, 0);
    foot.textContent = shown.length + ' of ' + (rows.length + (state.text || state.group ? 0 : data.hidden)) +
      (state.group ? ' types' : ' ops') +
      (data.hidden && (state.text || state.group) ? ' among the ' + data.rows.length + ' largest ops' : '') + (state.side === 'all' ? '' : ', ' + percentText(share) + ' of ' + state.side + ' self time');
    button.style.display = rows.length > data.shown ? '' : 'none';
    button.textContent = state.all ? 'show fewer' : 'show all';
    for (var i = 0; i < heads.length; i++) {
      var label = heads[i].firstElementChild || heads[i];
      var base = label.textContent.replace(/ [▾▴]$/, '');
      label.textContent = base + (keys[i] === state.key ? (state.down ? ' ▾' : ' ▴') : '');
    }
  }
  var twoSides = heads.length === 8;
  var keys = twoSides ? [-1, 2, 0, 3, 4, 6, -1, 5] : [-1, 2, 3, 4, 6, -1, 5];
  Array.prototype.forEach.call(heads, function (head, i) {
    if (keys[i] < 0) return;
    head.style.cursor = 'pointer';
    head.title = 'sort';
    head.onclick = function () {
      state.down = state.key === keys[i] ? !state.down : keys[i] > 2;
      state.key = keys[i];
      draw();
    };
  });
  var look = 'font:inherit;color:inherit;background:transparent;border:1px solid rgba(128,128,128,.5);' +
    'border-radius:3px;padding:2px 7px;margin:0 8px 4px 0;';
  var bar_ = document.createElement('div');
  bar_.setAttribute('style', 'margin:6px 0 2px');
  box.insertBefore(bar_, box.firstChild);
  var search = addElement('input', bar_, look + 'width:180px');
  search.type = 'search';
  search.placeholder = 'search ops';
  search.setAttribute('aria-label', 'search ops');
  search.oninput = function () { state.text = search.value; draw(); };
  // A notebook must not take letters typed here for its own commands.
  search.onkeydown = function (event) { event.stopPropagation(); };
  function choice(options, apply) {
    var select = addElement('select', bar_, look);
    options.forEach(function (option) {
      var item = document.createElement('option');
      item.value = option[0];
      item.textContent = option[1];
      item.style.color = '#222';
      item.style.background = '#fff';
      select.appendChild(item);
    });
    select.onchange = function () { apply(select.value); draw(); };
    return select;
  }
  var sides = new Set(data.rows.map(function (r) { return r[0]; }));
  if (sides.size > 1) {
    choice([['all', 'host and device'], ['host', 'host'], ['device', 'device']],
      function (value) { state.side = value; });
  } else if (sides.size === 1) {
    state.side = Array.from(sides)[0];
  }
  choice([['op', 'by op'], ['type', 'by type']], function (value) { state.group = value === 'type'; });
  if (more) more.remove();
  var foot = addElement('span', box, 'opacity:.72;margin-right:10px');
  var button = addElement('button', box, look + 'cursor:pointer');
  button.onclick = function () { state.all = !state.all; draw(); };
  draw();
}

// Makes tabs of the parts of a report: one bar of buttons, one part shown at a time. Where no script runs
// the parts stand one below the other.
function upgradeTabs(root) {
  var parts = Array.prototype.slice.call(root.querySelectorAll('.profnb-tab'));
  if (parts.length < 2) return;
  var bar = document.createElement('div');
  bar.setAttribute('role', 'tablist');
  bar.setAttribute('style', 'margin:12px 0 4px;border-bottom:1px solid rgba(128,128,128,.35)');
  root.insertBefore(bar, parts[0]);
  var buttons = parts.map(function (part, i) {
    var button = addElement('button', bar, '');
    button.textContent = part.dataset.tab;
    button.setAttribute('role', 'tab');
    part.setAttribute('role', 'tabpanel');
    part.setAttribute('aria-label', part.dataset.tab);
    button.onclick = function () { show(i); };
    // Arrow keys move between tabs, as everywhere; a notebook must not take them for its own.
    button.onkeydown = function (event) {
      var step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
      if (!step) return;
      event.stopPropagation();
      event.preventDefault();
      var next = (i + step + parts.length) % parts.length;
      show(next);
      buttons[next].focus();
    };
    return button;
  });
  function show(which) {
    parts.forEach(function (part, i) {
      var on = i === which;
      part.style.display = on ? '' : 'none';
      buttons[i].setAttribute('aria-selected', on ? 'true' : 'false');
      buttons[i].tabIndex = on ? 0 : -1;
      buttons[i].setAttribute('style', 'font:inherit;color:inherit;background:none;border:0;cursor:pointer;' +
        'padding:4px 12px;margin:0;border-bottom:2px solid ' + (on ? '#3d85d1' : 'transparent') +
        ';opacity:' + (on ? '1;font-weight:600' : '.72'));
    });
    // A chart drawn while its part was hidden does not know how wide it is.
    parts[which].querySelectorAll('.js-plotly-plot').forEach(function (plot) {
      if (window.Plotly) window.Plotly.Plots.resize(plot);
    });
  }
  show(0);
}

// Draws the plotly figure of `root`, replacing the table inside it. Uses the page's plotly.js if there
// is one, else fetches the basic bundle; if that fails (no network, a strict page) the table stays.
// RequireJS, where a page has it, is kept out of the way and restored.
function upgradeFigure(root) {
  var figure = JSON.parse(root.dataset.figure);
  var table = root.firstElementChild;
  function draw() {
    var place = document.createElement('div');
    root.insertBefore(place, table);
    window.Plotly.newPlot(place, figure.data, figure.layout, {displaylogo: false, responsive: true})
      .then(function () { table.remove(); searchOnClick(place); }, function () { place.remove(); });
  }
  if (window.Plotly) { draw(); return; }
  if (!root.dataset.source) return;
  var hidden = window.define;
  function restore() { if (hidden) window.define = hidden; }
  if (hidden) window.define = undefined;
  var script = document.createElement('script');
  script.src = root.dataset.source;
  script.onload = function () { restore(); if (window.Plotly) draw(); };
  script.onerror = restore;
  document.head.appendChild(script);
}

// A bar that names events: a click on it searches them in the timeline of the page, if there is one.
function searchOnClick(plot) {
  plot.on('plotly_click', function (event) {
    var told = event.points[0] && event.points[0].customdata;
    if (Array.isArray(told) && told[2] === 'ops') { findOps(plot, told[1]); return; }
    var box = document.querySelector('.profnb-timeline input[type=search]');
    if (!box || !Array.isArray(told) || typeof told[1] !== 'string') return;
    box.value = told[1];
    box.dispatchEvent(new Event('input', {bubbles: true}));
    box.closest('.profnb-timeline').scrollIntoView({block: 'nearest', behavior: 'smooth'});
  });
}

// A saved notebook that is opened again has lost the live controls below the report, and JupyterLab
// says "Error displaying widget"; a sentence that helps is put in its place.
function explainLostControls() {
  document.querySelectorAll('.jp-OutputArea-output.jupyter-widgets').forEach(function (output) {
    var area = output.closest('.jp-OutputArea');
    if (/^Error displaying widget/.test(output.textContent) && area && area.querySelector('.profnb')) {
      output.textContent = 'Live controls need the kernel that made them: run the cell again.';
      output.style.opacity = '.6';
    }
  });
}

function once(selector, upgrade, mark) {
  mark = mark || 'ready';
  document.querySelectorAll(selector).forEach(function (element) {
    if (element.dataset[mark]) return;
    element.dataset[mark] = '1';
    upgrade(element);
  });
}
function run() {
  once('.profnb-ops[data-ops]', upgradeOps);
  once('.profnb-rows[data-rows]', upgradeRows);
  once('.profnb', upgradeTabs, 'tabs');
  once('.profnb-figure[data-figure]', upgradeFigure);
  explainLostControls();
}
// Outputs may be put on the page after this one, and widgets give up only after a while.
run();
[50, 300, 1000, 3000, 8000, 20000].forEach(function (delay) { setTimeout(run, delay); });
