// What stands under the pointer, shown by ourselves: at once, at a touch or a click, for who comes by keyboard; read out as a description.
// A text stands in ``title``, in ``data-tip``, or in the <title> of a shape; Escape hides it.

/** The element with a tip that another one is part of, and its text. @param {EventTarget | null} target @returns {[Element, string] | null} */
function tipOf(target) {
  for (let at = target instanceof Element ? target : null; at && !at.classList.contains('profnb'); at = at.parentElement) {
    const inside = at instanceof SVGElement ? at.querySelector(':scope > title') : null;
    const native = inside ? inside.textContent : at.getAttribute('title');
    if (native) {  // the browser's own would come on top of it
      inside?.remove();
      at.removeAttribute('title');
      at.setAttribute('data-tip', native);
      if (inside) at.setAttribute('aria-label', native);
      else if (!at.hasAttribute('aria-label')) at.setAttribute('aria-description', native);
    }
    const text = at.getAttribute('data-tip');
    if (text) return [at, text];
  }
  return null;
}

/** Shows the tips of a report. @param {HTMLElement} root */
function showTips(root) {
  root.style.position = 'relative';
  const tip = document.createElement('div');
  tip.className = 'profnb-tip';
  tip.setAttribute('aria-hidden', 'true');  // the element itself has it
  tip.setAttribute('style', 'position:absolute;display:none;z-index:9;max-width:min(420px,92%);padding:4px 9px;pointer-events:none;font-size:12px;' +
    'line-height:1.4;white-space:pre-line;overflow-wrap:anywhere;border-radius:4px;background:var(--jp-layout-color0,Canvas);' +
    'color:var(--jp-ui-font-color0,CanvasText);border:1px solid rgba(128,128,128,.6);box-shadow:0 2px 8px rgba(0,0,0,.25)');
  root.append(tip);
  const hide = () => { tip.style.display = 'none'; };
  /** @param {Event} event */
  const show = (event) => {
    const found = tipOf(event.target);
    if (!found?.[0].isConnected) { hide(); return; }  // a click may take away what was clicked
    const [element, text] = found;
    tip.textContent = text;
    tip.style.display = '';
    const place = root.getBoundingClientRect(), of = element.getBoundingClientRect();
    const isMoved = event instanceof PointerEvent && of.width > 200;  // of what is wide, where the pointer is
    const left = (isMoved ? event.clientX + 8 : of.left) - place.left;
    const isAbove = of.bottom + tip.offsetHeight + 8 > innerHeight && of.top > tip.offsetHeight + 8;
    tip.style.left = `${Math.max(Math.min(left, place.width - tip.offsetWidth), 0)}px`;
    tip.style.top = `${(isAbove ? of.top - tip.offsetHeight - 6 : of.bottom + 6) - place.top}px`;
  };
  for (const name of ['pointerover', 'focusin', 'click']) root.addEventListener(name, show);
  root.addEventListener('focusout', hide);
  root.addEventListener('pointerleave', (event) => { if (event.pointerType !== 'touch') hide(); });  // a finger that is lifted leaves
  root.addEventListener('keydown', (event) => { if (event.key === 'Escape') hide(); });
}
