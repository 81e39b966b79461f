// The times and steps above the picture; times are from the trace's begin or, of two runs, from the step at which they are aligned.

/** @param {Picture} picture @param {number} width */
function drawRuler(picture, width) {
  const {context} = picture;
  const unit = picture.marks.head.unit_ps;
  const from = (picture.from - picture.zero) * unit;
  const to = (picture.to - picture.zero) * unit;
  const about = (to - from) / Math.max(2, picture.plotWidth / 110);
  const power = Math.pow(10, Math.floor(Math.log10(about)));
  const tick = [1, 2, 5, 10].map((m) => m * power).find((t) => t >= about) || power;
  context.font = `11px ${picture.font}`;
  context.fillStyle = picture.colour;
  const scales = /** @type {[number, string][]} */ ([[1e12, 's'], [1e9, 'ms'], [1e6, 'µs'], [1e3, 'ns']]);
  const largest = Math.max(Math.abs(to), picture.zero ? Math.abs(from) : 0);
  const [size, name] = scales.find(([scale]) => largest >= scale) || [1, 'ps'];
  const digits = Math.max(0, Math.ceil(-Math.log10(tick / size) - 1e-9));
  for (let count = Math.ceil(from / tick - 1e-9); count * tick <= to; count++) {
    const x = picture.xOf(count * tick / unit + picture.zero);
    const text = `${(count * tick / size).toFixed(digits)} ${name}`;
    context.globalAlpha = 0.35;
    context.fillRect(x, 0, 1, 16);
    context.globalAlpha = 0.72;
    if (x + 6.5 * text.length < width) context.fillText(text, x + 4, 9);
  }
  context.globalAlpha = 1;
}

/** The steps below the times, and a line down from where each begins.
 * @param {Picture} picture @param {number} height */
function drawSteps(picture, height) {
  const {context, marks} = picture;
  const {begin, end, num, warm} = marks.head.steps;
  context.font = `11px ${picture.font}`;
  let labelled = -1e9;
  for (const s of marks.stepsWithin(picture.from, picture.to)) {
    const x0 = Math.max(picture.xOf(begin[s]), picture.labelWidth);
    const x1 = Math.min(picture.xOf(end[s]), picture.labelWidth + picture.plotWidth);
    context.fillStyle = picture.colour;
    context.globalAlpha = warm[s] ? 0.1 : s % 2 ? 0.3 : 0.2;
    context.fillRect(x0, RULER - 19, Math.max(x1 - x0 - 1, 1), 16);
    if (x1 - x0 > 7 && picture.xOf(begin[s]) >= picture.labelWidth) {
      context.globalAlpha = 0.16;
      context.fillRect(Math.round(picture.xOf(begin[s])), RULER - 19, 1, height);
    }
    const text = x1 - x0 > 84 ? `step ${num[s]}` : String(num[s]);
    if (x1 - x0 > 6 * text.length + 6 && x0 > labelled) {
      context.globalAlpha = 0.9;
      context.fillText(text, x0 + 4, RULER - 11);
      labelled = x0;
    }
  }
  context.globalAlpha = 1;
}
