// Makes a table of the report sortable by its headings, shows the rest of its rows when asked, and finds the
// ops of the row that is clicked. All text goes in through textContent: names in a trace are data.
function upgradeRows(box) {
  var data = JSON.parse(box.dataset.rows);
  var body = box.querySelector('table').tBodies[0];
  var heads = body.rows[0].cells;
  var more = box.querySelector('.profnb-more');
  var styles = [];
  for (var h = 0; h < heads.length; h++) styles.push(body.rows[1].cells[h].getAttribute('style'));
  var order = data.cells.map(function (_, i) { return i; });
  var state = {column: -1, down: true, all: false};

  // Long names may break after a separator and before a capital, as in the table it replaces.
  function fill(place, text) {
    text.split(/(?<=[/:_.])(?=[^/:_.])|(?<=[a-z0-9])(?=[A-Z][a-z])/).forEach(function (part, i) {
      if (i) place.appendChild(document.createElement('wbr'));
      place.appendChild(document.createTextNode(part));
    });
  }
  function draw() {
    while (body.rows.length > 1) body.deleteRow(1);
    (state.all ? order : order.slice(0, data.shown)).forEach(function (i) {
      var tr = body.insertRow();
      data.cells[i].forEach(function (texts, column) {
        var td = tr.insertCell();
        td.setAttribute('style', styles[column]);
        if (column === 0) td.style.color = data.colours[i];
        if (data.numbers[column]) td.textContent = texts[0]; else fill(td, texts[0]);
        if (!texts[1]) return;
        td.appendChild(document.createTextNode(' '));
        var span = document.createElement('span');
        span.style.opacity = '.72';
        fill(span, texts[1]);
        td.appendChild(span);
      });
      if (!data.searches[i]) return;
      tr.style.cursor = 'pointer';
      tr.title = 'find its ops';
      tr.onclick = function () { findOps(box, data.searches[i]); };
    });
    for (var c = 0; c < heads.length; c++) {
      var label = heads[c].firstElementChild || heads[c];
      label.textContent = label.textContent.replace(/ [▾▴]$/, '') +
        (c === state.column ? (state.down ? ' ▾' : ' ▴') : '');
    }
    if (button) button.textContent = state.all ? 'show fewer' : 'show all ' + order.length;
  }
  // What is not known comes last, whichever way the rest is sorted.
  function compare(a, b) {
    var x = data.keys[a][state.column], y = data.keys[b][state.column];
    if (x === null || y === null) return x === y ? a - b : x === null ? 1 : -1;
    return (x < y ? -1 : x > y ? 1 : 0) * (state.down ? -1 : 1) || a - b;
  }
  Array.prototype.forEach.call(heads, function (head, column) {
    if (!head.textContent) return;
    head.style.cursor = 'pointer';
    head.title = 'sort';
    head.onclick = function () {
      state.down = state.column === column ? !state.down : typeof data.keys[0][column] !== 'string';
      state.column = column;
      order.sort(compare);
      draw();
    };
  });
  var button = null;
  if (more) {
    more.remove();
    button = addElement('button', box, 'font:inherit;color:inherit;background:transparent;cursor:pointer;' +
      'border:1px solid rgba(128,128,128,.5);border-radius:3px;padding:2px 7px;margin:0 8px 4px 0');
    button.onclick = function () { state.all = !state.all; draw(); };
  }
  draw();
}

// Shows the ops that have these words in their names, in the op table of the same report.
function findOps(from, words) {
  var root = from.closest('.profnb');
  var box = root && root.querySelector('.profnb-ops input[type=search]');
  if (!box || !words) return;
  root.querySelectorAll('[role=tab]').forEach(function (tab) {
    if (tab.textContent === 'Ops') tab.click();
  });
  box.value = words;
  box.dispatchEvent(new Event('input', {bubbles: true}));
  box.scrollIntoView({block: 'nearest', behavior: 'smooth'});
}
