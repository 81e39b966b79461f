// Draws the plotly figure of `root`, replacing the table inside it.
// Uses the page's plotly.js if there is one, else fetches the basic bundle; if that fails (no network,
// a strict page) the table stays. RequireJS, where a page has it, is kept out of the way and restored.
if (root.dataset.ready) return;
root.dataset.ready = '1';
var figure = JSON.parse(root.dataset.figure);
var table = root.firstElementChild;
function draw() {
  var place = document.createElement('div');
  root.insertBefore(place, table);
  window.Plotly.newPlot(place, figure.data, figure.layout, {displaylogo: false, responsive: true})
    .then(function () { table.remove(); }, function () { place.remove(); });
}
if (window.Plotly) { draw(); return; }
if (!root.dataset.source) return;
var hidden = window.define;
var script = document.createElement('script');
function restore() { if (hidden) window.define = hidden; }
if (hidden) window.define = undefined;
script.src = root.dataset.source;
script.onload = function () { restore(); if (window.Plotly) draw(); };
script.onerror = restore;
document.head.appendChild(script);
