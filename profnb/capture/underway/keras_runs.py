"""How far Keras' ``fit``, ``evaluate`` and ``predict`` are, by their own parameters.

Keras tells its callbacks how many epochs there will be and how many batches each has, where it knows that. An
epoch whose length nobody knew beforehand has told it when it is over.
"""

import math
import threading
from dataclasses import dataclass, replace
from typing import Any

from profnb.capture.seams import CALLBACK_MODEL, CALLBACK_PARAMS
from profnb.capture.signals import OwnFaults

_TRAIN = "train"


@dataclass(slots=True)
class KerasRun:
    """A ``fit``, ``evaluate`` or ``predict`` that runs.

    Attributes:
        phase: "train", "test" or "predict".
        number: Which run of the capture it is.
        epochs: The number of the last epoch, counted from 1; 0 where it is not known.
        batches: Batches of an epoch; 0 where that is not known.
        first_epoch: The epoch it began with, counted from 0: 0, until its first epoch has ended and told it.
        epochs_ended: How many epochs are over.
        batches_ended: How many batches of this epoch are over.
        loss: The loss of the last epoch; NaN before.
    """

    phase: str
    number: int
    epochs: int = 0
    batches: int = 0
    first_epoch: int = 0
    epochs_ended: int = 0
    batches_ended: int = 0
    loss: float = math.nan

    @property
    def done(self) -> int:
        """Batches that are over, in all epochs."""
        return self.epochs_ended * self.batches + self.batches_ended

    @property
    def total(self) -> int:
        """Batches there will be, in all epochs; 0 where that is not known."""
        if not (self.epochs and self.batches):
            return 0
        return max(self.epochs - self.first_epoch, 0) * self.batches


class KerasRuns:
    """Follows the runs of one thread.

    Attributes:
        is_validation: Whether the run that began last is the validation of a fit.
    """

    def __init__(self) -> None:
        """None runs yet, on the calling thread."""
        self._thread = threading.get_ident()
        self._running: list[KerasRun] = []  # an evaluation in a fit stands behind it
        self._begun = self._fit_callbacks = 0
        self.is_validation = False

    @property
    def now(self) -> KerasRun | None:
        """The innermost run, as it stands now; any thread may ask."""
        running = self._running[-1:]
        return replace(running[0]) if running else None

    @property
    def is_running(self) -> bool:
        """Whether one runs."""
        return bool(self._running)

    def batch_ended(self, phase: str, iterations: int) -> None:
        """A batch is over, or one execution of several."""
        running = self._running[-1:]
        if running and running[0].phase == phase:
            run = running[0]
            run.batches_ended += iterations
            if run.batches:  # the last execution of an epoch may be shorter
                run.batches_ended = min(run.batches_ended, run.batches)

    def _is_elsewhere(self) -> bool:
        return threading.get_ident() != self._thread

    def run_began(self, phase: str, callbacks: Any) -> None:
        """Keras tells its callbacks that a run begins."""
        if self._is_elsewhere():
            return
        if phase == _TRAIN:
            self._running.clear()  # one that failed is over, though nobody told
            self._fit_callbacks = id(callbacks)
        is_validation = phase != _TRAIN and bool(self._running)
        is_validation = self.is_validation = is_validation and id(callbacks) == self._fit_callbacks
        parameters = CALLBACK_PARAMS.of(callbacks)
        parameters = parameters if isinstance(parameters, dict) else {}
        # A validation is told of by the fit's own callbacks, whose parameters are the fit's.
        batches = 0 if is_validation else _count(parameters.get("steps"))
        self._begun += 1
        run = KerasRun(phase, self._begun, batches=batches)
        if phase == _TRAIN:
            run.epochs = _count(parameters.get("epochs"))
        else:
            run.epochs = 1
        self._running.append(run)

    def run_ended(self, phase: str) -> None:
        """It ended."""
        if self._is_elsewhere():
            return
        for at in range(len(self._running) - 1, -1, -1):
            if self._running[at].phase == phase:
                del self._running[at:]
                return

    def _fit(self) -> KerasRun | None:
        """The fit that runs, to which an epoch belongs; what ran in it is over by then."""
        if self._is_elsewhere() or not self._running or self._running[0].phase != _TRAIN:
            return None
        del self._running[1:]
        return self._running[0]

    def epoch_ended(self, callbacks: Any, epoch: object) -> None:
        """An epoch of the fit that runs has ended, which tells with which one it began."""
        run = self._fit()
        if run is None:
            return
        run.batches = run.batches or run.batches_ended
        if isinstance(epoch, int):
            run.first_epoch = epoch - run.epochs_ended
        run.epochs_ended, run.batches_ended = run.epochs_ended + 1, 0
        with OwnFaults():  # anybody's callbacks; the user's code comes first
            run.loss = float(CALLBACK_MODEL.of(callbacks).history.history["loss"][-1])


def _count(value: Any) -> int:
    """A parameter of Keras' that is a count; 0 where it is none, or not known."""
    try:
        return max(int(value), 0)
    except (TypeError, ValueError, OverflowError):
        return 0
