"""Session runs that are fed by hand (``feed_dict``): Python between them, and whether it made what is fed.

Of what the capture sampled (``tf1.gap_watch``) it is input if statements from which the fed values come took
more than half of the time between the runs; or if those and the ones before the run in its loop did, and
the arrays were made anew for nine of ten runs. Logging behind the run, arrays that were there already, and
scalars are not. Times are the shorter of two: what the trace shows as nobody's, and what passed between
the end of ``Session.run`` and its next begin.
"""

from dataclasses import dataclass

from profnb.capture.recording import BEFORE, FEEDS, RUN_ITSELF, GapPlace, GapRecords
from profnb.capture.source.user_code import file_title
from profnb.core.printable import quoted
from profnb.core.units import PS_PER_NS, duration_text
from profnb.steps.activities import CATEGORIES
from profnb.steps.spine import Spine

_FEWEST_STEPS, _FEWEST_SAMPLES, _LEAST_SHARE, _LEAST_GAP_PS = 5, 10, 0.05, 20_000_000
_LONGEST_TEXT, _MOST_NAMED, _WORTH_NAMING = 60, 3, 0.1


@dataclass(frozen=True, slots=True)
class Feeding:
    """Python between session runs.

    Attributes:
        share: Its share of the time from step to step.
        each_ps: Its time a step.
        makes_input: Whether it makes what is fed.
        fed_bytes: The most that a run was fed.
        places: The statements that took it, the longest first.
        seen_ns: What all of them took but TensorFlow's own Python; what each took is a share of this.
        cells: The number of the cell that each file stands for, where it is one.
    """

    share: float
    each_ps: float
    makes_input: bool
    fed_bytes: int
    places: tuple[GapPlace, ...]
    seen_ns: int
    cells: dict[str, int]

    def named(self, roles: tuple[str, ...] = ()) -> str:
        """The statements worth naming, of some roles: "`batch = load(i)`, Cell [1]:8 (20.1 ms a step)".

        Args:
            roles: Which of them; all by default.
        """
        user_places = [p for p in self.places if p.role != RUN_ITSELF or p.text]
        chosen = [p for p in user_places if not roles or p.role in roles]
        chosen = [p for p in chosen if p.wall_ns >= _WORTH_NAMING * self.seen_ns][:_MOST_NAMED]
        return ", ".join(map(self._name, chosen))

    def _name(self, place: GapPlace) -> str:
        statement = self._quote_statement(place.text, place.file, place.line)
        took = duration_text(self.each_ps * place.wall_ns / self.seen_ns)
        inside = ""
        if place.inner_file and place.inner_ns * 2 > place.wall_ns:
            inner = self._quote_statement(place.inner_text, place.inner_file, place.inner_line)
            inside = f", most of it in {inner}"
        return f"{statement} ({took} a step{inside})"

    def _quote_statement(self, text: str, file: str, line: int) -> str:
        at = f"{file_title(file, self.cells)}:{line}"
        return f"{quoted(text, _LONGEST_TEXT)}, {at}" if text else at


def session_gaps(spine: Spine) -> GapRecords | None:
    """What was sampled between the runs, where the steps are session runs; else None."""
    sessions = spine.recording.sessions
    is_of_runs = bool(spine.summary.phase and spine.summary.phase.startswith("session_run"))
    if sessions is None or spine.steps.is_window or not is_of_runs or not sessions.gaps.gaps:
        return None
    return sessions.gaps


def own_gap_ps(gaps: GapRecords) -> float:
    """Mean time between two runs, less what TensorFlow's own Python around a run took; hooks count."""
    seen = sum(place.wall_ns for place in gaps.places)
    around = sum(p.wall_ns for p in gaps.places if p.role == RUN_ITSELF and not p.text)
    return gaps.gap_ns / gaps.gaps * 1000 * (1 - around / seen if seen else 1)


def inside_runs_ps(spine: Spine, gaps: GapRecords) -> float:
    """What passes a step between the ops of two runs and is neither the code's between them nor profnb's."""
    rows = spine.summary.counted
    between = float(spine.gaps.own_ps[rows].sum()) / max(rows.size, 1)
    return between - gaps.gap_ns / gaps.gaps * PS_PER_NS - profnb_ps(gaps)


def profnb_ps(gaps: GapRecords) -> float:
    """What profnb itself did around a traced run."""
    return gaps.own_ns / max(gaps.traced, 1) * PS_PER_NS


def find_feeding(spine: Spine) -> Feeding | None:
    """Python's part of the time between session runs; None where it is small, or was not sampled."""
    gaps, rows = session_gaps(spine), spine.summary.counted
    if gaps is None or rows.size < _FEWEST_STEPS:
        return None
    period_ps = spine.steps.duration_ps[rows] + spine.gaps.own_ps[rows]
    nobodys = spine.breakdown.gap_picoseconds[rows, CATEGORIES.index("all others")]
    traced_ps = float((nobodys * spine.gaps.belongs[rows]).sum()) / rows.size
    each_ps = min(traced_ps, own_gap_ps(gaps))
    whole = float(period_ps.sum()) / rows.size
    seen = sum(p.wall_ns for p in gaps.places if p.role != RUN_ITSELF or p.text)
    is_seen = gaps.samples >= _FEWEST_SAMPLES and seen > 0
    if not is_seen or each_ps < max(_LEAST_SHARE * whole, _LEAST_GAP_PS):
        return None
    by_role = {
        role: sum(p.wall_ns for p in gaps.places if p.role == role) for role in (FEEDS, BEFORE)
    }
    is_fed = gaps.fed > 0 and gaps.fed * 2 >= min(gaps.runs, 256)
    is_new = gaps.judged > 0 and gaps.new * 10 >= gaps.judged * 9
    made = by_role[FEEDS] * 2 > seen or (is_new and (by_role[FEEDS] + by_role[BEFORE]) * 2 > seen)
    return Feeding(
        each_ps / whole,
        each_ps,
        is_fed and made,
        gaps.fed_bytes,
        tuple(gaps.places),
        seen,
        gaps.cells,
    )
