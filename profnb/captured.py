"""Running code to a ``Profile``: the capture around a block or a cell, and marking steps by hand."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from sys import modules
from typing import Any

from profnb.capture.datasets import describe_datasets
from profnb.capture.session import Capture
from profnb.errors import TraceFormatError
from profnb.options import CaptureOptions
from profnb.profile import Profile

__all__ = ["CapturedProfile", "profile", "step"]


class CapturedProfile:
    """A profile in the making: start it, run the code, finish it.

    Args:
        options: What to record and for how long.
    """

    def __init__(self, options: CaptureOptions) -> None:
        """Prepare; nothing starts before ``start``."""
        self._capture = Capture(options)
        self.profile = Profile(recording=self._capture.recording, options=options)

    def start(self) -> None:
        """Begin the capture."""
        self._capture.start()

    def finish(self, namespace: Mapping[str, object] | None = None) -> Profile:
        """End the capture, read its trace, and remove what was temporary.

        Args:
            namespace: Where the user's datasets live, which know the names of their functions.
        """
        recording = self._capture.recording
        try:
            self._capture.finish()
            # Only now, when the window has closed: the first time, this takes a while.
            import numpy as np

            from profnb.trace.files import read_trace
            from profnb.trace.run_metadata import read_run_metadata

            recording.datasets = describe_datasets(namespace or {})
            if recording.graph_runs:
                runs = [np.frombuffer(run, np.uint8) for run in recording.graph_runs]
                self.profile._set_trace(read_run_metadata(runs, "session runs"))
            elif recording.path is not None:
                # A kept file may be written again by the next capture; a temporary one is ours.
                in_memory = recording.folder is None
                self.profile._set_trace(read_trace(recording.path, in_memory=in_memory))
        except TraceFormatError as error:
            recording.messages.append(f"The profiler left a trace that cannot be read. {error}")
        finally:
            recording.discard()
        return self.profile


@contextmanager
def profile(options: CaptureOptions | None = None, **settings: Any) -> Iterator[Profile]:
    """Capture the block's TensorFlow work; the profile has its answers when the block is over.

    Args:
        options: What to record; or give ``CaptureOptions``' fields as keywords.
        settings: For instance ``max_steps=50, logdir="logs"``.

    Yields:
        The profile. It holds what was captured even if the block raises.
    """
    captured = CapturedProfile(options or CaptureOptions(**settings))
    captured.start()
    try:
        yield captured.profile
    finally:
        captured.finish()


def step(step_num: int, phase: str = "train") -> AbstractContextManager[object]:
    """Mark one iteration by hand: ``with profnb.step(i): ...``.

    Needed only where steps cannot be found by themselves: a loop without Keras' ``fit`` or a repeated
    ``tf.function``. Costs nothing measurable when nothing is being captured, and TensorBoard's profile
    tab sees the same step.

    Args:
        step_num: The iteration's number.
        phase: What it does, for instance "train" or "test".
    """
    tensorflow = modules.get("tensorflow")
    if tensorflow is None:
        return nullcontext()
    trace: AbstractContextManager[object] = tensorflow.profiler.experimental.Trace(
        phase, step_num=step_num, _r=1
    )
    return trace
