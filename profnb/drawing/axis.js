// What the charts of a report are drawn with: shapes, texts, and axes that find their range and their ticks.

/** @typedef {{at: (value: any) => number, value: (at: number) => number, ticks: [number, string][], low: number, high: number, isNamed: boolean}} Axis */

const FAINT = 'rgba(128,128,128,.28)';
const LETTER = 6.2;  // how wide a letter of 11 px is, more or less

/** @param {Element} parent @param {string} tag @param {Record<string, string | number>} attributes @param {string} [text] */
function addShape(parent, tag, attributes, text) {
  const shape = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const name in attributes) shape.setAttribute(name, String(attributes[name]));
  if (text !== undefined) shape.textContent = text;
  parent.appendChild(shape);
  return /** @type {SVGElement} */ (shape);
}

/** Text that was written for plotly, which reads a little HTML. @param {any} text */
function plainText(text) {
  const named = /** @type {Record<string, string>} */ ({'&lt;': '<', '&gt;': '>', '&#34;': '"', '&#39;': "'", '&amp;': '&'});
  return String(text).replace(/<extra>.*?<\/extra>/g, '').replace(/<br>/g, '\n').replace(/&(lt|gt|#34|#39|amp);/g, (found) => named[found]);
}

/** A number as a person writes it; large ones with k, M, G. @param {number} value @param {boolean} isShort */
function axisText(value, isShort) {
  const size = Math.abs(value);
  const [scale, prefix] = !isShort || size < 1000 ? [1, ''] : size < 1e6 ? [1e3, ' k'] : size < 1e9 ? [1e6, ' M'] : size < 1e12 ? [1e9, ' G'] : [1e12, ' T'];
  return (+(value / scale).toPrecision(6)).toLocaleString('en-US', {maximumSignificantDigits: 6}) + prefix;
}

/** What is said of a mark under the pointer. @param {any} trace @param {number} i */
function hoverText(trace, i) {
  const template = Array.isArray(trace.hovertemplate) ? trace.hovertemplate[i] : trace.hovertemplate;
  if (!template) return '';
  return plainText(template.replace(/%\{(\w+)(?:\[(\d+)\])?(?::([^}]*))?\}/g, (/** @type {string} */ _, /** @type {string} */ name, /** @type {string} */ part, /** @type {string} */ form) => {
    let value = (trace[name] || [])[i];
    if (part) value = (value || [])[+part];
    if (typeof value !== 'number') return value;
    return /s$/.test(form || '') ? axisText(+value.toPrecision(3), true) : axisText(+value.toPrecision(4), false);
  }));
}

/** @param {any} value @param {number} i */
const nth = (value, i) => Array.isArray(value) ? value[i] : value;

/**
 * An axis over all that lies along it. @param {any} figure @param {[number, number][][]} stacks where each value of each
 * trace begins and ends @param {'x' | 'y'} name @param {number} from @param {number} to @param {number} wanted ticks
 * @param {[number, number] | null} [view] what of it is shown; null for all
 * @returns {Axis}
 */
function makeAxis(figure, stacks, name, from, to, wanted, view) {
  const spec = (figure.layout || {})[name + 'axis'] || {};
  const along = (/** @type {any} */ t) => (t.orientation === 'h') === (name === 'x');
  const names = /** @type {any[]} */ (spec.categoryarray || []);
  const isNamed = names.length || figure.data.some((/** @type {any} */ t) => t[name].some((/** @type {any} */ v) => typeof v === 'string'));
  /** @type {(value: any) => number} */
  let place = Number;
  let low = Infinity, high = -Infinity;
  if (isNamed) {
    for (const t of figure.data) for (const v of t[name]) if (!names.includes(v)) names.push(v);
    place = (value) => typeof value === 'string' ? names.indexOf(value) : value;
    [low, high] = [-0.5, names.length - 0.5];
  } else {
    figure.data.forEach((/** @type {any} */ t, /** @type {number} */ at) => {
      const isLong = t.type === 'bar' ? along(t) : t.stackgroup && name === 'y';
      const half = t.type === 'bar' && !isLong ? (t.width || 1) / 2 : 0;
      t[name].forEach((/** @type {any} */ v, /** @type {number} */ i) => {
        if (v === null) return;
        const [begin, end] = isLong ? stacks[at][i] : [v - half, v + half];
        low = Math.min(low, begin, end);
        high = Math.max(high, begin, end);
      });
    });
  }
  if (spec.range) [low, high] = spec.range;
  else if (spec.rangemode === 'tozero') low = Math.min(low, 0);
  if (!(high > low)) [low, high] = spec.type === 'log' ? [low / 2, low * 2] : [low - 0.5, low + 0.5];
  const isLog = spec.type === 'log';
  if (isLog && !spec.range) [low, high] = [low / 1.3, high * 1.3];
  else if (!isNamed && !spec.range && spec.showgrid !== false) high += (high - low) * 0.04;
  if (view) [low, high] = view;
  if (spec.autorange === 'reversed') [from, to] = [to, from];
  const scale = isLog ? Math.log10 : Number;
  const at = (/** @type {any} */ value) => from + (to - from) * (scale(place(value)) - scale(low)) / (scale(high) - scale(low));
  const value = (/** @type {number} */ place) => {
    const scaled = scale(low) + (place - from) / (to - from) * (scale(high) - scale(low));
    return isLog ? 10 ** scaled : scaled;
  };
  const ticks = makeTicks(spec, low, high, wanted, isNamed ? names : null).filter(([v]) => !view || (v >= low && v <= high));
  return {at, value, low, high, ticks, isNamed: Boolean(isNamed)};
}

/** @param {any} spec @param {number} low @param {number} high @param {number} wanted @param {any[] | null} names @returns {[number, string][]} */
function makeTicks(spec, low, high, wanted, names) {
  if (spec.visible === false) return [];
  if (spec.tickvals) return spec.tickvals.map((/** @type {number} */ v, /** @type {number} */ i) => [v, plainText(spec.ticktext[i])]);
  if (names) return names.map((name, i) => [i, plainText(name)]);
  const isShort = Boolean(spec.exponentformat || spec.tickformat || high >= 1e5), after = spec.ticksuffix || '';
  const write = (/** @type {number} */ v) => axisText(v, isShort) + (isShort && v < 1000 && after ? ' ' : '') + after;
  const ticks = /** @type {[number, string][]} */ ([]);
  if (spec.type === 'log') {
    const every = Math.ceil((Math.log10(high) - Math.log10(low)) / Math.max(wanted, 1)) || 1;
    const within = every > 1 || Math.log10(high / low) > 2 ? [1] : [1, 2, 5];
    for (let e = Math.floor(Math.log10(low)); 10 ** e <= high; e += every) {
      for (const one of within) if (one * 10 ** e >= low && one * 10 ** e <= high) ticks.push([one * 10 ** e, write(+(one * 10 ** e).toPrecision(3))]);
    }
    return ticks;
  }
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((one) => one * power >= rough) || 10);
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) ticks.push([k * step, write(+(k * step).toPrecision(12))]);
  return ticks;
}
