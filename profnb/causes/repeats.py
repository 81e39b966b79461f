"""What a cell does again and again: Keras' models that are made anew, validations in a loop of one's own.

Times are those of the cell's parts, so each cost is counted besides the first one, which is its due.
"""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from profnb.capture.marking.trace_events import TracedFunction
from profnb.capture.parts.part_records import BUILDING, CHECKPOINTING, LOADING
from profnb.core.units import PS_PER_NS
from profnb.subjects.advising import covered_share, op_events, period_ps
from profnb.subjects.feeds.feeding import session_gaps
from profnb.subjects.study import Study
from profnb.trace.names import parse_op

_FEWEST_MODELS = 3  # two are compared; three come from a loop
_COMPILE, _BUILDING_LAYERS = "Model.compile", "layers"
_VALIDATES = re.compile(
    r"(?:^|_)(?:test|val|valid|validate|validation|eval|evaluate|evaluation)(?:_|$)", re.IGNORECASE
)
_LEARNS = re.compile(r"(?:^|/)gradient_tape/|:Resource(?:Sparse)?Apply")


@dataclass(frozen=True, slots=True)
class ModelsAgain:
    """Models of Keras that one line made or compiled anew, each of which was traced.

    Attributes:
        count: How many.
        line: That line.
        kind: "same"; "differ" where half of them or more are of sizes of their own; "compiled" where one
            model was compiled again.
        spent_ps: What making them and the steps that traced took, besides the first of each.
        traced: Those steps.
    """

    count: int
    line: str
    kind: str
    spent_ps: int
    traced: int


def find_models_again(study: Study) -> ModelsAgain | None:
    """Find models of which one line traced three or more, each made or compiled anew.

    None where the weights of as many were loaded: those are models of their own.
    """
    loop = _traced_in_a_loop(study.recording.functions)
    cell = study.recording.cell
    if loop is None or cell is None:
        return None
    first, count = loop
    building = [part for part in cell.parts if part.part == BUILDING]
    loaded = [p for p in cell.parts if p.part == CHECKPOINTING and p.name.endswith(LOADING)]
    seen = sum(
        part.occurrences for part in building if part.name not in (_COMPILE, _BUILDING_LAYERS)
    )
    compiled = sum(part.occurrences for part in building if part.name == _COMPILE)
    are_counted = bool(building) and all(part.is_counted for part in building)
    is_loaded = sum(part.occurrences for part in loaded) >= count
    if is_loaded or (are_counted and max(seen, compiled) < count - 1):
        return None
    tracing_ns = _tracing_again_ns(study)
    making_ns = sum(part.wall_ns - part.longest_ns for part in building)
    kind = "compiled"
    if max(seen, len(study.recording.models)) >= count - 1:
        kind = "differ" if _differ(study) else "same"
    spent_ps = (sum(tracing_ns) + making_ns) * PS_PER_NS
    return ModelsAgain(count, first.caller, kind, spent_ps, len(tracing_ns))


def _differ(study: Study) -> bool:
    """Tell whether of the models that ran under trace half or more are of sizes of their own."""
    models = study.recording.models
    sizes = {
        tuple((at.kind, at.parameters, at.output_shape) for at in one.layers) for one in models
    }
    return len(sizes) > 1 and 2 * len(sizes) >= len(models)


def _tracing_again_ns(study: Study) -> list[int]:
    """Times of Keras' steps in which a function was traced, without those of each phase's first run."""
    seen, first_run = study.recording.steps, dict[int, int]()
    rows = list(zip(seen.name, seen.run, seen.retraced, seen.begin_ns, seen.end_ns, strict=True))
    for name, run, retraced, _, _ in rows:
        if retraced and run > 0:
            first_run[name] = min(first_run.get(name, run), run)
    return [
        end - begin
        for name, run, retraced, begin, end in rows
        if retraced and run > first_run.get(name, run)
    ]


