"""Advice as the report shows it: what a change saves, why, where, what to write, how to measure it.

Rules write sentences: "model.compile(..., jit_compile=True) fuses small kernels". Code is what stands in
backticks, and what can be nothing else by its form: calls, dotted names, ``name=value``, ``SOME_VARIABLE``.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any
from urllib.parse import urlsplit

from markupsafe import Markup

from profnb.advice.proposals import Advice, saves_text
from profnb.causes.numbers import LEAST_SHARE
from profnb.core.glossary import explain
from profnb.core.printable import filled, printable
from profnb.drawing.markup import CODE_FONT, led_names, with_names
from profnb.drawing.theme import CHIP, MUTED

_ADVICE_WIDTH = 110
_NOTHING_TO_CHANGE = f"No known change saves {LEAST_SHARE * 100:.0f} %."
_UNBOUNDED = "The saving is unknown in this trace."
_CHIP = Markup('<code class="profnb-code" style="{}">{}</code>')
_LAST_RESULT = "_tfprofile"
_NAME_BEGINS = re.compile(r"`[^`]+`|(?<![\w.'\"/])[@.]?[A-Za-z_]\w*")
_GOES_ON = re.compile(r"\.[A-Za-z_]\w*")
_A_VALUE = r"(?:'[^']*'|\"[^\"]*\"|\.\.\.|[A-Za-z_]\w*(?:\.\w+)*|-?\d+(?:\.\d+)?(?:e-?\d+)?)"
_GIVEN, _ASSIGNED = re.compile(f"={_A_VALUE}"), re.compile(f" = {_A_VALUE}")
_OPENS, _CLOSES = "([{", ")]}"
_BRACKETS = re.compile(
    r"'[^']*'?|\"[^\"]*\"?|[([{)\]}]"
)  # and texts in quotes, which may hold some
_SNAKE = re.compile(r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+")
_PLAIN_NAME = re.compile(r"`[\w.]+`")
# Behind these words stands what the reader has, not what to write.
_ALREADY_THERE = re.compile(r"(?:look for|leave)\b[^.;:]*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CodePiece:
    """A piece of a sentence.

    Attributes:
        text: What it says; without backticks.
        is_code: Whether it is code.
        is_to_write: Whether a reader would copy it: code with a value in it, that the sentence asks for.
    """

    text: str
    is_code: bool = False
    is_to_write: bool = False


def _place_of(advice: Advice) -> str:
    """Its line; "" where a sentence of it names that already."""
    return "" if advice.where in f"{advice.evidence} {advice.code}" else advice.where


def advice_text(advice: Advice) -> str:
    """One piece of advice as lines of plain text."""
    where = f" At {place}." if (place := _place_of(advice)) else ""
    code = f" {advice.code}" if advice.code else ""
    saves = f" (saves {text})" if (text := saves_text(advice)) else ""
    said = f"{advice.title}{saves}. {advice.evidence}{where}{code}"
    return filled(f"- {printable(said)}", _ADVICE_WIDTH, "  ")


def first_change(listed: Sequence[Advice]) -> str:
    """Say in a clause what to do first, and what that saves."""
    saves = saves_text(listed[0])
    return f"{listed[0].title}{f', saves {saves}' if saves else ''}"


def advice_section_text(listed: Sequence[Advice], again: str = "", longest: str = "") -> str:
    """The advice as plain text; without any, what took longest.

    Args:
        listed: The advice, in order.
        again: The line over a cell that measures a change; "" where the result has no name.
        longest: What took longest by name.
    """
    if not listed:
        return filled(printable(f"{_NOTHING_TO_CHANGE} {longest}".strip()), _ADVICE_WIDTH)
    measure = f"\n  To measure a change: {printable(again)}" if again else ""
    return "What to change\n" + "\n".join(map(advice_text, listed)) + measure


def advice_html(
    listed: Sequence[Advice],
    again: str = "",
    lines: Mapping[str, str] | None = None,
    longest: str = "",
) -> Markup:
    """The advice as HTML, a row each: the gain, what, why, how; without any, what took longest.

    The script adds a button to each piece of code that copies it, and folds what is more than a screen.

    Args:
        listed: The advice, in order.
        again: The line over a cell that measures a change; "" where the result has no name.
        lines: The user's lines by their place, as far as they are known.
        longest: What took longest by name.
    """
    if not listed:
        return Markup('<div style="margin:6px 0">{} {}</div>').format(
            _NOTHING_TO_CHANGE, led_names(longest)
        )
    measure = Markup(
        '<div style="margin:4px 0 0"><span style="{}">To measure a change, over the changed cell:</span> '
        "{}</div>"
    ).format(MUTED, _CHIP.format(CHIP, again))
    return Markup(
        '<div class="profnb-advice" style="margin:8px 0 4px"><div role="heading" aria-level="3">'
        '<b>What to change</b></div><ul style="margin:0;padding:0;list-style:none">{}</ul>{}</div>'
    ).format(
        Markup("").join(_row_html(one, (lines or {}).get(one.where, "")) for one in listed),
        measure if again else "",
    )


def _row_html(advice: Advice, line: str) -> Markup:
    """A row: what it saves; what to do, and why; the line as it is, and what to write."""
    at = Markup(' <span style="{}">at</span> {}')
    place = _place_of(advice)
    before = Markup('<div class="profnb-clip"><span style="{}">{}</span> {}</div>')
    mark = Markup('<span style="{}">{}</span> ')
    return Markup(
        '<li style="display:flex;flex-wrap:wrap;margin:0;padding:5px 0;list-style:none;'
        'border-top:1px solid rgba(128,128,128,0.25)">'
        '<div style="flex:none;width:225px;padding-right:8px" title="{meaning}">{gain}</div>'
        '<div style="flex:1;min-width:250px"><div class="profnb-clip"><b>{title}</b> <span>{evidence}</span>'
        '</div>{before}<div class="profnb-clip">{mark}{code}{where}{link}</div></div></li>'
    ).format(
        meaning=explain("saving") if saves_text(advice) else _UNBOUNDED,
        gain=_gain_html(advice),
        title=with_names(f"{advice.title}."),
        evidence=with_names(advice.evidence),
        before=before.format(MUTED, f"{advice.where}:", CODE_FONT.format(line)) if line else "",
        mark=mark.format(MUTED, "change:") if advice.code else "",
        code=Markup("").join(map(_piece_html, code_pieces(advice.code))),
        where=at.format(MUTED, CODE_FONT.format(place)) if place and not line else "",
        link=_link_html(advice.link),
    )


def _gain_html(advice: Advice) -> Markup:
    saves, _, whole = saves_text(advice).partition(" of ")
    took, *rest = whole.partition(" without")
    if not saves:
        return Markup('<span style="{}">saves: not known</span>').format(MUTED)
    return Markup(
        '<span style="{}">saves</span> <b style="white-space:nowrap">{}</b>'
        '<span style="{}"> <span style="white-space:nowrap">of {}</span>{}</span>'
    ).format(MUTED, saves, MUTED, took, "".join(rest))


def _piece_html(piece: CodePiece) -> Markup:
    if piece.is_to_write:
        return _CHIP.format(CHIP, piece.text)
    return (CODE_FONT if piece.is_code else Markup("{}")).format(piece.text)


def _link_html(address: str) -> Markup:
    """A link that says where it leads; nothing for what is no web page."""
    parts = urlsplit(address)
    if parts.scheme != "https" or not parts.hostname:
        return Markup("")
    return Markup(
        ' <a href="{}" target="_blank" rel="noopener noreferrer" style="color:inherit;'
        'text-decoration:underline">why ({})</a>'
    ).format(address, parts.hostname.removeprefix("www."))


def code_pieces(sentence: str) -> list[CodePiece]:
    """The pieces of a sentence, in order; what they say together is the sentence without its backticks."""
    pieces: list[CodePiece] = []
    at = said = 0
    while begin := _NAME_BEGINS.search(sentence, at):
        end, is_code, is_to_write = _read(sentence, begin)
        at = end
        if not is_code:
            continue
        pieces.append(CodePiece(sentence[said : begin.start()]))
        is_had = _ALREADY_THERE.search(sentence[: begin.start()]) is not None
        text = sentence[begin.start() : end].strip("`")
        pieces.append(CodePiece(text, is_code=True, is_to_write=is_to_write and not is_had))
        said = end
    return [piece for piece in (*pieces, CodePiece(sentence[said:])) if piece.text]


def _read(sentence: str, begin: re.Match[str]) -> tuple[int, bool, bool]:
    """Read what begins here: its end, whether it is code, and whether it holds something to write."""
    word = begin.group()
    if word[0] == "`":
        return begin.end(), True, _PLAIN_NAME.fullmatch(word) is None
    end, is_path, has_value = begin.end(), word[0] in "@.", word[0] == "@"
    while True:
        more = _GOES_ON.match(sentence, end)
        close = _closing(sentence, end) if sentence.startswith(("(", "["), end) else -1
        if more is None and close < 0:
            break
        if more is None:
            inside = sentence[end + 1 : close]
            has_value |= word[0] == "." or any(mark in inside for mark in "='\"")
        end, is_path = close + 1 if more is None else more.end(), True
    given = _GIVEN.match(sentence, end) or (_ASSIGNED.match(sentence, end) if is_path else None)
    if given is not None:
        close = _closing(sentence, given.end()) if sentence.startswith("(", given.end()) else -1
        return max(given.end(), close + 1), True, True
    is_code = is_path or _SNAKE.fullmatch(word) is not None
    return end, is_code, is_code and has_value


def _closing(sentence: str, at: int) -> int:
    """Find where the bracket that opens here is closed; -1 if it is not."""
    depth = 0
    for mark in _BRACKETS.finditer(sentence, at):
        depth += (mark[0] in _OPENS) - (mark[0] in _CLOSES)
        if not depth and mark[0] in _CLOSES:
            return mark.start()
    return -1


def name_in_notebook(result: object) -> str:
    """Find a result's name in the notebook that runs: the user's, else ``_tfprofile``; "" for none."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    variables: dict[str, Any] = getattr(get_ipython(), "user_ns", {})
    names = [name for name, value in list(variables.items()) if value is result]
    given = [name for name in names if name.isidentifier() and not name.startswith("_")]
    return (given or [name for name in names if name == _LAST_RESULT] or [""])[0]


def again_line(name: str) -> str:
    """The line over a cell that measures it against a result; "" for a result without a name.

    Args:
        name: What the result is called in the notebook, or the path of its trace.
    """
    return f"%%tfprofile --vs {quote(name)}" if name else ""
