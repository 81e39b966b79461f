// What the scripts of the report and of the timeline share: a share as text, and an element of a page.

/** A share, as profnb/core/units.py writes it: a half is rounded to the even digit. @param {number} fraction @returns {string} */
function percentText(fraction) {
  if (fraction > 0 && fraction < 0.0005) return '<0.1 %';
  const percent = fraction * 100;
  return (percent % 1 === 0.25 ? Math.floor(percent) + '.2' : percent.toFixed(1)) + ' %';
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Element} parent @param {string} style @param {string} [text]
 * @returns {HTMLElementTagNameMap[K]}
 */
function addElement(tag, parent, style, text) {
  const element = document.createElement(tag);
  if (style) element.setAttribute('style', style);
  if (text !== undefined) element.textContent = text;
  parent.appendChild(element);
  return element;
}
