// Numbers to text, as profnb/core/units.py writes them, and colours to pixels.

/** @param {number} ps @returns {string} */
function durationText(ps) {
  if (!ps) return '0 ms';
  /** @type {[number, string][]} */
  const units = [[1e12, 's'], [1e9, 'ms'], [1e6, 'µs'], [1e3, 'ns'], [1, 'ps']];
  for (const [size, unit] of units) {
    if (ps < size * 0.9995) continue;
    const value = ps / size;
    return fixedText(value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2) + ' ' + unit;
  }
  return fixedText(ps, 2) + ' ps';
}

/** @param {number} count @returns {string} */
function countText(count) { return fixedText(count, 0); }

/** @param {number} count @returns {string} */
function bytesText(count) {
  /** @type {[number, string][]} */
  const units = [[1e12, 'TB'], [1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']];
  for (const [size, unit] of units) {
    if (Math.abs(count) < size * 0.9995) continue;
    const value = Math.abs(count) / size;
    return (count < 0 ? '-' : '') + fixedText(value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2) + ' ' + unit;
  }
  return fixedText(count, 0) + ' B';
}

/** A text cut to so many characters. @param {string} text @param {number} room */
function shortened(text, room) { return text.length > room ? text.slice(0, Math.max(room - 1, 1)) + '…' : text; }

/** A kernel's name from its functor on, which tells it apart; any other name as it is. @param {string} name */
function functorOf(name) {
  return name.startsWith('void ') ? name.slice(5).replace(/\b(?:[A-Za-z_]\w*::)+(?=[A-Za-z_{(])/g, '') : name;
}

/** @param {string} hex @param {number} brightness @param {number} alpha @returns {number} ABGR pixel */
function pixelOf(hex, brightness, alpha) {
  const part = (/** @type {number} */ at) => Math.min(255, Math.round(parseInt(hex.slice(at, at + 2), 16) * brightness));
  return (alpha << 24 | part(5) << 16 | part(3) << 8 | part(1)) >>> 0;
}

/** Black or white, whichever reads better on a pixel (WCAG 2.2: relative luminance). @param {number} pixel ABGR */
function inkOn(pixel) {
  const linear = (/** @type {number} */ part) => part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4;
  const light = 0.2126 * linear(pixel & 255) + 0.7152 * linear(pixel >> 8 & 255) + 0.0722 * linear(pixel >> 16 & 255);
  return 1.05 / (light + 0.05) >= (light + 0.05) / 0.05 ? '#fff' : '#000';
}
