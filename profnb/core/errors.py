"""The errors profnb raises on purpose.

    ProfnbError
    +-- CaptureError        a trace could not be recorded
    +-- TraceFormatError    a file is not a trace we can read, or is damaged

Every message says what was found, with the value, and then what to do about it.
"""

from profnb.core.printable import printable_lines


class ProfnbError(Exception):
    """Base of every error that profnb raises on purpose.

    Args:
        message: May hold names of files, hosts and ops: what would command a terminal is replaced.
    """

    def __init__(self, message: str = "") -> None:
        """Say what was found and what to do."""
        super().__init__(printable_lines(message))


class CaptureError(ProfnbError):
    """A trace could not be recorded, or is not there yet."""


class TraceFormatError(ProfnbError):
    """A file is not a trace we can read: wrong format, truncated, corrupt or hostile."""
