"""A study to its report: one value, rendered as HTML, as plain text, or as a page of its own.

Layer A of the design: real tables and text bars that read well with script, style and SVG stripped.
One small script of ours then makes the op table sortable and searchable in place. It is no part of the
HTML, because sanitizers differ in what they leave of it (nbconvert's shows the program as text): it is
an ``application/javascript`` output of its own, which pages that run no script drop whole. The script is
constant; what comes from the trace travels as escaped text or as JSON in an attribute.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from html import escape
from importlib import resources
from typing import Any

from profnb.core.columns import Floats
from profnb.core.units import bar_text, count_text, duration_text, percent_text
from profnb.drawing.html_table import Cell, html_table
from profnb.drawing.plain import plain_table, printable
from profnb.drawing.section import Section, section_html, section_text
from profnb.drawing.theme import BAR, MUTED, ROOT, colour_of
from profnb.report.advice import advice_html, advice_section_text
from profnb.report.ranking import Advice
from profnb.report.step_chart import StepChart, step_chart, step_figure
from profnb.report.text import (
    Fact,
    alarm_text,
    answer_text,
    fact_rows,
    headline_text,
    run_facts,
    share_rows,
)
from profnb.subjects.device.section import device_sections
from profnb.subjects.input.section import input_sections
from profnb.subjects.layers.section import layer_sections
from profnb.subjects.memory.section import memory_sections
from profnb.subjects.ops.op_table import OpTable
from profnb.subjects.python.python_time import PythonTime
from profnb.subjects.python.section import python_sections
from profnb.subjects.source.section import source_sections
from profnb.subjects.study import Study
from profnb.subjects.xla.section import xla_sections
from profnb.trace.op_names import without_call

__all__ = [
    "OpRow",
    "Report",
    "build_python_report",
    "build_report",
    "op_rows",
    "op_table_html",
    "report_script",
    "script_bundle",
    "share_table_html",
]

_SHOWN_OPS = 15
_MOST_OPS = 400
_LONGEST_NAME = 300


@dataclass(frozen=True, slots=True)
class OpRow:
    """One row of the op table as shown: times in picoseconds, shares of its side in 0..1."""

    side: str
    op_type: str
    op_name: str
    occurrences: int
    self_ps: int
    total_ps: int
    self_fraction: float


def op_rows(ops: OpTable, most: int = _MOST_OPS) -> tuple[list[OpRow], int]:
    """The first rows of the table, and how many more there are."""
    fractions = ops.self_fraction
    rows = [
        OpRow(
            "device" if ops.is_device[row] else "host",
            ops.op_type[row][:_LONGEST_NAME],
            without_call(ops.op_name[row])[:_LONGEST_NAME],
            int(ops.occurrences[row]),
            int(ops.self_ps[row]),
            int(ops.total_ps[row]),
            float(fractions[row]) if ops.self_ps[row] else 0.0,
        )
        for row in range(min(most, len(ops)))
    ]
    return rows, len(ops) - len(rows)


@dataclass(frozen=True)
class Report:
    """Everything the report shows, decided; see the fields of the values it holds."""

    title: str
    headline: str
    answer: str
    facts: Sequence[Fact]
    shares: Sequence[tuple[str, str, str, str]]
    ops: Sequence[OpRow]
    hidden_ops: int
    notes: Sequence[str]
    chart: StepChart | None
    sections: Sequence[Section] = ()
    advice: Sequence[Advice] | None = None

    def text(self) -> str:
        """The report as plain text."""
        first = f"{self.headline}. {self.answer}".strip()
        parts = [printable(first)]
        if self.advice is not None:
            parts.append(advice_section_text(self.advice))
        parts.extend(f"Note: {printable(note)}" for note in self.notes)
        if self.facts:
            facts = [(f.name, f.value, f"({f.remark})" if f.remark else "") for f in self.facts]
            parts.append(plain_table(facts, (False, True, False)))
        if self.shares:
            rows = [(name, mean, share, bar) for name, bar, mean, share in self.shares]
            parts.append("Mean step\n" + plain_table(rows, (False, True, True, False)))
        if self.ops:
            cells = [
                (
                    op.side, percent_text(op.self_fraction), duration_text(op.self_ps),
                    count_text(op.occurrences), op.op_type or "-", op.op_name[:80],
                )
                for op in self.ops[:10]
            ]  # fmt: skip
            head = ("side", "self %", "self", "runs", "type", "op")
            parts.append("Ops with the most self time\n" + plain_table(
                [head, *cells], (False, True, True, True, False, False)))  # fmt: skip
        parts.extend(section_text(part) for part in self.sections if not part.is_detail)
        return "\n\n".join(parts)

    @cached_property
    def html(self) -> str:
        """The report as an HTML fragment that stands alone in any frontend."""
        return self.html_around("", ["" for _ in self.sections])

    def html_around(self, figure: str, section_figures: Sequence[str]) -> str:
        """The fragment, with the HTML of figures inside.

        Args:
            figure: Stands between the headline and the tables.
            section_figures: One per section, "" for none; each stands below its table.
        """
        notes = "".join(f'<li style="margin:2px 0">{escape(note)}</li>' for note in self.notes)
        parts = [
            f'<div style="font-size:17px;font-weight:600;margin:4px 0 0">{escape(self.headline)}</div>',
            f'<div style="margin:0 0 6px">{escape(self.answer)}</div>' if self.answer else "",
            _facts_html(self.facts),
            "" if self.advice is None else advice_html(self.advice),
            f'<ul style="margin:6px 0;padding-left:18px;{MUTED}">{notes}</ul>' if notes else "",
            figure,
        ]
        if self.shares:
            parts.append(_section("Mean step", share_table_html(self.shares)))
        tabs: dict[str, list[str]] = {}
        if self.ops:
            tabs["Ops"] = [_section("Ops", self._ops_html())]
        for part, chart in zip(self.sections, section_figures, strict=True):
            body = _section(part.title, section_html(part)) + chart
            tabs.setdefault(part.tab, []).append(body)
        parts.extend(
            f'<div class="profnb-tab" data-tab="{escape(name)}">{"".join(bodies)}</div>'
            for name, bodies in tabs.items()
        )
        return f'<div class="profnb" style="{escape(ROOT)}">{"".join(parts)}</div>'

    def _ops_html(self) -> str:
        table = op_table_html(self.ops)
        rest = len(self.ops) - _SHOWN_OPS + self.hidden_ops
        more = (
            f'<div class="profnb-more" style="{MUTED}">and {rest:,} more</div>' if rest > 0 else ""
        )
        data = json.dumps(
            {
                "shown": _SHOWN_OPS,
                "hidden": self.hidden_ops,
                "colours": {side: _side_colour(side) for side in ("host", "device")},
                "rows": [
                    [
                        o.side,
                        o.op_type,
                        o.op_name,
                        o.occurrences,
                        o.self_ps,
                        o.total_ps,
                        o.self_fraction,
                    ]
                    for o in self.ops
                ],
            },
            separators=(",", ":"),
        )
        return f'<div class="profnb-ops" data-ops="{escape(data)}">{table}{more}</div>'

    def bundle(self) -> dict[str, str]:
        """The report as a MIME bundle: HTML and plain text, no widget."""
        return {"text/html": self.html, "text/plain": self.text()}

    @cached_property
    def figure(self) -> dict[str, Any] | None:
        """The step-time chart in plotly's schema, or None without steps."""
        return None if self.chart is None else step_figure(self.chart)


