"""Compile our kernels before they are needed, in the background.

Numba compiles each kernel on first use and keeps the result on disk. ``%load_ext profnb`` starts this, so
that the cost hides behind the user's own imports; it is about the same work as reading one tiny trace.

A cell that is captured is not disturbed: from its begin to its report no kernel is begun here. What the
report needs and is not there yet compiles when it is asked for, and the rest goes on after the report.
"""

import contextlib
import importlib
import threading
import time
from array import array
from collections.abc import Callable, Iterator

FIRST_VIEW = "the first view"  # the headline, the typical step, and advice


def tiny_trace() -> bytes:
    """An XSpace with a step marker, an op and iterators on the host, a kernel, and a program of XLA's."""
    from profnb.trace.wire import write_message as _message

    def entry(number: int, name: bytes) -> bytes:
        return _message((1, number), (2, _message((1, number), (2, name))))

    marker_stats = _message((1, 1), (4, 1)), _message((1, 2), (4, 0))
    marker = _message((1, 1), (2, 0), (3, 1000), (4, marker_stats[0]), (4, marker_stats[1]))
    op = _message((1, 2), (2, 100), (3, 500))
    waits = [(4, _message((1, number), (2, 600), (3, 90 - number))) for number in (3, 4)]
    line = _message((1, 1), (2, b"python"), (3, 1), (4, op), (4, marker), *waits)
    feeder = _message((1, 2), (2, b"tf_data"), (3, 1), (4, _message((1, 5), (2, 10), (3, 50))))
    plane = _message(
        (2, b"/host:CPU"), (3, line), (3, feeder),
        (4, entry(1, b"train")), (4, entry(2, b"MatMul:MatMul")),
        (4, entry(3, b"Iterator::Root")), (4, entry(4, b"Iterator::Root::Prefetch")),
        (4, entry(5, b"Iterator::Root::Prefetch::Map")),
        (5, entry(1, b"_r")), (5, entry(2, b"step_num")),
    )  # fmt: skip
    work = _message((1, 1), (2, 200), (3, 100), (4, _message((1, 1), (5, b"a"))))
    device = _message(
        (2, b"/device:GPU:0"), (3, _message((1, 1), (2, b"Stream #1"), (3, 1), (4, work))),
        (4, entry(1, b"kernel")), (5, entry(1, b"hlo_op")),
    )  # fmt: skip
    shape = _message((2, 11), (3, b"\x02"))
    instruction = _message((1, b"a"), (2, b"add"), (3, shape), (35, 1), (36, b"\x01"))
    program = _message((1, _message((3, _message((2, instruction), (5, 1), (6, 1))), (6, 1))))
    program_metadata = _message((1, 1), (2, b"f(1)"), (5, _message((1, 1), (6, program))))
    programs = _message((1, 1), (2, program_metadata))
    metadata = _message((2, b"/host:metadata"), (4, programs), (5, entry(1, b"Hlo Proto")))
    return _message((1, plane), (1, device), (1, metadata))


def kernel_by_kernel() -> Iterator[str]:
    """Compile our kernels, or load them from the cache, in the order in which a report needs them.

    Yields:
        After each kernel or two, what can be done without compiling from now on.
    """
    from profnb.core.jit import compiling

    pieces = _pieces()
    while True:
        with compiling():
            piece = next(pieces, None)
        if piece is None:
            return
        yield piece


# What the first report of a process would wait for, part by part; the last for its controls, in a notebook.
_IMPORTED = (
    "numpy", "numba", "profnb.trace.files", "profnb.advice.advise", "profnb.fleet.verdict",
    "profnb.report.build", "profnb.subjects.system.section", "profnb.history.keeping",
    "profnb.report.frontend", "ipywidgets",
)  # fmt: skip


