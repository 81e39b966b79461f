// Makes the advice of a report handy: a button copies each piece of code that is to be written, and the first screen is
// as short as a screen. Without it the code can be selected, and all is shown.

/** Copies text, by the old way where a page may not use the clipboard. @param {HTMLElement} code @returns {Promise<string>} what came of it */
async function copyCode(code) {
  const text = code.textContent || '';
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const range = document.createRange();
    range.selectNodeContents(code);
    const selection = getSelection();
    selection?.removeAllRanges();
    selection?.addRange(range);
    if (!document.execCommand('copy')) return 'selected';  // for the keyboard
  }
  return 'copied';
}

/**
 * Adds a small button behind an element, which says for a moment what came of it.
 * @param {HTMLElement} before @param {string} name @param {string} what it is for, to be read out @param {() => Promise<string>} act
 */
function addSmallButton(before, name, what, act) {
  const button = document.createElement('button');
  button.type = 'button';
  button.setAttribute('style', 'font:inherit;font-size:11px;color:inherit;background:none;cursor:pointer;padding:0 5px;' +
    'margin:0 3px;border:1px solid rgba(128,128,128,.5);border-radius:3px;min-height:20px');
  /** @param {string} word */
  function say(word) {
    button.textContent = word;
    button.setAttribute('aria-label', `${word} ${what}`);
  }
  button.onclick = async () => {
    say(await act());
    setTimeout(() => say(name), 1500);
  };
  say(name);
  before.after(button);
  return button;
}

/** @param {HTMLElement} code */
function upgradeCode(code) {
  const {cell} = code.dataset;
  if (!cell) { addSmallButton(code, 'copy', code.textContent || '', () => copyCode(code)); return; }
  const whole = document.createElement('code'), change = code.previousElementSibling?.textContent || '';  // whole: shown where it has to be selected
  whole.setAttribute('style', code.getAttribute('style') + ';display:none');
  whole.textContent = cell;
  code.after(whole);
  const copyWhole = async () => {
    whole.style.display = 'block';
    const said = await copyCode(whole);
    if (said === 'copied') whole.style.display = 'none';
    return said;
  };
  const copyDiff = addSmallButton(whole, 'copy diff', change, () => copyCode(code));
  const copyCell = addSmallButton(copyDiff, 'copy edited cell', change, copyWhole);
  const insert = findInsert(code);
  if (insert) addSmallButton(copyCell, 'insert below', change, async () => await insert(cell) ? 'inserted' : copyWhole());
}

// How much is shown of the first screen, closed: rows of advice, and lines of each text. The first that fits is taken.
const SHORTER = [[2, 99], [2, 6], [2, 4], [2, 3], [1, 4], [1, 3], [1, 2]], SCREEN = 700;

/** Cuts the first screen to 700 px, whatever its texts say; a button shows the rest. @param {HTMLElement} root */
function upgradeScreen(root) {
  const rows = /** @type {HTMLElement[]} */ (Array.from(root.querySelectorAll('.profnb-advice li'))), texts = Array.from(root.querySelectorAll('.profnb-clip'));
  const above = root.querySelector('.profnb-advice ul') || root.querySelector('.profnb-icicle'), last = root.querySelector('[role=tablist]') || root;
  if (!above) return;
  const button = addButton(root, '', () => show(!isOpen));
  above.after(button);
  let isOpen = false, wide = 0;
  /** @param {boolean} on */
  function show(on) {
    isOpen = on;
    for (const [count, lines] of on ? [[rows.length, 99]] : SHORTER) {
      rows.forEach((row, at) => { row.style.display = at < count ? 'flex' : 'none'; });
      root.style.setProperty('--profnb-lines', String(lines));
      const hidden = rows.length - Math.min(count, rows.length), isCut = texts.some((text) => text.scrollHeight > text.clientHeight + 1);
      button.textContent = on ? 'show less' : hidden ? `${hidden} more` : 'more';
      button.style.display = on || hidden || isCut ? '' : 'none';
      if (last.getBoundingClientRect().bottom - root.getBoundingClientRect().top <= SCREEN) break;
    }
    button.setAttribute('aria-expanded', String(on));
  }
  new ResizeObserver(() => {
    if (root.clientWidth && root.clientWidth !== wide && !isOpen) show(false);
    wide = root.clientWidth;
  }).observe(root);
  show(false);
}
