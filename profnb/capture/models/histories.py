"""Keras' fits to what they reached: the last value of each metric, one row per ``fit``.

How fast code runs is half of a comparison; what it learned is the other. Keras keeps the metrics of a fit in
its ``History``, on the model; they are copied when the fit ends.
"""

from dataclasses import dataclass
from typing import Any

from profnb.capture.seams import CALLBACK_MODEL
from profnb.capture.signals import OwnFaults

_TRAIN, _MOST_METRICS, _LONGEST_NAME = "train", 50, 100


@dataclass(frozen=True, slots=True)
class FitResult:
    """What one ``fit`` reached.

    Attributes:
        metrics: The last value of each metric: ``{"loss": 0.31, "val_accuracy": 0.86}``.
        epochs: How many epochs it ran.
        is_continued: Whether the model had been trained before this fit.
    """

    metrics: dict[str, float]
    epochs: int
    is_continued: bool


class FitWatch:
    """Keeps what each fit reached.

    Attributes:
        fits: Those that ended, in order.
    """

    def __init__(self) -> None:
        """None has ended."""
        self.fits: list[FitResult] = []
        self._was_trained = False

    def run_began(self, phase: str, callbacks: Any) -> None:
        """A run of Keras' begins."""
        if phase == _TRAIN:
            self._was_trained = _iterations(CALLBACK_MODEL.of(callbacks)) > 0

    def run_ended(self, phase: str, callbacks: Any) -> None:
        """It ended."""
        if phase != _TRAIN:
            return
        with OwnFaults():  # anybody's callbacks; the user's code comes first
            history = CALLBACK_MODEL.of(callbacks).history
            metrics = {
                str(name)[:_LONGEST_NAME]: float(values[-1])
                for name, values in list(history.history.items())[:_MOST_METRICS]
                if len(values)
            }
            if metrics:
                self.fits.append(FitResult(metrics, len(history.epoch), self._was_trained))


def _iterations(model: Any) -> int:
    """How many steps the model's optimizer has made."""
    with OwnFaults():  # likewise
        return int(model.optimizer.iterations.numpy())
    return 0
