// Puts code into a new cell of the notebook, below the one that shows it: for Colab its own call, in JupyterLab and Notebook 7 the
// page's own button, then a paste. The kernel cannot: what IPython calls set_next_input goes with the reply to a cell that runs, so from
// a click it came with the next cell, and below that (jupyterlab#8893).

/** @param {() => Element | null | undefined} find @returns {Promise<Element | null>} what it finds within some seconds */
async function soon(find) {
  for (let left = 100; left; left -= 1) {
    const found = find();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 40));
  }
  return null;
}

/**
 * Finds the way to a new cell; null where the page has none.
 * @param {Element} element of an output @returns {((text: string) => Promise<boolean>) | null} tells whether there is one now
 */
function findInsert(element) {
  const colab = /** @type {any} */ (window).google?.colab;
  if (colab?.kernel?.accessAllowed && colab.notebook?.addCell) return async (text) => { await colab.notebook.addCell(text, 'code'); return true; };
  const panel = element.closest('.jp-NotebookPanel');
  const button = /** @type {HTMLElement | null | undefined} */ (panel?.querySelector('[data-command="notebook:insert-cell-below"]'));
  if (!panel || !button) return null;
  return async (text) => {
    const old = new Set(panel.querySelectorAll('.cm-content'));
    button.dispatchEvent(new MouseEvent('mousedown', {bubbles: true}));  // which JupyterLab's buttons act on
    const made = await soon(() => Array.from(panel.querySelectorAll('.jp-Cell.jp-mod-active .cm-content')).find((one) => !old.has(one)));
    const clipboardData = new DataTransfer();
    clipboardData.setData('text/plain', text);
    return made !== null && !made.dispatchEvent(new ClipboardEvent('paste', {clipboardData, bubbles: true, cancelable: true}));
  };
}
