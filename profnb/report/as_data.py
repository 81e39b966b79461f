"""A report as plain values, for programs and agents: what a person reads first, in at most 8 kB of JSON.

``report.schema.json`` beside this file says what is in it (JSON Schema, draft 2020-12). A name's last word is
its unit, and what is not known is null, never zero.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from profnb import __version__
from profnb.advice.proposals import Advice
from profnb.core.printable import printable
from profnb.core.sharing import Sharing
from profnb.core.units import PS_PER_MS
from profnb.report.report import Report
from profnb.report.text import MEANINGS
from profnb.steps.step_times import StepTimes
from profnb.subjects.cell.cell_breakdown import CellBreakdown
from profnb.subjects.study import Study
from profnb.trace.names import kernel_titles

if TYPE_CHECKING:
    import pandas as pd

REPORT_FORMAT = 1
JSON_BYTES = 8192
_MOST_ADVICE, _MOST_NOTES, _MOST_CELL_PARTS, _MOST_OTHERS = 5, 8, 8, 12
_SIGNIFICANT_DIGITS = 5
# Of each table the column by which its rows are chosen, the largest first, and the columns that are in it.
TopColumns = Mapping[str, str]
_KERNEL_COLUMN = "kernel_name"
_NO_NAME = re.compile(r"[^A-Za-z0-9]+")
_TOP: TopColumns = {
    "ops": "self_us: side op_type op_name occurrences self_us self_fraction",
    "layers": "total_us: layer layer_type total_us fraction occurrences",
    "source_lines": "fraction: file line source host_us device_us python_us fraction",
    "input_pipeline": "waited_us: iterator function waited_us waited_fraction",
    "idle": "total_us: cause total_us longest_us window_fraction",
    "ranges": "device_busy_ms: range parent occurrences host_ms device_busy_ms kernels",
    "kernels": "total_us: kernel_name op_name occurrences total_us fraction",
    "xla": "self_us: hlo_op category op_name occurrences self_us fraction",
    "memory_summary": "peak_bytes: allocator peak_bytes limit_bytes growth_bytes_per_step",
    "python": "self_ms: function file line self_ms total_ms",
    "trials": "ratio: change ratio interval_low interval_high promised_low promised_high metric "
    "metric_before error",
}
_DEFINITIONS = {
    "median_ms": "median time of a counted step; warm-up and a few far slower steps are left out",
    "mean_period_ms": "mean time of a step and of the gap behind it that belongs to it",
    "fraction": "share of all counted periods, 0 to 1; in a table, of what its columns' documentation says",
    "saves_low_ms": "least of the wall time of the cell, or of a loaded trace, that an advice saves",
    "bound_fraction": "the most that it saves, as a share of that wall time; null: not known",
    "rows": "how many rows the table has; `python -m profnb table PATH NAME --json` prints them all",
}

TOP_TABLES = tuple(_TOP)


def report_data(
    report: Report,
    study: Study | None,
    frames: Mapping[str, "pd.DataFrame"],
    *,
    source: str,
    environment: Mapping[str, str],
    advice: Sequence[Advice],
    step_times: StepTimes | None = None,
    cell: CellBreakdown | None = None,
    tops: TopColumns = _TOP,
) -> dict[str, Any]:
    """Give what a report says as plain values whose JSON has at most ``JSON_BYTES``.

    Args:
        report: The report.
        study: The trace's analyses; None where there is no trace.
        frames: The tables of the profile, of ``TOP_TABLES``; a profile without a trace has none.
        source: Where the trace came from.
        environment: What the code ran with.
        advice: What to change, in order.
        step_times: What the steps took, traced or not.
        cell: Where the whole cell's wall time went; None for a trace of others.
        tops: Which columns of each table are in it, and by which column its rows are chosen.

    Returns:
        Dictionaries, lists, texts, numbers and None, as in ``report.schema.json``. Where the whole would be
        larger, tables get fewer rows and texts are cut, and ``is_shortened`` is true.
    """
    has_steps = study is not None and not study.steps.is_window
    shares = study.summary.shares if study is not None and report.shares else ()
    whole = {
        "profnb_report": REPORT_FORMAT,
        "version": __version__,
        "source": source,
        "is_shortened": False,
        "environment": dict(list(environment.items())[:_MOST_OTHERS]),
        "headline": f"{report.alarm} {report.headline}".strip(),
        "answer": report.answer,
        "steps": _steps(study, step_times) if study is not None and has_steps else None,
        "tracing_cost": _tracing_cost(study),
        "typical_step": [
            {"category": s.category, "mean_ms": s.mean_ps / PS_PER_MS, "fraction": s.fraction}
            for s in shares
        ],
        "cell": None if cell is None else _cell(cell),
        "advice": [_advice(one) for one in advice[:_MOST_ADVICE]],
        "notes": list(report.notes[:_MOST_NOTES]),
        "tables": {},
        "definitions": {
            **_DEFINITIONS,
            **{s.category: MEANINGS[s.category] for s in shares if s.category in MEANINGS},
        },
    }
    is_all = len(advice) <= _MOST_ADVICE and len(report.notes) <= _MOST_NOTES
    tables = {name: _top(frame, tops[name]) for name, frame in frames.items() if len(frame)}
    fitted: dict[str, Any] = _Plain(0, report.sharing).value(whole)
    for rows, most_bytes in _SIZES:
        texts = _Plain(most_bytes, report.sharing)
        fitted.update({name: texts.value(whole[name]) for name in _OF_OTHERS})
        cells = _Plain(min(most_bytes, _MOST_BYTES_OF_A_CELL), report.sharing)
        fitted["tables"] = {
            name: cells.value({**table, "top": table["top"][:rows]})
            for name, table in (tables if rows else {}).items()
        }
        is_shortened = texts.has_cut or cells.has_cut or not is_all
        fitted["is_shortened"] = is_shortened or rows < _SIZES[0][0]
        if len(as_json(fitted).encode()) <= JSON_BYTES:
            break
    return fitted


def _advice(one: Advice) -> dict[str, Any]:
    low, high = one.saves_ms
    return {
        "rule": one.rule, "title": one.title, "evidence": one.evidence, "saves_low_ms": low,
        "saves_high_ms": high, "wall_ms": one.wall_ms, "bound_fraction": one.bound_fraction,
        "code": one.code, "link": one.link, "where": one.where,
    }  # fmt: skip


def as_json(data: Mapping[str, Any]) -> str:
    """The values as JSON, in one line."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False)


