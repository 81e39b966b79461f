"""Keras' fits to what they reached: the last value of each metric, one row per ``fit``.

How fast code runs is half of a comparison; what it learned is the other. Keras keeps the metrics of a fit in
its ``History``, on the model; they are copied when the fit ends.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from profnb.capture.library import Library
from profnb.capture.seams import CALLBACK_MODEL, RUN_BEGIN, RUN_END
from profnb.capture.signals import OwnFaults

__all__ = ["FitResult", "watch_fits"]

_MOST_METRICS, _LONGEST_NAME = 50, 100


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


@contextmanager
def watch_fits(keras: Library, fit_ended: Callable[[FitResult], object]) -> Iterator[None]:
    """Tell of each fit that ends inside the block."""
    iterations_at_begin: list[int] = []

    def began(callback_list: Any) -> None:
        iterations_at_begin[:] = [_iterations(CALLBACK_MODEL.of(callback_list))]

    def ended(callback_list: Any) -> None:
        with OwnFaults():  # anybody's callbacks; the user's code comes first
            history = CALLBACK_MODEL.of(callback_list).history
            metrics = {
                str(name)[:_LONGEST_NAME]: float(values[-1])
                for name, values in list(history.history.items())[:_MOST_METRICS]
                if len(values)
            }
            if metrics:
                was_trained = any(count > 0 for count in iterations_at_begin)
                fit_ended(FitResult(metrics, len(history.epoch), was_trained))

    with keras.watch(RUN_BEGIN["train"], before=began), keras.watch(RUN_END["train"], after=ended):
        yield


def _iterations(model: Any) -> int:
    """How many steps the model's optimizer has made."""
    with OwnFaults():  # likewise
        return int(model.optimizer.iterations.numpy())
    return 0
