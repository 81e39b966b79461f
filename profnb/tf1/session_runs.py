"""TF1's ``Session.run`` to ``RunMetadata``: the first runs of the code are traced.

A run for which the code asks nothing special is traced into a RunMetadata of ours, a bounded number of times;
later runs are only timed. What the code asks for itself is honoured: its options stay as they are, and where
they ask for FULL_TRACE, its RunMetadata is copied instead of tracing twice. ``MonitoredSession`` passes empty
options and a RunMetadata to every run, which asks for nothing: that RunMetadata ends up as it would have
without us.

On this process' CPU, SOFTWARE_TRACE tells the same as FULL_TRACE. Devices and other processes are timed by
FULL_TRACE only, for which TensorFlow starts its profiler in each run: it logs some lines, and they are shown.

Every run of the capturing thread goes through here (``Tensor.eval``, ``Operation.run``, monitored sessions);
``make_callable`` and ``partial_run``, and so queue runners and Keras in graph mode, do not. What a ``Saver``
or a hook of TensorFlow's own runs is no step, and is left alone.

Behind the runs that are traced, once the graph stays as it is, a run takes a short way: two clock readings
and a frame of ours. A frame between two runs costs more than it looks: its memory has left the caches.
"""

import functools
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from profnb.capture import seams
from profnb.capture.environment import INTER_OP, INTRA_OP
from profnb.capture.hook_clock import hook_clock
from profnb.capture.hooks import Library, bound_anew, replace_attribute, without_us
from profnb.capture.marking.step_recorder import SessionRuns
from profnb.capture.recording import SessionRecords
from profnb.capture.source.stacks import Looks
from profnb.tf1.gap_watch import GapWatch, shorten_gaps
from profnb.tf1.graph_queues import QueueWatch, defining_class

_ARGUMENTS = ("fetches", "feed_dict", "options", "run_metadata")  # of Session.run, by place
_MOST_BYTES_KEPT = 512 << 20
_MOST_VERSIONS, _UNCHANGED = 10_000, 200
_HIDDEN = (
    "Other code replaced Session.run and takes no options. Single session runs are not traced, and -n sets "
    "no bound."
)


