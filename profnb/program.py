"""A script or module, run under a capture as Python runs it: ``profnb run``.

The program has a ``__main__`` of its own, which stays until Python exits, and ``sys.argv``, ``sys.path`` and
``__file__`` as without profnb. It ends as without profnb: what it raises, ``SystemExit`` too, goes on to
Python, whose traceback has the program's frames only. SIGTERM ends the process without unwinding the
program, as ever, but the answer comes first. A process that the program forks gives no answer.
Threads that Python waits for at its end belong to the program: the capture waits for them too.
"""

import builtins
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from profnb.capture.seams import CURRENT_FRAMES
from profnb.capture.source.user_code import outward
from profnb.capture.step_records import Standing
from profnb.captured import profiled_block
from profnb.core.options import CaptureOptions
from profnb.profile import Profile

_SEARCHING = "<frozen importlib"
_POOL = "concurrent/futures/thread.py"
# What a thread calls that looks whether the main one is over.
_OF_MAIN = {"main_thread", "is_alive"}
_BOOTSTRAP = 2  # frames of ``threading`` below each thread's own
_LOOK_S = 0.05  # between two looks whether a pool's threads have anything left to do


def run_program(
    words: Sequence[str],
    options: CaptureOptions,
    show: Callable[[Profile], None],
    *,
    is_module: bool = False,
    watch: Callable[[Callable[[], Standing]], AbstractContextManager[object]] | None = None,
) -> bool:
    """Run a program to its end and show the answer; raise what the program raises.

    Args:
        words: The script or the module's name, and the program's arguments.
        options: What to record.
        show: Shows the answer, whatever way the program ends.
        is_module: Whether it is a module, as for ``python -m``.
        watch: Shows how far the capture is while the program runs.

    Returns:
        Whether there is such a program.
    """
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main).update(__annotations__={}, __builtins__=builtins)
    sys.argv = ["-m", *words[1:]] if is_module else list(words)
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        sys.path[0] = str(Path.cwd() if is_module else Path(words[0]).resolve().parent)
    code, process = None, os.getpid()

    def answer() -> None:
        if code is not None and os.getpid() == process:
            show(profile)

    try:
        with ExitStack() as ending:
            ending.enter_context(_sigterm_waits_for(ending.close))
            ending.callback(answer)
            whole = "module" if is_module else "script"
            block = profiled_block(options, vars(main), watch=watch, whole=whole)
            profile = ending.enter_context(block)
            code = (_find_module if is_module else _read_script)(words[0], vars(main))
            if code is not None:
                try:
                    exec(code, vars(main))  # noqa: S102 - what `python script.py` does
                except SystemExit:
                    _join_threads()
                    raise
                _join_threads()
    except BaseException as error:
        _show_only(_of_program(error.__traceback__), error)
        raise
    return code is not None


def _read_script(file: str, main: dict[str, Any]) -> CodeType | None:
    """Compile a script, whose module then has the names that Python gives it; None if there is none."""
    path = str(Path.cwd() / file)
    try:
        with io.open_code(path) as opened:
            text = opened.read()
    except OSError:
        return None
    main.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    return compile(text, path, "exec", dont_inherit=True)


def _find_module(name: str, main: dict[str, Any]) -> CodeType | None:
    """Find a module, or a package's ``__main__``, and name it likewise; its packages are imported."""
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):  # one that the program imports
            raise
        return None
    loader: Any = spec.loader if spec is not None else None
    if spec is None or loader is None:  # a folder without __init__.py has none
        return None
    code: CodeType | None = loader.get_code(spec.name)
    sys.argv[0] = spec.origin or name
    main.update(__file__=spec.origin, __cached__=spec.cached, __loader__=spec.loader)
    main.update(__package__=spec.parent, __spec__=spec)
    return code  # None of what is written in C


def _join_threads() -> None:
    """Wait for the program's threads, as Python does before it ends: for all but daemons."""
    ours = threading.current_thread()
    while left := [
        thread
        for thread in threading.enumerate()
        if thread is not ours and not thread.daemon and not _waits_for_the_end(thread)
    ]:
        left[0].join(_LOOK_S)


def _waits_for_the_end(thread: threading.Thread) -> bool:
    """Tell whether a thread goes on until the main one is over, as an executor's without work does."""
    frames = CURRENT_FRAMES.find()
    frame = frames().get(thread.ident) if frames is not None else None
    codes = [one.f_code for one in outward(frame)]
    if codes and codes[0].co_name == "_worker":
        return codes[0].co_filename.replace("\\", "/").endswith(_POOL)
    return any(not _OF_MAIN.isdisjoint(code.co_names) for code in codes[:-_BOOTSTRAP])


def _of_program(trace: TracebackType | None) -> TracebackType | None:
    """Leave out the first frames of a traceback, which are ours and those of the search for a module."""
    while trace is not None and (
        trace.tb_frame.f_globals is globals()
        or trace.tb_frame.f_code.co_filename.startswith(_SEARCHING)
    ):
        trace = trace.tb_next
    return trace


def _show_only(trace: TracebackType | None, error: BaseException) -> None:
    """Have Python, or what the program put in place of its hook, show this traceback of an error."""
    show = sys.excepthook

    def show_error(
        kind: type[BaseException], raised: BaseException, whole: TracebackType | None
    ) -> None:
        if raised is error:
            raised.__traceback__ = whole = trace
        show(kind, raised, whole)

    sys.excepthook = show_error


@contextmanager
def _sigterm_waits_for(end: Callable[[], None]) -> Iterator[None]:
    """Have SIGTERM, where it would end the process, do so after a last work."""
    process = os.getpid()

    def end_here(number: int, _frame: object) -> None:
        try:
            if os.getpid() == process:
                end()
        finally:  # the answer may fail: the signal may have come while the program printed
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def undo() -> None:
        if signal.getsignal(signal.SIGTERM) is end_here:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    is_ours = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if is_ours:
        signal.signal(signal.SIGTERM, end_here)
        if hasattr(os, "register_at_fork"):  # a fork of the program has no answer, so no handler
            os.register_at_fork(after_in_child=undo)
    try:
        yield
    finally:
        undo()
