"""Looks at the stack, and a few exact counters, to the parts of a cell that add up to its wall time.

What is counted is exact: steps, and what profnb did itself. What lies between is divided by the looks. A
stretch that is longer than the time between two looks is cut at them, and each piece belongs to what its look
saw. Shorter ones, as between the batches of a fit, were seen now and then only: those of one kind are put
together and divided in the ratio of what was seen in them.

A fit of two epochs with a look every 5 ms, by the clock::

    steps    |batch| |batch| |batch|                         |batch| |batch|
    looks       .      .   .    .     .     .     .     .      .    .     .
    between        ^gaps^           ^epoch end: 20 ms       ^   ^gap^
                   2 ms, 1 look     saw Stop.on_epoch_end 3 times, fit itself once

so of the epoch end three quarters are that callback's, and the gaps, together, what the one look saw.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy as np

from profnb.capture.parts import part_records as parts
from profnb.capture.parts.cell_counters import GOLDEN, InFlight, TimedCalls
from profnb.capture.parts.part_records import CALL as RUN_CALL
from profnb.capture.parts.part_records import EPOCH, CellPart, CellRecords, NodeKey, TreeNode
from profnb.capture.parts.stack_parts import RUN, StackPart, part_of_stack
from profnb.capture.parts.tree_paths import CellTree, Path, Paths, divided, in_epochs, without
from profnb.capture.source.source_records import StackRecords, TurnRecords
from profnb.capture.source.user_code import number_cells
from profnb.capture.step_records import CALL, KERAS, KINDS, USER, KerasRunSeen, StepLog
from profnb.capture.step_records import RUN as SESSION_RUN
from profnb.core.columns import Bools, Int64s, distinct_rows

_FAR_LONGER = 5  # as steps/finding/warm_up has it
_MOST_PARTS_LISTED, _MOST_LINES_OF_CELL = 300, 20
_LEAST_UNTRACED = 8  # of which a median says what a step takes
# Gaps of one kind differ by less from one length to the next: in a fit of steps of 5 ms those with a save of
# the model took 28 to 61 ms, all others 0.3 to 0.9.
_ANOTHER_KIND = 2
_RECORDING, _THREADS = "tracing", "threads"
_TIMED_PARTS, _LONG_NS, _MOST_LONG = (parts.CALLBACKS, parts.CHECKPOINTING), 1_000_000, 64
# Which nothing counts.
_SEEN = parts.BUILDING, parts.CHECKPOINTING, parts.IMPORTS, parts.INPUT, parts.INTERPRETER
_BATCHES = (parts.TRAIN, parts.VALIDATION, parts.EVALUATION, parts.PREDICT)
_OF_RUNS = (*_BATCHES, parts.FIRST, parts.SLOW_FIRST)
_OF_METHODS = (*_BATCHES, parts.AROUND, parts.EPOCH_ENDS, parts.GAPS)
_PARTS_OF_STEPS = (*_OF_RUNS, parts.MARKED, parts.CALLS, parts.SESSION_RUNS)
_PART_OF_PHASE = {"train": parts.TRAIN, "test": parts.EVALUATION, "predict": parts.PREDICT}
_METHODS = {"train": "fit", "test": "evaluate", "predict": "predict"}
_FIT, _VALIDATION = "fit", "validation"
_Counted = dict[tuple[str, str, str], int]  # by kind and name of a node of the tree, and method
_Key = tuple[str, str, str, int]  # part, name, and of the code's own Python file and line
_Call = tuple[_Key, int, int, int]  # what was seen, begin, end, and what it took by itself


@dataclass(frozen=True, slots=True)
class CellCounts:
    """All that was counted exactly.

    Attributes:
        begin_ns: When the cell began, by ``time.perf_counter_ns``.
        end_ns: When it was over.
        log: Steps and Keras' runs.
        ours: What profnb did, and when.
        turns: Where turns of eager loops began; recording makes the traced ones longer.
        flying: Batches of JAX that were still computed when Keras was done with them: from when on, and they.
        hooks_ns: What hooks took for each untraced step, and for each traced one: behind it, as far as there
            is room, else in it.
        threads_ns: What profnb's threads took of a core; each part has its share of it.
    """

    begin_ns: int
    end_ns: int
    log: StepLog
    ours: Sequence[tuple[str, int, int]] = ()
    turns: TurnRecords = field(default_factory=TurnRecords)
    flying: Sequence[tuple[int, InFlight]] = ()
    hooks_ns: tuple[int, int] = (0, 0)
    threads_ns: int = 0


@dataclass(slots=True)
class _PartTotals:
    first_ns: int
    wall_ns: int = 0
    occurrences: int = 0
    longest_ns: int = 0
    is_counted: bool = True
    places: Counter[tuple[str, int]] = field(default_factory=Counter)


class _Parts:
    def __init__(self) -> None:
        self.rows: dict[_Key, _PartTotals] = {}
        self.tree = CellTree()

    def add(
        self, key: _Key, first_ns: int, wall_ns: int, longest_ns: int = 0, occurrences: int = 0
    ) -> _PartTotals:
        if key not in self.rows and len(self.rows) >= _MOST_PARTS_LISTED:
            key = key[0], "", "", 0
        row = self.rows.setdefault(key, _PartTotals(first_ns))
        row.first_ns = min(row.first_ns, first_ns)
        row.wall_ns += wall_ns
        row.longest_ns = max(row.longest_ns, longest_ns)
        row.occurrences += occurrences
        return row

    def add_with_path(
        self, key: _Key, path: Path, first_ns: int, wall_ns: int, looks: int = 0
    ) -> _PartTotals:
        """Add what lies between steps; what is steps' all the same gets its path with them."""
        if key[0] not in _PARTS_OF_STEPS:
            self.tree.add(path, first_ns, wall_ns, looks)
        return self.add(key, first_ns, wall_ns)

    def charge_threads(self, counts: CellCounts, calls: Sequence[_Call]) -> list[_Call]:
        """Charge profnb with what its threads took, and all else with so much less; calls without it."""
        rows = [row for key, row in self.rows.items() if key[0] != parts.PROFNB]
        share = counts.threads_ns / max(counts.end_ns - counts.begin_ns, 1)
        if not rows or not share:
            return list(calls)
        threads, whole_ns = (parts.PROFNB, _THREADS), sum(row.wall_ns for row in rows)
        for row in rows:
            row.wall_ns = without(row.wall_ns, share)
            row.longest_ns = without(row.longest_ns, share)
        self.add((*threads, "", 0), counts.end_ns, whole_ns - sum(row.wall_ns for row in rows))
        self.tree.add((NodeKey(*threads),), counts.end_ns, self.tree.take(share, parts.PROFNB))
        return [(key, begin, end, without(took, share)) for key, begin, end, took in calls]


