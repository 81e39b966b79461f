// What the scripts of the report and of the timeline share: a share as text, and an element of a page.

/**
 * A number with so many digits after the point and commas at the thousands, as Python writes it: what lies exactly
 * between two goes to the even digit. @param {number} value @param {number} digits @returns {string}
 */
function fixedText(value, digits) {
  // Halves of the last digit that a double holds exactly are multiples of this power of two.
  const isHalf = Number.isInteger(value * 2 ** (digits + 1)) && value.toFixed(digits + 1).endsWith('5');
  let text = value.toFixed(digits);
  if (isHalf) {
    const below = value.toFixed(digits + 1).slice(0, digits ? -1 : -2);
    if (Number(below[below.length - 1]) % 2 === 0) text = below;
  }
  const [whole, ...rest] = text.split('.');
  return [whole.replace(/\B(?=(\d{3})+$)/g, ','), ...rest].join('.');
}

/** A share, as profnb/core/units.py writes it. @param {number} fraction @returns {string} */
function percentText(fraction) {
  return fraction > 0 && fraction < 0.0005 ? '<0.1 %' : fixedText(fraction * 100, 1) + ' %';
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
