// Makes the advice of a report handy: a button copies each piece of code that is to be written, and all rows but the
// first two are folded. Without it the code can be selected, and every row is shown.

const ROWS_OF_ADVICE = 2;

/** Copies text, by the old way where a page may not use the clipboard. @param {HTMLElement} code @returns {Promise<void>} */
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
    if (!document.execCommand('copy')) throw new Error('not copied');  // it is selected, for the keyboard
  }
}

/** @param {HTMLElement} code */
function upgradeCode(code) {
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = 'copy';
  button.setAttribute('aria-label', `copy ${code.textContent}`);
  button.setAttribute('style', 'font:inherit;font-size:11px;color:inherit;background:none;cursor:pointer;padding:0 5px;' +
    'margin:0 3px;border:1px solid rgba(128,128,128,.5);border-radius:3px;min-height:20px');
  button.onclick = () => copyCode(code).then(() => say('copied'), () => say('selected'));
  /** @param {string} word */
  function say(word) {
    button.textContent = word;
    button.setAttribute('aria-label', `${word} ${code.textContent}`);
    setTimeout(() => { button.textContent = 'copy'; button.setAttribute('aria-label', `copy ${code.textContent}`); }, 1500);
  }
  code.after(button);
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
