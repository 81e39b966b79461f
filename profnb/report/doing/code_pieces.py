"""What an advice says to write, told from the words around it: the code that a reader copies.

Rules write sentences: "model.compile(..., jit_compile=True) fuses small kernels". Code is what stands in
backticks, and what can be nothing else by its form: calls, dotted names, ``name=value``, ``SOME_VARIABLE``.
"""

import re
from dataclasses import dataclass

_BEGINS = re.compile(r"`[^`]+`|(?<![\w.'\"/])[@.]?[A-Za-z_]\w*")
_GOES_ON = re.compile(r"\.[A-Za-z_]\w*")
_A_VALUE = r"(?:'[^']*'|\"[^\"]*\"|\.\.\.|[A-Za-z_]\w*(?:\.\w+)*|-?\d+(?:\.\d+)?(?:e-?\d+)?)"
_GIVEN, _ASSIGNED = re.compile(f"={_A_VALUE}"), re.compile(f" = {_A_VALUE}")
_OPENS, _CLOSES = "([{", ")]}"
_SNAKE = re.compile(r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+")
# Behind these words stands what the reader has, not what to write.
_HAS = re.compile(r"(?:look for|leave)\b[^.;:]*$", re.IGNORECASE)


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


def code_pieces(sentence: str) -> list[CodePiece]:
    """The pieces of a sentence, in order; what they say together is the sentence without its backticks."""
    pieces: list[CodePiece] = []
    at = said = 0
    while begin := _BEGINS.search(sentence, at):
        end, is_code, is_to_write = _read(sentence, begin)
        at = end
        if not is_code:
            continue
        before = sentence[said : begin.start()]
        if before:
            pieces.append(CodePiece(before))
        is_had = _HAS.search(sentence[: begin.start()]) is not None
        text = sentence[begin.start() : end].strip("`")
        pieces.append(CodePiece(text, is_code=True, is_to_write=is_to_write and not is_had))
        said = end
    if said < len(sentence):
        pieces.append(CodePiece(sentence[said:]))
    return pieces


def _read(sentence: str, begin: re.Match[str]) -> tuple[int, bool, bool]:
    """Where what begins here ends, whether it is code, and whether it holds something to write."""
    word = begin.group()
    if word[0] == "`":
        return begin.end(), True, True
    end, is_path, has_value = begin.end(), word[0] in "@.", word[0] == "@"
    while end < len(sentence):
        more = _GOES_ON.match(sentence, end)
        if sentence[end] in _OPENS[:2]:
            close = _closing(sentence, end)
            if close < 0:
                break
            inside = sentence[end + 1 : close]
            has_value |= word[0] == "." or any(mark in inside for mark in "='\"")
            end = close + 1
        elif more is not None:
            end = more.end()
        else:
            break
        is_path = True
    given = _GIVEN.match(sentence, end) or (_ASSIGNED.match(sentence, end) if is_path else None)
    if given is not None:
        close = _closing(sentence, given.end()) if sentence[given.end() :].startswith("(") else -1
        return max(given.end(), close + 1), True, True
    is_code = is_path or _SNAKE.fullmatch(word) is not None
    return end, is_code, is_code and has_value


def _closing(sentence: str, at: int) -> int:
    """Where the bracket that opens here is closed; -1 if it is not."""
    depth, quote = 0, ""
    for place in range(at, len(sentence)):
        mark = sentence[place]
        if quote:
            quote = "" if mark == quote else quote
        elif mark in "'\"":
            quote = mark
        elif mark in _OPENS:
            depth += 1
        elif mark in _CLOSES:
            depth -= 1
            if not depth:
                return place
    return -1