def _steps(study: Study, times: StepTimes | None) -> dict[str, Any]:
    summary, gaps = study.summary, study.gaps
    low, high = summary.quartiles_ps or (None, None)
    return {
        "phase": summary.phase,
        "counted": len(summary.counted),
        "warm_up": len(summary.warm_up),
        "aside": len(summary.aside),
        "iterations_per_step": summary.iterations,
        "median_ms": _ms(summary.median_ps),
        "first_quartile_ms": _ms(low),
        "third_quartile_ms": _ms(high),
        "p95_ms": _ms(summary.p95_ps),
        "mean_period_ms": _ms(summary.mean_period_ps),
        "median_gap_ms": _ms(summary.median_gap_ps),
        "examples_per_second": summary.examples_per_second,
        "batch_size": summary.batch_size,
        "other_phases": dict(summary.others[:_MOST_OTHERS]),
        "pauses": len(gaps.long),
        "pauses_ms": _ms(float(gaps.duration_ps[gaps.long].sum())),
        "timed": None if times is None else len(times),
        "traced": None if times is None else int(times.was_traced.sum()),
    }


def metrics_of(study: Study | None, cell: CellBreakdown | None) -> dict[str, float]:
    """Give the numbers of a capture by names that end in their unit; what is not known is left out.

    Args:
        study: The trace's analyses; None where there is no trace.
        cell: Where the whole cell's wall time went; None for a trace of others.
    """
    named: dict[str, float | None] = {}
    if cell is not None:
        named["cell_wall_ms"] = _ms(cell.whole_ps)
    if study is not None and len(study.steps) and not study.steps.is_window:
        steps, cost = _steps(study, None), _tracing_cost(study)
        named["steps_counted"] = steps["counted"]
        named |= {f"step_{name}": steps[name] for name in ("median_ms", "p95_ms", "mean_period_ms")}
        named["examples_per_second"] = steps["examples_per_second"]
        for share in study.summary.shares:
            name = share.category.replace(" ", "_")
            named[f"{name}_ms"] = share.mean_ps / PS_PER_MS
            named[f"{name}_fraction"] = share.fraction
        named["tracing_cost_fraction"] = None if cost is None else cost["fraction"]
    if study is not None:
        use = study.device.use
        for device, fraction in zip(use.device, use.utilization.tolist(), strict=True):
            named[f"{_as_name(device)}_busy_fraction"] = fraction
        for one in study.memory.use:
            named[f"{_as_name(one.allocator.name)}_peak_bytes"] = one.peak_bytes
    numbers = {name: value for name, value in named.items() if value is not None}
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


