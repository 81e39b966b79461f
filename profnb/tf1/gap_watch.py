"""Session runs to what Python did between them: which statements, and whether they made what is fed.

The looks at the cell's thread (``capture.source.stacks``) that fall between two runs say what TensorFlow
waited for. A gap's time is divided among its looks; what lies after the last run is no gap. Pauses (ten times
the median, and more than 100 ms) are left out, as everywhere.

A stack is compared with those of the runs, from the outermost frame of the user's on: where both are in
the same statement, one frame further in is looked at; the first statement that differs is what ran instead
of the one that leads to the run. What is fed comes from a statement if one of its names is assigned there,
directly or through others (``batch = load(i)``, ``for batch in batches()``). No value is looked at.

Of the arrays that are fed it is told whether they were made for the run. One that was fed before is not, nor
is a part of one, nor one that still lives three runs later: it was made beforehand, and is kept. Of several
those count that hold most of the bytes (labels are often a part of an array that is kept).
"""

import ast
import contextlib
import functools
import inspect
import linecache
import statistics
import time
import weakref
from bisect import bisect
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any

from profnb.capture.recording import AFTER, BEFORE, FEEDS, RUN_ITSELF, GapPlace, GapRecords
from profnb.capture.source.stacks import Looks, frames_above, line_at
from profnb.capture.source.user_code import is_user_file, number_cells, shorten_files
from profnb.core.parsing import parse_again

_MOST_GAPS, _MOST_CALLS_IN_GAP, _MOST_LOOKED_AT = 20_000, 32, 256
_RUNS_LATER = 3
_PAUSE_TIMES, _SHORTEST_PAUSE_NS = 10, 100_000_000
Stack = tuple[tuple[CodeType, int], ...]  # the outermost first

_MOST_PLACES = 12
_SESSIONS = (
    *(f"/tensorflow/python/{part}/" for part in ("client", "training", "framework")), "/profnb/tf1/",
)  # fmt: skip
_HOOKS = ("after_run", "before_run")
_Place = tuple[str, int, str, str]  # file, line, text, role
_LONGEST_STATEMENT = 110
# What only shows or keeps what has been: never what the next run is fed with.
_SHOWS = frozenset({
    "append", "add_summary", "debug", "display", "eval", "evaluate", "figure", "flush", "info", "log", "plot",
    "print", "save", "show", "warning", "write",
})  # fmt: skip
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class GapWatch:
    """Watches the gaps between the session runs of the thread that calls it.

    Attributes:
        records: What was found; complete after ``finish``.
    """

    def __init__(self) -> None:
        """Nothing has run yet."""
        self.records = GapRecords()
        self._calls: dict[Stack, None] = {}
        # Begins and ends of gaps, in turn; while no run is on the last one is a begin.
        self._gap_ns = deque[int]()
        # The arrays whose memory was fed, by id.
        self._fed: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._waiting: deque[tuple[int, list[tuple[weakref.ref[Any], int]], int]] = deque()

    def run_begins(self, feed_dict: object) -> None:
        """A run begins; the gap before it ends."""
        self.run_failed(time.perf_counter_ns())
        self.records.runs += 1
        if self.records.runs <= _MOST_LOOKED_AT:
            self._look_at(feed_dict)
            if len(self._calls) < _MOST_CALLS_IN_GAP:
                stack = tuple(frames_above(inspect.currentframe()))[::-1]
                self._calls[_users(stack)] = None

    def run_ended(self) -> None:
        """The run ended; a gap begins."""
        if len(self._gap_ns) % 2 == 0 and len(self._gap_ns) < 2 * _MOST_GAPS:
            self._gap_ns.append(time.perf_counter_ns())

    def run_failed(self, begin_ns: int) -> None:
        """A run began then that did not end, and so no gap begins."""
        if len(self._gap_ns) % 2:
            self._gap_ns.append(begin_ns)

    @property
    def spans(self) -> deque[int] | None:
        """Find where a run's begin and end can be put, if they are all there is to see of runs by now."""
        if self.records.runs < _MOST_LOOKED_AT:
            return None
        return self._gap_ns if len(self._gap_ns) < 2 * _MOST_GAPS else deque(maxlen=0)

    # What is fed.

    def _look_at(self, feed_dict: object) -> None:
        fed = feed_dict.values() if isinstance(feed_dict, Mapping) else ()
        arrays = [value for value in fed if _is_array(value) and value.size > 1]
        records = self.records
        if arrays:
            records.fed += 1
            records.fed_bytes = max(records.fed_bytes, sum(int(a.nbytes) for a in arrays))
        while self._waiting and self._waiting[0][0] <= records.runs - _RUNS_LATER:
            _, made, whole = self._waiting.popleft()
            records.judged += 1
            records.new += sum(size for array, size in made if array() is None) * 2 > whole
        if not arrays:
            return
        roots = [(_root_of(array), int(array.nbytes)) for array in arrays]
        first_fed: list[tuple[weakref.ref[Any], int]] = []
        fed_before = [id(root) for root, _ in roots if self._fed.get(id(root)) is root]
        for root, size in roots:
            if id(root) in fed_before:
                continue
            with contextlib.suppress(TypeError):  # a class that cannot be referred to so
                self._fed[id(root)] = root
                first_fed.append((weakref.ref(root), size))
        self._waiting.append((records.runs, first_fed, sum(size for _, size in roots)))

    def finish(self, looks: Looks) -> GapRecords:
        """End; no reference to code or arrays is kept."""
        gaps = list(zip(*[iter(self._gap_ns)] * 2, strict=False))[:_MOST_GAPS]
        usual = statistics.median(end - begin for begin, end in gaps) if gaps else 0
        limit = max(usual * _PAUSE_TIMES, _SHORTEST_PAUSE_NS)
        self._divide([(begin, end) for begin, end in gaps if end - begin <= limit], looks)
        for kept in (self._calls, self._fed, self._waiting):
            kept.clear()
        return self.records

    def _divide(self, gaps: list[tuple[int, int]], looks: Looks) -> None:
        """Divide gaps among their looks: each has what passed since the one before, the last the rest."""
        records, sums = self.records, Counter[int]()
        for begin, end in gaps:
            at = begin
            first, last = bisect(looks.time_ns, begin), bisect(looks.time_ns, end)
            for look in range(first, last):
                until = end if look == last - 1 else looks.time_ns[look]
                sums[looks.stack[look]] += until - at
                at = until
            records.samples += last - first
        records.gaps, records.gap_ns = len(gaps), sum(end - begin for begin, end in gaps)
        if seen := sum(sums.values()):  # gaps between two looks stand for those that were met
            stacks = Counter[Stack]()
            for row, took in sums.items():
                stacks[_users(looks.stack_of(row))] += took
            calls = [call for call in self._calls if call]
            records.places = tell_roles(calls, stacks, records.gap_ns / seen)


