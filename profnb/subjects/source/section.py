"""The user's source as the report shows it: the costliest lines, then each file with times in its gutter."""

from collections.abc import Sequence

import numpy as np

from profnb.capture.source.user_code import file_title
from profnb.core.columns import Floats, group
from profnb.core.printable import shortened
from profnb.core.units import MISSING, bar_text, count_text, duration_text, percent_text
from profnb.drawing.markup import Cell
from profnb.drawing.section import Bar, Section, Shown, section_of, times_shown
from profnb.drawing.theme import MUTED, colour_of
from profnb.subjects.source.range_table import RANGES
from profnb.subjects.source.source_lines import SOURCE_LINES, SourceLines
from profnb.subjects.study import Study

_SHOWN_LINES, _SHOWN_FILES, _MOST_LINES_SHOWN = 10, 6, 120
_WHOLE_FILE, _CONTEXT = 60, 2
_LONGEST_CODE = 110
_SMALL_SHARE = 0.001
_SHOWN_RANGES, _MOST_RANGES, _LONGEST_RANGE = 10, 200, 64
_FONT = "font-family:monospace"
_CODE = f"{_FONT};white-space:pre"
_GAP = "⋮"
_NBSP = "\u00a0"


def source_sections(study: Study) -> list[Section]:
    """The tables on ranges and source lines; none where nothing was marked and no line was looked at."""
    lines = study.source.lines
    ranges = [_range_section(study)] if len(study.source.ranges) else []
    if lines is None or not any(lines.file):
        return ranges
    return [chosen_lines(lines, study.source.scope), *ranges, *_file_sections(lines)]


def _range_section(study: Study) -> Section:
    """Show the ranges that the program marked."""
    ranges = study.source.ranges
    busy, host = ranges.column("busy_ps"), ranges.column("host_ps")
    weight = np.nan_to_num(np.where(np.isnan(busy), host, busy))
    first = ranges.rows[0]
    sentence = (
        "Work on a device counts for the range that launched it, and for the ranges around that."
    )
    if busy[0] > 0:
        name, share = first.path[-1][:_LONGEST_RANGE], percent_text(float(ranges.fraction[0]))
        sentence = f"`{name}` has {share} of the device's busy time. {sentence}"

    def name_cell(row: int) -> Cell:
        *around, name = path = ranges.rows[row].path
        about = f"in {' / '.join(around)}"[:_LONGEST_RANGE] if around else ""
        return (shortened(name, _LONGEST_RANGE), "", about, " / ".join(path))

    return section_of(
        RANGES,
        ranges,
        (
            Shown("range", name_cell, sort_key=lambda row: ranges.rows[row].path[-1]),
            *(["kind"] if len({row.kind for row in ranges.rows}) > 1 else []),
            "occurrences host_ms device_busy_ms device_fraction kernels",
        ),
        title="Ranges",
        tab="Source",
        sentence=sentence if study.program.has_device else "",
        bar=Bar.of(weight, colour_of("device compute"), 8),
        rows=range(min(len(ranges), _MOST_RANGES)),
        is_sortable=True,
        shown=_SHOWN_RANGES,
    )


def chosen_lines(lines: SourceLines, scope: str) -> Section:
    """The source lines that cost most, ops and Python together, whichever file they stand in."""
    cost = lines.host_ps + lines.device_ps + lines.python_ps.clip(0)
    of_user = [row for row in range(len(lines)) if lines.file[row]]
    shown = sorted(of_user, key=lambda row: -cost[row])[:_SHOWN_LINES]

    times = (
        ("device_us", lines.has_device), ("host_us", True), ("backward_us", lines.backward_ps.any()),
        ("python_us", True),
    )  # fmt: skip

    def source(row: int) -> Cell:
        place = f"{file_title(lines.file[row], lines.cells)}:{lines.line[row]}"
        text = shortened(lines.text[row].strip(), _LONGEST_CODE)
        return text, f"{_FONT};white-space:pre-wrap", place

    return section_of(
        SOURCE_LINES,
        lines,
        (
            Shown("line", source, meaning=SOURCE_LINES["source"].meaning),
            *(times_shown(SOURCE_LINES, name, lines) for name, is_there in times if is_there),
        ),
        title="Lines of your code",
        tab="Source",
        sentence=" ".join([_sentence(lines, scope), *lines.remarks]),
        bar=Bar.of(cost, _colour(lines), 8, full=max(cost[shown], default=0)),
        rows=shown,
    )


