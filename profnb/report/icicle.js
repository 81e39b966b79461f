// Draws the tree of the cell as an icicle: each node under the one above it, as wide as its share. A click or Enter goes into
// one, the path above leads back, arrow keys go from node to node. A label stands where it has room; the tip has it all.

/**
 * @typedef {[number, number, number, string, number, string, string, string, number]} DrawnNode node above, begin and end in millionths,
 *   title, look, what is said of it, its own time, what it leads to, its row in p.cell_tree
 * @typedef {{looks: [string, string][], nodes: DrawnNode[]}} DrawnTree
 */

const ICICLE_ROW = 22, ICICLE_LEVELS = 6, MILLION = 1e6;
const HOLDS = 'rgba(128,128,128,.17)', ITSELF = 'rgba(128,128,128,.07)';

/** Black or white, whichever reads better on a colour; what the page has on none. @param {string} colour */
function inkOn(colour) {
  if (!colour) return 'inherit';
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return 1.05 / (light + 0.05) >= (light + 0.05) / 0.05 ? '#fff' : '#000';
}

class Icicle {
  /** @param {HTMLElement} box */
  constructor(box) {
    this.box = box;
    const data = /** @type {DrawnTree} */ (JSON.parse(box.dataset.tree || ''));
    this.looks = data.looks;
    this.nodes = data.nodes;
    /** @type {number[]} */
    this.depth = [];
    /** @type {number[][]} */
    this.below = this.nodes.map(() => []);
    this.nodes.forEach(([above], at) => {
      this.depth.push(above < 0 ? 0 : this.depth[above] + 1);
      if (above >= 0) this.below[above].push(at);
    });
    this.below.forEach((list) => list.sort((a, b) => this.nodes[a][1] - this.nodes[b][1]));
    this.view = 0;
    this.held = 0;  // which node the keyboard is at
    /** @type {Map<number, HTMLElement>} */
    this.drawn = new Map();
    box.replaceChildren();
    this.path = addElement('div', box, 'display:flex;flex-wrap:wrap;align-items:center;gap:0 6px;min-height:22px;font-size:12px');
    this.path.className = 'profnb-path';
    this.path.setAttribute('role', 'group');  // no landmark: a page may have several
    this.path.setAttribute('aria-label', 'path to the node shown');
    this.stage = addElement('div', box, `position:relative;overflow:hidden;height:${ICICLE_ROW * Math.min(Math.max(...this.depth) + 1, ICICLE_LEVELS)}px;font-size:12px`);
    this.stage.setAttribute('role', 'tree');
    this.stage.setAttribute('aria-label', 'where the time went; Enter goes into a node, Escape back, arrow keys from node to node');
    this.stage.onkeydown = (event) => { if (this.press(event.key)) event.preventDefault(); };
    this.legend = addElement('div', box, 'display:flex;flex-wrap:wrap;gap:0 14px;font-size:11px;margin:3px 0 0');
    this.width = 0;
    new ResizeObserver(() => {
      const wide = Math.floor(this.stage.clientWidth);
      if (wide && wide !== this.width) { this.width = wide; this.draw(); }
    }).observe(this.stage);
    this.draw();
  }

  /** Goes into a node. @param {number} at */
  show(at) {
    const isHeld = this.box.contains(document.activeElement);
    this.view = this.held = at;
    this.draw();
    if (isHeld) this.drawn.get(at)?.focus({preventScroll: true});
  }

  /** Goes into the node of a row of p.cell_tree. @param {number} row */
  showRow(row) {
    const at = this.nodes.findIndex((node) => node[8] === row);
    if (at >= 0) this.show(at);
  }

  /** The row of the longest node of this name, or of a path that ends in it. @param {string} name @returns {number | undefined} */
  rowOf(name) {
    const named = this.nodes.filter(([, , , title]) => title === name || title.endsWith(`/${name}`));
    return named.sort((a, b) => b[2] - b[1] - (a[2] - a[1]))[0]?.[8];
  }

  draw() {
    this.stage.replaceChildren();
    this.drawn.clear();
    this.ink = this.measure();
    this.place(this.view, 0);
    this.drawPath();
    this.drawLegend();
  }

