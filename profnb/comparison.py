"""``compare``: did a change help? Two or more profiles to a verdict with an interval, and what changed."""

import math
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profnb.core.errors import CaptureError
from profnb.core.sharing import Sharing
from profnb.core.table import TableOf
from profnb.core.units import count_text
from profnb.lite.entry import LiteResult, is_saved, open_result
from profnb.loading import load
from profnb.many_traces.fleets import Fleet
from profnb.profile import Profile
from profnb.report.result import ComparedResult

if TYPE_CHECKING:
    from profnb.capture.models.layer_facts import FitResult
    from profnb.causes.cell_tree import CellTree
    from profnb.compare.estimates import Spread
    from profnb.compare.quality import MetricDifference
    from profnb.compare.section import ComparisonView, TracePair
    from profnb.compare.speedup import Difference, RunSet
    from profnb.compare.tree_differences import PartDifference
    from profnb.core.columns import Floats
    from profnb.drawing.figures import Figures
    from profnb.lite.entry import LiteComparison

_NOT_ALIKE = "A result of profnb.lite cannot be compared with a profile. Compare two lite results."
Source = Profile | Fleet | LiteResult | str | os.PathLike[str]


class Comparison(ComparedResult):
    """B against A: how much faster, how sure that is, and where the difference comes from.

    Several runs of each side make the interval mean what a user wants to know; see
    ``profnb.compare.speedup`` for the method.

    Attributes:
        first: The profiles of A, one per run.
        second: The profiles of B.
        labels: What they are called.
    """

    table = TableOf("compare.op_differences", "OP_DIFFERENCES", "_traces.ops")
    layers = TableOf("compare.op_differences", "LAYER_DIFFERENCES", "_traces.layers")
    categories = TableOf("compare.differences", "CATEGORY_DIFFERENCES", "_traces.categories")
    parts = TableOf("compare.tree_differences", "PART_DIFFERENCES", "_parts")
    timeline_diff = TableOf("compare.op_differences", "EVENT_DIFFERENCES", "_traces.events")
    quality = TableOf("compare.quality", "QUALITY", "_metrics")

    def __init__(
        self,
        first: Sequence[Profile],
        second: Sequence[Profile],
        labels: tuple[str, str],
        fleets: "tuple[Sequence[Fleet], Sequence[Fleet]]" = ((), ()),
    ) -> None:
        """Compare nothing yet; of sides that are fleets, their own steps are compared."""
        given = len(first) + len(second)
        first, second = _distinct(first), _distinct(second)
        self._given_again = given - len(first) - len(second)
        for profiles in (first, second):
            if not profiles or not all(profile.has_trace for profile in profiles):
                raise CaptureError("Both sides of a comparison need a profile with a trace.")
        self.first, first_aside = _one_per_capture(first)
        self.second, second_aside = _one_per_capture(second)
        self.labels, self._fleets = labels, fleets
        self._sides, self._aside = (self.first, self.second), (first_aside, second_aside)

    @cached_property
    def _timed(self) -> "list[list[tuple[Floats, bool]]]":
        """For each side and run the times from step to step, and whether they were traced."""
        if all(self._fleets):
            return [[(fleet.step_ps, True) for fleet in side] for side in self._fleets]
        return [[run for one in side for run in one.steady_step_times] for side in self._sides]

    @cached_property
    def runs(self) -> "tuple[RunSet, RunSet]":
        """The steps of both sides, run by run, in picoseconds."""
        from profnb.compare.speedup import RunSet

        sides = []
        for label, profiles, runs in zip(self.labels, self._sides, self._timed, strict=True):
            untraced = [run for run in runs if not run[1] and len(run[0])]
            whole = tuple(float(run) for profile in profiles for run in profile.run_ps)
            sides.append(RunSet(label, tuple(steps for steps, _ in untraced or runs), whole))
        return sides[0], sides[1]

    @cached_property
    def difference(self) -> "Difference":
        """The ratio and its interval."""
        from profnb.compare.speedup import compare_runs

        return compare_runs(*self.runs, spreads=self._spreads)

    @cached_property
    def _spreads(self) -> "tuple[Spread, Spread]":
        """The variation of A's and of B's runs by the history, which is asked where a side has few runs."""
        from profnb.compare.estimates import UNKNOWN_SPREAD
        from profnb.compare.speedup import ENOUGH_RUNS
        from profnb.history.series import find_spread

        one, two = (
            (len(runs.step_ps) < ENOUGH_RUNS and find_spread(side[0])) or UNKNOWN_SPREAD
            for runs, side in zip(self.runs, self._sides, strict=True)
        )
        return one, two

    @cached_property
    def _batch_sizes(self) -> tuple[int, int] | None:
        from profnb.compare.differences import batch_sizes

        return batch_sizes(self.first[0].study, self.second[0].study)

    @property
    def ratio_per_example(self) -> float:
        """Time per example of B over that of A; NaN where a batch size is not known."""
        sizes = self._batch_sizes
        return float("nan") if sizes is None else self.ratio * sizes[0] / sizes[1]

    @property
    def leading(self) -> "Difference":
        """The difference that the verdict speaks of: per example where batch sizes differ, else per step."""
        sizes = self._batch_sizes
        if sizes is None or sizes[0] == sizes[1]:
            return self.difference
        return self.difference.times(sizes[0] / sizes[1])

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        leading, sizes = self.leading, self._batch_sizes
        if leading is self.difference or sizes is None or math.isnan(self.ratio):
            return self.difference.verdict(*self.labels)
        examples = sizes[1] / sizes[0]
        return (
            f"{leading.verdict(*self.labels, of='per example')} A step takes {self.ratio:.2f} times as long, "
            f"with {examples:.3g} times the examples."
        )

    @property
    def quality_verdict(self) -> str:
        """Compare in a sentence what was learned; "" where no metric is known."""
        return self._metrics[0].sentence(*self.labels) if self._metrics else ""

    @cached_property
    def guards(self) -> list[str]:
        """Further differences than the one that was meant, in sentences; read them before the verdict."""
        from profnb.compare.differences import find_guards
        from profnb.compare.op_differences import layer_guards

        one, two = self.first[0], self.second[0]
        guards = find_guards(one.study, two.study, (one.environment, two.environment))
        profiles = [*self.first, *self.second]
        if self._given_again or len(_distinct(profiles)) < len(profiles):
            guards.append("The same result was given more than once and counts as one run.")
        if len({all(was_traced for _, was_traced in side) for side in self._timed}) > 1:
            guards.append("Only one side was timed under tracing, and tracing slows steps.")
        if any(self._traces.frameworks):
            guards.extend(layer_guards(self._traces.layers))
        guards.extend(self._guards_of_hosts())
        if any(fits[-1].is_continued for side in self._fits for fits in side if fits):
            guards.append(
                "A model was trained before its fit began (made outside the cell?): the metrics include "
                "earlier training."
            )
        return guards

    def _guards_of_hosts(self) -> list[str]:
        """Say that of a capture on several hosts one is compared."""
        guards: list[str] = []
        if all(self._fleets):
            named = " and ".join(next(iter(side[0])) for side in self._fleets)
            return [f"Steps are of all hosts; categories and ops are of one host each: {named}."]
        for label, profiles, aside in zip(self.labels, self._sides, self._aside, strict=True):
            hosts = aside + sum(profile.other_hosts for profile in profiles)
            if hosts:
                guards.append(
                    f"{label} was captured on several hosts. One host of each capture was compared, "
                    f"{count_text(hosts)} more not. profnb.load_fleet opens all hosts."
                )
        return guards

    @property
    def _fits(self) -> "tuple[list[list[FitResult]], list[list[FitResult]]]":
        """For each run of A and of B, what its fits reached."""
        first, second = ([r.fits for one in side for r in one.recordings] for side in self._sides)
        return first, second

    @cached_property
    def _metrics(self) -> "list[MetricDifference]":
        from profnb.compare.quality import compare_metrics

        return compare_metrics(*self._fits)

    @cached_property
    def _parts(self) -> "list[PartDifference]":
        """The parts of the cell whose time differs, first run against first run."""
        from profnb.compare.tree_differences import compare_trees, tree_rows

        one, two = map(tree_rows, self._trees) if self._trees else ((), ())
        return compare_trees(one, two)

    @property
    def _trees(self) -> "list[CellTree]":
        """The trees of the first runs; none where one has none."""
        trees = [tree for side in self._sides if (tree := side[0].tree) is not None]
        return trees if len(trees) > 1 else []

    def to_markdown(self) -> str:
        """Write the verdict, what to know first, and the parts that account for it, for a pull request."""
        from profnb.compare.part_section import FASTER, NO_VERDICT, SLOWER, markdown

        remarks, leading = [*filter(None, [self.quality_verdict]), *self.guards], self.leading
        alert = (SLOWER if leading.ratio > 1 else FASTER) if leading.is_different else NO_VERDICT
        text = markdown(self.verdict, remarks, self.labels, self._parts, alert)
        return self._sharing.text(text)

    def summary(self) -> str:
        """The comparison as plain text."""
        from profnb.compare.section import comparison_text

        return self._sharing.text(comparison_text(self._view))

    @cached_property
    def _view(self) -> "ComparisonView":
        from profnb.compare.section import ComparisonView
        from profnb.report.cell_picture import difference_picture

        return ComparisonView(
            self.verdict,
            self.quality_verdict,
            self.guards,
            self.runs,
            self.difference.p_value,
            self._traces,
            self._metrics,
            self._parts,
            picture=difference_picture(self._trees, self.labels) if self._parts else None,
        )

    @property
    def _sharing(self) -> Sharing:
        return Sharing.of_all(one.sharing for one in (*self.first, *self.second))

    @cached_property
    def _traces(self) -> "TracePair":
        from profnb.compare.section import TracePair

        return TracePair(self.first[0].study, self.second[0].study)

    @property
    def figures(self) -> "Figures":
        """The charts as ``plotly.graph_objects.Figure``, by title; see ``Profile.figures``."""
        from profnb.drawing.figures import Figures

        return Figures(self._view.figures())

    def timeline(self, live: bool | None = None) -> None:
        """Show the first runs of both sides on one axis of time, aligned where a typical step of each begins.

        Args:
            live: Whether zooming in may ask the kernel for events that were merged; None for what the
                notebook was configured to.
        """
        from profnb.report.frontend import show_timeline_page
        from profnb.timeline.element import build_pair

        studies = self._traces.studies
        pair = build_pair(*studies, self.labels)
        show_timeline_page(studies, pair.html, pair.text, live)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        from profnb.compare.section import comparison_bundle

        del include, exclude
        return self._sharing.bundle(comparison_bundle(self._view))

    def __repr__(self) -> str:
        return f"<Comparison of {self.labels[0]} and {self.labels[1]}>"


