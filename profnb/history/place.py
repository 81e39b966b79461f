"""The history's file: where it is, and whether runs are kept.

``PROFNB_HISTORY`` decides: "0" keeps nothing, "1" keeps runs in the usual place, anything else is the file's
path. Without it the file is in the nearest folder ``.profnb`` of this folder or one above, or in the user's
folder for such state; where ``CI`` is set, nothing is kept.

Source: XDG Base Directory Specification 0.8 (XDG_STATE_HOME); Apple's File System Programming Guide
(Application Support); Known Folders of Windows (LocalAppData).
"""

import os
import sys
from pathlib import Path

VARIABLE = "PROFNB_HISTORY"
_OFF, _ON = ("0", "off", "false", "no"), ("1", "on", "true", "yes")
_FILE, _FOLDER = "history.sqlite", ".profnb"


def history_file() -> Path | None:
    """Give the file that runs are kept in; None where none are to be kept."""
    wish = os.environ.get(VARIABLE, "").strip()
    if wish.lower() in _OFF or (not wish and os.environ.get("CI")):
        return None
    return usual_file() if not wish or wish.lower() in _ON else Path(wish).expanduser().absolute()


def wanted_file(path: "str | os.PathLike[str] | None" = None) -> Path | None:
    """Give the file to read: the one that is named, else that of this user, whether or not runs are kept."""
    return history_file() or usual_file() if path is None else Path(path).expanduser()


def usual_file() -> Path | None:
    """Give the project's file, or the user's; None where the user has no folder."""
    try:
        here = Path.cwd()
        folders = [folder / _FOLDER for folder in (here, *here.parents)]
        project = next((folder for folder in folders if folder.is_dir()), None)
        return (project or _state_folder()) / _FILE
    except (OSError, RuntimeError):  # the folder is gone, or nobody knows the user's home
        return None


def _state_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "profnb"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "profnb"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "profnb"


def choose(history: "bool | str | os.PathLike[str] | None") -> None:
    """Keep runs or not, or in this file, in processes that this one starts too; None changes nothing."""
    if isinstance(history, bool):
        os.environ[VARIABLE] = str(int(history))
    elif history is not None:
        os.environ[VARIABLE] = os.fspath(history)