class GraphRuns:
    """The session runs of one thread; entered around the body of each.

    Args:
        most_runs: How many runs are traced.
        most_seconds: How long after the first one further runs are traced.
        before_first: Called once, just before the first traced run; False says that the code's steps
            are something else, and runs are left alone from then on.
        steps: Told of each run.
        hook_failed: Given an error of what is looked at besides the runs.
        profnb_part: Entered around what is profnb itself and no part of the code.

    Attributes:
        runs: The serialized RunMetadata of the traced runs, in order.
        graph: The graph of the first traced session, or None.
        ended: How many runs ended, traced or not.
        graph_versions: How many changes the session's graph had seen after each of them, bounded.
        environment: How many threads the first session's settings ask for.
        untraced: How many of them had options of their own that do not trace.
        records: What was seen besides the runs; complete behind ``see_gaps``.
        counts_only: Whether the next run is only counted; not while one is on.
        spans: Where a run that is counted puts its begin and end.
        run_counted: Called after a run that is only counted, as ``SessionRuns`` has it.
        thread: The thread whose runs they are.
    """

    def __init__(
        self,
        most_runs: int,
        most_seconds: float,
        before_first: Callable[[], bool],
        steps: SessionRuns,
        hook_failed: Callable[[Exception], object],
        profnb_part: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Start with no runs, on the calling thread."""
        self.runs: list[bytes] = []
        self.graph: Any = None
        self.ended = self.untraced = 0
        self.graph_versions: list[int] = []
        self.environment: dict[str, str] = {}
        self.records = SessionRecords(time.time_ns() - time.perf_counter_ns())
        self._most_runs, self._most_seconds = most_runs, most_seconds
        self._before_first, self._profnb_part, self._own_ns = before_first, profnb_part, 0
        self._steps, self.run_counted, self.counts_only = steps, steps.run_counted, False
        self._hook_failed = hook_failed
        self.spans = deque[int](maxlen=0)
        self._gaps: GapWatch | None = GapWatch() if most_runs else None
        self._queues = QueueWatch(hook_failed)
        self.thread = threading.get_ident()
        self._until: float | None = None  # monotonic seconds; None before the first traced run
        self._bytes = self._saving = 0
        self._is_inside = self._is_refused = self._is_over = self._has_traced_all = False
        self._is_hidden = self._is_final = False
        self._is_quick = False  # whether the run that is on comes behind those that are traced
        self._session: Any = None  # whose run is on, what it was given, and what it is traced into
        self._arguments: tuple[Any, Any, Any] = (None, None, None)
        self._traced_into: Any = None
        self._options_type: Any = None
        self._metadata_type: Any = None
        self._full_trace: Any = None
        self._software_trace: Any = None

    @contextmanager
    def watch(self, tensorflow: Library) -> Iterator[None]:
        """See session runs inside the block."""
        self._options_type = tensorflow.take(seams.RUN_OPTIONS)
        self._metadata_type = tensorflow.take(seams.RUN_METADATA)
        self._full_trace = tensorflow.take(seams.FULL_TRACE)
        self._software_trace = tensorflow.take(seams.SOFTWARE_TRACE)
        needed = (self._options_type, self._metadata_type, self._full_trace)
        sessions = [] if None in needed else [seams.SESSION_RUN, seams.INTERACTIVE_RUN]
        classes = [seam.owner(tensorflow.module) for seam in sessions]
        owners = {defining_class(session, "run") for session in classes} - {None}
        with ExitStack() as stack:
            for owner in owners:
                run = vars(owner)["run"]
                watched = _wrap_run(run, self)
                if watched is None:  # somebody wrapped it, and hands no options on
                    self._is_hidden = True
                    continue
                stack.enter_context(replace_attribute(owner, "run", watched))
            # their own runs are no steps
            for seam in (*seams.SAVERS, *seams.SESSION_HOOKS) if owners else ():
                stack.enter_context(tensorflow.watch(seam, before=self._saves, after=self._saved))
            if owners and self._gaps is not None:
                stack.enter_context(self._queues.watch(tensorflow))
            stack.callback(self._end)
            yield

    def _end(self) -> None:
        """Trace no run any more: a capture that overlaps may leave our method in its place for a while."""
        self._is_over, self.counts_only = True, False
        missing = min(self.ended, _MOST_VERSIONS) - len(self.graph_versions)
        self.graph_versions += self.graph_versions[-1:] * missing

    def around(
        self, session: Any, feed_dict: Any, options: Any, metadata: Any
    ) -> AbstractContextManager[tuple[Any, Any, Any]]:
        """Give what is entered around a run, and gives what it runs with."""
        is_aside = self._is_inside or self._is_refused or self._saving or self._is_over
        if threading.get_ident() != self.thread or is_aside:
            return nullcontext((feed_dict, options, metadata))
        self._session, self._arguments = session, (feed_dict, options, metadata)
        return self

    # Around the body of a run; behind those that are traced as little as can be.

    def __enter__(self) -> tuple[Any, Any, Any]:
        self._is_inside = True  # what it runs in turn is part of it
        self._is_quick = self._has_traced_all
        feed_dict, options, metadata = self._arguments
        if self._is_quick:
            if options is not None:
                self.count_options(options)
            self._tell_gaps("run_begins", feed_dict)
        else:
            with self._as_profnb():
                self._tell_gaps("run_begins", feed_dict)
                options, metadata, traces = self.plan(self._session, options, metadata)
                self._traced_into = metadata if traces else None
        self._steps.run_began()
        return feed_dict, options, metadata

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        session, (*_, given), traced_into = self._session, self._arguments, self._traced_into
        is_quick, self._is_inside, may_count = self._is_quick, False, False
        self._session, self._arguments, self._traced_into = None, (None, None, None), None
        try:
            if kind is not None:
                self._steps.run_failed()
            elif not self._is_refused:
                may_count = self._steps.run_ended(_is_traced(traced_into))
                self.ended += 1
                if not self._is_final:
                    self._see_version(session)
            if not is_quick:
                with self._as_profnb():
                    if kind is None and not self._is_refused:
                        self._keep(session, traced_into)
                    if traced_into is not None and given is not None and given is not traced_into:
                        given.CopyFrom(traced_into)
                        given.ClearField("step_stats")
        finally:
            if kind is None and not self._is_refused:
                self._tell_gaps("run_ended")
        spans = self._gaps.spans if self._gaps is not None else deque[int](maxlen=0)
        if may_count and self._has_traced_all and self._is_final and spans is not None:
            self.spans, self.counts_only = spans, True

    def count_failed(self, begin_ns: int) -> None:
        """A run that began then and was to be counted raised."""
        self._tell_gaps("run_failed", begin_ns)
        self.run_counted(begin_ns, 0)

    def count_options(self, options: Any) -> None:
        """A run that is counted has options of its own."""
        self.untraced += self._asked(options) not in (None, self._full_trace)

    def _saves(self, *_: object, **__: object) -> None:
        self.counts_only = False
        self._saving += threading.get_ident() == self.thread

    def _saved(self, *_: object, **__: object) -> None:
        self._saving -= threading.get_ident() == self.thread

    def _asked(self, options: Any) -> Any:
        """Read the level of tracing that the code asks for; None where it asks for nothing."""
        if options is None or (isinstance(options, self._options_type) and not options.ByteSize()):
            return None
        return getattr(options, "trace_level", 0)

    def plan(self, session: Any, options: Any, metadata: Any) -> tuple[Any, Any, bool]:
        """Choose the options and RunMetadata to run with, and tell whether they trace the run."""
        full, asked = self._full_trace, self._asked(options)
        if asked not in (None, full):
            self.untraced += 1
            return options, metadata, False
        if self._until is None:
            self._is_refused = not self._before_first()
            self._until = time.monotonic() + self._most_seconds
        self._has_traced_all = not self._is_refused and not (
            len(self.runs) < self._most_runs
            and self._bytes < _MOST_BYTES_KEPT
            and time.monotonic() < self._until
        )
        if self._is_refused or self._has_traced_all:
            return options, metadata, False
        if asked is None:
            ours = self._software_trace if _is_on_cpu(session) else None
            return self._options_type(trace_level=ours or full), self._metadata_type(), True
        return options, self._metadata_type() if metadata is None else metadata, True

    @contextmanager
    def _as_profnb(self) -> Iterator[None]:
        """Count what runs inside the block, around the body of a run, as no part of the code."""
        began_ns = time.perf_counter_ns()
        with self._profnb_part():
            yield
        self._own_ns += time.perf_counter_ns() - began_ns

    def _tell_gaps(self, method: str, *arguments: object) -> None:
        """Tell of a run's begin or end; what fails in watching gaps costs no more than that."""
        if self._gaps is not None:
            try:
                getattr(self._gaps, method)(*arguments)
            except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
                self._gaps = None
                self._hook_failed(error)

    def _keep(self, session: Any, metadata: Any) -> None:
        """Keep what there is to know of a run that has ended."""
        if self._gaps is not None:
            self._queues.see_graph(session.graph)
        if _is_traced(metadata):
            self.runs.append(metadata.SerializeToString())
            self._bytes += len(self.runs[-1])
            self.graph = session.graph if self.graph is None else self.graph
        if self.ended == 1:  # how many threads the session's own settings ask for
            config = seams.SESSION_CONFIG.of(session)
            asked = {
                INTRA_OP: getattr(config, "intra_op_parallelism_threads", 0),
                INTER_OP: getattr(config, "inter_op_parallelism_threads", 0),
            }
            self.environment = {title: str(count) for title, count in asked.items() if count}

    def _see_version(self, session: Any) -> None:
        """Ask how often the graph has changed, until it has not for long, or for too long."""
        versions = self.graph_versions
        versions.append(int(getattr(session.graph, "version", 0)))
        is_same = len(versions) > _UNCHANGED and versions[-1] == versions[-_UNCHANGED]
        if is_same or len(versions) >= _MOST_VERSIONS:
            self._is_final = True
            self._queues.graph_is_final()

    def see_gaps(self, looks: Looks, *, has_source: bool) -> None:
        """The code has ended: tell what ran between its runs, and what was put into queues."""
        records, gaps = self.records, self._gaps
        if gaps is None or not self.ended:
            return
        try:
            records.queues = self._queues.finish()
            records.gaps = shorten_gaps(gaps.finish(looks), has_source=has_source)
            records.gaps.traced, records.gaps.own_ns = len(self.runs), self._own_ns
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
            self._hook_failed(error)

    def explain(self) -> list[str]:
        """Say what was traced and what was not, and why, in sentences."""
        sentences = [_HIDDEN] if self._is_hidden else []
        traced = len(self.runs)
        if traced < self.ended - self.untraced and traced:
            sentences.append(
                f"{traced:,} of {self.ended:,} session runs were traced, all were timed; -n and -t change "
                "the bounds."
            )
        if self.untraced:
            sentences.append(
                f"{self.untraced:,} session runs had options without FULL_TRACE, so the ops' memory is "
                "unknown. Leave out options= to trace these runs."
            )
        return sentences


def _wrap_run(run: Any, runs: GraphRuns) -> Callable[..., Any] | None:
    """Wrap ``Session.run``, or whatever somebody put in its place, so that its arguments can be replaced.

    An error that passes through loses the traceback's entry for the wrapper, as for those of
    ``capture.hooks``.

    Args:
        run: The method.
        runs: Its ``around`` is entered around each call, given the session and the arguments but for the
            fetches, None for one that is not given. Told instead of calls that are only to be counted.

    Returns:
        The wrapper; None where ``run`` takes no options, and so cannot be traced.
    """
    seen = _ARGUMENTS[1:]
    try:
        inspect.signature(run).bind_partial(None, options=None, run_metadata=None)
    except (TypeError, ValueError):
        return None

    call = run if inspect.isfunction(run) else bound_anew(run)
    clock, this_thread = time.perf_counter_ns, threading.get_ident

    @functools.wraps(run)
    def wrapped(session: Any, /, *places: Any, **keywords: Any) -> Any:
        if runs.counts_only and this_thread() == runs.thread:
            runs.counts_only = False  # what it runs in turn is part of it
            options = places[2] if len(places) > 2 else keywords.get("options")
            begin_ns = clock()
            try:
                result = call(session, *places, **keywords)
            except BaseException as error:
                without_us(error)
                runs.count_failed(begin_ns)
                raise
            end_ns = clock()
            runs.ended += 1
            runs.spans.extend((begin_ns, end_ns))
            if options is not None:
                runs.count_options(options)
            runs.counts_only = runs.run_counted(begin_ns, end_ns)
            if hook_clock.is_on:
                hook_clock.took_ns[runs.thread] += clock() - end_ns
            return result
        given = dict(zip(_ARGUMENTS, places, strict=False)) | keywords
        with runs.around(session, *map(given.get, seen)) as used:
            for at, (name, value) in enumerate(zip(seen, used, strict=True), 1):
                if value is given.get(name):
                    continue
                if at < len(places):
                    places = (*places[:at], value, *places[at + 1 :])
                else:
                    keywords[name] = value
            try:
                return call(session, *places, **keywords)
            except BaseException as error:
                without_us(error)
                raise

    return wrapped


def _is_traced(metadata: Any) -> bool:
    return metadata is not None and bool(metadata.HasField("step_stats"))


def _is_on_cpu(session: Any) -> bool:
    """Tell whether a session runs in this process, and nowhere but on the CPU."""
    if seams.SESSION_TARGET.of(session):
        return False
    try:
        return all(device.device_type == "CPU" for device in seams.SESSION_DEVICES.of(session)())
    except Exception:  # noqa: BLE001 - whatever it is, the user's code comes first
        return False