def compare(
    first: Source | Sequence[Source],
    second: Source | Sequence[Source],
    *,
    labels: tuple[str | None, str | None] | None = None,
) -> Comparison | Any:
    """Compare B with A: two profiles, or two results of ``profnb.lite``.

    Args:
        first: A: a profile, a fleet or the path of a saved trace, or a list of them, one per run. A logdir
            is all its runs.
        second: B, given in the same ways.
        labels: What to call them; their own labels, or where they are, by default and for None.

    Raises:
        CaptureError: One of them has no trace.
        FileNotFoundError: There is nothing at a path.
        TraceFormatError: There is no trace there, or it is damaged.
    """
    results = [_lite_result(source) for source in (first, second)]
    if any(results):
        return _compare_lite(results, labels)
    pair: tuple[Any, Any] = first, second
    opened: dict[Path, Profile] = {}
    one_source = (Profile, Fleet, LiteResult, str, os.PathLike)
    listed = [[side] if isinstance(side, one_source) else list(side) for side in pair]
    fleets = [[item for item in side if isinstance(item, Fleet)] for side in listed]
    sides = [
        [profile for item in side for profile in _profiles_of(item, opened)] for side in listed
    ]
    labelled = [side[0].options.label if side else None for side in sides]
    paths = [os.fspath(s[0]) if s and isinstance(s[0], str | os.PathLike) else "" for s in listed]
    given, short = labels or (None, None), _differing_parts(paths[0], paths[1])
    names = zip(given, labelled, short, ("A", "B"), strict=True)
    one, two = (asked or label or path or place for asked, label, path, place in names)
    both = (one, two) if one != two else ("A", "B")
    return Comparison(sides[0], sides[1], both, (fleets[0], fleets[1]))


