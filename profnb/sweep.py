"""Several settings of one cell, each run several times: which is fastest, how sure that is, at what cost."""

import gc
import json
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profnb.capture.saved.sidecar import read_recordings
from profnb.capture.switches import run_fresh
from profnb.captured import CapturedProfile
from profnb.core.errors import CaptureError, TraceFormatError
from profnb.core.options import CaptureOptions
from profnb.core.safe_files import folder_prefix
from profnb.core.sharing import Sharing
from profnb.loading import load
from profnb.many_traces.sweep_rounds import Crew, RoundResult
from profnb.report.result import Result
from profnb.sweep_process import UNTRACED, WITHOUT_EFFECT

if TYPE_CHECKING:
    import pandas as pd

    from profnb.compare.sweeps import SweepPoint, SweepTable
    from profnb.drawing.figures import Figures
    from profnb.profile import Profile

Setting = Mapping[str, object]


class Sweep(Result):
    """Settings, their profiles, and what each achieves.

    Attributes:
        settings: The names that were bound, and to what, in the order they were given.
        profiles: One per setting, with its further runs in ``repeats``; None where the first run failed or
            was not made.
        errors: Why a setting has no more runs, or "", one per setting.
        without_effect: Switches that changed nothing in some run: the code gives the value itself, compiles
            no model, or fits no dataset.
        metric: The metric that speaks for what was learned; None for the one a person would look at first.
        crew: Who ran it, where that was not this machine.
    """

    def __init__(self, settings: Sequence[Setting], metric: str | None = None) -> None:
        """Nothing has run yet."""
        self.settings = tuple(settings)
        self.profiles: list[Profile | None] = [None] * len(settings)
        self.errors = [""] * len(settings)
        self.without_effect: set[str] = set()
        self.metric = metric
        self.crew = Crew()
        self._rounds: list[list[int]] = [[] for _ in settings]  # of the repeats of each

    @cached_property
    def columns(self) -> "SweepTable":
        """Columns of what each setting achieves; ask when all runs are made."""
        from profnb.compare.sweeps import tabulate_sweep

        points = [self._point(row) for row in range(len(self.settings))]
        return tabulate_sweep(points, self.metric, self.without_effect, self.crew.notes)

    @property
    def table(self) -> "pd.DataFrame":
        """One row per setting.

        Columns: the settings' names, then ``runs, step_ms, examples_per_second, low, high`` (the 95 %
        interval of the throughput)``, <metric>, <metric>_worst, peak_bytes, is_best`` (on the front of
        throughput against the metric or memory)``, error``. It is ``steps_per_second`` where a batch size is
        not known, and ``run_ms, runs_per_second`` where there are no steps.
        """
        from profnb.compare.sweeps import settings_table

        return settings_table(self.columns).frame(self.columns)

    def row_words(self, row: int) -> tuple[str, str, str, str]:
        """A setting while the sweep goes on, as text: setting, runs, time of a step or run, throughput."""
        from profnb.compare.sweeps import setting_text
        from profnb.core.units import MISSING, count_text, duration_text

        point = self._point(row)
        name, typical = setting_text(point.setting), point.typical_ps
        if typical != typical:  # noqa: PLR0124  # NaN is not itself
            return name, count_text(point.runs), MISSING, point.error and "failed"
        unit = "runs" if not point.has_steps else "examples" if point.batch_size else "steps"
        rate = 1e12 / typical * (point.batch_size or 1 if point.has_steps else 1)
        per_second = f"{count_text(round(rate) if rate >= 10 else rate)} {unit}"
        return name, count_text(point.runs), duration_text(typical), per_second

    @property
    def notes(self) -> list[str]:
        """Sentences to know before trusting the figures."""
        return list(self.columns.notes)

    @property
    def _sharing(self) -> Sharing:
        return Sharing.of_all(one.sharing for one in self.profiles if one is not None)

    def summary(self) -> str:
        """The table as plain text."""
        from profnb.compare.sweep_section import sweep_text

        return self._sharing.text(sweep_text(self.columns))

    @property
    def figures(self) -> "Figures":
        """The charts as ``plotly.graph_objects.Figure``, by title; see ``Profile.figures``."""
        from profnb.compare.sweep_section import sweep_figures
        from profnb.drawing.figures import Figures

        return Figures(sweep_figures(self.columns))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        from profnb.compare.sweep_section import sweep_bundle

        del include, exclude
        return self._sharing.bundle(sweep_bundle(self.columns))

    def __repr__(self) -> str:
        return f"<Sweep of {len(self.settings)} settings>"

    def _point(self, row: int) -> "SweepPoint":
        from profnb.compare.sweeps import SweepPoint, peak_bytes
        from profnb.steps.summary import usual_batch_size

        setting, error = self.settings[row], self.errors[row]
        profile = self.profiles[row]
        if profile is None:
            return SweepPoint(setting, error=error)
        study = profile.study
        runs = profile.steady_step_times
        wall = profile.run_ps.tolist()
        rounds = [0, *(self._rounds[row] or range(1, len(profile.repeats) + 1))]
        return SweepPoint(
            setting,
            tuple(steps for steps, _ in runs),
            tuple(wall),
            any(was_traced for steps, was_traced in runs if len(steps)),
            study.summary.batch_size or usual_batch_size(study.trace),
            [recording.fits for recording in profile.recordings],
            peak_bytes(study),
            error,
            [rounds[at] for at in profile.steady_rounds],
            rounds[len(rounds) - len(wall) :],  # without the traced run where there are others
        )

    def run_here(
        self,
        row: int,
        options: CaptureOptions,
        run: Callable[[], BaseException | None],
        namespace: Mapping[str, object],
    ) -> None:
        """Run one setting once in this process, under trace if it is its first run.

        Args:
            row: Which setting.
            options: What to record.
            run: Makes the run and returns its error.
            namespace: The user's names.

        Raises:
            KeyboardInterrupt: The run was interrupted; it does not count.
        """
        gc.collect()  # what the run before left behind
        profile = self.profiles[row]
        if profile is not None:
            with CapturedProfile.of(profile).time_again():
                error = run()
        else:
            captured = CapturedProfile(options)
            captured.start()
            try:
                error = run()
            finally:
                profile = captured.finish(namespace)
        if error is None:
            self.profiles[row] = profile if profile.has_trace else None
            if not profile.has_trace:
                self.errors[row] = " ".join(profile.notes) or "Nothing was captured."
            return
        if profile.repeats:
            del profile.repeats[-1]  # what failed is no run
        if isinstance(error, KeyboardInterrupt):
            raise error
        self.errors[row] = f"{type(error).__name__}: {error}"

    def run_in_fresh_process(self, row: int, options: CaptureOptions, body: str) -> None:
        """Run one setting once in a process of its own, under trace if it is its first run."""
        with tempfile.TemporaryDirectory(prefix=folder_prefix()) as name:
            folder = Path(name)
            is_first = self.profiles[row] is None
            try:
                run_fresh(body, self.settings[row], folder, options, traces=is_first)
            except CaptureError as error:
                self.errors[row] = str(error)
                return
            self._take(row, folder, len(self._rounds[row]) + 1)

    def take_round(self, done: "RoundResult") -> None:
        """Keep what a round left that was run elsewhere."""
        for run in done.runs:
            if run.error:
                self.errors[run.row] = run.error
                continue
            with tempfile.TemporaryDirectory(prefix=folder_prefix()) as name:
                for place, content in run.files.items():
                    file = Path(name) / place
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content)
                self._take(run.row, Path(name), done.number)
            profile = self.profiles[run.row]
            if profile is not None and profile.recordings:
                self.crew.add(done, profile.recordings[-1].environment)

    def _take(self, row: int, folder: Path, number: int) -> None:
        """Keep what a process left in a folder of the run of this number."""
        profile = self.profiles[row]
        try:
            idle = json.loads((folder / WITHOUT_EFFECT).read_text(encoding="utf-8"))
            if profile is None:
                self.profiles[row] = load(folder)
            else:
                profile.repeats.extend(read_recordings(folder / UNTRACED)[1])
                self._rounds[row].append(number)
        except (TraceFormatError, FileNotFoundError) as error:
            self.errors[row] = str(error)
        else:
            self.without_effect |= set(idle)


def combine(choices: Mapping[str, Sequence[object]]) -> list[dict[str, object]]:
    """Every combination of values, the last name changing fastest."""
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


def run_order(settings: int, repeat: int, seed: int = 0) -> Iterator[int]:
    """Rows in an order that spreads drift: all settings once, in another order each time round.

    A machine that warms up or slows down in the course of the sweep then does so for every setting.
    """
    shuffle = random.Random(seed)  # noqa: S311 - an order, no secret
    for _ in range(repeat):
        rows = list(range(settings))
        shuffle.shuffle(rows)
        yield from rows
