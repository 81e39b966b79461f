"""Running code to a ``Profile``: the capture around a block or a cell, and marking steps by hand."""

import atexit
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profnb.capture.environment import jax_has_devices
from profnb.capture.memory.held_memory import find_held, find_pools
from profnb.capture.memory.memory_errors import find_shortage
from profnb.capture.models.model_watch import as_models
from profnb.capture.parts.part_records import PROFNB
from profnb.capture.profiler.profiler_door import bound_by_steps
from profnb.capture.profiler.torch_door import StepMark
from profnb.capture.recording import Recording
from profnb.capture.saved.sidecar import write_recordings
from profnb.capture.seams import JAX_STEP, TRACE
from profnb.capture.session import Capture
from profnb.capture.signals import OwnFaults, interrupt_held_back
from profnb.capture.step_records import Standing
from profnb.core.errors import TraceFormatError
from profnb.core.options import CaptureOptions
from profnb.history.door import keep
from profnb.profile import Profile

if TYPE_CHECKING:
    from profnb.core.columns import Bytes

_NAMELESS = "capture"
_SPARE_FILES = 16


class CapturedProfile:
    """A profile in the making: start it, run the code, finish it.

    Args:
        options: What to record and for how long.
        whole: What will run, as everything that a user sees calls it; "" for a cell.
    """

    def __init__(self, options: CaptureOptions, whole: str = "") -> None:
        """Prepare; nothing starts before ``start``."""
        options = bound_by_steps(options)
        self._capture = Capture(options)
        self._spare, self._whole = ExitStack(), whole
        self.profile = Profile(recording=self._capture.recording, options=options)
        self.profile.ran_here = True

    @classmethod
    def of(cls, profile: Profile) -> "CapturedProfile":
        """A finished profile whose code will run again."""
        captured = cls(profile.options)
        captured.profile = profile
        return captured

    def start(self) -> None:
        """Begin the capture.

        A few descriptors are kept until its end, for whoever writes, reads and shows what was captured: the
        code may use up all that there are.
        """
        with ExitStack() as spare, suppress(OSError):  # there are no more
            for _ in range(_SPARE_FILES):
                spare.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            self._spare = spare.pop_all()
        try:
            self._capture.start()
        except BaseException:
            self._spare.close()
            raise

    def standing(self) -> Standing:
        """The state of the capture now; any thread may ask."""
        return self._capture.standing()

    @contextmanager
    def time_again(self) -> Iterator[None]:
        """Time the steps of the same code in another run, without a trace."""
        capture = Capture(self.profile.options, traces=False)
        capture.start()
        try:
            yield
        finally:
            with interrupt_held_back():
                self.profile.repeats.append(capture.finish())
                capture.journal.remove()
                self._write_beside()

    def finish(
        self,
        namespace: Mapping[str, object] | None = None,
        models: Sequence[object] = (),
        error: BaseException | None = None,
    ) -> Profile:
        """End the capture, read its trace, and remove what was temporary; an interrupt waits until then.

        Args:
            namespace: Where the user's datasets and models live, which know names and shapes.
            models: Models that were given.
            error: What the code ended with; it is not kept.
        """
        with interrupt_held_back():
            self._spare.close()
            self._finish(namespace or {}, models, error)
        return self.profile

    def _finish(
        self, namespace: Mapping[str, object], models: Sequence[object], cause: BaseException | None
    ) -> None:
        recording = self._capture.recording
        began_ns = None
        try:
            memory, living = recording.memory, [*self._capture.models.living(), *models]
            with OwnFaults():  # whatever an error does when it is read, the capture has to end
                memory.shortage = find_shortage(cause)
            self._capture.finish()
            if recording.cell is not None:
                recording.cell.call(self._whole)
            memory.held = (*find_held(namespace, living, cause), *self._capture.python_objects.held)
            memory.pools = find_pools()
            began_ns = time.perf_counter_ns()
            recording.describe(namespace)
            recording.models = self._capture.models.describe(namespace, models)
            # Imported only now, when the window has closed, and something was recorded: it takes a while.
            if recording.graph_runs:
                import numpy as np

                from profnb.tf1.run_metadata import read_run_metadata

                runs = [np.frombuffer(run, np.uint8) for run in recording.graph_runs]
                self.profile._set_trace(read_run_metadata(runs, "session runs"))
                self._keep_runs(recording, runs)
            elif recording.path is not None:
                from profnb.trace.files import read_trace

                # The file is named for the host, which nobody who is shown the result needs to know.
                source = self.profile.options.label or _NAMELESS
                self.profile._set_trace(replace(read_trace(recording.path), source=source))
        except TraceFormatError as error:
            recording.messages.append(f"The profiler left a trace that cannot be read. {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
            recording.messages.append(
                f"The trace could not be opened ({type(error).__name__}: {str(error)[:300]})."
            )
        finally:
            recording.discard()
            self._capture.journal.remove()
            if recording.cell is not None and began_ns is not None:
                recording.cell.add(PROFNB, "reading", time.perf_counter_ns() - began_ns)
        self._write_beside()

    def _keep_runs(self, recording: Recording, runs: "Sequence[Bytes]") -> None:
        """Keep session runs in the logdir, whose profiler's trace has nothing of them, in its place."""
        empty = recording.path
        if empty is None or self.profile.options.logdir is None or not empty.exists():
            return
        from profnb.tf1.run_metadata import RUNS_SUFFIX, write_runs

        kept = empty.with_name(empty.name.removesuffix(".xplane.pb") + RUNS_SUFFIX)
        try:
            write_runs(runs, kept)
            empty.unlink()
        except (OSError, TraceFormatError) as error:
            recording.messages.append(f"The session runs were not kept in the logdir: {error}")
            return
        recording.path = kept

    def _write_beside(self) -> None:
        """Keep what was seen beside a trace that is kept."""
        recording, options = self.profile.recordings[0], self.profile.options
        path = recording.path if options.logdir is not None else None
        if path is None or not path.exists():  # it could not be kept there, which was said
            return
        try:
            write_recordings(path, options, self.profile.recordings)
        except OSError as error:
            recording.messages.append(f"The records beside the trace were not written: {error}")


@contextmanager
def profile(
    options: CaptureOptions | None = None, *, model: Any = None, **settings: Any
) -> Iterator[Profile]:
    """Capture the block's TensorFlow work; the profile has its answers when the block is over.

    Args:
        options: What to record; or give ``CaptureOptions``' fields as keywords.
        model: The Keras model to tell layers by, or several; those that ``fit`` or a trace of a function
            sees need not be given.
        settings: For instance ``max_steps=50, logdir="logs"``.

    Yields:
        The profile. It holds what was captured even if the block raises.
    """
    options = options or CaptureOptions(**settings)
    namespace, file, line = _caller()
    with profiled_block(options, namespace, model) as result:
        yield result
    remark = keep(result, file=file, line=line)
    if remark:
        result.remarks.append(remark)


@contextmanager
def profiled_block(
    options: CaptureOptions,
    namespace: Mapping[str, object],
    model: Any = None,
    watch: Callable[[Callable[[], Standing]], AbstractContextManager[object]] | None = None,
    whole: str = "block",
) -> Iterator[Profile]:
    """Capture the block as ``profile`` does; ``namespace`` has its datasets and models.

    ``watch`` is open with the block, and may ask at any time how far the capture is. ``whole`` is its name.
    """
    captured = CapturedProfile(options, whole)
    captured.profile.title = Path(str(namespace.get("__file__") or "")).name
    open_block = _OpenBlock(captured, namespace, model)
    try:
        with interrupt_held_back():
            captured.start()
            atexit.register(open_block.end)
            open_block.is_open = True
        with watch(captured.standing) if watch else nullcontext():
            yield captured.profile
    except BaseException as error:
        open_block.error = error
        raise
    finally:
        try:
            open_block.end()
        finally:  # again, if an interrupt came before it held interrupts back
            open_block.end()


@dataclass(eq=False)
class _OpenBlock:
    """A block of ``profile`` and what its end needs; of the process that began it, and of no fork of that.

    A block that is still open as Python exits (a generator's, waiting at its yield) ends before modules and
    profilers are taken down around it: PyTorch's would end the process.
    """

    captured: CapturedProfile
    namespace: Mapping[str, object]
    model: Any
    process: int = field(default_factory=os.getpid)
    is_open: bool = False
    error: BaseException | None = None

    def end(self) -> None:
        """End it, once."""
        if not self.is_open:  # and nothing is asked of Python, which may be taken down already
            return
        with interrupt_held_back():
            self.is_open = False
            atexit.unregister(self.end)
            error, self.error = self.error, None  # whose frames hold what the code made
            if os.getpid() == self.process:
                self.captured.finish(self.namespace, as_models(self.model), error)


def _caller() -> tuple[dict[str, object], str, int]:
    """The names of the module around the block, read when that is over, and the file and line it stands in.

    A function's own are not: to read them would keep what they are bound to alive (``frame.f_locals``, before
    Python 3.13), and so would to hold its frame.
    """
    caller, ours = sys._getframe(), (__name__, "contextlib")
    while caller.f_back is not None and caller.f_globals.get("__name__") in ours:
        caller = caller.f_back
    return caller.f_globals, caller.f_code.co_filename, caller.f_lineno


def step(step_num: int, phase: str = "train") -> AbstractContextManager[object]:
    """Mark one iteration by hand: ``with profnb.step(i): ...``.

    Needed only where steps cannot be found by themselves: a loop without Keras' ``fit`` or a repeated
    ``tf.function``. Costs nothing measurable when nothing is being captured, and TensorBoard's profile
    tab sees the same step. In loops over JAX and PyTorch their own markers are written.

    Args:
        step_num: The iteration's number.
        phase: What it does, for instance "train" or "test".
    """
    trace_type = TRACE.find()
    jax_type = JAX_STEP.find()
    is_torch = "torch" in sys.modules
    try:
        if jax_type is not None and jax_has_devices():
            marked: AbstractContextManager[object] = jax_type(phase, step_num=step_num)
            return marked
        if is_torch and trace_type is None:
            return StepMark(phase, step_num)
        if trace_type is None:  # nothing is imported, or has no such thing any more
            return nullcontext()
        trace: AbstractContextManager[object] = trace_type(phase, step_num=step_num, _r=1)
    except TypeError:  # it takes something else now
        return nullcontext()
    return StepMark(phase, step_num, trace) if is_torch else trace
