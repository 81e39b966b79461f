// Numbers to text, as profnb/core/units.py writes them. Shared by the scripts of the report and the timeline.

/** @param {number} ps @returns {string} */
function durationText(ps) {
  if (!ps) return '0 ms';
  /** @type {[number, string][]} */
  var units = [[1e12, 's'], [1e9, 'ms'], [1e6, 'µs'], [1e3, 'ns'], [1, 'ps']];
  for (var i = 0; i < units.length; i++) {
    if (ps >= units[i][0] * 0.9995) {
      var v = ps / units[i][0];
      return v.toFixed(v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2) + ' ' + units[i][1];
    }
  }
  return ps + ' ps';
}

/** @param {number} fraction @returns {string} */
function percentText(fraction) {
  return fraction > 0 && fraction < 0.0005 ? '<0.1 %' : (fraction * 100).toFixed(1) + ' %';
}

/** @param {number} count @returns {string} */
function countText(count) { return count.toLocaleString('en-US'); }

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Element} parent @param {string} style @param {string} [text]
 * @returns {HTMLElementTagNameMap[K]}
 */
function addElement(tag, parent, style, text) {
  var element = document.createElement(tag);
  element.setAttribute('style', style);
  if (text !== undefined) element.textContent = text;
  parent.appendChild(element);
  return element;
}