def _traced_in_a_loop(functions: tuple[TracedFunction, ...]) -> tuple[TracedFunction, int] | None:
    """A function of Keras that one line had traced for several models, with their number."""
    keras = [one for one in functions if one.is_keras and one.caller]
    places = Counter((one.code, one.phase, one.caller) for one in keras)
    if not places:
        return None
    place, models = places.most_common(1)[0]
    first = next(one for one in keras if (one.code, one.phase, one.caller) == place)
    return (first, models) if models >= _FEWEST_MODELS else None


@dataclass(frozen=True, slots=True)
class Passes:
    """Gaps between passes over the data: epochs, validations, fits.

    Attributes:
        count: How many.
        ends: How many of these end an epoch, where anything trains.
        trains: Whether anything does.
        all_ps: What all took, without work of devices.
        each_ps: What one took as a rule: in the first ones things are set up.
        python_ps: How long Python ran in one, as a rule.
    """

    count: int
    ends: int
    trains: bool
    all_ps: float
    each_ps: float
    python_ps: float


def find_passes(study: Study) -> Passes:
    """Find the gaps between passes over the data."""
    rows = study.gaps.between_epochs
    trains = np.array([phase not in ("test", "predict") for phase in study.steps.phase], np.bool_)
    each_ps = np.maximum(study.gaps.duration_ps[rows] - study.breakdown.gap_busy_ps[rows], 0)
    return Passes(
        rows.size,
        int(trains[rows].sum()) if trains.any() else rows.size,
        bool(trains.any()),
        float(each_ps.sum()),
        float(np.median(each_ps)) if rows.size else 0.0,
        float(np.median(study.breakdown.gap_picoseconds[rows, -1])) if rows.size else 0.0,
    )


def find_validating(study: Study, functions: list[str]) -> tuple[list[str], list[str], float]:
    """Tell functions that validate from those that learn, by what their traced calls ran.

    One that validates is called so (``test_step``, ``val_loss``) and has no gradients and no optimizer among
    its traced ops. A function that only runs forward may be anything else, as what plays in reinforcement
    learning.

    Args:
        study: What was traced.
        functions: Their names.

    Returns:
        Those that validate, those that learn, and how many steps of the latter lie between two runs of the
        former, as a rule; 0 where it comes once: before the first one, and behind the last, is anything.
    """
    learns = {name: _learns(study, name) for name in functions}
    training = [name for name in functions if learns[name]]
    validating = [name for name in functions if learns[name] is False and _VALIDATES.search(name)]
    between = [0]
    for phase in study.step_times.phase:
        if phase in training:
            between[-1] += 1
        elif phase in validating and (between[-1] or len(between) == 1):
            between.append(0)
    runs = between[1:-1]
    return validating, training, float(np.median(runs)) if runs else 0.0


def _learns(study: Study, function: str) -> bool | None:
    """Whether the traced calls of a function have gradients or an optimizer; None where none has ops."""
    rows = study.steps.rows_of(function, warm_up=True)
    codes = set(study.trace.events.name[study.events_of(rows)].tolist())
    ops = [name for name in map(study.trace.names.__getitem__, codes) if parse_op(name)]
    return any(map(_LEARNS.search, ops)) if ops else None


_SUMMARY_OPS = (
    "ScalarSummary", "HistogramSummary", "ImageSummary", "AudioSummary", "TensorSummary",
    "TensorSummaryV2", "MergeSummary",
)  # fmt: skip
_WRITES = ("add_summary", "SummarySaverHook.")


def find_summaries(study: Study) -> tuple[int, float, float, float]:
    """Find session runs that make summaries.

    Returns:
        How many there are, 0 where nothing looked at what is between runs; the shares of the time that the
        summaries' ops take, and what writes these between runs; how long that is a run.
    """
    gaps, counted = session_gaps(study), study.summary.counted
    ops = op_events(study, lambda _, op_type: op_type in _SUMMARY_OPS)
    if gaps is None:
        return 0, 0.0, 0.0, 0.0
    written = sum(place.wall_ns for place in gaps.places if any(w in place.text for w in _WRITES))
    each_ps = written * PS_PER_NS / gaps.gaps
    made = np.intersect1d(study.groups.step[ops], counted).size
    writing = each_ps * counted.size / period_ps(study)
    return made, covered_share(study, ops), writing, each_ps
