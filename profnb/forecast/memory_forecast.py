"""The forecast: a line through the peaks of small batches, checked by one batch more."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from profnb.capture.machine.memory_limits import batch_that_fits
from profnb.compare.section import titled_html
from profnb.core.units import GB, bytes_text, count_text, percent_text
from profnb.drawing.figures import axis, figure_layout
from profnb.drawing.markup import note_list
from profnb.drawing.theme import COLOURS
from profnb.forecast.meters import lay_line
from profnb.report.result import Result

if TYPE_CHECKING:
    import pandas as pd

_GRAIN = 4 << 20  # allocators of a process take memory in pieces of about this size
_UNEVEN = 0.25  # of what a batch adds to a process: ops beside each other end in any order
_FAR = 0.1  # of the checked peak: farther off, the line is none


@dataclass(frozen=True)
class MemoryForecast(Result):
    """The memory that a step takes at any batch size.

    Attributes:
        table: One row per batch, run or planned: ``batch_size, peak_bytes, forecast_bytes, is_check``.
        fixed_bytes: What a step takes at any batch size: weights, optimizer, gradients, libraries.
        per_example_bytes: What each example adds.
        limit_bytes: The most there may be; None where nobody tells.
        limit_of: What sets that bound.
        largest_batch: The largest batch that surely fits; None without a limit.
        interval: The largest batch at the high and the low end of the forecast; None without a limit.
        because: How it was measured, how sure it is, what would change it, in sentences.
        spread_bytes: How far a peak may lie from the line at the table's largest batch.
    """

    table: "pd.DataFrame"
    fixed_bytes: float
    per_example_bytes: float
    limit_bytes: int | None
    limit_of: str
    largest_batch: int | None
    interval: tuple[int, int] | None
    because: tuple[str, ...]
    spread_bytes: float

    def peak_bytes(self, batch_size: int) -> float:
        """The most memory that a step of this batch size takes: no less than the smallest that ran."""
        line = self.fixed_bytes + self.per_example_bytes * batch_size
        return max(line, float(self.table.peak_bytes.min()))

    def summary(self) -> str:
        """The answer as text."""
        return "\n".join([self._headline, *self.because])

    @property
    def _headline(self) -> str:
        fixed, more = bytes_text(self.fixed_bytes), bytes_text(self.per_example_bytes)
        line = f"A step takes {fixed} and {more} per example."
        limit = f"in the {bytes_text(self.limit_bytes or 0)} of {self.limit_of}."
        if self.largest_batch:
            return f"A batch of {count_text(self.largest_batch)} fits {limit} {line}"
        return line if self.largest_batch is None else f"{line} No batch fits {limit}"

    @property
    def figure(self) -> dict[str, Any]:
        """Peak memory against batch size, with the limit as a line, in plotly's schema."""
        ran = self.table.batch_size.tolist()
        ends = [0, round(max([*ran, *(self.interval or ())]) * 1.2)]
        blue = {"line": {"color": COLOURS["host compute"]}}
        marks = {"mode": "markers", "marker": {"color": COLOURS["device compute"], "size": 8}}
        curves: list[tuple[str, list[int], Iterable[float], Any]] = [
            ("forecast", ends, map(self.peak_bytes, ends), blue),
            ("measured", ran, self.table.peak_bytes, marks),
        ]
        if self.limit_bytes is not None:
            dashes = {"line": {"color": "#888", "dash": "dash"}}
            curves.append((f"limit: {self.limit_of}", ends, [self.limit_bytes] * 2, dashes))
        lines = [
            {"type": "scatter", "mode": "lines", "name": name, "x": x} | style
            | {"y": [one / GB for one in y]}
            for name, x, y, style in curves
        ]  # fmt: skip
        layout = figure_layout("Peak memory of a step", 280)
        layout |= {"xaxis": axis("batch size"), "yaxis": axis("GB")}
        return {"data": lines, "layout": layout}

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        del include, exclude
        figures = {"Peak memory of a step": self.figure}
        html = titled_html(self._headline, Markup(""), figures, note_list(self.because))
        return {"text/html": html, "text/plain": self.summary()}


def make_forecast(
    batches: Sequence[int],
    peaks: Sequence[float],
    limit: tuple[int, str] | None,
    because: Sequence[str],
    held_bytes: int | None = None,
    input_bytes: float | None = None,
) -> MemoryForecast:
    """Forecast by a line through peaks, first without the last batch's, which checks it.

    Args:
        batches: The batch sizes that ran, ascending, three or more that differ.
        peaks: The most memory that each took, in bytes.
        limit: The most there may be, and what sets that.
        because: How it was measured, in sentences.
        held_bytes: What a process has in use beside the steps; None of what an allocator tells.
        input_bytes: What the inputs take of each example; None where the rest is of 16 bits.
    """
    import pandas as pd

    others_bytes, is_process = held_bytes or 0, held_bytes is not None
    size, peak = np.asarray(batches, np.float64), np.asarray(peaks, np.float64) + others_bytes
    slope, fixed = lay_line(batches[:-1], peaks[:-1], is_process=is_process)
    off = abs(round(fixed + slope * float(size[-1]) - peaks[-1]))
    slope, fixed = lay_line(batches, peaks, is_process=is_process)
    slope, fixed = max(slope, 0.0), fixed + others_bytes
    forecast = np.maximum(fixed + slope * size, peak.min())
    spread, notes = off / 2, list(because)
    if is_process:
        apart = float(np.abs(peak - forecast).max())
        spread = max(spread, apart, _GRAIN, _UNEVEN * slope * float(size[-1]))
        notes.append(
            "A process' memory for a batch varies by up to a quarter."
            + (" `largest_batch` leaves room." if limit else "")
        )
    share = off / float(peak[-1])
    notes.append(
        f"Checked with a batch of {count_text(int(size[-1]))}: {percent_text(share)} off the forecast."
    )
    if share > _FAR:
        notes.append("Memory is not linear in the batch size here: the forecast is rough.")
    table = pd.DataFrame(
        {
            "batch_size": list(batches),
            "peak_bytes": peak,
            "forecast_bytes": forecast,
            "is_check": [*[False] * (len(batches) - 1), True],
        }
    )
    largest = interval = None
    grows = 0.0 if input_bytes is None else slope - input_bytes
    if grows >= 1:
        notes.append(
            f"Recomputing activations frees at most {bytes_text(grows)} per example, 16 bits instead of 32 "
            f"about {bytes_text(grows / 2)}."
        )
    if grows >= 1 and limit is not None:
        narrow = batch_that_fits(limit[0], fixed, max(slope - grows / 2, 1))
        notes.append(f"In 16 bits, batches of about {count_text(narrow)} fit.")
    if limit is not None:
        more = spread / float(size[-1])  # what is off at the largest batch grows with it
        slopes = slope + more, max(slope - more, slope / 2, 1.0)
        largest, most = (batch_that_fits(limit[0], fixed, each) for each in slopes)
        interval = largest, most
    return MemoryForecast(
        table, fixed, slope, limit and limit[0], limit[1] if limit else "", largest, interval,
        tuple(notes), spread
    )  # fmt: skip
