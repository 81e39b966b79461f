// Makes the advice of a report handy: a button copies each piece of code that is to be written, and all rows but the
// first two are folded. Without it the code can be selected, and every row is shown.

const ROWS_OF_ADVICE = 2;

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

/** @param {HTMLElement} box */
function upgradeAdvice(box) {
  const rest = /** @type {HTMLElement[]} */ (Array.from(box.querySelectorAll('li'))).slice(ROWS_OF_ADVICE);
  if (!rest.length) return;
  const button = document.createElement('button');
  button.type = 'button';
  button.setAttribute('style', 'font:inherit;color:inherit;background:none;border:0;padding:3px 0;cursor:pointer;text-decoration:underline');
  /** @param {boolean} on */
  function show(on) {
    rest.forEach((row) => { row.style.display = on ? 'flex' : 'none'; });
    button.setAttribute('aria-expanded', on ? 'true' : 'false');
    button.textContent = on ? 'show the first two' : `${rest.length} more`;
  }
  button.onclick = () => show(button.getAttribute('aria-expanded') !== 'true');
  box.querySelector('ul')?.after(button);
  show(false);
}
