// Puts a viewer in place of every packed timeline on the page, once, and asks the kernel if there is one.

/** @param {HTMLElement} root */
async function startTimeline(root) {
  const started = performance.now();
  const marks = await readMarks(root.dataset.timeline || '');
  const still = root.querySelector('.profnb-still');
  /** @param {string} display */
  const showStill = (display) => { if (still) /** @type {HTMLElement} */ (still).style.display = display; };
  showStill('none');  // before anything is measured, so that it is not laid out again
  let viewer;
  try { viewer = new Viewer(root, root, marks); } catch (error) { showStill(''); throw error; }
  /** @type {any} */ (root).viewer = viewer;
  joinPairs();
  root.dataset.ms = String(Math.round(performance.now() - started));
  if (root.dataset.more) readEvery(viewer);
  // The hidden widgets may come onto the page after this, or be lost: then JupyterLab says so, to no use.
  [0, 500, 1500, 4000, 12000].forEach((delay) => setTimeout(async () => {
    const area = root.closest('.jp-OutputArea');
    area?.querySelectorAll('.jp-OutputArea-output').forEach((output) => {
      if (/^Error displaying widget/.test(output.textContent || '')) /** @type {HTMLElement} */ (output).style.display = 'none';
    });
    if (viewer.detail.source) return;
    const source = findSource(root.dataset.id || '');
    if (!source || !(await source.ask('hello'))) return;  // a kernel that is gone does not answer
    viewer.detail.source = source;
    if (marks.head.merged) viewer.note(MORE_DETAIL);
    viewer.detail.use();
  }, delay));
}

/** A large page draws what stands in front of the script first; every event stands behind it. @param {Viewer} viewer */
function readEvery(viewer) {
  const every = /** @type {HTMLElement | null} */ (document.querySelector('.profnb-every'));
  if (!every || document.readyState === 'loading') {
    if (document.readyState === 'loading') addEventListener('DOMContentLoaded', () => readEvery(viewer), {once: true});
    return;
  }
  // After the frame that shows the first picture.
  requestAnimationFrame(() => setTimeout(async () => {
    const marks = await readMarks(every.dataset.marks || '');
    every.remove();
    viewer.take(marks);
  }));
}

function startTimelines() {
  if (typeof DecompressionStream === 'undefined') return;  // an old browser keeps the still picture
  document.querySelectorAll('.profnb-timeline[data-timeline]').forEach((element) => {
    const root = /** @type {HTMLElement} */ (element);
    if (root.dataset.ready || !root.offsetWidth) return;
    root.dataset.ready = '1';
    startTimeline(root).catch((error) => { console.error('profnb timeline', error); });
  });
}
startTimelines();
[50, 300, 1000, 3000, 8000, 20000].forEach((delay) => setTimeout(startTimelines, delay));
