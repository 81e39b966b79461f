"""Signals that come in the middle of our code, which wait, or reach the user's.

They wait where a half-done thing would stay so, as while a profiler starts. Elsewhere Python calls a
handler wherever the main thread happens to be, in a hook of ours too. What it raises there is no fault of
ours, and the code must see it: a hook lets it pass. Where nothing can be raised, in a ``__del__``, it is
kept, and raised by a signal that is sent when that is over.
"""

import _thread
import contextlib
import functools
import inspect
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

_LOOK_S = 0.001
Handler = Callable[[int, FrameType | None], object]


def handed_on(callback: Callable[..., object]) -> Callable[..., None]:
    """Make a callback of IPython's out of which comes nothing that a signal's handler raises.

    IPython would print that as an error of the callback, and the user's code would not see it. So the signal
    comes again when IPython has left its callbacks: in the user's code.
    """

    @functools.wraps(callback)
    def called(*arguments: object) -> None:
        try:
            with interrupt_held_back():
                callback(*arguments)
        except BaseException as error:
            number = signal_of(error)
            if number is None and not isinstance(error, KeyboardInterrupt):
                raise
            # Nothing in the error refers to the hook any more, whose call could not go. Nor does any frame
            # that it passed through, in a circle with itself (``ExitStack`` makes one).
            traceback.clear_frames(error.__traceback__)
            error.__traceback__ = error.__context__ = None
            if number is not None or type(error) is not KeyboardInterrupt:
                _raise_once(number or signal.SIGINT, error)  # Python's handler can raise another
            here = inspect.currentframe()
            sending = number or signal.SIGINT, here and here.f_back
            threading.Thread(target=_send_when_left, args=sending, daemon=True).start()

    return called


def _send_when_left(number: int, frame: FrameType | None) -> None:
    """Send a signal to the main thread when that is not below a frame any more."""
    main = threading.main_thread().ident or 0
    while True:
        at = sys._current_frames().get(main)  # noqa: SLF001 - which Python documents
        while at is not None and at is not frame:
            at = at.f_back
        if at is None:
            break
        time.sleep(_LOOK_S)
    send = getattr(signal, "pthread_kill", None)  # not everywhere; it wakes code that sleeps
    _thread.interrupt_main(number) if send is None else send(main, number)  # type: ignore[arg-type]


def _raise_once(number: int, error: BaseException) -> None:
    """Have a signal raise an error the next time it comes, and then do what it did before."""
    handler, left = signal.getsignal(number), [error]

    def handle_once(_number: int, _frame: FrameType | None) -> None:
        signal.signal(number, handler)
        raise left.pop()

    signal.signal(number, handle_once)


class OwnFaults:
    """Keeps faults of ours from the user's code, but not what the handler of a signal raises meanwhile.

    Args:
        failed: Given such a fault.
    """

    def __init__(self, failed: Callable[[Exception], object] = lambda _: None) -> None:
        """Nothing has failed."""
        self._failed = failed

    def __enter__(self) -> None:
        """The block begins."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, Exception) or signal_of(error) is not None:
            return False
        self._failed(error)
        return True


def signal_of(error: BaseException) -> int | None:
    """Find the signal whose handler, written in Python, raised the error; None where none did.

    A handler is called with the number and the frame that it interrupts, which is the one above it in the
    traceback. That holds for a handler that is in nobody's hands any more, too. One that was held back is
    called by ``_Holding``, and one that deleted its arguments is known by its code while it is in force.
    """
    at, codes = error.__traceback__, None
    while at is not None and at.tb_next is not None:
        frame, called = at.tb_frame, at.tb_next.tb_frame
        if frame.f_code is _Holding.call_code and called.f_code is not _Holding.call_code:
            return int(frame.f_locals["number"])
        for number, interrupted in pairwise(_arguments_of(called)):
            if interrupted is frame and isinstance(number, int):
                return int(number)
        codes = _codes_of_handlers() if codes is None else codes
        if called.f_code in codes:
            return codes[called.f_code]
        at = at.tb_next
    return None


def _codes_of_handlers() -> dict[CodeType, int]:
    """The code of each handler in force: a function, a method, an object, or a partial one of these."""
    codes = {}
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        if isinstance(handler, _Holding):
            handler = handler.handlers[number]
        while isinstance(handler, functools.partial):
            handler = handler.func
        handler = getattr(handler, "__func__", handler)
        for function in (handler, vars(type(handler)).get("__call__")):
            code = getattr(function, "__code__", None)
            if isinstance(code, CodeType):
                codes[code] = int(number)
    return codes


def _arguments_of(frame: FrameType) -> list[object]:
    """The arguments that a function was called with, those behind a star one by one."""
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
    holding = _Holding()
    try:
        holding.begin()
        yield
    finally:
        holding.is_over = True  # from here on it hands on what comes, wherever it is still in place
        holding.end()


class _Holding:
    """A handler that only keeps what came, until it is over."""

    def __init__(self) -> None:
        self.handlers: dict[int, Handler] = {}
        self.is_over = False
        self._held: dict[int, FrameType | None] = {}

    def begin(self) -> None:
        """Stand in for every handler that is written in Python."""
        for number in signal.valid_signals():
            handler: Any = signal.getsignal(number)
            if isinstance(handler, _Holding):
                if not handler.is_over:
                    continue
                handler = handler.handlers[number]
            if callable(handler):
                self.handlers[number] = handler
                signal.signal(number, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.is_over:  # what a handler raised came before this one was put back
            self._put_back(number)
            self.handlers[number](number, frame)
        else:
            self._held[number] = frame

    def end(self) -> None:
        """Put all handlers back, and only then call those whose signal came."""
        for number in self.handlers:
            self._put_back(number)
        self._call_held()

    def _put_back(self, number: int) -> None:
        in_force: Any = signal.getsignal(number)
        if in_force is self:  # or the code inside has its own now
            signal.signal(number, self.handlers[number])

    def _call_held(self) -> None:
        """Call each, whatever the others raise. Nothing here holds what is raised in a circle."""
        if self._held:
            number, frame = self._held.popitem()
            try:
                self.handlers[number](number, frame)
            finally:
                self._call_held()

    call_code = _call_held.__code__