def _facts_html(facts: Sequence[Fact]) -> str:
    """The headline figures, as a table of one row so that they stay apart without style."""
    if not facts:
        return ""
    cells = "".join(
        '<td style="border:0;background:none;padding:2px 26px 4px 0;vertical-align:top;text-align:left">'
        f'<div style="{MUTED}">{escape(fact.name)}</div> '
        f'<div style="font-size:16px;font-weight:600">{escape(fact.value)}</div> '
        f'<div style="{MUTED};font-size:11px">{escape(fact.remark)}</div></td>'
        for fact in facts
    )
    row = "display:flex;flex-wrap:wrap;background:none;text-align:left"
    return (
        '<table style="border:0;margin:4px 0;color:inherit;text-align:left">'
        f'<tr style="{row}">{cells}</tr></table>'
    )


def _section(title: str, body: str) -> str:
    return f'<div style="margin:10px 0"><div><b>{escape(title)}</b></div>{body}</div>'


def share_table_html(shares: Sequence[tuple[str, str, str, str]]) -> str:
    """The mean step by category, with bars."""
    rows: list[list[Cell]] = [
        [name, (bar, f"{BAR};color:{colour_of(name)}"), mean, share]
        for name, bar, mean, share in shares
    ]
    return html_table(("category", "", "mean per step", "share"), rows, (False, False, True, True))