def shorten_gaps(records: GapRecords, *, has_source: bool) -> GapRecords:
    """Give the files of records by their short names, and leave out the code's texts where not asked for."""
    folder = ""
    with contextlib.suppress(OSError):  # the folder is gone
        folder = str(Path.cwd())
    files = [file for place in records.places for file in (place.file, place.inner_file) if file]
    names, cells = {"": "", **shorten_files(files, folder)}, number_cells()
    places = [
        replace(
            place,
            file=names[place.file],
            text=place.text if has_source or place.role == RUN_ITSELF else "",
            inner_file=names[place.inner_file],
            inner_text=place.inner_text if has_source else "",
        )
        for place in records.places
    ]
    numbers = {names[file]: cells[file] for file in files if file in cells}
    return replace(records, places=places, cells=numbers)


def _users(stack: Stack) -> Stack:
    """Cut a stack to what begins with the user's outermost frame."""
    rows = (row for row, (code, _) in enumerate(stack) if is_user_file(code.co_filename))
    return stack[next(rows, len(stack)) :]


def _is_array(value: object) -> Any:
    """Tell whether it is an array of NumPy's, or one that says of itself what one does."""
    return hasattr(value, "nbytes") and hasattr(value, "size") and hasattr(value, "dtype")


def _root_of(array: Any) -> Any:
    """Find the array whose memory it is."""
    while _is_array(getattr(array, "base", None)):
        array = array.base
    return array


