// The controls of a report whose kernel answers: which steps it is of. What they ask for takes the place of the parts of
// the report that are of some steps; the rest, and the saved notebook, stay as they are.

class LiveReport {
  /** @param {HTMLElement} root @param {DetailSource} source @param {string} told the steps and the scopes there are */
  constructor(root, source, told) {
    this.root = root;
    this.source = source;
    const [numbers, ...scopes] = told.split('\n');
    this.numbers = numbers.split(' ');
    /** @type {Map<string, Node[]>} */
    this.whole = new Map();
    const bar = document.createElement('div');
    bar.className = 'profnb-live';
    bar.setAttribute('style', 'font-size:12px;margin:4px 0 0');
    const place = root.querySelector('.profnb-figure')?.nextElementSibling;
    if (place) place.after(bar); else root.append(bar);
    const add = (/** @type {string} */ text) => bar.appendChild(document.createTextNode(text));
    add('steps ');
    const ends = [0, this.numbers.length - 1];
    const selects = ends.map((row, i) => {
      const select = addElement('select', bar, CONTROL + 'max-width:90px');
      select.setAttribute('aria-label', i ? 'last step' : 'first step');
      this.numbers.forEach((number) => addElement('option', select, 'color:#222;background:#fff', number));
      select.selectedIndex = row;
      select.onchange = () => this.ask();
      if (!i) add('to ');
      return select;
    });
    this.first = selects[0];
    this.last = selects[1];
    add('of ');
    this.scope = addElement('select', bar, CONTROL);
    this.scope.setAttribute('aria-label', 'kind of steps');
    for (const scope of scopes) addElement('option', this.scope, 'color:#222;background:#fff', scope);
    this.scope.onchange = () => this.ask();
    this.reset = addElement('button', bar, CONTROL + 'cursor:pointer;display:none', 'all steady steps');
    this.reset.onclick = () => {
      [this.first.selectedIndex, this.last.selectedIndex] = ends;
      this.scope.selectedIndex = 0;
      this.ask();
    };
    this.note = addElement('span', bar, 'opacity:.72');
  }

  async ask() {
    const {first, last, scope} = this;
    const isWhole = !first.selectedIndex && last.selectedIndex === this.numbers.length - 1 && !scope.selectedIndex;
    this.reset.style.display = isWhole ? 'none' : '';
    if (isWhole) { this.show(this.whole); this.note.textContent = ''; return; }
    this.note.textContent = '…';
    const reply = await this.source.ask(`${first.selectedIndex} ${last.selectedIndex} ${scope.selectedIndex}`);
    this.note.textContent = !reply ? 'the kernel does not answer' : reply === 'none' ? 'no such steps in this range' : '';
    if (!reply || reply === 'none') return;
    const made = document.createElement('template');
    made.innerHTML = reply;
    const parts = Array.from(made.content.querySelectorAll('[data-part]'));
    this.show(new Map(parts.map((part) => [/** @type {HTMLElement} */ (part).dataset.part || '', Array.from(part.childNodes)])));
    run();
  }

  /** Puts the nodes of parts in their places, and keeps what stood there at first. @param {Map<string, Node[]>} parts */
  show(parts) {
    for (const [name, nodes] of parts) {
      const place = this.root.querySelector(`[data-part="${CSS.escape(name)}"]`);
      if (!place) continue;
      if (!this.whole.has(name)) this.whole.set(name, Array.from(place.childNodes));
      place.replaceChildren(...nodes);
    }
  }
}

/** JupyterLab complains of widgets whose kernel is gone, once another one runs: of ours nobody wants to know. @param {HTMLElement} root */
function hideLostWidgets(root) {
  const area = root.closest('.jp-OutputArea');
  if (!area) return;
  const hide = () => area.querySelectorAll('.jp-OutputArea-output').forEach((output) => {
    if (/^Error displaying widget/.test(output.textContent || '')) /** @type {HTMLElement} */ (output).style.display = 'none';
  });
  hide();
  const seen = new MutationObserver(hide);
  seen.observe(area, {childList: true, subtree: true});
  setTimeout(() => seen.disconnect(), 60000);
}

/** Finds the kernel of a report, which may come onto the page after it. @param {HTMLElement} root */
function goLive(root) {
  hideLostWidgets(root);
  [0, 500, 1500, 4000, 12000].forEach((delay) => setTimeout(async () => {
    if (root.dataset.isLive) return;
    const source = findSource(root.dataset.live || '');
    const told = source && await source.ask('hello');
    if (!told || !source || root.dataset.isLive) return;  // a kernel that is gone does not answer
    root.dataset.isLive = '1';
    new LiveReport(root, source, told);
  }, delay));
}
