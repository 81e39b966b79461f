"""Everything that is a step of one thread, seen with no change to the user's code.

- Keras (3 and 2): a batch of ``fit``, ``evaluate`` or ``predict``, from the end of the callbacks'
  ``on_*_batch_begin`` to the start of their ``on_*_batch_end``, so callbacks are in the gap; and one
  call of ``train_on_batch``, ``test_on_batch`` or ``predict_on_batch``.
- ``tf.profiler.experimental.Trace`` with ``_r`` or ``step_num``: the user's own markers, Keras 2's,
  and ``profnb.step``.
- a ``tf.function`` call: TensorFlow opens a ``Trace`` around each, which is where we see it begin, end
  and be retraced; which function is the step is decided afterwards.
- JAX's step markers, iterations of a loop over PyTorch, session runs.

Markers carry ``_r=1`` and ``step_num``, so TensorBoard's profile tab shows the same steps. A batch that
began but never ended (the data ran out, an exception) is marked as abandoned and is no step.
"""

from collections.abc import Callable

from profnb.capture.marking.keras_batches import KerasBatches
from profnb.capture.marking.open_steps import Gaps, OpenSteps
from profnb.capture.marking.own_loops import OwnLoops
from profnb.capture.marking.trace_events import TraceEvents
from profnb.capture.step_records import Marking


class StepRecorder:
    """Watches one thread's steps.

    Args:
        is_tracing: Whether the profiler is recording right now.
        on_step: Called after each step with how many like it were recorded under trace; of function
            calls, only those of the function that has taken the most time count.
        door_of_keras: The profiler that records what Keras does; None where nothing does.
        gaps: Told when what lies between two steps begins, and ends.

    Attributes:
        log: The steps that ended.
        events: Those of TensorFlow's trace events and of JAX's markers.
        loops: Those of loops over PyTorch, and session runs.
        batches: Keras'.
    """

    def __init__(
        self,
        is_tracing: Callable[[], bool],
        on_step: Callable[[int], None],
        door_of_keras: Callable[[], Marking | None],
        gaps: Gaps | None = None,
    ) -> None:
        """Start with no steps, on the calling thread."""
        self._open = OpenSteps(is_tracing, on_step, gaps)
        self.log = self._open.log
        self.events = TraceEvents(self._open)
        self.loops = OwnLoops(self._open)
        self.batches = KerasBatches(self._open, self.loops.abandon_iteration, door_of_keras)

    def count_only(self) -> None:
        """No trace is recorded from here on."""
        self._open.counts_only = True

    @property
    def marking_ns(self) -> int:
        """What marking a traced step took outside of it, on average."""
        return self._open.marking_ns

    @property
    def has_begun(self) -> bool:
        """Whether something that may be a first step is running: a batch, a call, a marker, a fit."""
        return self._open.has_begun or bool(self._open.runs)

    @property
    def is_outside(self) -> bool:
        """Whether nothing runs that is a step or may turn out to be one."""
        return self._open.is_outside
