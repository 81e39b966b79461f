"""Signals that come in the middle of our code, which wait, or reach the user's.

They wait where a half-done thing would stay so, as while a profiler starts. Elsewhere Python calls a
handler wherever the main thread happens to be, in a hook of ours too. What it raises there is no fault of
ours, and the code must see it: a hook lets it pass. Where nothing can be raised, in a ``__del__``, it is
kept, and raised by a signal that is sent when that is over.
"""

import _thread
import contextlib
import inspect
import signal
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise
from operator import methodcaller
from types import FrameType, TracebackType
from typing import Any, NamedTuple

__all__ = ["Lost", "OwnFaults", "interrupt_held_back", "raise_later", "signal_of"]


def raise_later(error: BaseException, holder: Any) -> None:
    """Raise in the user's code what a signal raised in code of ours from which nothing can be raised.

    Args:
        error: What the signal's handler raised; it loses its traceback.
        holder: The object whose ``__del__`` calls this. The signal is sent again when it is gone.
    """
    Lost.of(error).raise_after(holder)


class _Gone:
    """Goes when what holds it does."""


class _Sender(weakref.ref[_Gone]):
    """Interrupts without a line of Python, so that the signal comes in the user's code, not here."""

    interrupt = staticmethod(_thread.interrupt_main)


_senders: set[_Sender] = set()  # at most one that waits; the others have sent


class Lost(NamedTuple):
    """A signal, and what its handler raised; None of Python's own handler, which can raise another."""

    number: int
    error: BaseException | None

    @classmethod
    def of(cls, error: BaseException) -> "Lost":
        """What came out of a hook. Nothing in it refers to the hook any more, whose call could not go.

        Nor does any frame that it passed through, in a circle with itself (``ExitStack`` makes one).
        """
        number = signal_of(error)
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = error.__context__ = None
        is_pythons = number is None and type(error) is KeyboardInterrupt
        return cls(number or signal.SIGINT, None if is_pythons else error)

    def raise_after(self, holder: Any) -> None:
        """Raise it in the main thread when an object is gone that is about to go.

        A handler of the user's own is not called again: what it does besides raising is done.
        """
        if self.error is not None:
            if threading.current_thread() is not threading.main_thread():
                raise self.error  # no signal's; Python says that it is lost
            _raise_once(self.number, self.error)
        holder.gone = _Gone()
        _senders.clear()
        _senders.add(_Sender(holder.gone, methodcaller("interrupt", self.number)))


def _raise_once(number: int, error: BaseException) -> None:
    """Have a signal raise an error the next time it comes, and then do what it did before."""
    handler = signal.getsignal(number)

    def handle_once(_number: int, _frame: FrameType | None) -> None:
        signal.signal(number, handler)
        raise error

    signal.signal(number, handle_once)


class OwnFaults(contextlib.suppress):
    """Keeps faults of ours from the user's code, but not what the handler of a signal raises meanwhile."""

    def __init__(self) -> None:
        """Nothing was raised yet."""
        super().__init__(Exception)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        is_fault = isinstance(error, Exception) and signal_of(error) is None
        return is_fault and bool(super().__exit__(kind, error, trace))


def signal_of(error: BaseException) -> int | None:
    """The signal whose handler, written in Python, raised the error; None where none did.

    A handler is called with the number and the frame that it interrupts, which is the one above it in the
    traceback. That holds for a handler that is a method, a partial function, or in nobody's hands any more.
    One that was held back is called by ``_Holding``.
    """
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        if at.tb_frame.f_code is _Holding.let_go.__code__:
            return int(at.tb_frame.f_locals["number"])
        given = _arguments_of(at.tb_next.tb_frame)
        for number, frame in pairwise(given):
            if frame is at.tb_frame and isinstance(number, int):
                return int(number)
        at = at.tb_next
    return None


def _arguments_of(frame: FrameType) -> list[object]:
    """What a function was called with, those behind a star one by one."""
    code, bound = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount]
    arguments = [bound.get(name) for name in names]
    if code.co_flags & inspect.CO_VARARGS:
        rest = bound.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
        arguments += rest if isinstance(rest, tuple) else ()
    return arguments


@contextlib.contextmanager
def interrupt_held_back() -> Iterator[None]:
    """Let an interrupt wait until the block is over, so that it leaves nothing half begun or half ended.

    So does every other signal that Python code handles (a time limit by SIGALRM, a SIGTERM that ends the
    process): what a handler raises would come in the middle of our code and go no further, or leave a
    profiler running. Blocks may stand one inside the other: signals wait for the outermost. Several of one
    kind are one. Only the main thread is given signals, and only it may hold them back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {
        number: handler
        for number in signal.valid_signals()
        if callable(handler := signal.getsignal(number)) and not isinstance(handler, _Holding)
    }
    holding = _Holding()
    try:
        for number in handlers:
            signal.signal(number, holding)
        yield
    finally:
        with contextlib.ExitStack() as ending:  # each is called, whatever the one before it raises
            for number, handler in handlers.items():
                ending.callback(holding.let_go, number, handler)


class _Holding:
    """A handler that only keeps what came."""

    def __init__(self) -> None:
        self._held: dict[int, FrameType | None] = {}

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._held[number] = frame

    def let_go(self, number: int, handler: Callable[[int, FrameType | None], object]) -> None:
        """Put a signal's handler back, and call it if the signal came."""
        if signal.getsignal(number) is self:  # or the code inside has its own now
            signal.signal(number, handler)
        if number in self._held:
            handler(number, self._held.pop(number))
