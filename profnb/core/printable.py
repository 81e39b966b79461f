"""Text of others for a terminal: file, host, label and op names are data and command nothing."""

__all__ = ["printable", "printable_lines"]


def printable(text: str) -> str:
    """Text without characters that would command the terminal or break a line."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def printable_lines(text: str) -> str:
    """The same of several lines, which stay lines."""
    return "\n".join(map(printable, text.split("\n")))