class Source:
    """The statements of one file."""

    def __init__(self, file: str) -> None:
        """Read it as the interpreter would for a traceback."""
        self.lines = linecache.getlines(file)
        try:
            self.tree = parse_again("".join(self.lines))
        except (SyntaxError, ValueError):
            self.tree = ast.Module([], [])
        self.parent = {
            inner: node for node in ast.walk(self.tree) for inner in ast.iter_child_nodes(node)
        }

    def statement(self, line: int, column: int | None) -> ast.stmt | None:
        """Find the innermost statement at a place; None where a line alone has several."""
        innermost: ast.stmt | None = None
        for node in (one for one in ast.walk(self.tree) if isinstance(one, ast.stmt)):
            begin, last = (node.lineno, node.col_offset), node.end_lineno or node.lineno
            inside = node.lineno <= line <= last
            if column is not None:
                inside = begin <= (line, column) < (last, node.end_col_offset or 0)
            if inside and innermost is not None and innermost not in self.above(node):
                return None
            innermost = node if inside else innermost
        return innermost

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a node lies in, the innermost first."""
        while node in self.parent:
            node = self.parent[node]
            yield node

    def scope(self, node: ast.AST) -> ast.AST | None:
        """Find the function, class or module that a node belongs to."""
        return next((n for n in self.above(node) if isinstance(n, (*_SCOPES, ast.Module))), None)

    def loop(self, node: ast.AST) -> ast.AST | None:
        """Find the innermost loop of a node's own scope, or None."""
        inner = next((n for n in self.above(node) if isinstance(n, (*_LOOPS, *_SCOPES))), None)
        return inner if isinstance(inner, _LOOPS) else None

    def text(self, line: int, statement: ast.stmt | None = None) -> str:
        """Give a line as people read it; of a simple statement its part of the line."""
        if not 0 < line <= len(self.lines):
            return ""
        text = self.lines[line - 1]
        if statement is not None and statement.lineno == line and not hasattr(statement, "body"):
            raw = text.encode()  # columns are bytes
            end = statement.end_col_offset if statement.end_lineno == line else None
            text = raw[statement.col_offset : end].decode("utf-8", "replace")
        return text.strip()[:_LONGEST_STATEMENT]