  /** How wide a text is. */
  measure() {
    const context = document.createElement('canvas').getContext('2d');
    if (context) context.font = `12px ${getComputedStyle(this.stage).fontFamily}`;
    return (/** @type {string} */ text) => context ? context.measureText(text).width : text.length * 7;
  }

  /** @param {number} at @param {number} level */
  place(at, level) {
    const [, begin, end, title, look, about, own] = this.nodes[at];
    const [, from, to] = this.nodes[this.view], whole = this.view ? to - from || 1 : MILLION;  // two beside each other have one scale
    const wide = (end - begin) / whole * this.width;
    if (level >= ICICLE_LEVELS || (at !== this.view && wide < 1)) return;
    const share = `left:${(begin - from) / whole * 100}%;width:${(end - begin) / whole * 100}%;`;
    const colour = this.looks[look][1];
    const element = addElement('div', this.stage, `position:absolute;box-sizing:border-box;top:${level * ICICLE_ROW}px;height:${ICICLE_ROW - 1}px;${share}overflow:hidden;` +
      `white-space:nowrap;cursor:pointer;line-height:${ICICLE_ROW - 1}px;padding:0 ${wide > 12 ? 5 : 0}px;border-right:1px solid var(--jp-layout-color0,Canvas);` +
      `background:${colour || HOLDS};color:${inkOn(colour)}`, this.labelOf(title, about, wide - 11));
    element.setAttribute('role', 'treeitem');
    element.setAttribute('aria-level', String(this.depth[at] + 1));
    const said = about.split(' · '), time = said.pop();  // what is seen stands in the name, as it is seen
    element.setAttribute('aria-label', [`${title}  ${time}`, ...said, ...(own ? [`itself ${own}`] : [])].join(' · '));
    if (this.below[at].length) element.setAttribute('aria-expanded', 'true');
    element.tabIndex = at === this.held ? 0 : -1;
    element.dataset.tip = `${title}\n${about}${own ? `\nitself ${own}` : ''}`;
    element.dataset.node = String(this.nodes[at][8]);
    element.onclick = () => this.show(at === this.view && at ? this.nodes[at][0] : at);
    element.onfocus = () => { this.held = at; for (const one of this.drawn.values()) one.tabIndex = one === element ? 0 : -1; };
    this.drawn.set(at, element);
    for (const one of this.below[at]) this.place(one, level + 1);
    const last = this.below[at].length ? this.nodes[this.below[at][this.below[at].length - 1]][2] : end;
    if (last >= end || level + 1 >= ICICLE_LEVELS || !own) return;
    const rest = addElement('div', this.stage, `position:absolute;top:${(level + 1) * ICICLE_ROW}px;height:${ICICLE_ROW - 1}px;left:${(last - from) / whole * 100}%;` +
      `width:${(end - last) / whole * 100}%;background:${ITSELF}`);
    rest.dataset.tip = `${title} itself\n${own}`;
  }

  /** As much as there is room for, never a part of a word. @param {string} title @param {string} about @param {number} room */
  labelOf(title, about, room) {
    const last = title.split('/').pop() || '', short = /\D/.test(last) ? last : title, time = about.split(' · ').pop() || '', words = title.split(' ');
    const begins = words.slice(1).map((_, at) => `${words.slice(0, -1 - at).join(' ')} …`);
    return [`${title}  ${time}`, `${short}  ${time}`, title, short, ...begins].find((text) => this.ink && this.ink(text) <= room) || '';
  }

  drawPath() {
    this.path.replaceChildren();
    /** @type {number[]} */
    const above = [];
    for (let at = this.view; at >= 0; at = this.nodes[at][0]) above.unshift(at);
    above.slice(0, -1).forEach((at) => {
      addButton(this.path, this.nodes[at][3], () => this.show(at));
      addElement('span', this.path, 'opacity:.6', '›').setAttribute('aria-hidden', 'true');
    });
    const [, , , title, , about, own, leads] = this.nodes[this.view];
    if (!this.view) { addElement('span', this.path, 'opacity:.72', 'Click a part to go into it.'); return; }
    addElement('b', this.path, '', title);
    addElement('span', this.path, 'opacity:.72', about + (own && this.view ? ` · itself ${own}` : ''));
    const [tab, words] = leads.split('\t');
    if (!leads || !findTab(this.box, tab)) return;
    addButton(this.path, words ? 'show its ops' : `more in ${tab}`, () => words ? findOps(this.box, words) : openTab(this.box, tab));
  }

