"""What browser tests share: headless Chromium, and a JupyterLab to open notebooks in.

Set PROFNB_SCREENSHOTS=FOLDER to keep a picture of each state. No network is used.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
import uuid
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("jupyterlab")
pytest.importorskip("tensorflow")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("needs Chromium (Debian: apt-get install chromium)", allow_module_level=True)

HEIGHT = 1400
PATIENCE_MS = 120_000  # a busy machine takes its time; what is there goes on at once

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


class Page:
    """A page that remembers its errors and refuses the network beyond this machine."""

    def __init__(self, browser, width=1100, scheme="light", **settings):
        context = browser.new_context(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme, **settings)
        context.route("**/*", lambda r: r.continue_() if r.request.url.startswith(("file:", "data:", "blob:", "http://localhost")) else r.abort())
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.errors = []
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.context = context

    def show(self, url, width=1100, scheme="light"):
        """Go somewhere else, as if it were a new page: what a page held is gone, and the browser's process needs no start."""
        self.page.set_viewport_size({"width": width, "height": HEIGHT})
        self.page.emulate_media(color_scheme=scheme)
        self.errors.clear()
        self.page.goto(url)

    def shot(self, name):
        folder = os.environ.get("PROFNB_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=f"{folder}/{name}.png", full_page=True)

    def count(self, selector):
        return self.page.locator(selector).count()


@pytest.fixture(scope="module")
def one_page(browser):
    page = Page(browser)
    yield page
    page.context.close()


@pytest.fixture
def open_page(browser, one_page):
    """Show an address in the page that all tests of a file share; in one of its own where it is set up as no other."""
    opened = []

    def open_(url, width=1100, scheme="light", **settings):
        if not settings:
            one_page.show(url, width, scheme)
            return one_page
        opened.append(Page(browser, width, scheme, **settings))
        opened[-1].page.goto(url)
        return opened[-1]

    yield open_
    for page in opened:
        page.context.close()


def new_notebook(cells):
    return nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(c) for c in cells],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )


class Lab:
    """A running JupyterLab over a folder."""

    def __init__(self, root):
        self.root, self.url = root, ""
        settings = root / ".config/lab/user-settings/@jupyterlab/apputils-extension"
        settings.mkdir(parents=True)
        (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
        self.themes = settings / "themes.jupyterlab-settings"
        self.env = {**os.environ, "JUPYTER_CONFIG_DIR": str(root / ".config"), "JUPYTER_DATA_DIR": str(root / ".data")}
        self.runtime = root / ".data" / "runtime"
        self.env["JUPYTER_RUNTIME_DIR"] = str(self.runtime)
        self.own = root / f"{uuid.uuid4().hex}.txt"  # which no other server has
        self.own.touch()

    def trust(self, name):
        subprocess.run([sys.executable, "-m", "jupyter", "trust", f"{name}.ipynb"], cwd=self.root, env=self.env, check=True, capture_output=True)

    def start(self):
        """A server whose port is of its own choice, once it answers; another one where somebody took the port before it listened."""
        command = [
            sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0",
            "--ServerApp.token=", "--ServerApp.password=", f"--ServerApp.root_dir={self.root}",
        ]  # fmt: skip
        for _ in range(5):
            server = subprocess.Popen(command, env=self.env, cwd=self.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                for _ in range(1500):
                    if self._answers(server):
                        return server
                    if server.poll() is not None:
                        break
                    time.sleep(0.2)
            except BaseException:
                server.kill()
                raise
            server.kill()
        raise RuntimeError("JupyterLab did not answer, five times.")

    def _answers(self, server):
        """Whether it is this server that listens at the port it told of."""
        try:
            self.url = f"http://localhost:{json.loads((self.runtime / f'jpserver-{server.pid}.json').read_text())['port']}"
            urllib.request.urlopen(f"{self.url}/api/contents/{self.own.name}", timeout=10)
        except (OSError, ValueError, HTTPException):
            return False
        return True

    @contextmanager
    def running(self):
        server = self.start()
        try:
            yield self
        finally:
            server.terminate()  # asked kindly, so that its kernels end; on a busy machine that takes as long as it takes
            try:
                server.wait(PATIENCE_MS / 1000)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def open(self, page, name, theme="JupyterLab Light", width=1200):
        """Show a notebook in a page, which needs half the time where JupyterLab was before."""
        self.themes.write_text(json.dumps({"theme": theme}))
        page.show(f"{self.url}/doc/tree/{name}.ipynb?reset", width=width)
        page.page.wait_for_selector(".jp-Notebook .jp-CodeCell")


def wait_until(page, expression):
    """Wait until JavaScript is true. Playwright's own ``wait_for_function`` evaluates text in the page, which its policy forbids."""
    for _ in range(600):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never true: {expression}")


# Charts that were drawn, or shown, a moment ago are laid out again by plotly.js after 100 ms; what stands below them moves.
STILL = """() => new Promise(done => {
  const places = () => [...document.querySelectorAll('.js-plotly-plot .point, .main-svg, .profnb-figure svg, canvas, [role=tab]')]
    .map(e => e.getBoundingClientRect()).map(r => [r.x + scrollX, r.y + scrollY, r.width, r.height].join()).join(';');
  let before = places(), same = 0, left = 2000;
  const frame = () => {
    const now = places();
    same = now === before ? same + 1 : 0;
    before = now;
    if (same >= 20 || !left--) done(); else requestAnimationFrame(frame);
  };
  frame();
})"""


def settle(page):
    """Wait until nothing that is clicked by its place moves any more: 20 frames in which all keep theirs."""
    page.evaluate(STILL)


def act_until(page, act, expression):
    """Do what a person would do again when nothing came of it, until JavaScript is true: a script may still be attaching itself."""
    for _ in range(60):
        act()
        for _ in range(10):
            if page.evaluate(expression):
                return
            page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")


def run_all(page):
    """Run every cell of the notebook on the page."""
    is_idle = "/\\| Idle/.test(document.querySelector('#jp-main-statusbar')?.innerText ?? '')"
    page.page.wait_for_function(f"{is_idle} || document.querySelector('.jp-Dialog .jp-mod-accept')")
    accept = page.page.locator(".jp-Dialog .jp-mod-accept")  # which kernel, it may ask
    if accept.count():
        accept.first.click()
    page.page.wait_for_function(is_idle)
    page.page.get_by_role("menuitem", name="Run", exact=True).first.click()
    page.page.get_by_text("Run All Cells", exact=True).first.click()


def complaints(page):
    """What stands in the notebook as an error and stays: JupyterLab complains of a widget it hasn't found yet, and the page's scripts take
    that away, each in its turn."""
    for _ in range(60):
        found = page.page.evaluate(
            "[...document.querySelectorAll('.jp-OutputArea-output')].filter(e => e.checkVisibility()).map(e => e.innerText)"
            ".filter(t => /Error displaying|model not found|Traceback|not defined/i.test(t))"
        )
        if not found:
            break
        page.page.wait_for_timeout(500)
    return found
