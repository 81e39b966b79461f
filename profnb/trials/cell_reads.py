"""A cell's code to what it reads of the notebook, and to reasons why it may not run again."""

import ast
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePath
from types import CodeType, FunctionType, ModuleType
from typing import Any

from profnb.capture.source.user_code import names_in
from profnb.core.errors import CaptureError
from profnb.core.parsing import warned_before

_HARMLESS_MAGICS = ("matplotlib", "config", "time")
_OUTSIDE = {
    "uses the network": {
        "requests", "urllib", "urlopen", "urlretrieve", "httpx", "aiohttp", "socket", "wandb", "mlflow",
        "comet_ml", "boto3", "smtplib", "paramiko", "push_to_hub",
    },
    "starts other processes": {
        "subprocess", "Popen", "popen", "system", "getoutput", "multiprocessing", "fork",
    },
    "shows widgets": {"ipywidgets", "interact", "interactive", "widgets"},
    "removes files": {"unlink", "rmtree", "rmdir", "removedirs"},
}  # fmt: skip
_WRITES = {
    "save", "save_weights", "savez", "savez_compressed", "savefig", "savetxt", "tofile", "to_csv",
    "to_parquet", "to_pickle", "to_json", "dump", "write_text", "write_bytes", "mkdir", "makedirs", "export",
    "ModelCheckpoint", "TensorBoard", "CSVLogger", "BackupAndRestore", "create_file_writer", "SummaryWriter",
    "TFRecordWriter", "CheckpointManager", "snapshot",
}  # fmt: skip
_MODES = {f"{kind}{more}" for kind in "wax" for more in ("", "b", "t", "+", "b+")} | {"r+", "r+b"}
_RUN_MAGIC = ("run_line_magic", "run_cell_magic")
_DEVICES = ("/device:", "/job:", "/cpu:", "/gpu:", "/CPU:", "/GPU:")