  drawLegend() {
    this.legend.replaceChildren();
    const looks = new Set([...this.drawn.keys()].map((at) => this.nodes[at][4]));
    for (const look of looks) {
      const [name, colour] = this.looks[look];
      if (!colour) continue;
      const item = addElement('span', this.legend, 'white-space:nowrap');
      addElement('span', item, `color:${colour}`, '■ ').setAttribute('aria-hidden', 'true');
      addElement('span', item, 'opacity:.85', name);
    }
  }

  /** Whether a key was meant for the picture. @param {string} key */
  press(key) {
    const {held, below, nodes} = this, above = nodes[held][0];
    if (key === 'Enter' || key === ' ') { this.drawn.get(held)?.click(); return true; }
    if (key === 'Escape' || key === 'Backspace') {
      if (this.view) this.show(nodes[this.view][0]);
      return true;
    }
    const isSeen = (/** @type {number} */ at) => this.drawn.has(at);
    const sameLevel = [...this.drawn.keys()].filter((at) => this.depth[at] === this.depth[held]).sort((a, b) => nodes[a][1] - nodes[b][1]);
    const next = key === 'ArrowDown' ? below[held].find(isSeen) : key === 'ArrowUp' ? (isSeen(above) ? above : undefined) :
      key === 'ArrowRight' ? sameLevel[sameLevel.indexOf(held) + 1] : key === 'ArrowLeft' ? sameLevel[sameLevel.indexOf(held) - 1] :
      key === 'Home' ? this.view : undefined;
    if (next === undefined) return key.startsWith('Arrow');
    this.drawn.get(next)?.focus({preventScroll: true});
    return true;
  }
}

/** @param {HTMLElement} parent @param {string} text @param {() => void} act */
function addButton(parent, text, act) {
  const button = addElement('button', parent, 'font:inherit;color:inherit;background:none;border:0;padding:2px 0;margin:0;cursor:pointer;text-decoration:underline', text);
  button.type = 'button';
  button.onclick = act;
  return button;
}

/** The tab of this name in the same report. @param {Element} from @param {string} name @returns {HTMLElement | undefined} */
function findTab(from, name) {
  const tabs = Array.from(from.closest('.profnb')?.querySelectorAll('.profnb-tab') || []);
  return /** @type {HTMLElement[]} */ (tabs).find((tab) => tab.dataset.tab === name);
}

/** Opens a tab of the same report. @param {Element} from @param {string} name */
function openTab(from, name) {
  from.closest('.profnb')?.querySelectorAll('[role=tab]').forEach((tab) => {
    if (tab.textContent === name) /** @type {HTMLElement} */ (tab).click();
  });
  findTab(from, name)?.scrollIntoView({block: 'nearest', behavior: 'smooth'});
}

/** Makes links of the names in the headline: each leads to its node in the picture. @param {HTMLElement} name */
function upgradeName(name) {
  const button = document.createElement('button');
  button.type = 'button';
  button.setAttribute('style', 'font:inherit;color:inherit;background:none;border:0;padding:0;margin:0;cursor:pointer;text-align:left;' +
    'text-decoration:underline dotted;text-underline-offset:4px');
  button.append(...name.childNodes);
  button.onclick = () => {
    const box = /** @type {any} */ (name.closest('.profnb')?.querySelector('.profnb-icicle'));
    box?.icicle?.showRow(Number(name.dataset.leads));
  };
  name.append(button);
}

/** Makes links of the names in a sentence that nodes of the picture have. @param {HTMLElement} said */
function upgradeNamed(said) {
  const icicle = /** @type {any} */ (said.closest('.profnb')?.querySelector('.profnb-icicle'))?.icicle;
  said.querySelectorAll('span').forEach((name) => {
    const row = icicle?.rowOf(name.textContent || '');
    if (row === undefined) return;
    name.dataset.leads = String(row);
    upgradeName(name);
  });
}
