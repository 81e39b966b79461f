"""A loop over PyTorch to its steps: an iteration ends with the optimizer's step.

It begins when the batch is there (a ``DataLoader`` has given it), else with ``zero_grad``, else where the one
before ended. Waiting for the batch is so in the gap before the step, where the profiler's events name it. A
batch after which nothing is optimized (validation) makes no step. Where several optimizers take turns, the
one that is last before the next batch ends the step; so the first step waits for that batch to be asked for.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from profnb.capture.hooks import watch
from profnb.capture.library import Library
from profnb.capture.marking.step_recorder import StepRecorder
from profnb.capture.profiler.torch_door import StepMark, TorchDoor
from profnb.capture.seams import TORCH_NEXT_BATCH, TORCH_STEP_HOOK, TORCH_ZERO_GRAD
from profnb.capture.signals import signal_of

_BY_BATCH, _BY_ZERO_GRAD, _BY_END = 1, 2, 3


class TorchLoops:
    """Sees a loop's iterations, on the thread that makes it.

    Args:
        recorder: Told of each step.
        door: Marks them in the trace.
        use: Called before the first one: from here on PyTorch works.
        hook_failed: Given every error of a hook of ours.
    """

    def __init__(
        self,
        recorder: StepRecorder,
        door: TorchDoor,
        use: Callable[[], object],
        hook_failed: Callable[[Exception], object],
    ) -> None:
        """Nothing is watched yet."""
        self._recorder, self._door, self._use = recorder, door, use
        self._hook_failed = hook_failed
        self._thread = threading.get_ident()
        self._begun_by = 0
        self._latest: int | None = None  # the optimizer that stepped last
        self._ends: int | None = None  # the one that ends a step, once a batch came behind it

    @contextmanager
    def watch(self, torch: Library) -> Iterator[None]:
        """See the loop inside the block."""
        register = torch.take(TORCH_STEP_HOOK)
        with ExitStack() as stack:
            batch = torch.watch(TORCH_NEXT_BATCH, before=self._batch_asked, came=self._batch_came)
            stack.enter_context(batch)
            stack.enter_context(torch.watch(TORCH_ZERO_GRAD, before=self._zeroes))
            if register is not None:
                stack.callback(register(self._stepped).remove)
            failed = self._hook_failed
            began = watch(StepMark, "__enter__", after=self._mark_began, hook_failed=failed)
            ended = watch(StepMark, "__exit__", before=self._mark_ended, hook_failed=failed)
            stack.enter_context(began)
            stack.enter_context(ended)
            stack.callback(self._recorder.loops.abandon_iteration)
            yield

    def _is_here(self) -> bool:
        return threading.get_ident() == self._thread

    def _batch_asked(self, _: object) -> None:
        if not self._is_here():
            return
        self._use()
        if self._latest is not None and self._ends is None and self._begun_by == _BY_BATCH:
            self._recorder.loops.iteration_ended()
        if self._latest is not None:
            self._ends = self._latest
        self._recorder.loops.abandon_iteration()
        self._begun_by = 0

    def _batch_came(self, loader: object, batch: object) -> None:
        if self._is_here():
            is_batch = self._recorder.batches.keras_runs.now is not None
            self._door.batches.came(loader, batch, is_batch=is_batch)
            self._begin(_BY_BATCH)

    def _zeroes(self, *_: object, **__: object) -> None:
        if self._is_here() and not self._begun_by:
            self._use()
            self._begin(_BY_ZERO_GRAD)

    def _begin(self, by: int) -> None:
        self._begun_by = by
        self._recorder.loops.iteration_begins(self._door)

    def _stepped(self, optimizer: object, *_: object) -> None:
        """An optimizer has stepped; PyTorch calls it, so no error of ours may leave it."""
        if not self._is_here():
            return
        try:
            self._use()
            self._latest = id(optimizer)
            begun_by = self._begun_by
            if self._ends is None and begun_by == _BY_BATCH:
                return  # another optimizer may follow
            if self._ends in (None, self._latest):
                self._begun_by = 0
                self._recorder.loops.iteration_ended()
                if begun_by in (0, _BY_END):
                    self._begin(_BY_END)
        except Exception as error:
            if signal_of(error) is not None:  # the user's own, not a fault of ours
                raise
            self._hook_failed(error)

    def _mark_began(self, mark: Any) -> None:
        if self._is_here():
            self._use()
            self._recorder.loops.abandon_iteration()
            self._recorder.events.mark_began(mark, self._door)

    def _mark_ended(self, mark: Any, kind: Any = None, *_: Any) -> None:
        if self._is_here():
            self._recorder.events.mark_ended(mark, failed=kind is not None)
