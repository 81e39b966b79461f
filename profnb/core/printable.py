"""Text for a terminal: names of others command nothing, and what it cannot show is written more simply."""

import sys

# What we draw with and write, and what stands for it where there is only ASCII.
_SIMPLER = {
    **dict.fromkeys("█▉▊▋▌■▇▆", "#"), **dict.fromkeys("▅▄", "+"), **dict.fromkeys("▃▂▁▍▎▏⋮", "."),
    "·": "-", "—": "-", "…": "...", "→": "->", "↑": "^", "‖": "||", "±": "+-", "µ": "u", "\u00a0": " ",
}  # fmt: skip
LONGEST_NAME = 60  # of a name in a sentence, in characters: half a line
_NBSP = "\u00a0"  # what indents, and commands nothing


def printable(text: str) -> str:
    """Text without characters that would command the terminal or break a line."""
    return "".join(char if char.isprintable() or char == _NBSP else "\ufffd" for char in text)


def printable_lines(text: str) -> str:
    """The same of several lines, which stay lines."""
    return "\n".join(map(printable, text.split("\n")))


def for_terminal(text: str) -> str:
    """Text with only such characters as standard output can encode, in a terminal that has few."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # None where there is no output
    missing = {char for char in set(text) if not char.encode(encoding, "ignore")}
    return text.translate({ord(char): _SIMPLER.get(char, "?") for char in missing})


def shortened(text: str, most: int) -> str:
    """Text of at most so many characters; an ellipsis stands for what is cut off."""
    return text if len(text) <= most else text[: most - 1] + "…"


def cut_middle(text: str, most: int) -> str:
    """Text of at most so many characters; its begin and, as much, its end, an ellipsis between them."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def quoted(name: str, most: int = LONGEST_NAME) -> str:
    """A name of others in backticks, of at most so many characters, that it cannot leave."""
    return "`" + shortened(name.replace("`", "'"), most) + "`"
