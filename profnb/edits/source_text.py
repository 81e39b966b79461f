"""One source of the user's: parsed by LibCST, and changed as text, so that all else stays as it was typed.

A line that only IPython reads (``%matplotlib inline``, ``!pip install x``, ``fit?``) stands as a number and a
comment of its length while the source is read. The changes are made in the text itself.
"""

import ast
import itertools
import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, CodeSpan, MetadataWrapper, ScopeProvider
from libcst.metadata.scope_provider import Scope

from profnb.core.parsing import warned_before

_NOT_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)
_LONGEST_SOURCE = 1 << 20  # bytes of a source that is read
_DEEPEST_SOURCE = 100  # nodes around one
_CELL_MAGIC = re.compile(rb"\s*%%(\w+)")
_OF_PYTHON = (b"time", b"tfprofile", b"tftimeline", b"capture")  # the cell below is Python
_MAGIC_LINE = re.compile(
    rb"(?m)^([ \t]*(?:[\w.,][\w., \t]*=[ \t]*)?)(?:[%!][^\r\n]*|[\w.]+\?{1,2}[ \t]*(?=\r?$))"
)
_COMMENT = re.compile(rb"[ \t]*#[^\r\n]*")
_FIRST_WORD = re.compile(r"\W*[\w.]+")
_Node = TypeVar("_Node", bound=cst.CSTNode)
_Value = TypeVar("_Value")


class DoesNotFitError(Exception):
    """An edit that is not certain to fit the source."""


def require(condition: object) -> None:
    """Give up an edit unless this holds."""
    if not condition:
        raise DoesNotFitError


def certain(value: _Value | None) -> _Value:
    """Give up an edit where there is no such thing."""
    if value is None:
        raise DoesNotFitError
    return value


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """Text in place of some bytes of a source."""

    source: str
    begin: int
    end: int
    text: str