def op_table_html(ops: Sequence[OpRow], shown: int = _SHOWN_OPS) -> str:
    """The first rows of the op table, bars first; the side is named only where there are two."""
    longest = max((op.self_fraction for op in ops), default=0) or 1
    two_sides = len({op.side for op in ops}) > 1
    rows: list[list[Cell]] = [
        [
            (bar_text(op.self_fraction / longest, 8), f"{BAR};color:{_side_colour(op.side)}"),
            (op.op_name, "", op.op_type),
            *([op.side] if two_sides else []),
            count_text(op.occurrences),
            duration_text(op.self_ps),
            percent_text(op.self_fraction),
            percent_text(cumulative),
            duration_text(op.total_ps),
        ]
        for op, cumulative in zip(ops[:shown], _cumulative(ops[:shown]), strict=True)
    ]
    side = ("side",) if two_sides else ()
    headings = ("", "op", *side, "runs", "self", "self %", "sum %", "total")
    numbers = (False, False, *(False for _ in side), True, True, True, True, True)
    return html_table(headings, rows, numbers)


def _cumulative(ops: Sequence[OpRow]) -> list[float]:
    """Each row's share of its side's self time together with the rows above it."""
    sums: dict[str, float] = {}
    running = []
    for op in ops:
        sums[op.side] = sums.get(op.side, 0.0) + op.self_fraction
        running.append(sums[op.side])
    return running


def _side_colour(side: str) -> str:
    return colour_of("device compute" if side == "device" else "host compute")


@cache
def report_script() -> str:
    """The script that upgrades every report on the page it runs in."""
    files = [
        resources.files("profnb.drawing") / "format.js",
        *(resources.files("profnb.report") / name for name in ("rows.js", "report.js")),
    ]
    return "(function () {\n" + "\n".join(f.read_text(encoding="utf-8") for f in files) + "})();\n"


def script_bundle() -> dict[str, str]:
    """The script as an output of its own, with nothing to see where it does not run."""
    return {"application/javascript": report_script(), "text/plain": ""}


def build_report(
    study: Study | None,
    *,
    title: str,
    notes: Sequence[str],
    overhead_ps: float | None,
    advice: Sequence[Advice] = (),
    runs: Sequence[Floats] = (),
) -> Report:
    """Decide everything the report shows.

    Args:
        study: The trace's analyses; None where there is no trace, which the notes explain.
        title: The report's name.
        notes: What the reader should know first.
        overhead_ps: Time spent starting the profiler and saving the trace; None for a saved trace.
        advice: What to change.
        runs: The times from step to step of each run, in picoseconds, where the code ran several times.
    """
    if study is None:
        return Report(title, "Nothing was captured", "", (), (), (), 0, notes, None)
    steps, summary = study.steps, study.summary
    rows, hidden = op_rows(study.ops.table)
    has_chart = len(steps) > 0 and not steps.is_window
    return Report(
        title=title,
        headline=f"{alarm_text(study)} {headline_text(steps, summary)}".strip(),
        answer=answer_text(summary),
        facts=[*fact_rows(study, overhead_ps), *run_facts(runs)],
        shares=share_rows(summary.shares),
        ops=rows,
        hidden_ops=hidden,
        notes=notes,
        chart=step_chart(steps, study.breakdown) if has_chart else None,
        sections=[
            *layer_sections(study),
            *source_sections(study),
            *python_sections(
                study.python.time, study.recording.source.cells if study.recording.source else {}
            ),
            *input_sections(study),
            *device_sections(study),
            *xla_sections(study),
            *memory_sections(study),
        ],
        advice=None if steps.is_window and not advice else advice,
    )


def build_python_report(python: PythonTime, title: str) -> Report:
    """Decide what the report of a profile of Python alone shows."""
    headline = f"{duration_text(python.whole_ps)} of Python in {count_text(len(python))} functions"
    sections = python_sections(python, {})
    return Report(title, headline, "", (), (), (), 0, (), None, sections)