def _colour(lines: SourceLines) -> str:
    return colour_of("device compute" if lines.has_device else "host compute")


def _sentence(lines: SourceLines, scope: str) -> str:
    whole = int(lines.side_ps.sum())
    of_user = [row for row, file in enumerate(lines.file) if file]
    side = "device" if lines.has_device else "host"
    user_share = percent_text(int(lines.side_ps[of_user].sum()) / whole) if whole else MISSING
    python = " and Python" if (lines.python_ps >= 0).any() else ""
    all_lines = f"the times of all {count_text(len(of_user))} lines are"
    text = (
        f"Ops{python} of {scope}. {user_share} of the {side} time of ops belongs to your code; "
        f"{'the time of its 1 line is' if len(of_user) == 1 else all_lines} in p.source_lines."
    )
    if lines.gradient_ps.any():
        text += " A gradient counts for its forward line."
    return text


def _file_sections(lines: SourceLines) -> list[Section]:
    """Each file with times in its gutter, the one with the most time of ops first."""
    rows = group((file, row) for row, file in enumerate(lines.file) if file)
    cost = (lines.host_ps + lines.device_ps).astype(float) + lines.wall_ps.clip(0) * 1e-3
    cost += lines.capture_ps.clip(0) * 1e-6
    order = sorted(rows, key=lambda file: -cost[rows[file]].sum())
    shown = (file for file in order[:_SHOWN_FILES] if lines.texts.get(file))
    return [_file_section(lines, file, rows[file], cost) for file in shown]


def _file_section(lines: SourceLines, file: str, rows: list[int], cost: Floats) -> Section:
    of_line = {int(lines.line[row]): row for row in rows}
    text = lines.texts[file]
    shown = _shown_lines(of_line, text, cost)
    ops = lines.host_ps + lines.device_ps
    most = int(ops[rows].max()) or 1
    columns = [
        ("device", "time of its ops on the device", lines.device_ps),
        ("host", "time of its ops on the host", lines.host_ps),
        ("Python", "time in which Python ran this line", lines.python_ps),
    ][0 if lines.has_device else 1 :]
    names, meanings, times_ps = zip(*columns, strict=True)
    least_ps = [_SMALL_SHARE * max(int(column[rows].max()), 0) for column in times_ps]
    cells: list[tuple[Cell, ...]] = []
    nothing = [""] * len(columns)
    for before, number in zip([0, *shown], shown, strict=False):
        if number > before + 1:
            cells.append(("", (_GAP, MUTED), *nothing, ""))
        bare = text[number - 1].lstrip()
        indent = text[number - 1].removesuffix(bare).expandtabs(4)  # stays where styles are dropped
        code = _NBSP * len(indent) + shortened(bare, _LONGEST_CODE), _CODE
        bar, times = "", nothing
        if (row := of_line.get(number)) is not None:
            both = zip(times_ps, least_ps, strict=True)
            spent = [(int(column[row]), least) for column, least in both]
            times = [duration_text(time) if time > least else "" for time, least in spent]
            bar = bar_text(float(ops[row] / most), 8)
        cells.append((bar, (str(number), MUTED), *times, code))
    rest = len(of_line) - sum(number in of_line for number in shown)
    return Section(
        title=file_title(file, lines.cells),
        sentence=f"{rest} more lines with times are in p.source_lines." if rest > 0 else "",
        headings=("", "", *names, ""),
        meanings=("", "", *meanings, ""),
        rows=cells,
        numbers=(False, True, *[True] * len(columns), False),
        colours=[_colour(lines)] * len(cells),
        tab="Source",
        is_detail=True,
    )


def _shown_lines(of_line: dict[int, int], text: Sequence[str], cost: Floats) -> list[int]:
    """The lines to show: all that is kept of a short file, else those that cost most and what is around them.

    A line that is empty may not have been kept; between two that were it is shown.
    """
    count = len(text)
    if count <= _WHOLE_FILE:
        is_there = [False, *(bool(line.strip()) for line in text), False]
        around = zip(is_there, is_there[1:], is_there[2:], strict=False)
        shown = (is_own or (above and below) for above, is_own, below in around)
        return [at for at, is_shown in enumerate(shown, 1) if is_shown or at in of_line]
    kept: set[int] = set()
    for number in sorted(of_line, key=lambda line: -cost[of_line[line]]):
        context = range(max(number - _CONTEXT, 1), min(number + _CONTEXT, count) + 1)
        if len(kept.union(context)) > _MOST_LINES_SHOWN:
            break
        kept.update(context)
    return sorted(kept)
