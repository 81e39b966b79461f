"""Whether code uses sessions of TensorFlow 1, asked before anything of theirs is hooked."""

import inspect
from types import CodeType
from typing import Any

from profnb.capture.library import Library
from profnb.capture.seams import EXECUTING_EAGERLY
from profnb.capture.source.user_code import is_own_file, is_user_file

__all__ = ["is_session_file", "uses_sessions"]

_NAMES = ("Session", "compat.v1", "v1", "estimator")
_FILE, _CLASSES = "/tensorflow/python/client/session.py", "tensorflow.python.client.session"


def uses_sessions(tensorflow: Library) -> bool:
    """Whether the code that runs now means to use sessions.

    That is so where nothing executes eagerly, where a name of the module that runs is bound to a session or
    to TensorFlow 1's API, or where its code names one. Functions of other files do not say so beforehand:
    their sessions are noticed as they run (``is_session_file``).

    Args:
        tensorflow: The library.
    """
    is_eager = tensorflow.take(EXECUTING_EAGERLY)
    if is_eager is not None and not is_eager():
        return True
    frame = inspect.currentframe()
    while frame is not None and (
        is_own_file(frame.f_code.co_filename) or not is_user_file(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    if frame is None:
        return False
    return any(map(_is_of_sessions, list(frame.f_globals.values()))) or _names_one(frame.f_code)


def is_session_file(file: str) -> bool:
    """Whether a file is that of TensorFlow's sessions, whose code runs in one."""
    return file.replace("\\", "/").endswith(_FILE)


def _is_of_sessions(value: Any) -> bool:
    name = getattr(value, "__name__", "") if inspect.ismodule(value) else ""
    return str(name).endswith("compat.v1") or type(value).__module__ == _CLASSES


def _names_one(code: CodeType) -> bool:
    """Whether a function, or one inside of it, reads a name like ``Session`` or ``v1``."""
    if any(name in _NAMES or name.endswith("Session") for name in code.co_names):
        return True
    return any(_names_one(one) for one in code.co_consts if isinstance(one, CodeType))
