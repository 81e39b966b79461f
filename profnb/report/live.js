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
    const place = root.querySelector('[role=tablist], .profnb-tab');
    if (place) place.before(bar); else root.append(bar);
    const add = (/** @type {string} */ text) => bar.appendChild(document.createTextNode(text));
    add('steps ');
    const ends = [0, this.numbers.length - 1];
    const names = addElement('datalist', bar, '');
    names.id = `profnb-steps-${root.dataset.live}`;
    this.numbers.forEach((number) => addElement('option', names, '', number));
    /** @type {HTMLInputElement[]} */
    const inputs = ends.map((row, i) => {
      const input = addElement('input', bar, CONTROL + 'width:70px');
      input.setAttribute('list', names.id);  // typed, or chosen among those there are
      input.setAttribute('aria-label', i ? 'last step' : 'first step');
      input.value = this.numbers[row];
      input.onchange = () => this.ask();
      if (!i) add('to ');
      return input;
    });
    this.first = inputs[0];
    this.last = inputs[1];
    add('of ');
    this.scope = addElement('select', bar, CONTROL);
    this.scope.setAttribute('aria-label', 'kind of steps');
    for (const scope of scopes) addElement('option', this.scope, 'color:#222;background:#fff', scope);
    this.scope.onchange = () => this.ask();
    this.reset = addElement('button', bar, CONTROL + 'cursor:pointer;display:none', 'all steady steps');
    this.reset.onclick = () => {
      [this.first.value, this.last.value] = ends.map((row) => this.numbers[row]);
      this.scope.selectedIndex = 0;
      this.ask();
    };
    this.note = addElement('span', bar, 'opacity:.72');
  }

  async ask() {
    const {numbers, scope} = this, first = numbers.indexOf(this.first.value.trim()), last = numbers.lastIndexOf(this.last.value.trim());
    if (first < 0 || last < 0) {
      const typed = (first < 0 ? this.first : this.last).value;
      this.note.textContent = `there is no step ${typed}: ${numbers[0]} to ${numbers[numbers.length - 1]}`;
      return;
    }
    const isWhole = !first && last === numbers.length - 1 && !scope.selectedIndex;
    this.reset.style.display = isWhole ? 'none' : '';
    if (isWhole) { this.note.textContent = ''; this.show(this.whole); return; }
    this.note.textContent = '…';
    const reply = await this.source.ask(`${first} ${last} ${scope.selectedIndex}`);
    this.note.textContent = !reply ? 'the kernel does not answer' : reply === 'none' ? 'no such steps in this range' : '';
    if (!reply || reply === 'none') return;
    const made = document.createElement('template');
    made.innerHTML = reply;
    const parts = Array.from(made.content.querySelectorAll('[data-part]'));
    this.show(new Map(parts.map((part) => [/** @type {HTMLElement} */ (part).dataset.part || '', Array.from(part.childNodes)])));
    run();
  }

  /**
   * Puts the nodes of parts in their places, and keeps what stood there at first. What is of all steps whatever is chosen
   * stands aside until all are chosen again: what is on the screen is of one choice. @param {Map<string, Node[]>} parts
   */
  show(parts) {
    const isWhole = parts === this.whole;
    const aside = new Set();
    for (const tab of /** @type {NodeListOf<HTMLElement>} */ (this.root.querySelectorAll('.profnb-tab'))) {
      const within = /** @type {HTMLElement[]} */ (Array.from(tab.querySelectorAll('[data-part]')));
      for (const part of within) part.style.display = isWhole || parts.has(part.dataset.part || '') ? '' : 'none';
      if (within.every((part) => part.style.display === 'none')) aside.add(tab.dataset.tab);
    }
    for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (this.root.querySelectorAll('[role=tab]'))) {
      const isAside = aside.has(button.textContent);
      button.disabled = isAside;
      button.style.display = isAside ? 'none' : '';
      if (isAside && button.getAttribute('aria-selected') === 'true') openTab(button, 'Steps');
    }
    if (aside.size) this.note.textContent = `${[...aside].join(', ')}: of all steps only`;
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
