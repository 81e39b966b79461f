"""The timeline beside the official trace viewer's JSON on one trace, in one run.

    python tests/benchmarks/timeline.py [TRACE.xplane.pb [BEFORE]]

BEFORE is a checkout of another commit: its pages are then made and drawn in the same run, in turn, and ours are given as ratios to it.
Without a trace it records the one of record_trace.py first. Pictures are drawn in headless Chromium without
a GPU, so that the frame times are a worst case. Needs playwright and Chromium; the official row needs
`pip install 'profnb[xprof]'`.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from compare import HERE, OFFICIAL, has_official, median, python
from playwright.sync_api import sync_playwright

RUNS = 5
SHARES = (0.75, 0.1, 0.001)

MEASURE = """
import json, sys, time
from pathlib import Path
from profnb.warm import warm_up
warm_up()
import profnb
from profnb.timeline.element import build_timeline, timeline_script
p = profnb.load(sys.argv[1])
p.steps, p.ops
begin = time.perf_counter()
saved = build_timeline(p.study)
out = {"saved_s": time.perf_counter() - begin, "saved_bytes": len(json.dumps([saved.html("x" * 32), timeline_script()]))}
Path(sys.argv[2], "saved.html").write_text(f"<!doctype html><meta charset=utf-8><body>{saved.html()}<script>{timeline_script()}</script>")
begin = time.perf_counter()
page = build_timeline(p.study, is_page=True)
every = page.every_html() if hasattr(page, "every_html") else ""
out["page_s"], out["page_bytes"] = time.perf_counter() - begin, len(page.html()) + len(every)
Path(sys.argv[2], "page.html").write_text(f"<!doctype html><meta charset=utf-8><body>{page.html()}<script>{timeline_script()}</script>{every}")
for name in ("warm.json", "trace.json", "trace.json.gz"):
    begin = time.perf_counter()
    written = p.to_chrome_trace(Path(sys.argv[2], name))
    out[name + "_s"], out[name + "_bytes"] = time.perf_counter() - begin, written.stat().st_size
