"""A cell of the notebook that can run again, edited or not, as if it had not.

What the cell reads is kept before it runs, or, where nobody asked then, afterwards. Each trial begins with
that and runs in the notebook's own names, so that functions of earlier cells see edits too. In the end names
and objects are what they were after the cell.
"""

import ast
import gc
import linecache
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profnb.capture.hooks import replace_attribute
from profnb.capture.seams import FIGURES
from profnb.capture.session import Capture
from profnb.capture.signals import interrupt_held_back
from profnb.capture.source.user_code import is_user_file
from profnb.core.errors import CaptureError
from profnb.core.options import CaptureOptions
from profnb.core.parsing import parse_again
from profnb.forecast.kept_state import KeptState, restore_names, shuffles_by_seed
from profnb.trials import cell_reads
from profnb.trials.alternating import TrialRun, cut_after, working_elsewhere

if TYPE_CHECKING:
    from profnb.edits.editing import Edit

_LONGEST_REASON = 200


@dataclass(frozen=True)
class CellCode:
    """The code of a cell, and what runs it.

    Attributes:
        name: What tracebacks call its file.
        text: Its Python, without magics; its lines where they are in the cell.
        namespace: The notebook's names.
        run: Runs a text there, shows nothing, and returns the error.
        refusal: Why it may not run again, as far as its magics tell; "" where it may.
    """

    name: str
    text: str
    namespace: MutableMapping[str, Any]
    run: Callable[[str], BaseException | None]
    refusal: str = ""


