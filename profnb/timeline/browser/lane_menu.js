// Which lines and tracks are shown: a filter by name, and for each line a box to show it and a button to pin it on top.

class LaneMenu {
  /** @param {Element} bar @param {Element} below where the list opens @param {Viewer} viewer */
  constructor(bar, below, viewer) {
    this.viewer = viewer;
    const style = BUTTON.replace('cursor:pointer;', '');
    this.input = addElement('input', bar, style + 'flex:1 1 110px;min-width:0;max-width:170px');
    this.input.type = 'search';
    this.input.placeholder = 'filter lanes';
    this.input.setAttribute('aria-label', 'filter lanes');
    this.input.oninput = () => this.filter(this.input.value);
    this.button = addElement('button', bar, BUTTON, 'lanes ▾');
    this.button.title = 'hide and pin lanes (L)';
    this.button.setAttribute('aria-label', 'lanes ▾: hide and pin lanes (L)');
    this.button.onclick = () => this.toggle();
    this.list = addElement('div', below, 'display:none;max-height:240px;overflow:auto;border:1px solid rgba(128,128,128,.35);' +
      'border-radius:3px;padding:4px 8px;margin-bottom:4px');
    this.list.setAttribute('role', 'group');
    this.list.setAttribute('aria-label', 'lanes');
    this.button.setAttribute('aria-expanded', 'false');
  }

  get isOpen() { return this.list.style.display !== 'none'; }

  /** @param {string} text */
  filter(text) {
    this.viewer.bands.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.changed();
  }

  toggle() {
    this.list.style.display = this.isOpen ? 'none' : 'block';
    this.button.setAttribute('aria-expanded', String(this.isOpen));
    if (this.isOpen) this.fill();
  }

  changed() {
    this.viewer.relay();
    if (this.isOpen) this.fill();
  }

  fill() {
    const {bands, whole, tracks} = this.viewer;
    const focused = this.list.contains(document.activeElement) ? document.activeElement?.getAttribute('data-key') : null;
    this.list.textContent = '';
    const top = addElement('div', this.list, '');
    /** @param {string} text @param {() => void} action */
    const button = (text, action) => {
      const made = addElement('button', top, BUTTON, text);
      made.dataset.key = text;
      made.onclick = () => { action(); this.changed(); };
    };
    button('show all', () => { bands.hidden.clear(); tracks.hidden.clear(); this.input.value = ''; bands.words = []; });
    button('only pinned', () => whole.head.lines.forEach((_, line) => { if (!bands.pinned.has(line)) bands.hidden.add(line); }));
    button('fold all', () => whole.head.lines.forEach((_, line) => { bands.folded.add(line); }));
    button('unfold all', () => { bands.folded.clear(); });
    whole.head.lines.forEach((line, index) => {
      const row = addElement('div', this.list, 'display:flex;align-items:center;gap:6px');
      this.addBox(row, `lane${index}`, `${line.label} · ${countText(line.events)} events`, !bands.hidden.has(index), () => flip(bands.hidden, index));
      const isPinned = bands.pinned.has(index);
      const pin = addElement('button', row, BUTTON + 'margin:0;padding:0 6px' + (isPinned ? ';background:rgba(128,128,128,.25)' : ''), isPinned ? 'pinned' : 'pin');
      pin.setAttribute('aria-pressed', String(isPinned));
      pin.setAttribute('aria-label', `pin ${line.label} on top`);
      pin.dataset.key = `pin${index}`;
      pin.onclick = () => { flip(bands.pinned, index); this.changed(); };
    });
    whole.head.tracks.forEach((track, index) => {
      const row = addElement('div', this.list, 'display:flex');
      this.addBox(row, `track${index}`, track.title, !tracks.hidden.has(index), () => flip(tracks.hidden, index));
    });
    if (focused) /** @type {HTMLElement | null} */ (this.list.querySelector(`[data-key="${focused}"]`))?.focus();
  }

  /** @param {Element} row @param {string} key @param {string} text @param {boolean} isOn @param {() => void} turn */
  addBox(row, key, text, isOn, turn) {
    const label = addElement('label', row, 'flex:1;cursor:pointer;overflow:hidden;text-overflow:ellipsis;white-space:nowrap');
    const box = addElement('input', label, 'margin:0 6px 0 0;vertical-align:middle');
    box.type = 'checkbox';
    box.checked = isOn;
    box.dataset.key = key;
    box.onchange = () => { turn(); this.changed(); };
    addElement('span', label, '', text);
  }
}