profnb.load(Path(sys.argv[2], "warm.json"))
begin = time.perf_counter()
profnb.load(Path(sys.argv[2], "trace.json"))
out["read_s"] = time.perf_counter() - begin
begin = time.perf_counter()
json.loads(Path(sys.argv[2], "trace.json").read_bytes())
out["loads_s"] = time.perf_counter() - begin
out["events"] = len(p.trace.events)
print(json.dumps(out))
"""

PAN = """async (share) => {
  const v = document.querySelector('.profnb-timeline').viewer, span = v.whole.head.span, draws = [], frames = [];
  v.show(span * 0.2, span * (0.2 + share));
  const step = span * share * 0.01;
  let before = performance.now();
  for (let i = 0; i < 60; i++) {
    v.picture.from += step; v.picture.to += step;
    const begin = performance.now();
    if (v.drawNow) v.drawNow(); else v.picture.draw();
    draws.push(performance.now() - begin);
    await new Promise(requestAnimationFrame);
    frames.push(performance.now() - before);
    before = performance.now();
  }
  const middle = a => a.sort((x, y) => x - y)[a.length >> 1];
  return {draw: middle(draws), frame: middle(frames), slow: frames[Math.floor(frames.length * 0.95)]};
}"""

# The end of the frame in which the first pixels of a picture stand on a canvas. Playwright's own waiting for an element costs as much as
# what is measured: it describes the element, with megabytes of its attribute.
FIRST = """(() => {
  const frame = window.requestAnimationFrame, put = CanvasRenderingContext2D.prototype.putImageData;
  let isInFrame = false;
  window.requestAnimationFrame = then => frame(time => { isInFrame = true; try { then(time); } finally { isInFrame = false; } });
  const shown = () => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => { window.firstPicture = performance.now(); };
    channel.port2.postMessage(0);
  };
  CanvasRenderingContext2D.prototype.putImageData = function (...all) {
    CanvasRenderingContext2D.prototype.putImageData = put;
    put.apply(this, all);
    if (isInFrame) shown(); else frame(shown);
  };
})();"""
PAINT = "async () => { while (window.firstPicture === undefined) await new Promise(requestAnimationFrame); return window.firstPicture; }"
READY = "async () => { const root = document.querySelector('.profnb-timeline'); while (!root.viewer || root.viewer.pending || document.querySelector('.profnb-every')) await new Promise(requestAnimationFrame); }"
# What any page costs that draws one picture.
FLOOR = "<!doctype html><meta charset=utf-8><body><canvas></canvas><script>(c => c.putImageData(c.createImageData(9, 9), 0, 0))(document.querySelector('canvas').getContext('2d'))</script>"


def opened(browser, file):
    """Milliseconds from navigation to the first picture of a page, what its main thread then computed, frames while panning."""
    page = browser.new_page(viewport={"width": 1100, "height": 700})
    page.add_init_script(FIRST)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(file.as_uri(), wait_until="commit")
    paint = page.evaluate(PAINT)
    computed = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}["TaskDuration"] * 1e3
    pans = {}
    if file.stem != "floor":
        page.evaluate(READY)
        pans = {share: page.evaluate(PAN, share) for share in SHARES}
    page.close()
    return paint, computed, pans


def in_browser(files):
    """The medians of several openings of each page, the pages in turn."""
    found = {file: [] for file in files}
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(RUNS):
            for file in files:
                found[file].append(opened(browser, file))
        browser.close()
    middle = statistics.median
    return {
        file: (
            middle(run[0] for run in runs), middle(run[1] for run in runs),
            {share: {key: middle(pans[share][key] for *_, pans in runs) for key in ("draw", "frame", "slow")} for share in runs[0][2]},
        )
        for file, runs in found.items()
    }  # fmt: skip


def python_of(checkout, code, *args):
    """What a program prints as JSON, with the package of a checkout."""
    if checkout is None:
        return python(code, *args)
    return python(f"import sys; sys.path.insert(0, {str(checkout)!r})\n{code}", *args)


def main(path=None, before=None):
    with tempfile.TemporaryDirectory() as folder:
        if path is None:
            path = Path(folder) / "trace.xplane.pb"
            subprocess.run([sys.executable, HERE / "record_trace.py", path], check=True, stderr=subprocess.DEVNULL)
        path = Path(path).resolve()
        sides = {"now": None} if before is None else {"now": None, "before": Path(before).resolve()}
        made, theirs = {side: [] for side in sides}, []
        for number in range(3):
            for side, checkout in sides.items():
                (Path(folder) / side).mkdir(exist_ok=True)
                made[side].append(python_of(checkout, MEASURE, path, Path(folder) / side))
            if has_official():
                fresh = Path(folder) / str(number)
                fresh.mkdir()
                theirs.append(python(OFFICIAL, shutil.copy(path, fresh / "host.xplane.pb"), "trace_viewer"))
        floor = Path(folder) / "floor.html"
        floor.write_text(FLOOR)
        drawn = in_browser([floor] + [Path(folder) / side / f"{name}.html" for side in sides for name in ("saved", "page")])
        floor = drawn.pop(floor)
        drawn = {(file.parent.name, file.stem): value for file, value in drawn.items()}
    ours = made["now"]

    def ratio(of):
        return f", {of('now') / of('before'):.2f} of before" if before else ""

    rows = [("trace", f"{ours[0]['events']:,} events", ""), ("any page's first picture", f"{floor[0]:.0f} ms", f"main thread {floor[1]:.0f} ms")]
    for name, what in (("saved", "in a notebook"), ("page", "every event, in a page")):
        paint, computed, pans = drawn["now", name]
        size, seconds = ours[0][f"{name}_bytes"], median(ours, f"{name}_s")
        rows.append((f"timeline {what}", f"{size / 1e6:.2f} MB{ratio(lambda side: made[side][0][f'{name}_bytes'])}", f"made in {seconds:.2f} s{ratio(lambda side: median(made[side], f'{name}_s'))}"))
        rows.append(("  opened to first picture", f"{paint:.0f} ms{ratio(lambda side: drawn[side, name][0])}", f"main thread {computed:.0f} ms{ratio(lambda side: drawn[side, name][1])}"))
        for share, pan in pans.items():
            rows.append((f"  panning {share:.1%} of it", f"{pan['draw']:.1f} ms a drawing{ratio(lambda side: drawn[side, name][2][share]['draw'])}", f"frame {pan['frame']:.1f} ms, 95 % under {pan['slow']:.1f} ms"))
    for name in ("trace.json", "trace.json.gz"):
        rows.append((f"Chrome {name}", f"{ours[0][name + '_bytes'] / 1e6:.1f} MB", f"written in {median(ours, name + '_s'):.2f} s"))
    rows.append(("Chrome trace.json read back", f"{median(ours, 'read_s'):.2f} s", f"json.loads alone {median(ours, 'loads_s'):.2f} s"))
    if theirs:
        rows.append(("official trace_viewer JSON", f"{theirs[0]['bytes'] / 1e6:.1f} MB", f"made in {median(theirs, 'seconds'):.2f} s"))
    width = max(len(row[0]) for row in rows)
    middle = max(len(row[1]) for row in rows)
    for name, value, remark in rows:
        print(f"{name:<{width}}  {value:>{middle}}  {remark}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
