"""Where a capture stands, in one line: what is traced, how long a step takes, and what is left."""

import math
from dataclasses import dataclass

from profnb.capture.recording import Recording
from profnb.capture.step_records import KerasRun, Standing, recent_step_ns
from profnb.core.units import PS_PER_NS, count_text, duration_text

_NS_PER_S = 1e9
_FEWEST, _LEAST_NS = 3, 4e8  # batches and time that a speed is told by
_TITLES = {"train": ("step", "fit"), "test": ("evaluation step", "evaluation"),
           "predict": ("prediction step", "prediction")}  # fmt: skip


def about_text(seconds: float) -> str:
    """A duration that is only estimated: "about 31 s", "about 4 min", "about 2.5 h"."""
    if seconds < 90:
        return f"about {max(round(seconds), 1)} s"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min"
    return f"about {seconds / 3600:.1f} h"


def run_words(recording: Recording) -> tuple[str, str]:
    """How long a run took, and one of its last steps, as text."""
    return (
        duration_text(recording.wall_ns * PS_PER_NS),
        duration_text(recent_step_ns(recording.steps) * PS_PER_NS),
    )


@dataclass(frozen=True, slots=True)
class _Mark:
    """Where a run was when its speed began to count."""

    run: int
    was_tracing: bool
    elapsed_ns: int
    done: int


class LiveText:
    """Writes the line, and remembers where a run was before, so that it knows its speed."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._mark: _Mark | None = None

    def __call__(self, standing: Standing) -> str:
        """The line, for instance "tracing 37 of 100 steps · 12.1 ms a step · about 31 s left in this fit"."""
        run = standing.run
        parts = [_head(standing)]
        if run is not None and not standing.is_tracing and run.batches_ended + run.epochs_ended:
            parts.append(_place(run))
        if not math.isnan(standing.step_ns):
            parts.append(f"{duration_text(standing.step_ns * PS_PER_NS)} a step")
        elif run is None or not run.done:
            parts.append(f"{count_text(round(standing.elapsed_ns / _NS_PER_S))} s")
        if run is not None and not math.isnan(run.loss):
            epoch = run.first_epoch + run.epochs_ended
            parts.append(f"loss {run.loss:.3g} after epoch {epoch}")
        left = self._left(standing)
        if left:
            parts.append(left)
        return " · ".join(parts)

    def _left(self, standing: Standing) -> str:
        """How long the run goes on at the speed that it has had; "" where that is not known."""
        run, mark = standing.run, self._mark
        if run is None or not run.done or not run.total:
            return ""
        if mark is None or (mark.run, mark.was_tracing) != (run.number, standing.was_tracing):
            self._mark = _Mark(run.number, standing.was_tracing, standing.elapsed_ns, run.done)
            return ""
        took_ns, made = standing.elapsed_ns - mark.elapsed_ns, run.done - mark.done
        left = run.total - run.done
        if made < _FEWEST or took_ns < _LEAST_NS or left <= 0:
            return ""
        # Before an epoch is over, nobody knows what its end takes: validation, checkpoints.
        steps = " of steps" if run.phase == "train" and not run.epochs_ended else ""
        return f"{about_text(took_ns / made * left / _NS_PER_S)}{steps} left in this {_TITLES[run.phase][1]}"


def _head(standing: Standing) -> str:
    if standing.is_tracing and standing.traced_steps:
        traced, most = count_text(standing.traced_steps), count_text(standing.max_steps)
        return f"tracing {traced} of {most} steps"
    if standing.is_tracing:
        return "tracing, no step is over yet"
    return "trace closed, timing only" if standing.was_tracing else "running, nothing traced yet"


def _place(run: KerasRun) -> str:
    name = _TITLES[run.phase][0]
    if run.total:
        return f"{name} {count_text(run.done)} of {count_text(run.total)}"
    return f"{name} {count_text(run.done)}"