def names_read_first(tree: ast.Module, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The objects of the notebook that a cell reads before it gives their name a value itself, by name.

    ``model = make(); model.fit(x)`` reads ``make`` and ``x``: another run makes a model of its own.
    """
    read: set[str] = set()
    bound: set[str] = set()
    for statement in tree.body:
        read |= names_read_by_statement(statement) - bound - {"get_ipython"}
        bound |= names_bound_by(statement)
    return {name: namespace[name] for name in sorted(read) if name in namespace}


def names_bound_by(statement: ast.stmt) -> set[str]:
    """The names that a statement surely gives a value."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(one.asname or one.name).partition(".")[0] for one in statement.names}
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    parts = [part for target in targets for part in getattr(target, "elts", [target])]
    return {part.id for part in parts if isinstance(part, ast.Name)}


class CodeReads:
    """The names in a cell and in the user's functions that it leads to, compiled once.

    Attributes:
        needed: The names that the cell or a function reads of the notebook.
        places: Texts and paths that may name files, where the cell may write any, as far as names tell;
            None where it writes none. They are constants, names' values, attributes of objects.
    """

    def __init__(self, tree: ast.Module, named: Mapping[str, Any], objects: Sequence[Any]) -> None:
        """Compile the cell.

        Args:
            tree: The cell.
            named: What it reads of the notebook.
            objects: What that leads to.
        """
        with warned_before():
            cell = compile(tree, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        functions = [one.__code__ for one in objects if isinstance(one, FunctionType)]
        constants = [one for code in (cell, *functions) for one in _constants(code)]
        self._tree = tree
        self.needed = set(named).union(*map(names_in, functions))
        self._names = self.needed | names_in(cell)
        kinds = {type(one).__name__ for one in objects}
        modules = [one.__name__ for one in named.values() if isinstance(one, ModuleType)]
        modules += [type(one).__module__ for one in objects]
        self._packages = {str(one).partition(".")[0] for one in modules}
        modes = _MODES.intersection(one for one in constants if isinstance(one, str))
        writes = not _WRITES.isdisjoint(self._names | kinds) or ("open" in self._names and modes)
        self.places: list[str] | None = None
        if writes:
            held = [vars(one).values() for one in objects if _has_attributes(one)]
            values = chain(constants, named.values(), *held)
            self.places = [os.fspath(one) for one in values if _is_place(one)]

    def refusals(self) -> Iterator[str]:
        """Give reasons, as far as names tell, why the cell may change what nobody can put back."""
        for reason, words in _OUTSIDE.items():
            if used := sorted(words & (self._names | self._packages)):
                yield f"The cell {reason} (`{used[0]}`)."
        for call in (node for node in ast.walk(self._tree) if isinstance(node, ast.Call)):
            words_of_call = [str(arg.value) for arg in call.args if isinstance(arg, ast.Constant)]
            function = call.func
            if isinstance(function, ast.Name) and function.id == "input":
                yield "The cell asks for input."
            is_magic = isinstance(function, ast.Attribute) and function.attr in _RUN_MAGIC
            if is_magic and words_of_call and words_of_call[0] not in _HARMLESS_MAGICS:
                yield f"The cell uses the magic `%{words_of_call[0]}`."
        for text in self.places or ():
            is_outside = Path(text).is_absolute() and not text.startswith(_DEVICES)
            if is_outside or "://" in text or text.startswith("~"):
                yield f"The cell may write to `{text[:80]}`, which is outside the working folder."


def _has_attributes(value: Any) -> bool:
    return hasattr(value, "__dict__") and not isinstance(value, ModuleType | type | FunctionType)


def _is_place(value: Any) -> bool:
    if isinstance(value, PurePath):
        return True
    return isinstance(value, str) and 1 < len(value) < 1024 and "\n" not in value


def _constants(code: CodeType) -> Iterator[Any]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _constants(one)
        else:
            yield one


def existing_places(texts: Collection[str], folder: Path) -> list[Path]:
    """Choose those that name files or folders below a folder, the first part of each relative path."""
    paths = [path for path in map(Path, texts) if path.parts and not path.is_absolute()]
    parts = {path.parts[0] for path in paths}
    return [folder / part for part in sorted(parts - {".", ".."}) if (folder / part).exists()]


def changed_statements(before: str, after: str) -> list[ast.stmt]:
    """The statements of a text that another did not have."""
    there = {ast.dump(one) for one in ast.parse(before).body}
    return [one for one in ast.parse(after).body if ast.dump(one) not in there]


def made_by(statement: ast.stmt) -> set[str]:
    """The names that a statement defines: also the state of a model that it compiles, as "model.compile"."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    function = call.func if isinstance(call, ast.Call) else None
    if isinstance(function, ast.Attribute) and function.attr == "compile":
        return {ast.unparse(function)}
    return names_bound_by(statement)


def statements_to_repeat(
    texts: Sequence[str], changed: Collection[ast.stmt], needed: Collection[str]
) -> set[str]:
    """Choose what earlier cells have to define again, where some of their statements change.

    That is what changed, and what was made of it and is needed: of ``ds = read()`` and ``t = ds.batch(8)``
    the second too, if the cell reads ``t``.

    Args:
        texts: The earlier cells, in order.
        changed: The statements that an edit changes.
        needed: The names that the cell, or a function that it calls, reads.

    Raises:
        CaptureError: A statement may not run again.
    """
    changing = set().union(*map(made_by, changed))
    if nothing := [one.lineno for one in changed if not made_by(one)]:
        raise CaptureError(
            f"Line {nothing[0]} of an earlier cell would be edited, and only acts. Move it into this cell."
        )
    statements = [one for text in texts for one in ast.parse(text).body]
    wanted = {*needed, *changing}
    for one in reversed(statements):
        if made_by(one) & wanted:
            wanted |= names_read_by_statement(one)
    remade: set[str] = set()
    for one in statements:
        made, read = made_by(one), names_read_by_statement(one)
        is_function = isinstance(one, ast.FunctionDef | ast.ClassDef)
        if made & changing or (made & wanted and read & changing and not is_function):
            if not is_function and made & read - remade:
                raise CaptureError(
                    f"An earlier cell updates `{min(made)}` (as in x = x + 1). Define it in this cell."
                )
            changing |= made
            remade |= made
    return changing


def names_read_by_statement(statement: ast.stmt) -> set[str]:
    """The names that a statement reads, in functions too."""
    named = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    is_update = isinstance(statement, ast.AugAssign)
    return {node.id for node in named if is_update or not isinstance(node.ctx, ast.Store)}


def only_lines(text: str, statements: Collection[ast.stmt]) -> str:
    """A text with these statements alone, each at its line."""
    kept = set()
    for one in statements:
        decorators = getattr(one, "decorator_list", [])
        first = min([one.lineno, *(decorator.lineno for decorator in decorators)])
        kept |= set(range(first, (one.end_lineno or one.lineno) + 1))
    lines = text.splitlines()
    return "\n".join(line if number in kept else "" for number, line in enumerate(lines, 1)) + "\n"
