"""Uses of sessions of TensorFlow 1 in the code, asked before anything of theirs is hooked."""

import inspect
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any

from profnb.capture.library import Library
from profnb.capture.seams import EXECUTING_EAGERLY
from profnb.capture.source.user_code import is_user_file, user_frames

_NAMES = ("Session", "compat.v1", "v1", "estimator")
_MOST_MODULES, _MOST_VALUES = 30, 2_000
_FILE, _CLASSES = "/tensorflow/python/client/session.py", "tensorflow.python.client.session"


def uses_sessions(tensorflow: Library) -> bool:
    """Tell whether the code that runs now means to use sessions.

    That is so where nothing executes eagerly, or where a module of the user's that runs now, or one that
    such a module has imported, has a session or TensorFlow 1's API, or a function or class whose code names
    one. What else leads to a session is noticed as it runs (``is_session_file``).

    Args:
        tensorflow: The library.
    """
    is_eager = tensorflow.take(EXECUTING_EAGERLY)
    if is_eager is not None and not is_eager():
        return True
    frames = list(user_frames(inspect.currentframe()))
    if any(_names_one(frame.f_code) for frame in frames):
        return True
    namespaces = [frame.f_globals for frame in frames[:_MOST_MODULES]]
    asked = set(map(id, namespaces))
    for values in namespaces:  # grows meanwhile
        for value in list(values.values())[:_MOST_VALUES]:
            is_module = issubclass(type(value), ModuleType)
            name = str(getattr(value, "__name__", "")) if is_module else ""
            if name.endswith("compat.v1") or type(value).__module__ == _CLASSES:
                return True
            # The code of a function of the user's, or of a class's methods.
            functions = vars(value).values() if type(value) is type else (value,)
            codes = [one.__code__ for one in functions if type(one) is FunctionType]
            if any(is_user_file(code.co_filename) and _names_one(code) for code in codes):
                return True
            imported = _namespace_of(value)
            if imported and id(imported) not in asked and len(namespaces) < _MOST_MODULES:
                asked.add(id(imported))
                namespaces.append(imported)
    return False


def is_session_file(file: str) -> bool:
    """Tell whether a file is that of TensorFlow's sessions, whose code runs in one."""
    return file.replace("\\", "/").endswith(_FILE)


def _namespace_of(value: Any) -> dict[str, Any]:
    """Give the names of a module of the user's, or of the one that the user's function or class is in."""
    if type(value) is FunctionType:
        return value.__globals__ if is_user_file(value.__code__.co_filename) else {}
    module = sys.modules.get(str(value.__module__)) if type(value) is type else value
    file = vars(module).get("__file__") if type(module) is ModuleType else None
    return vars(module) if isinstance(file, str) and is_user_file(file) else {}


def _names_one(code: CodeType) -> bool:
    """Tell whether a function, or one inside of it, reads a name like ``Session`` or ``v1``."""
    if any(name in _NAMES or name.endswith("Session") for name in code.co_names):
        return True
    return any(_names_one(one) for one in code.co_consts if isinstance(one, CodeType))