def _lite_result(source: Any) -> LiteResult | None:
    """A LiteRT result, given or saved; None for anything else."""
    if isinstance(source, LiteResult):
        return source
    is_path = isinstance(source, str | os.PathLike)
    return open_result(source) if is_path and is_saved(Path(source)) else None


def _compare_lite(
    results: Sequence[LiteResult | None], labels: tuple[str | None, str | None] | None
) -> "LiteComparison":
    from profnb.lite.entry import LiteComparison

    one, two = results
    if one is None or two is None:
        raise CaptureError(_NOT_ALIKE)
    titles = one.findings.title, two.findings.title
    given = tuple(asked or name for asked, name in zip(labels or (None, None), titles, strict=True))
    return LiteComparison(one, two, (given[0], given[1]) if given[0] != given[1] else ("A", "B"))


def _differing_parts(first: str, second: str) -> tuple[str, str]:
    """Two paths without the parts that they share: ``a`` and ``b`` of ``logs/a/x.pb`` and ``logs/b/x.pb``."""
    one, two = list(Path(first).parts), list(Path(second).parts)
    for end in (0, -1):
        while len(one) > 1 and len(two) > 1 and one[end] == two[end]:
            del one[end], two[end]
    return "/".join(one), "/".join(two)


def _profiles_of(source: Source, opened: dict[Path, Profile]) -> list[Profile]:
    """The profiles of one source; of a fleet, that of its first host."""
    if isinstance(source, Profile):
        return [source]
    if isinstance(source, LiteResult):
        raise CaptureError(_NOT_ALIKE)
    return [source[next(iter(source))]] if isinstance(source, Fleet) else _load_runs(source, opened)