class SourceText:
    """One source, parsed.

    Attributes:
        name: The file name that it was compiled with.
    """

    def __init__(self, name: str, text: str) -> None:
        """Read a source.

        Raises:
            SyntaxError, ValueError, RecursionError, MemoryError: As from ``compile``; it is not Python, or
                too long.
        """
        self.name, self._text = name, text.encode()
        if len(self._text) > _LONGEST_SOURCE:
            raise ValueError("The source is too long to be read; put the code into a cell.")
        self._python = self._text
        if not _compiles(self._text):
            self._python = _without_magics(self._text)
            _compile(self._python)
        self._newline = "\r\n" if b"\r\n" in self._text else "\n"
        self._lines = [0, *(match.end() for match in re.finditer(b"\n", self._text))]

    @cached_property
    def _wrapper(self) -> MetadataWrapper:
        """The parsed source; an empty one where LibCST reads it in another way than Python."""
        try:
            module = cst.parse_module(self._python.decode())
        except (cst.ParserSyntaxError, RecursionError):
            module = cst.Module([])
        same = module if module.bytes == self._python else cst.Module([])
        return MetadataWrapper(same, unsafe_skip_copy=True)  # no node of a parsed one stands twice

    @cached_property
    def _spans(self) -> Mapping[cst.CSTNode, CodeSpan]:
        return self._wrapper.resolve(ByteSpanPositionProvider)

    @cached_property
    def _scopes(self) -> Mapping[cst.CSTNode, Scope | None]:
        return self._wrapper.resolve(ScopeProvider)

    @cached_property
    def nodes(self) -> list[cst.CSTNode]:
        """All nodes, each before those inside it, in the order of the text."""
        return list(walk(self._wrapper.module))

    @cached_property
    def _parents(self) -> dict[cst.CSTNode, cst.CSTNode]:
        return {below: node for node in self.nodes for below in node.children}

    @cached_property
    def global_scope(self) -> Scope | None:
        """The scope of the source's own names; None where it is empty."""
        return next((scope.globals for scope in self._scopes.values() if scope is not None), None)

    def has_word(self, name: str) -> bool:
        """Tell whether a name may be in the source."""
        return name.encode() in self._text

    def find(self, kind: type[_Node], inside: cst.CSTNode | None = None) -> list[_Node]:
        """All nodes of a kind, of the whole source or in and below one."""
        nodes = self.nodes if inside is None else walk(inside)
        return [node for node in nodes if isinstance(node, kind)]

    def begin(self, node: cst.CSTNode) -> int:
        """The byte at which a node begins, its own brackets left out."""
        return int(self._spans[node].start)

    def end(self, node: cst.CSTNode) -> int:
        """The byte behind a node, its own brackets left out."""
        return self.begin(node) + int(self._spans[node].length)

    def text(self, node: cst.CSTNode) -> str:
        """A node as it was typed."""
        return self._text[self.begin(node) : self.end(node)].decode()

    def between(self, node: cst.CSTNode, after: cst.CSTNode) -> str:
        """The text behind a node up to the end of a later one."""
        return self._text[self.end(node) : self.end(after)].decode()

    def put_between(self, node: cst.CSTNode, after: cst.CSTNode, text: str) -> Piece:
        """Put text in place of that."""
        return self._piece(self.end(node), self.end(after), text)

    def has_line(self, node: cst.CSTNode, line: int) -> bool:
        """Tell whether a node stands on a line, counted from 1."""
        first, last = (bisect(self._lines, at) for at in (self.begin(node), self.end(node)))
        return first <= line <= last

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """All nodes around one, the innermost first."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """The statement of the source itself, in no other one, that holds a node."""
        return [node, *self.above(node)][-2]

    def line_statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """The innermost statement that holds a node, or is it."""
        kinds = (cst.SimpleStatementLine, cst.BaseCompoundStatement)
        return next(one for one in [node, *self.above(node)] if isinstance(one, kinds))

    @property
    def statements(self) -> Sequence[cst.CSTNode]:
        """The statements that stand in no other one."""
        module = self.nodes[0]
        return module.body if isinstance(module, cst.Module) else ()

    def scope(self, node: cst.CSTNode) -> Scope | None:
        """The scope that a name is looked up in; None where it is none."""
        return self._scopes.get(node)

    def put(self, node: cst.CSTNode, text: str) -> Piece:
        """Put text in place of a node."""
        return self._piece(self.begin(node), self.end(node), text)

    def put_behind(self, node: cst.CSTNode, text: str, *, is_line: bool = False) -> Piece:
        """Put text behind a node; a line of its own also behind the comment there."""
        end = self.end(node)
        comment = _COMMENT.match(self._text, end) if is_line else None
        end = end if comment is None else comment.end()
        return self._piece(end, end, text)

    def put_line(self, statement: cst.CSTNode, text: str) -> Piece:
        """Put a line of its own before a statement, as far in as that one."""
        begin = self.begin(statement)
        line = self._line_of(begin)
        before = self._text[line:begin]
        require(not before.strip())  # something stands before it on its line
        return self._piece(line, line, f"{before.decode()}{text}{self._newline}")

    def put_argument(self, call: cst.Call, argument: str) -> list[Piece]:
        """Give a call one more keyword argument, on a line of its own where the others have such."""
        require(not has_stars(call) and keyword_of(call, argument.partition("=")[0]) is None)
        close = self.end(call) - 1
        if not call.args:
            return [self._piece(close, close, argument)]
        last = call.args[-1]
        require(not isinstance(last.value, cst.GeneratorExp))  # may need brackets of its own
        end, line = self.end(last), self._line_of(close)
        comma = last.comma if isinstance(last.comma, cst.Comma) else None
        if line > end and not self._text[line:close].strip():
            start = self._line_of(self.begin(last))
            indent = self._text[start : self.begin(last)]
            indent = indent[: len(indent) - len(indent.lstrip())]
            commas = [] if comma else [self._piece(end, end, ",")]
            added = f"{indent.decode()}{argument},{self._newline}"
            return [*commas, self._piece(line, line, added)]
        if comma is not None:
            return [self.put_behind(comma, f" {argument}")]
        return [self._piece(end, end, f", {argument}")]

    def without_argument(self, call: cst.Call, argument: cst.Arg) -> Piece:
        """Take an argument, not the first one, from a call, with the comma before it."""
        before = call.args[list(call.args).index(argument) - 1]
        return self._piece(self.end(before), self.end(argument), "")

    def changed(self, pieces: Iterable[Piece]) -> str:
        """The text with pieces put in.

        Raises:
            DoesNotFitError: It is the same, or is no Python.
        """
        mine = sorted(piece for piece in pieces if piece.source == self.name)
        text = _put_in(self._text, mine)
        require(text != self._text and _compiles(_put_in(self._python, mine)))
        return text.decode()

    def _line_of(self, at: int) -> int:
        return self._text.rfind(b"\n", 0, at) + 1

    def _piece(self, begin: int, end: int, text: str) -> Piece:
        return Piece(self.name, begin, end, text)


def read_source(name: str, text: str) -> SourceText | None:
    """Parse a source; None where it is no Python, or more than can be read."""
    with suppress(*_NOT_PYTHON):
        return SourceText(name, text)
    return None


def fit_together(pieces: Iterable[Piece]) -> list[Piece]:
    """Sort pieces, each once.

    Raises:
        DoesNotFitError: Two are in each other's place, or say the same thing twice.
    """
    ordered = sorted(set(pieces))
    for one, after in itertools.pairwise(ordered):
        is_same = (one.begin, one.end, _head(one)) == (after.begin, after.end, _head(after))
        require(one.source != after.source or not (after.begin < one.end or is_same))
    return ordered


def _head(piece: Piece) -> str:
    match = _FIRST_WORD.match(piece.text)
    return match[0] if match else piece.text


def has_stars(call: cst.Call) -> bool:
    """Tell whether a call unpacks arguments, which may be any."""
    return any(arg.star for arg in call.args)


def keyword_of(call: cst.Call, keyword: str) -> cst.Arg | None:
    """The argument of this keyword, or None."""
    args = (arg for arg in call.args if arg.keyword is not None and arg.keyword.value == keyword)
    return next(args, None)


def path_of(node: cst.CSTNode) -> str:
    """Names with dots between, as "tf.data.AUTOTUNE"; "" where it is anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute) and (path := path_of(node.value)):
        return f"{path}.{node.attr.value}"
    return ""