def _pieces() -> Iterator[str]:  # noqa: PLR0915 - one thing after another
    for module in _IMPORTED:
        with contextlib.suppress(ImportError):  # ipywidgets, where reports have no controls
            importlib.import_module(module)
        yield module
    import numpy as np

    from profnb.advice.advise import advise
    from profnb.advice.cell_model import Model
    from profnb.capture.source.source_records import LineRecords
    from profnb.causes.cell_tree import grow_tree
    from profnb.core.jit import load_compiler
    from profnb.report.build import build_report
    from profnb.report.notes import notes_of
    from profnb.steps.nesting import find_parents
    from profnb.subjects.source.code_times import Clock, follow_lines
    from profnb.subjects.study import Study
    from profnb.timeline.element import build_timeline
    from profnb.timeline.scene import Scene
    from profnb.trace.model import StringTable
    from profnb.trace.wire import Messages
    from profnb.trace.xplane import read_xplane
    from profnb.trace.xplane_stats import Dictionary, StatEntries, XPlaneStats

    for _ in load_compiler():
        yield "a part of Numba's compiler"
    buffer = np.frombuffer(tiny_trace(), np.uint8)
    planes = Messages.whole(buffer, "XSpace").split(1, "XPlane")
    yield "messages"
    planes.inner(2, "plane name")
    yield "tables of fields"
    rows = np.arange(len(planes) + 1)
    no_keys = Dictionary(StringTable.of(()), rows * 0, rows[:0])
    of_planes = StatEntries(planes.begins, planes.ends, rows, rows[:-1], 6)
    XPlaneStats(buffer, of_planes, no_keys).of_event(0)
    yield "stats"
    trace = read_xplane(buffer, "warm-up")
    yield "traces"
    study = Study(trace)
    trace.stats.integers("_r")
    find_parents(trace.events.end_ps, trace.lines.offsets)
    yield "columns of stats"
    len(study.groups.step)
    yield "groups"
    len(study.summary.counted)
    yield "steps"
    len(study.input.iterators), len(study.ops.runs)
    yield "ops"
    len(study.input.waiting.step_ps)
    yield "waiting"
    if tree := grow_tree(None, study):
        advise(Model(tree, study))
    yield FIRST_VIEW
    records = LineRecords(array("q", [0]), array("i", [0]), array("i", [1]), [""])
    follow_lines(records, Clock(0, 0), 1)
    yield "source lines"
    len(study.ops.table), study.device.idle, notes_of(study)
    yield "idle time"
    len(study.xla.ops)
    yield "programs"
    build_report(study, title="", notes=(), overhead_ps=None, tree=tree).bundle()
    yield "reports"
    len(Scene(study).lanes.lane)
    yield "lanes"
    build_timeline(study)
    importlib.import_module("pandas")  # for tables that are asked for; no report has any
    yield "everything"


def warm_up() -> None:
    """Compile everything, or load it from the cache."""
    for _ in kernel_by_kernel():
        pass


class Warming:
    """Work that is done piece by piece in the background, and rests between two pieces when asked to.

    Args:
        pieces: Does one piece each time it is asked for the next.
        after_s: When to begin, in seconds: where a notebook runs as a whole, a cell that is captured may
            follow at once.
    """

    def __init__(
        self, pieces: Callable[[], Iterator[object]] = kernel_by_kernel, after_s: float = 0.25
    ) -> None:
        """Begin soon."""
        self._after_s = after_s
        self._may_go = threading.Event()
        self._may_go.set()
        self._thread = threading.Thread(
            target=self._work, args=(pieces,), name="profnb-warm-up", daemon=True
        )
        self._thread.start()

    def _work(self, pieces: Callable[[], Iterator[object]]) -> None:
        # What is wrong here will be wrong, and said, when a trace is read.
        with contextlib.suppress(Exception):
            time.sleep(self._after_s)
            self._may_go.wait()
            for _ in pieces():
                self._may_go.wait()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Begin no further piece inside the block, which waits for none: the last one may still be ending."""
        self._may_go.clear()
        try:
            yield
        finally:
            self._may_go.set()

    def join(self) -> None:
        """Wait until all is done."""
        self._thread.join()
