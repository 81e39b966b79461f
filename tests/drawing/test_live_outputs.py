"""A cell that runs again lets go of the traces behind its old outputs; others keep theirs."""

import gc
import weakref
from functools import partial
from types import SimpleNamespace

import pytest
from traces import event, host, line, read

from profnb.profile import Profile
from profnb.drawing import live_outputs
from profnb.report.frontend import show_controls
from profnb.drawing.live_outputs import LiveOutputs, close_widgets
from profnb.timeline.element import show_live_detail

widgets = pytest.importorskip("ipywidgets.widgets")


class Events:
    """IPython's, as far as it is used."""

    def __init__(self):
        self.listening = []

    def register(self, _, hook):
        self.listening.append(hook)

    def unregister(self, _, hook):
        self.listening.remove(hook)

    def cell_begins(self, cell_id):
        for hook in list(self.listening):
            hook(SimpleNamespace(cell_id=cell_id))


@pytest.fixture
def shell():
    return SimpleNamespace(events=Events())


def profile():
    steps = [event("s", i * 100, 80, _r=1, step_num=i) for i in range(4)]
    return Profile(read(host(line("p", *steps))))


@pytest.mark.parametrize("kind", ["controls", "timeline"])
def test_a_cell_that_runs_again_releases_what_it_showed(shell, kind):
    outputs, p = LiveOutputs(shell), profile()
    study = weakref.ref(p.study)
    shell.events.cell_begins("a")
    living = getattr(widgets.widget, "_instances", {})
    before = len(living)
    if kind == "controls":
        outputs.keep(partial(close_widgets, show_controls(p.study, "id")))
    else:
        outputs.keep(partial(close_widgets, show_live_detail(p.study, "id")))
    del p
    shell.events.cell_begins("b")
    gc.collect()
    assert study() is not None  # another cell: the output of the first is still there
    shell.events.cell_begins("a")
    gc.collect()
    assert study() is None
    assert len(outputs) == 0
    assert len(living) == before


def test_cells_that_nobody_names_keep_theirs_until_there_are_too_many(shell, monkeypatch):
    monkeypatch.setattr(live_outputs, "_MOST_LIVE", 3)
    outputs, closed = LiveOutputs(shell), []
    for number in range(5):
        shell.events.cell_begins(None)
        outputs.keep(lambda number=number: closed.append(number))
    assert closed == [0, 1]
    assert len(outputs) == 3
    outputs.end()
    assert shell.events.listening == []


def test_a_closed_cell_is_closed_once(shell):
    outputs, closed = LiveOutputs(shell), []
    shell.events.cell_begins("a")
    outputs.keep(lambda: closed.append("first"))
    for _ in range(3):
        shell.events.cell_begins("a")
    assert closed == ["first"]