def divide_cell(
    counts: CellCounts,
    looks: StackRecords,
    timed: TimedCalls = TimedCalls(),  # noqa: B008 - frozen
) -> CellRecords:
    """Divide a cell into its parts.

    Args:
        counts: What was counted.
        looks: What was seen; the parts are named without them, too, where there was no time for a look.
        timed: What a few gaps between steps were spent on, which looks see badly where they are short.

    Returns:
        Parts whose wall times add up to the cell's, in the order in which they first began.
    """
    made = _Parts()
    spans = _Spans(counts, made)
    seen = _parts_of(looks)
    times, stacks = np.asarray(looks.time_ns, np.int64), np.asarray(looks.stack, np.int64)
    inside = (times > counts.begin_ns) & (times <= counts.end_ns)
    times = times[inside]
    met = _Looks(
        times,
        np.diff(times, prepend=spans.edge_ns[0]),
        np.searchsorted(spans.edge_ns, times, "left") - 1,
        [seen[stack] for stack in stacks[inside].tolist()],
    )
    paths = Paths(zip((part.path for part in met.part), met.apart.tolist(), strict=True))
    is_short = _is_short(spans, met)
    exact, kind = _votes_of(timed, spans, is_short, paths)
    calls = _divide_between(spans, made, met, is_short, exact, kind, paths)
    _place_steps(spans, made, met, paths)
    calls = made.charge_threads(counts, calls)
    tree = made.tree.nodes(_count(made, counts.log, spans.gaps), _calls_by_path(counts.log, met))
    return _records(counts, made, calls, tree)


def _calls_by_path(log: StepLog, looks: "_Looks") -> Counter[Path]:
    """Count Keras' runs by the ways that looks took to them; those that no look met are like the others."""
    begin, end = np.array(log.run_spans, np.int64).reshape(-1, 2).T
    run = begin.searchsorted(looks.times, "right") - 1
    seen: dict[int, Path] = {}
    for look in np.flatnonzero((run >= 0) & (looks.times < np.append(end, 0)[run])).tolist():
        path = looks.part[look].path
        depths = [depth for depth, place in enumerate(path, 1) if place.kind == parts.CALL]
        if depths:
            seen[int(run[look])] = path[: depths[0]]
    met = Counter(seen.values())
    return Counter({path: round(n * end.size / len(seen)) for path, n in met.items()})


@dataclass(frozen=True, slots=True)
class _Looks:
    """The looks inside the cell.

    Attributes:
        times: When each was taken, by ``time.perf_counter_ns``, shape (L,).
        apart: What passed since the one before, shape (L,).
        piece: Which piece of the cell each met, shape (L,).
        part: The part that each saw.
    """

    times: Int64s
    apart: Int64s
    piece: Int64s
    part: Sequence[StackPart]