class _Reader:
    """The sources of all files, each read once."""

    def __init__(self) -> None:
        self._source = functools.cache(Source)
        self._places: dict[tuple[int, int], tuple[int, ast.stmt | None]] = {}

    def of(self, code: CodeType) -> Source:
        return self._source(code.co_filename)

    def statement(self, code: CodeType, offset: int) -> tuple[int, ast.stmt | None]:
        """Find the line of an instruction and the statement it belongs to."""
        key = id(code), offset
        if key not in self._places:
            line, column = line_at(code, offset), None
            # On Python 3.10 a line is all there is to know.
            positions = code.co_positions() if hasattr(code, "co_positions") else ()
            at = next((place for row, place in enumerate(positions) if row == offset // 2), None)
            if at is not None and at[0] is not None and at[2] is not None:
                line, column = at[0], at[2]
            self._places[key] = line, self.of(code).statement(line, column)
        return self._places[key]


def tell_roles(calls: Sequence[Stack], stacks: Mapping[Stack, int], scale: float) -> list[GapPlace]:
    """Sum up stacks by statement.

    Returns:
        The statements that took most of the time, the longest first.
    """
    reader = _Reader()
    sums: Counter[_Place] = Counter()
    inner: dict[_Place, Counter[tuple[str, int, str]]] = {}
    for stack, took in stacks.items() if calls else ():
        if not stack:
            continue
        place = max((_place(call, stack, reader) for call in calls), key=_kinship)[-1]
        sums[place] += took
        code, offset = [frame for frame in stack if is_user_file(frame[0].co_filename)][-1]
        line = line_at(code, offset)
        if (code.co_filename, line) != place[:2]:
            text = reader.of(code).text(line, reader.statement(code, offset)[1])
            inner.setdefault(place, Counter())[code.co_filename, line, text] += took
    places = []
    for place, took in sums.most_common(_MOST_PLACES):
        most, most_took = max(inner.get(place, {("", 0, ""): 0}).items(), key=lambda item: item[1])
        places.append(GapPlace(*place, int(took * scale), *most, int(most_took * scale)))
    return places


def _kinship(candidate: tuple[int, bool, _Place]) -> tuple[int, bool, bool]:
    """Of several runs, the one a statement is told by: it is fed from there, or is in the same loop.

    Before a loop there often is another run in the same function, which initialises the variables.
    """
    shared, same_loop, place = candidate
    return shared, place[-1] == FEEDS, same_loop


def _place(call: Stack, stack: Stack, reader: _Reader) -> tuple[int, bool, _Place]:
    """Count the user's frames that both share, tell if a loop too, and find what ran instead of the run."""
    rows = [row for row, (code, _) in enumerate(stack) if is_user_file(code.co_filename)]
    of_call = [frame for frame in call if is_user_file(frame[0].co_filename)]
    for level, (row, (code, offset)) in enumerate(zip(rows, of_call, strict=False)):
        stack_code, stack_offset = stack[row]
        is_last = level == len(of_call) - 1
        line, statement = reader.statement(stack_code, stack_offset)
        source, file = reader.of(stack_code), stack_code.co_filename
        if stack_code is not code:
            return level, False, (file, line, source.text(line), FEEDS if level else AFTER)
        _, run = reader.statement(code, offset)
        if run is None or run is not statement:
            first = line if statement is None else statement.lineno
            role = AFTER
            if run is not None and statement is not None:
                role = _role(source, statement, run, is_last=is_last)
            place = file, first, source.text(first, statement), role
            return level, _in_one_loop(source, statement, run), place
        if is_last or row == rows[-1]:
            hook = _hook_in(stack[row + 1 :])
            if hook is not None:
                return level + 1, True, (file, run.lineno, hook, RUN_ITSELF)
            role = FEEDS if not is_last or _feeds(run) else AFTER
            return level + 1, True, (file, run.lineno, source.text(run.lineno, statement), role)
    code, offset = stack[0]
    line = line_at(code, offset)
    return 0, False, (code.co_filename, line, reader.of(code).text(line), AFTER)


def _hook_in(frames: Stack) -> str | None:
    """Find the hook that runs below a run's statement, "" for TensorFlow's own Python, None for neither."""
    file = frames[0][0].co_filename.replace("\\", "/") if frames else ""
    if not any(part in file for part in _SESSIONS):
        return None
    hooks = (code for code, _ in frames if code.co_name in _HOOKS and code.co_argcount)
    return next((str(getattr(code, "co_qualname", code.co_name)) for code in hooks), "")


def _in_one_loop(source: Source, statement: ast.stmt | None, run: ast.stmt | None) -> bool:
    loop = None if run is None else source.loop(run)
    return loop is not None and statement is not None and loop in source.above(statement)


def _role(source: Source, statement: ast.stmt, run: ast.stmt, *, is_last: bool) -> str:
    """Tell what a statement is to another one of the same scope that leads to the run."""
    needed = fed_names(run) if is_last else _names(run)
    if comes_from(source, statement, run, needed):
        return FEEDS
    is_earlier = (statement.lineno, statement.col_offset) < (run.lineno, run.col_offset)
    feeds = not is_last or bool(_feeds(run))
    is_before = is_earlier and feeds and _in_one_loop(source, statement, run)
    return BEFORE if is_before and not only_shows(statement) else AFTER


def _nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """Walk a statement without the statements inside it."""
    waiting = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        inner = ast.iter_child_nodes(node)
        waiting += [one for one in inner if not isinstance(one, (ast.stmt, ast.excepthandler))]


def _names(node: ast.AST, kind: type[ast.expr_context] = ast.Load) -> set[str]:
    """The names that a statement reads itself, or those it binds with ``kind=ast.Store``."""
    return {n.id for n in _nodes(node) if isinstance(n, ast.Name) and isinstance(n.ctx, kind)}


def _feeds(run: ast.stmt) -> list[ast.expr]:
    """The expressions that a run's statement feeds: ``feed_dict=``, or the second argument of ``run``."""
    expressions = []
    for call in _calls(run):
        expressions += [keyword.value for keyword in call.keywords if keyword.arg == "feed_dict"]
        if (at := {"run": 1, "eval": 0}.get(_name_of(call))) is not None:
            expressions += call.args[at : at + 1]
    return expressions


def fed_names(run: ast.stmt) -> set[str]:
    """The names that what a run's statement feeds is made of."""
    return set().union(*map(_names, _feeds(run)))


def _calls(statement: ast.stmt) -> Iterator[ast.Call]:
    return (node for node in _nodes(statement) if isinstance(node, ast.Call))


def _name_of(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def only_shows(statement: ast.stmt) -> bool:
    """Tell whether a statement calls something that shows or keeps what has been."""
    return any(_name_of(call) in _SHOWS for call in _calls(statement))


def comes_from(source: Source, statement: ast.stmt, run: ast.stmt, needed: set[str]) -> bool:
    """Tell whether a value that the run's statement needs comes from a statement of the same scope."""
    scope = source.scope(run)
    if scope is None or not needed:
        return False
    rest = [
        node for node in ast.walk(scope)
        if isinstance(node, ast.stmt) and node is not run and source.scope(node) is scope
    ]  # fmt: skip
    wanted = set(needed)
    while new := {node for node in rest if _gives(node) & wanted}:
        if statement in new:
            return True
        wanted |= set().union(*map(_names, new))
        rest = [node for node in rest if node not in new]
    return False


def _gives(statement: ast.stmt) -> set[str]:
    """The names that it binds, or whose values it fills in: targets, ``x[:] = ...``, ``x.f()``, ``out=x``."""
    if isinstance(statement, (*_SCOPES, ast.Import, ast.ImportFrom)):
        return set()
    given = _names(statement, ast.Store)
    for node in _nodes(statement):
        if isinstance(node, ast.Subscript):
            given |= _names(node.value) if isinstance(node.ctx, ast.Store) else set()
        elif isinstance(node, ast.keyword) and node.arg == "out":
            given |= _names(node.value)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            given.add(function.value.id)
    return given