def receiver(call: cst.CSTNode | None) -> cst.BaseExpression | None:
    """The object that a method is called on; None where it is no method."""
    func = call.func if isinstance(call, cst.Call) else None
    return func.value if isinstance(func, cst.Attribute) else None


def method_of(call: cst.CSTNode | None) -> str:
    """The name of a method that is called on something; "" where it is none."""
    func = call.func if isinstance(call, cst.Call) else None
    return func.attr.value if isinstance(func, cst.Attribute) else ""


def root_of(node: cst.CSTNode) -> cst.CSTNode:
    """The left end of attributes."""
    while isinstance(node, cst.Attribute):
        node = node.value
    return node


def holder_of(node: cst.CSTNode) -> str:
    """The name whose item or attribute this is; "" where it is anything else."""
    is_part = isinstance(node, cst.Attribute | cst.Subscript)
    while isinstance(node, cst.Attribute | cst.Subscript):
        node = node.value
    return node.value if is_part and isinstance(node, cst.Name) else ""


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Go through a node and all inside it."""
    yield node
    for child in node.children:
        yield from walk(child)


def _put_in(text: bytes, pieces: Iterable[Piece]) -> bytes:
    parts, at = list[bytes](), 0
    for piece in pieces:
        parts += [text[at : piece.begin], piece.text.encode()]
        at = piece.end
    return b"".join([*parts, text[at:]])


def _compile(text: bytes) -> None:
    source, flags = text.decode(), ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    with warned_before():
        tree = compile(source, "<edit>", "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        nodes: list[ast.AST] = [tree]
        for _ in range(_DEEPEST_SOURCE):
            nodes = [below for node in nodes for below in ast.iter_child_nodes(node)]
        if nodes:  # LibCST takes long for what is nested deeply, and gives up
            raise RecursionError("The source is nested too deeply.")
        compile(tree, "<edit>", "exec", flags, dont_inherit=True)


def _compiles(text: bytes) -> bool:
    with suppress(*_NOT_PYTHON):
        _compile(text)
        return True
    return False


def _without_magics(text: bytes) -> bytes:
    cell = _CELL_MAGIC.match(text)
    if cell is not None and cell[1] not in _OF_PYTHON:
        raise SyntaxError("The cell is not Python.")

    return _MAGIC_LINE.sub(lambda m: m[1] + b"0".ljust(len(m[0]) - len(m[1]), b"#"), text)
