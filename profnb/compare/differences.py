"""Two studies to where their mean steps differ by category, and to what makes them hard to compare."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from profnb.core.table import Table, columns_in
from profnb.core.units import signed_text
from profnb.drawing.markup import Cell
from profnb.drawing.section import Bar, Shown
from profnb.drawing.theme import COLOURS
from profnb.steps.summary import usual_batch_size
from profnb.subjects.study import Study

Row = TypeVar("Row")
CellOf = Callable[[Row], Cell]
_MOST_DATASETS = 5
_DEVICE_STATS = ("device_type_string", "compute_cap_major", "compute_cap_minor", "core_count")


class CategoryDifference(NamedTuple):
    """A category's time in the mean iteration of A and of B."""

    category: str
    first_ps: float
    second_ps: float

    @property
    def difference_ps(self) -> float:
        """The time that B spends on it beyond A."""
        return self.second_ps - self.first_ps


def compare_categories(first: Study, second: Study) -> list[CategoryDifference]:
    """List the categories of the mean iterations of A and of B, the largest difference first."""
    means: dict[str, list[float]] = {}
    for column, study in enumerate((first, second)):
        for share in study.summary.shares:
            mean_ps = share.mean_ps / max(study.summary.iterations, 1)
            means.setdefault(share.category, [0.0, 0.0])[column] = mean_ps
    rows = [CategoryDifference(name, *pair) for name, pair in means.items()]
    return sorted(rows, key=lambda row: -abs(row.difference_ps))


def shown_of(
    rows: Sequence[Row], heading: str, text: CellOf[Row], meaning: str = "", *, number: bool = False
) -> Shown:
    """Declare a section's column by a row of the table's value, which is a sequence."""
    return Shown(heading, lambda at: text(rows[at]), number, meaning=meaning)


def number_of(rows: Sequence[Row], heading: str, text: CellOf[Row], meaning: str = "") -> Shown:
    """Declare such a column of numbers."""
    return shown_of(rows, heading, text, meaning, number=True)


def listed(names: Sequence[str], most: int, others: str = "others") -> str:
    """Name the first few as a sentence does: "a, b and c", "a, b and 4 others"."""
    named = [*names[:most], *([f"{len(names) - most:,} {others}"] if len(names) > most else [])]
    return " and ".join(filter(None, [", ".join(named[:-1]), *named[-1:]]))


def more_or_less(differences: Sequence[float]) -> Bar:
    """Make bars in one colour where B spends more, in another where it spends less."""
    colours = [COLOURS["input" if one > 0 else "host compute"] for one in differences]
    return Bar.of(list(map(abs, differences)), colours.__getitem__, 8)


CATEGORY_DIFFERENCES = Table[Sequence[CategoryDifference]](
    "categories",
    "One row per category of the mean step, the largest difference first.",
    columns_in("""
        category: the category
        first_ms: time of A
        second_ms: time of B
        difference_ms: how much more B spends on it
        """),
    "Per iteration, where a step runs several.",
    "c",
    texts={"difference_ms": signed_text},
)


def find_guards(first: Study, second: Study, environments: Sequence[dict[str, str]]) -> list[str]:
    """Say what differs between A and B besides what was meant to, in sentences."""
    of_first, of_second = environments
    names = sorted(of_first.keys() & of_second.keys())
    differing = [name for name in names if of_first[name] != of_second[name]]
    guards = [f"{name} differs: {of_first[name]} and {of_second[name]}." for name in differing]
    devices = [_device_of(study) for study in (first, second)]
    if devices[0] != devices[1]:
        guards.append(f"The devices differ: {devices[0]} and {devices[1]}.")
    sizes = batch_sizes(first, second)
    if sizes is not None and sizes[0] != sizes[1]:
        guards.append(
            f"Batch sizes differ ({sizes[0]} and {sizes[1]}), so the verdict compares time per example."
        )
    phases = [study.summary.phase for study in (first, second)]
    iterations = [study.summary.iterations for study in (first, second)]
    # Of the compared kind, traced or not.
    counts = [
        study.step_times.phase.count(study.summary.phase or "") * max(study.summary.iterations, 1)
        for study in (first, second)
    ]
    if None in phases:
        guards.append("One side has no events: nothing to compare.")
    elif phases[0] != phases[1]:
        guards.append(f"The kinds of steps differ: {phases[0]} and {phases[1]}.")
    elif counts[0] != counts[1]:
        guards.append(f"The two sides ran {counts[0]:,} and {counts[1]:,} {phases[0]} steps.")
    one, two = first.recording.cardinalities, second.recording.cardinalities
    guards.extend(
        f"The dataset {name} has {one[name]:,} elements in A and {two[name]:,} in B."
        for name in sorted(one.keys() & two.keys())[:_MOST_DATASETS]
        if one[name] != two[name]
    )
    if iterations[0] != iterations[1]:
        guards.append(
            f"A step runs {iterations[0]} iterations in A, {iterations[1]} in B (steps_per_execution). Times "
            "are per iteration."
        )
    return guards


def batch_sizes(first: Study, second: Study) -> tuple[int, int] | None:
    """Give examples per step of A and of B; None where one is not known."""
    one, two = (s.summary.batch_size or usual_batch_size(s.trace) for s in (first, second))
    return None if one is None or two is None else (one, two)


def _device_of(study: Study) -> str:
    plane = study.program.device
    if plane is None:
        return "the CPU"
    stats = study.trace.planes[plane].stats
    kind, major, minor, cores = (str(stats.get(name, "?")) for name in _DEVICE_STATS)
    if kind == "?":
        kind = f"compute capability {major}.{minor}, {cores} cores"
    return f"{study.trace.planes[plane].name.partition(':')[2]} ({kind})"