class _Spans:
    """The cell as pieces, one behind the other: of a step, of profnb, or of what lies between.

    Attributes:
        edge_ns: Where pieces begin and end, shape (P + 1,).
        step: The step that a piece is of; -1 for none, shape (P,).
        is_between: Whether it is of nothing that was counted, shape (P,).
        context: What lies between the steps around it, as a row of ``contexts``, shape (P,).
        contexts: Parts and names.
        gaps: How many gaps between batches there are, by method.
        is_flown: Whether batches of before are still computed in it, shape (P,).
        keys: The parts that steps are.
        key: Of each step, its row in ``keys``.
        was_traced: Which steps were, shape (S,).
        name: What steps are called, as rows of the log's names, shape (S,).
        end_ns: When they ended, shape (S,).
    """

    def __init__(self, counts: CellCounts, made: _Parts) -> None:
        log = _without_calls_in_runs(counts.log)
        begin, end = (np.asarray(log.column(at), np.int64) for at in ("begin_ns", "end_ns"))
        begin = np.clip(begin, counts.begin_ns, counts.end_ns)
        end = np.clip(end, begin, counts.end_ns)
        begin[1:] = np.maximum(begin[1:], end[:-1])
        end = np.maximum(end, begin)
        of_profnb = [*counts.ours, *_recording_of(counts.turns, begin, end)]
        ours = _clipped([one[1:] for one in of_profnb], counts)
        failed = _clipped([one[1:] for one in log.failed], counts)
        flights = [(since, batches.ended_ns) for since, batches in counts.flying]
        landed = [(since, counts.end_ns if at is None else at) for since, at in flights]
        flown = _clipped(landed, counts)
        self.was_traced = np.asarray(log.column("was_traced"), np.bool_)
        room_ns = np.append(begin[1:], counts.end_ns) - end
        of_hooks = np.array(counts.hooks_ns, np.int64)[self.was_traced.astype(np.int64)]
        unhooked_ns = end + np.minimum(room_ns, of_hooks)
        edges = [begin, end, unhooked_ns, *(spans.ravel() for spans in (ours, failed, flown))]
        self.edge_ns = np.unique(np.concatenate([*edges, [counts.begin_ns, counts.end_ns]]))
        middle = self.edge_ns[:-1]
        at = np.searchsorted(begin, middle, "right") - 1
        is_step = (at >= 0) & (middle < end[at]) if end.size else np.zeros(middle.size, np.bool_)
        in_own, in_failed, in_flown = (_which(spans, middle) for spans in (ours, failed, flown))
        is_free = (in_own < 0) & (in_failed < 0)
        self._before = np.searchsorted(end, middle, "right") - 1
        is_hooked = is_free & (middle < np.append(unhooked_ns, counts.begin_ns)[self._before])
        self.step = np.where(is_step & is_free & (in_flown < 0), at, -1)
        self.is_between = ~is_step & is_free & ~is_hooked
        self.keys, self.key = _keys_of_steps(log, end - begin)
        self.name, self.end_ns = np.asarray(log.column("name"), np.int64), end
        self.method = [_method_of(one) for one in log.runs]
        self._run = _runs_of_steps(log)
        fits = [at for at, method in enumerate(self.method) if method == _FIT]
        self._fit_steps = np.flatnonzero(np.isin(self._run, fits))
        self._find_contexts(log)
        self._find_flown(in_flown, end.searchsorted([since for since, _ in flights], "right") - 1)
        took = np.diff(self.edge_ns)
        self._charge_steps(made, begin, took, is_hooked, counts)
        # Batches that are still computed are charged with what later steps wait for them.
        for piece in np.flatnonzero(is_step & self.is_flown & is_free).tolist():
            key = (*self.contexts[self.context[piece]], "", 0)
            made.add_with_path(key, (), int(self.edge_ns[piece]), int(took[piece]))
        for part, named, listed, where, is_its in (
            (parts.PROFNB, of_profnb, ours, in_own, in_own >= 0),
            (parts.FAILED, log.failed, failed, in_failed, in_own < 0),
        ):
            chosen = is_its & (where >= 0)
            walls = np.bincount(where[chosen], took[chosen], len(named))
            for row, (name, *_) in enumerate(named):
                if listed[row, 0] == listed[row, 1]:  # outside of the cell
                    continue
                wall_ns = int(walls[row])
                made.add((part, name, "", 0), int(listed[row, 0]), wall_ns, wall_ns, 1)
                made.tree.add((NodeKey(part, name),), int(listed[row, 0]), wall_ns)

    def _charge_steps(
        self, made: _Parts, begin: Int64s, took: Int64s, is_hooked: Bools, counts: CellCounts
    ) -> None:
        """Charge steps with what they would take without us, and us with the rest.

        A traced step is as long as its untraced neighbours of the same kind, on median, where there are such.
        """
        untraced, ours = ~self.was_traced, Counter(hooks=int(took[is_hooked].sum()))
        behind_ns = np.bincount(self._before[is_hooked], took[is_hooked], begin.size)[untraced]
        inside_ns = int(max(counts.hooks_ns[0] - behind_ns.mean(), 0)) if behind_ns.size else 0
        wall = np.zeros(begin.size, np.int64)
        np.add.at(wall, self.step[self.step >= 0], took[self.step >= 0])
        for row, key in enumerate(self.keys):
            of_key = self.key == row
            walls, traced = wall[of_key], wall[of_key & self.was_traced]
            whole, longer = int(walls.sum()), _longer(walls, self.was_traced[of_key])
            tracing = min(int(longer * traced.size), int(traced.sum()) // 2)
            hooks = min(inside_ns * int((of_key & untraced).sum()), whole // 10)
            ours.update({_RECORDING: tracing, "hooks": hooks})
            alone = whole - tracing - hooks
            made.add(key, int(begin[of_key][0]), alone, int(walls.max()), walls.size)
        for name, wall_ns in (+ours).items():
            made.add((parts.PROFNB, name, "", 0), int(begin[0]), wall_ns, wall_ns)
            made.tree.add((NodeKey(parts.PROFNB, name),), int(begin[0]), wall_ns)

    def _find_contexts(self, log: StepLog) -> None:
        """Say of what lies between two steps what it is, if no look says more."""
        count = self._run.size
        ends_epoch = np.zeros(count + 1, np.bool_)
        ends_epoch[[at for at in log.ended_at if at <= count]] = True
        before, after = self._before, self._before + 1
        run = np.append(self._run, -1)  # of none, before the first one and behind the last
        is_gap = (run[:-1] >= 0) & (run[:-1] == run[1:]) & ~ends_epoch[1:]
        self.gaps = Counter(self.method[at] for at in run[:-1][is_gap].tolist())
        is_inside = (run[before] >= 0) & (run[before] == run[after])
        code = np.where(is_inside, 2 * run[before] + ends_epoch[after], -1)
        codes, self.context = np.unique(code, return_inverse=True)
        kinds, other = (parts.GAPS, parts.EPOCH_ENDS), (parts.OTHER, "")
        rows = [divmod(at, 2) for at in codes.tolist()]
        self.contexts = [(kinds[of], self.method[at]) if at >= 0 else other for at, of in rows]

    def _find_flown(self, in_flown: Int64s, before: Int64s) -> None:
        """Say whose it is that lies where batches are still computed, if no look says more.

        Args:
            in_flown: Which flight a piece lies in; -1 for none, shape (P,).
            before: The last step before each flight, whose batches fly.
        """
        first = len(self.contexts)
        for last in before.tolist():
            part, name = self.keys[self.key[last]][:2] if last >= 0 else (parts.OTHER, "")
            if part in (parts.FIRST, parts.SLOW_FIRST):
                part, name = _PART_OF_PHASE.get(name, parts.VALIDATION), _METHODS.get(name, _FIT)
            self.contexts.append((part, name))
        self.is_flown = in_flown >= 0
        self.context[self.is_flown] = first + in_flown[self.is_flown]

    def before(self, piece: int) -> _Key | None:
        """Give the kind of the steps before and behind a piece; None where they are not of one."""
        at = int(self._before[piece])
        if at < 0 or at + 1 >= self.key.size or self.key[at] != self.key[at + 1]:
            return None
        return self.keys[int(self.key[at])]

    def of_run(self, piece: int, method: str) -> tuple[str, str]:
        """Name a stretch in which a look saw a run of Keras', and nothing more of it."""
        part, name = self.contexts[self.context[piece]]
        if self.is_flown[piece] or (part != parts.OTHER and name == method):
            return part, name
        # A fit that has had batches before, and has some after.
        at = int(self._fit_steps.searchsorted(self._before[piece], "right"))
        around = self._run[self._fit_steps[max(at - 1, 0) : at + 1]]
        if method == _FIT and at > 0 and around.size == 2 and around[0] == around[1]:
            return parts.EPOCH_ENDS, _FIT
        return parts.AROUND, method


def _clipped(spans: Iterable[tuple[int, int]], counts: CellCounts) -> Int64s:
    """Cut begins and ends to those inside the cell, shape (N, 2)."""
    listed = np.array(list(spans), np.int64).reshape(-1, 2)
    return np.maximum.accumulate(np.clip(listed, counts.begin_ns, counts.end_ns), axis=1)


def _which(spans: Int64s, at: Int64s) -> Int64s:
    """Find the span that a time lies in, of several the first; -1 for none."""
    which = np.full(at.size, -1, np.int64)
    pieces = np.searchsorted(at, spans).tolist()
    for row in range(len(pieces) - 1, -1, -1):
        first, last = pieces[row]
        which[first:last] = row
    return which


def _longer(took: Int64s, was_traced: Bools) -> float:
    """Give what traced ones took longer, in median; 0 for nothing, or where there are too few to tell."""
    traced, untraced = took[was_traced], took[~was_traced]
    if not traced.size or untraced.size < _LEAST_UNTRACED:
        return 0.0
    return max(float(np.median(traced) - np.median(untraced)), 0.0)


def _recording_of(turns: TurnRecords, begin: Int64s, end: Int64s) -> list[tuple[str, int, int]]:
    """Find what traced turns of an eager loop took longer than untraced ones, in median, as stretches.

    Where in a turn it lies is not known: it is put elsewhere in each, so that looks see all lines alike.

    Args:
        turns: Where turns began.
        begin: Begins of steps inside them, which are charged by themselves, in order.
        end: Their ends.
    """
    place = np.asarray(turns.place, np.int64)
    if not place.size:
        return []
    row = np.flatnonzero(place == np.bincount(place).argmax())
    since, until = np.asarray(turns.begin_ns, np.int64)[[row[:-1], row[1:]]]
    counted = np.append(0, np.cumsum(end - begin))  # of steps that ended before
    apart = until - since - (counted[end.searchsorted(until)] - counted[end.searchsorted(since)])
    was_traced = np.asarray(turns.was_traced, np.bool_)[row[:-1]]
    longer = int(_longer(apart, was_traced))
    if not longer:
        return []
    behind = np.append(begin, until[-1:])[begin.searchsorted(since)]  # the first step of a turn
    spare = (np.minimum(until, behind) - since - longer)[was_traced]
    at = since[was_traced] + (spare * (np.arange(spare.size) * GOLDEN % 1)).astype(np.int64)
    return [(_RECORDING, one, one + longer) for one in at[spare > longer].tolist()]  # half at most


def _keys_of_steps(log: StepLog, took: Int64s) -> tuple[list[_Key], Int64s]:
    """Give the parts that steps are, and which of them each one is."""
    name, kind, retraced, run = (
        np.asarray(log.column(at), np.int64) for at in ("name", "kind", "retraced", "run")
    )
    run = np.where(_is_of_keras(log), run, 0)
    runs = int(run.max(initial=0)) + 1
    of_run = name * runs + run
    first = np.zeros(run.size, np.bool_)
    first[np.unique(of_run, return_index=True)[1]] = True
    later = np.zeros(run.size, np.int64)  # what the next one of the same run took
    later[:-1] = np.where(of_run[:-1] == of_run[1:], took[1:], 0)
    numbers = np.array([log.code_of(one.phase) * runs + one.number for one in log.runs], np.int64)
    validates = np.array([one.is_validation for one in log.runs], np.bool_)
    again = numbers[1:][validates[1:] & validates[:-1]]
    first &= (run > 0) & ~np.isin(of_run, again)  # a fit's later validations go on
    is_slow = first & (retraced == 0) & (later > 0) & (took >= _FAR_LONGER * later)
    is_validation = np.isin(of_run, numbers[validates]) & (run > 0)
    facts, key = distinct_rows(name, kind, retraced, run > 0, is_validation, is_slow)
    named = (_part_of_step(log.names[code], KINDS[at], *flags) for code, at, *flags in facts)
    return [(*names, "", 0) for names in named], key


def _part_of_step(
    name: str, kind: str, is_retraced: int, is_run: int, is_validation: int, is_slow: int
) -> tuple[str, str]:
    phase = _VALIDATION if is_validation else name
    if kind == SESSION_RUN:
        return parts.SESSION_RUNS, ""
    if kind == CALL:
        return (parts.FIRST if is_retraced else parts.CALLS), name
    if is_retraced or is_slow:
        return (parts.FIRST if is_retraced else parts.SLOW_FIRST), phase
    if (kind == USER and not is_run) or phase not in (*_PART_OF_PHASE, _VALIDATION):
        return parts.MARKED, name
    if is_validation:
        return parts.VALIDATION, _FIT
    return _PART_OF_PHASE[name], _METHODS[name] if is_run else f"{name}_on_batch"


def _is_of_keras(log: StepLog) -> Bools:
    """Mark the steps that are batches of Keras': Keras 2 marks its own, as a user may."""
    kind = np.asarray(log.column("kind"), np.int64)
    return np.isin(kind, (KINDS.index(KERAS), KINDS.index(USER)))


def _without_calls_in_runs(log: StepLog) -> StepLog:
    """The steps without calls of functions inside of Keras' runs: what a callback calls is the callback's."""
    if not log.run_spans:
        return log
    begin, kind = (np.asarray(log.column(at), np.int64) for at in ("begin_ns", "kind"))
    spans = np.array(log.run_spans, np.int64)
    at = np.searchsorted(spans[:, 0], begin, "right") - 1
    is_aside = (kind == KINDS.index(CALL)) & (at >= 0) & (begin < spans[at, 1])
    return log.without(is_aside.tolist()) if is_aside.any() else log


def _runs_of_steps(log: StepLog) -> Int64s:
    """The row of ``log.runs`` that each step belongs to; -1 for none."""
    name, run = (np.asarray(log.column(at), np.int64) for at in ("name", "run"))
    rows = np.full((len(log.names) + 1, int(run.max(initial=0)) + 1), -1, np.int64)
    for row, one in enumerate(log.runs):
        if one.number < rows.shape[1]:
            rows[log.code_of(one.phase), one.number] = row
    return np.where(_is_of_keras(log), rows[name, run], -1)


def _method_of(run: KerasRunSeen) -> str:
    return _VALIDATION if run.is_validation else _METHODS.get(run.phase, run.phase)


_Votes = defaultdict[int, Counter[tuple[_Key, Path]]]  # by kind of gap


def _parts_of(looks: StackRecords) -> list[StackPart]:
    """Give the part of each distinct stack."""
    frames = looks.frames
    return [part_of_stack([frames[at] for at in stack], looks.base) for stack in looks.stacks]


def _is_short(spans: _Spans, looks: _Looks) -> Bools:
    """Mark the pieces that are shorter than the time to the look behind their end, shape (P,)."""
    took, times = np.diff(spans.edge_ns), looks.times
    if not times.size:
        return np.ones(took.size, np.bool_)
    behind = np.minimum(np.searchsorted(times, spans.edge_ns[1:]), times.size - 1)
    return np.asarray(took < looks.apart[behind])


def _votes_of(
    timed: TimedCalls, spans: _Spans, is_short: Bools, paths: Paths
) -> tuple[_Votes, Int64s]:
    """Divide short gaps as those were that were told call by call.

    Each stands for as many of about its length as there are for each of them: one that waited long for a
    core says nothing of the others. Where lengths leave out a factor of two, longer ones are of another kind.

    Returns:
        What each kind was spent on; of each piece its kind, or its context where none of it was told, (P,).
    """
    clocked = defaultdict[int, Counter[tuple[_Key, Path]]](Counter)  # by piece
    seen, stacks = _parts_of(timed.stacks), timed.stacks
    for gap_ns, stack, took_ns in zip(stacks.time_ns, stacks.stack, timed.took_ns, strict=True):
        piece = int(spans.edge_ns.searchsorted(gap_ns, "right")) - 1
        if took_ns and 0 <= piece < spans.is_between.size and spans.is_between[piece]:
            clocked[piece][_seen_as(spans, paths, piece, seen[stack])] += took_ns
    took, kind, votes = np.diff(spans.edge_ns), spans.context.copy(), _Votes(Counter)
    pieces = np.array(sorted(clocked, key=lambda piece: int(took[piece])), np.int64)
    for context in np.unique(spans.context[pieces]).tolist():
        of_context = spans.context == context
        ranked = pieces[of_context[pieces]]
        like = np.flatnonzero(spans.is_between & is_short & of_context)
        lengths = np.sort(took[np.union1d(like, ranked)])
        longer = lengths[1:][lengths[1:] > _ANOTHER_KIND * lengths[:-1]]
        of_like, of_ranked = (longer.searchsorted(took[at], "right") for at in (like, ranked))
        for each in np.unique(of_ranked).tolist():
            alike, some = like[of_like == each], ranked[of_ranked == each]
            shares: Counter[tuple[_Key, Path]] = Counter()
            slices = np.array_split(np.sort(took[alike]), some.size)
            for piece, slice_ns in zip(some.tolist(), slices, strict=True):
                shares.update(dict(divided(int(slice_ns.sum()), clocked[piece])))
            if shares := +shares:
                kind[alike] = new = len(spans.contexts) + len(votes)
                votes[new] = shares
    return votes, kind


def _divide_between(
    spans: _Spans,
    made: _Parts,
    looks: _Looks,
    is_short: Bools,
    exact: _Votes,
    kind: Int64s,
    paths: Paths,
) -> list[_Call]:
    """Charge what lies between steps; give the calls that were seen in it."""
    took, edge_ns = np.diff(spans.edge_ns), spans.edge_ns
    between = np.flatnonzero(spans.is_between)
    times, apart, piece = looks.times, looks.apart, looks.piece
    is_first = np.diff(piece, prepend=-1) != 0
    begin = np.where(is_first, edge_ns[piece], times - apart)
    end = np.where(np.append(is_first[1:], True), edge_ns[piece + 1], times)
    begin, end = (np.where(is_short[piece], times, at) for at in (begin, end))
    votes: _Votes = defaultdict(Counter)
    calls: list[_Call] = []
    for look in np.flatnonzero(spans.is_between[piece]).tolist():
        part, at = looks.part[look], int(piece[look])
        key, path = _seen_as(spans, paths, at, part)
        if is_short[at]:
            votes[int(kind[at])][key, path] += int(apart[look])
        since, until = int(begin[look]), int(end[look])
        is_exact = int(kind[at]) in exact
        row = made.add_with_path(key, path, since, until - since, not is_exact)
        row.places[part.file, part.line] += 1
        if calls and calls[-1][0] == key and calls[-1][2] == since:
            calls[-1] = key, calls[-1][1], until, calls[-1][3] + until - since
        else:
            calls.append((key, since, until, until - since))
    for unseen in between[~is_short[between] & ~np.isin(between, piece)].tolist():
        seen_as = _seen_as(spans, paths, unseen, None)
        made.add_with_path(*seen_as, int(edge_ns[unseen]), int(took[unseen]))
    _divide_short(spans, made, between[is_short[between]], votes | exact, kind, paths)
    adapted: set[tuple[_Key, int]] = set()
    in_steps = zip(spans.step[piece].tolist(), looks.part, strict=True)
    inside = [at for at, part in in_steps if at >= 0 and part.name.endswith(parts.ADAPTS)]
    ends_ns = spans.end_ns[~np.isin(spans.name, spans.name[inside])]
    for key, since, _, wall_ns in calls:
        row = made.add(key, since, 0, wall_ns)
        if key[0] not in _SEEN:
            continue
        # A layer that adapts asks for input, and calls functions: between two other steps it is one call.
        if key[0] == parts.BUILDING and key[1].endswith(parts.ADAPTS):
            once = key, int(np.searchsorted(ends_ns, since, "right"))
            if once in adapted:
                continue
            adapted.add(once)
        row.occurrences, row.is_counted = row.occurrences + 1, False
    return calls


def _divide_short(
    spans: _Spans, made: _Parts, short: Int64s, votes: _Votes, kind: Int64s, paths: Paths
) -> None:
    """Charge stretches that are shorter than the time between looks: those of one kind together."""
    took = np.diff(spans.edge_ns)
    for each in np.unique(kind[short]).tolist():
        alike = short[kind[short] == each]
        first = int(alike[0])
        shares = votes.get(each) or {_seen_as(spans, paths, first, None): 1}
        for (key, path), part_ns in divided(int(took[alike].sum()), shares):
            made.add_with_path(key, path, int(spans.edge_ns[first]), part_ns)


def _seen_as(spans: _Spans, paths: Paths, piece: int, part: StackPart | None) -> tuple[_Key, Path]:
    """Name what a look saw between steps, None for no look, and give the way there."""
    key = (*spans.contexts[spans.context[piece]], "", 0)
    if part is not None:
        key = part.part, part.name, "", 0
        if part.part == RUN:
            key = (*spans.of_run(piece, part.run), "", 0)
        elif part.part == parts.OTHER:
            key = parts.OTHER, "", part.file, part.line
    is_inside = spans.of_run(piece, _FIT)[0] != parts.AROUND
    path = None if part is None else part.path
    return key, paths.between(NodeKey(*key[:2]), path, is_inside=is_inside)


def _place_steps(spans: _Spans, made: _Parts, looks: _Looks, paths: Paths) -> None:
    """Say of each kind of step which line of the user's runs it and what it calls, by looks that met it.

    Keras 2 calls the callbacks of a batch inside of its own marker: there, too, they are callbacks.
    """
    apart, piece = looks.apart, looks.piece
    in_steps: defaultdict[_Key, list[tuple[Path, int]]] = defaultdict(list)
    callbacks: defaultdict[_Key, Counter[tuple[_Key, Path]]] = defaultdict(Counter)
    around: defaultdict[_Key | None, list[Path]] = defaultdict(list)
    for look in np.flatnonzero(spans.step[piece] >= 0).tolist():
        part, key = looks.part[look], spans.keys[spans.key[spans.step[piece[look]]]]
        made.rows[key].places[part.file, part.line] += 1
        if part.part in _TIMED_PARTS and part.run and key[0] in _OF_RUNS:
            inner = part.part, part.name, "", 0
            made.add(inner, int(looks.times[look]), 0).places[part.file, part.line] += 1
            path = in_epochs(part.path, is_inside=True)
            callbacks[key][inner, path] += int(apart[look])
        else:
            in_steps[key].append((part.path, int(apart[look])))
    for look in np.flatnonzero(spans.is_between[piece]).tolist():
        around[spans.before(int(piece[look]))].append(looks.part[look].path)
    for key, row in [one for one in made.rows.items() if one[0][0] in _PARTS_OF_STEPS]:
        shares = callbacks[key]
        is_of_run = key[0] in _BATCHES and key[1] in _METHODS.values()
        step = NodeKey(key[0], "" if is_of_run else key[1])
        methods = _methods_of(*key[:2])
        of_steps = paths.of_steps(step, methods, in_steps[key], around[key])
        shares |= {(key, path): weight for path, weight in of_steps.items()}
        for (of_part, path), part_ns in divided(row.wall_ns, shares):
            made.tree.add(path, row.first_ns, part_ns)
            if of_part != key:
                made.add(of_part, row.first_ns, part_ns)
                row.wall_ns -= part_ns


def _methods_of(part: str, name: str) -> Collection[str]:
    """Name the runs of Keras' that make steps of a kind."""
    if part in (parts.FIRST, parts.SLOW_FIRST):
        return (_METHODS.get(name, name), *([_VALIDATION] if name == "test" else []))
    if part == parts.VALIDATION:
        return (_VALIDATION,)
    return (name,) if name in _METHODS.values() else ()


def _count(made: _Parts, log: StepLog, gaps: Counter[str]) -> _Counted:
    """Say how often something happened, where a counter knows it.

    Returns:
        The same for nodes of the tree: how often what has a kind and a name happened, in all runs of a method
        or ("") anywhere.
    """
    runs, epochs = Counter(map(_method_of, log.runs)), len(log.ended_at)
    counted = {(RUN_CALL, method, ""): times for method, times in runs.items()}
    counted[EPOCH, "", _FIT] = epochs
    for (part, name, *_), row in made.rows.items():
        around = {parts.AROUND: runs[name], parts.EPOCH_ENDS: epochs, parts.GAPS: gaps[name]}
        row.occurrences = around.get(part, row.occurrences)
        if row.is_counted and part not in (parts.OTHER, parts.CALLBACKS):
            is_of_run = part in _OF_METHODS and name in (*_METHODS.values(), _VALIDATION)
            method = _VALIDATION if part == parts.VALIDATION else name
            counted[part, "" if is_of_run else name, method if is_of_run else ""] = row.occurrences
    batches = Counter(log.names[code] for code in compress(log.column("name"), log.column("run")))
    ends = {"epoch": epochs, "train": runs[_FIT], "predict": runs["predict"]}
    ends["test"] = runs[_VALIDATION] + runs["evaluate"]
    hooks = {key[1] for key in made.rows if key[0] == parts.CALLBACKS}
    for name in hooks | made.tree.names_of(parts.CALLBACKS):
        phase = name.rpartition(".on_")[2].rpartition("_")[0]
        times = ends.get(phase, 0)
        if phase.endswith("batch"):
            times = batches["train" if phase == "batch" else phase.partition("_")[0]]
        counted[parts.CALLBACKS, name, ""] = times
        if name in hooks:
            made.rows[parts.CALLBACKS, name, "", 0].occurrences = times
    return counted


def _records(
    counts: CellCounts, made: _Parts, calls: Sequence[_Call], tree: list[TreeNode]
) -> CellRecords:
    """Give the rows as values; of the code's own lines the longest."""
    lines = [key for key in made.rows if key[0] == parts.OTHER and key[2]]
    for key in sorted(lines, key=lambda key: -made.rows[key].wall_ns)[_MOST_LINES_OF_CELL:]:
        row = made.rows.pop(key)
        made.add((parts.OTHER, "", "", 0), row.first_ns, row.wall_ns)
    order = [key for key, row in made.rows.items() if row.wall_ns or row.occurrences]
    order.sort(key=lambda key: made.rows[key].first_ns)
    listed = []
    for key in order:
        row, placed = made.rows[key], [key[2:]] if key[2] else []
        placed += [where for where, _ in row.places.most_common() if where[0]]
        counted = row.occurrences, row.wall_ns, min(row.longest_ns, row.wall_ns)
        place = [*placed, ("", 0)][0]
        listed.append(CellPart(*key[:2], *counted, *place, is_counted=row.is_counted))
    records = CellRecords(counts.end_ns - counts.begin_ns, listed, tree=tree)
    files = {part.file for part in listed}
    records.cells = {file: number for file, number in number_cells().items() if file in files}
    rows = {key: row for row, key in enumerate(order) if key[0] in _TIMED_PARTS}
    kept: Counter[_Key] = Counter()
    longest = []
    for one in sorted(calls, key=lambda one: -one[3]):
        if one[0] in rows and one[3] >= _LONG_NS and kept[one[0]] < _MOST_LONG:
            kept[one[0]] += 1
            longest.append(one)
    for key, begin_ns, end_ns, wall_ns in sorted(longest, key=lambda one: one[1]):
        records.long_part.append(rows[key])
        records.long_begin_ns.append(begin_ns)
        records.long_end_ns.append(end_ns)
        records.long_wall_ns.append(wall_ns)
    return records