def _load_runs(path: str | os.PathLike[str], opened: dict[Path, Profile]) -> list[Profile]:
    """Every run of a logdir, the oldest first; the trace, if the path is one.

    Args:
        path: A logdir or a trace.
        opened: What each file gave before, which it gives again: a file is one run however often it is named.
    """
    from profnb.trace.runs import find_traces, pick_trace

    traces = find_traces(path)
    runs = dict.fromkeys(trace.run for trace in traces)
    profiles = []
    for run in runs if len(runs) > 1 else [None]:
        file = pick_trace(traces, run, None).path.resolve()
        if file not in opened:
            opened[file] = load(path, run=run)
        profiles.append(opened[file])
    return profiles


def _distinct(profiles: Sequence[Profile]) -> list[Profile]:
    """The profiles without those given again: as the same object, or as the same capture opened twice."""
    kept: list[Profile] = []
    for profile in dict.fromkeys(profiles):
        if not any(_is_same_capture(one, profile) for one in kept):
            kept.append(profile)
    return kept


def _is_same_capture(one: Profile, two: Profile) -> bool:
    if not one.has_trace or not two.has_trace or not one.capture_time.is_known:
        return False
    is_of_one_time = one.capture_time == two.capture_time
    is_alike = one.trace.hostnames == two.trace.hostnames
    return is_of_one_time and is_alike and len(one.trace.events) == len(two.trace.events)


def _one_per_capture(profiles: Sequence[Profile]) -> tuple[tuple[Profile, ...], int]:
    """The profiles without those that another host recorded while one before them was recorded."""
    kept: list[Profile] = []
    for profile in profiles:
        time = profile.capture_time
        others = [one.capture_time for one in kept if one.capture_time.hostname != time.hostname]
        if not any(time.overlaps(other) for other in others):
            kept.append(profile)
    return tuple(kept), len(profiles) - len(kept)