def _as_name(text: str) -> str:
    return _NO_NAME.sub("_", text).strip("_").lower()


def _tracing_cost(study: Study | None) -> dict[str, Any] | None:
    cost = None if study is None else study.tracing_cost
    if cost is None:
        return None
    return {
        "fraction": cost.fraction, "low_fraction": cost.low, "high_fraction": cost.high,
        "untraced_ms": _ms(cost.untraced_ps),
    }  # fmt: skip


def _cell(cell: CellBreakdown) -> dict[str, Any]:
    largest = sorted(range(len(cell)), key=lambda row: -int(cell.wall_ps[row]))[:_MOST_CELL_PARTS]
    return {
        "wall_ms": _ms(cell.whole_ps),
        "parts": [
            {
                "part": cell.part[row],
                "name": cell.name[row],
                "occurrences": int(cell.occurrences[row]) or None,
                "wall_ms": _ms(float(cell.wall_ps[row])),
                "fraction": float(cell.fraction[row]),
                "line": cell.line[row],
            }
            for row in sorted(largest)
        ],
        "rows": len(cell),
    }


def _ms(picoseconds: float | None) -> float | None:
    return None if picoseconds is None else picoseconds / PS_PER_MS


def _top(frame: "pd.DataFrame", chosen: str) -> dict[str, Any]:
    key, _, names = chosen.partition(": ")
    columns = names.split()
    largest = frame.sort_values(key, ascending=False, kind="stable").head(_SIZES[0][0])
    if _KERNEL_COLUMN in columns:  # of long names what tells them apart
        kernels = list(largest[_KERNEL_COLUMN])
        titles = kernel_titles(kernels, _MOST_BYTES_OF_A_CELL - 8)
        shown = [
            title if len(name.encode(errors="replace")) > _MOST_BYTES_OF_A_CELL else name
            for name, title in zip(kernels, titles, strict=True)
        ]
        largest = largest.assign(**{_KERNEL_COLUMN: shown})
    top = [list(row) for row in largest[columns].itertuples(index=False)]
    return {"rows": len(frame), "columns": columns, "top": top}


# What is tried in turn until it fits: rows of a table, bytes of a text. The last fits whatever there is.
_SIZES = ((5, 400), (4, 300), (3, 300), (2, 240), (1, 200), (0, 200), (0, 120), (0, 40), (0, 16))
_MOST_BYTES_OF_A_CELL = 100  # of a table's text
_OF_OTHERS = ("source", "environment", "headline", "answer", "steps", "cell", "advice", "notes")


class _Plain:
    """Makes values plain, cuts texts to a number of bytes (0 for whole), and remembers whether it did."""

    def __init__(self, most_bytes: int, sharing: Sharing) -> None:
        self.most_bytes, self._sharing = most_bytes, sharing
        self.has_cut = False

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {self._text(str(name)): self.value(one) for name, one in value.items()}
        if isinstance(value, Iterable):
            return [self.value(one) for one in value]
        item = getattr(value, "item", None)
        number = item() if callable(item) else value
        if isinstance(number, float) and math.isfinite(number):
            return float(f"{number:.{_SIGNIFICANT_DIGITS}g}")
        # else None, and pandas' signs of what is missing
        return number if isinstance(number, int) else None

    def _text(self, text: str) -> str:
        text = self._sharing.text(printable(text.replace("\n", " ")))
        if not 0 < self.most_bytes < len(text.encode(errors="replace")):
            return text
        self.has_cut = True
        return text.encode(errors="replace")[: self.most_bytes].decode(errors="ignore") + "…"