class CellAgain:
    """A cell that can run again.

    Attributes:
        refusals: Why it may not, in sentences.
        sources: Its text and those of earlier cells that made what it reads, by their names.
        named: What it reads of the notebook.
    """

    def __init__(self, code: CellCode, options: CaptureOptions) -> None:
        """Keep what the cell can change."""
        self._code, self._options = code, options
        self.sources: dict[str, str] = {}
        self.named: dict[str, Any] = {}
        self.refusals = [code.refusal] if code.refusal else []
        self._repeated: set[str] = set()
        try:
            tree = parse_again(code.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self.refusals.append(f"The cell is no Python that can be edited ({error}).")
            tree = ast.Module([], [])
        self.named = cell_reads.names_read_first(tree, code.namespace)
        self._start = self._end = KeptState(self.named)
        self._start_names = self._end_names = restore_names(code.namespace)
        reads = cell_reads.CodeReads(tree, self.named, self._start.objects)
        self.refusals += [*self._start.refusals, *reads.refusals()]
        self._places, self._needed = reads.places, reads.needed
        self.sources = {code.name: code.text, **_earlier_cells(code.name, self._needed)}
        self.refusals += list(self._make_datasets_again())

    def _make_datasets_again(self) -> Iterator[str]:
        """Have trials make datasets of their own where the order of these would move on; or say why not."""
        statements = [one for text in self._earlier.values() for one in parse_again(text).body]
        names = list(self._start.shuffled)
        for name in names:  # more of them as we go
            makers = [one for one in statements if name in cell_reads.made_by(one)]
            if reason := self._repeat(makers) if makers else "No cell makes it.":
                yield f"`{name}` shuffles by a seed, and its order would move on. {reason}"
            read = set().union(*map(cell_reads.names_read_by_statement, makers)) - set(names)
            names += [one for one in read if shuffles_by_seed(self.namespace.get(one))]

    def _repeat(self, statements: Sequence[ast.stmt]) -> str:
        """Have trials run statements of earlier cells again; say why they cannot, or ""."""
        try:
            texts = list(self._earlier.values())
            self._repeated |= cell_reads.statements_to_repeat(texts, statements, self._needed)
        except CaptureError as error:
            return str(error)
        return ""

    def cell_ended(self) -> None:
        """Keep what the cell left behind, if it was kept before what it found."""
        self._end = KeptState({}, only=self._start)
        self._end_names = restore_names(self._code.namespace)

    def refuse_edit(self, edit: "Edit") -> str:
        """Say why an edit cannot be tried; else make ready for it and return ""."""
        if not edit.sources.keys() <= self.sources.keys():
            return "The edit is of a file that is no cell of the notebook."
        changed = [
            one
            for name, text in edit.sources.items()
            if name != self._code.name
            for one in cell_reads.changed_statements(self.sources[name], text)
        ]
        return self._repeat(changed)

    @property
    def namespace(self) -> Mapping[str, Any]:
        """The notebook's names."""
        return self._code.namespace

    @property
    def _earlier(self) -> dict[str, str]:
        return {name: text for name, text in self.sources.items() if name != self._code.name}

    @contextmanager
    def left_as_it_was(self) -> Iterator[None]:
        """Put back, behind the block, what the cell left behind."""
        with ExitStack() as stack:
            figures = FIGURES.owner()
            if figures is not None:
                name = FIGURES.attributes[0]
                stack.enter_context(replace_attribute(figures, name, OrderedDict()))
            try:
                yield
            finally:
                with interrupt_held_back():
                    if figures is not None:
                        figures.destroy_all()
                    self._end.put_back()
                    self._end_names()

    def run_once(self, changed: Mapping[str, str], seconds: float) -> TrialRun:
        """Run the cell with changed sources, from what it found when it first ran.

        Raises:
            CaptureError: It failed; the message has its error.
            KeyboardInterrupt: The user interrupted it.
        """
        with interrupt_held_back():
            self._start.put_back()
            self._start_names()
        gc.collect()
        with ExitStack() as stack:
            if self._places is not None:
                needed = cell_reads.existing_places(self._places, Path.cwd())
                stack.enter_context(working_elsewhere(needed))
            stack.enter_context(self._start.guard())
            for name, text in self._earlier.items():
                self._define(changed.get(name, text))
            text = changed.get(self._code.name, self._code.text)
            capture = Capture(self._options, traces=False)
            capture.start()
            try:
                with cut_after(seconds) as cut:
                    error = self._code.run(text)
            finally:
                with interrupt_held_back():
                    recording = capture.finish()
                    capture.journal.remove()
        if cut.is_set():
            return TrialRun(recording, is_cut=True)
        _raise(error)
        return TrialRun(recording)

    def _define(self, text: str) -> None:
        chosen = [one for one in ast.parse(text).body if cell_reads.made_by(one) & self._repeated]
        if chosen:
            _raise(self._code.run(cell_reads.only_lines(text, chosen)))


def _raise(error: BaseException | None) -> None:
    if isinstance(error, KeyboardInterrupt):
        raise error
    if error is not None:
        said = " ".join(str(error).split())[:_LONGEST_REASON]
        is_guarded = isinstance(error, ValueError) and "read-only" in said
        why = " The code writes into an array too large to copy." if is_guarded else ""
        raise CaptureError(f"{type(error).__name__}: {said}".removesuffix(": ") + why)


def _earlier_cells(name: str, needed: Collection[str]) -> dict[str, str]:
    """The texts of the cells that made what a cell needs, in order; of a name the cell that bound it last."""
    statements: list[tuple[str, ast.stmt]] = []
    for file in list(linecache.cache):
        if file != name and is_user_file(file) and (file.startswith("<") or "ipykernel" in file):
            with suppress(SyntaxError, ValueError):
                tree = parse_again("".join(linecache.getlines(file)))
                statements += [(file, one) for one in tree.body]
    wanted, files = set(needed), set()
    for file, one in reversed(statements):
        made = cell_reads.made_by(one)
        if made & wanted or {each.partition(".")[0] for each in made} & wanted:
            files.add(file)
            wanted = (wanted - made) | cell_reads.names_read_by_statement(one)
    in_order = [file for file in linecache.cache if file in files]
    return {file: "".join(linecache.getlines(file)) for file in in_order}
