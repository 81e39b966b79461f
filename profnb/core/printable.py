"""Text of others for a terminal: file, host, label and op names are data and command nothing."""

__all__ = ["cut_middle", "printable", "printable_lines", "quoted", "shortened"]

_NBSP = "\u00a0"  # what indents, and commands nothing


def printable(text: str) -> str:
    """Text without characters that would command the terminal or break a line."""
    return "".join(char if char.isprintable() or char == _NBSP else "\ufffd" for char in text)


def printable_lines(text: str) -> str:
    """The same of several lines, which stay lines."""
    return "\n".join(map(printable, text.split("\n")))


def shortened(text: str, most: int) -> str:
    """Text of at most so many characters; an ellipsis stands for what is cut off."""
    return text if len(text) <= most else text[: most - 1] + "…"


def cut_middle(text: str, most: int) -> str:
    """Text of at most so many characters; its begin and, as much, its end, an ellipsis between them."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def quoted(name: str, most: int) -> str:
    """A name of others in backticks, of at most so many characters, that it cannot leave."""
    return "`" + shortened(name.replace("`", "'"), most) + "`"
