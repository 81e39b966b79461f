"""A URL to local copies of the trace files that it holds, through ``fsspec`` (gs, s3, memory and others).

``fsspec`` is no dependency: it is imported when somebody gives a path with ``://``. Only the run that is
opened is copied: its folder, and those whose names, which tell seconds, are within a minute of it.
"""

import re
import time
from importlib import import_module
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from profnb.core.errors import ProfnbError, TraceFormatError
from profnb.core.printable import printable

__all__ = ["fetch_traces", "is_url", "list_traces"]

_TRACES = (".xplane.pb", ".trace.json", ".trace.json.gz", ".run_metadata.pb", ".run_metadata.pb.gz")
_BESIDE = ".profnb.json.gz"
_SECOND = re.compile(r"\d{4}(_\d\d){5}")
_NEAR_S = 60
_PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "s3": "s3fs", "abfs": "adlfs", "az": "adlfs"}


def is_url(path: object) -> bool:
    """Whether a path names a place that is not in the local file system."""
    return isinstance(path, str) and "://" in path


def fetch_traces(url: str, run: str | None = None) -> "TemporaryDirectory[str]":
    """Copy the traces of a URL into a temporary folder, with what profnb keeps beside them.

    Args:
        url: A trace file, a run's folder or a logdir.
        run: Which run's folder; by default the newest.

    Returns:
        The folder, which is removed with the object.

    Raises:
        ProfnbError: A package is missing that opens such URLs; the message names it.
        FileNotFoundError: There is nothing there.
        TraceFormatError: There is no trace there.
        ValueError: No such run.
    """
    files, root = _open(url)
    if files.isfile(root):
        chosen = [root]
    else:
        chosen = _choose([name for name in files.find(root) if name.endswith(_TRACES)], run, url)
    folder = TemporaryDirectory(prefix="profnb-")
    try:
        for name in chosen:
            place = Path(folder.name, PurePosixPath(name).parent.name or "run")
            place.mkdir(exist_ok=True)
            files.get_file(name, str(place / PurePosixPath(name).name))
            beside = name.removesuffix(_TRACES[0]) + _BESIDE
            if files.exists(beside):
                files.get_file(beside, str(place / PurePosixPath(beside).name))
    except BaseException:
        folder.cleanup()
        raise
    return folder


def list_traces(url: str) -> list[str]:
    """The traces of all runs under a URL, each a URL of its own.

    Raises:
        ProfnbError: A package is missing that opens such URLs.
        FileNotFoundError: There is nothing there.
        TraceFormatError: There is no trace there.
    """
    files, root = _open(url)
    if files.isfile(root):
        return [url]
    traces = sorted(name for name in files.find(root) if name.endswith(_TRACES))
    if not traces:
        raise TraceFormatError(f"No *{_TRACES[0]} under {printable(url)}.")
    return [str(files.unstrip_protocol(name)) for name in traces]


def _open(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    protocol = url.partition("://")[0]
    package = _PACKAGES.get(protocol, "")
    try:
        files, root = import_module("fsspec.core").url_to_fs(url)
    except ImportError as error:
        raise ProfnbError(
            f"Opening {protocol}:// needs a package that is not installed ({error}): "
            f"pip install {f'fsspec {package}'.strip()}"
        ) from None
    if not files.exists(root):
        raise FileNotFoundError(f"No file or folder at {printable(url)}.")
    return files, str(root)


def _choose(names: list[str], run: str | None, url: str) -> list[str]:
    """The files of the run that was asked for, or of the newest one, by the names of their folders."""
    if not names:
        raise TraceFormatError(f"No *{_TRACES[0]} under {printable(url)}.")
    folders = sorted({PurePosixPath(name).parent for name in names}, key=lambda one: one.name)
    wanted = folders[-1:]
    if run is not None:
        wanted = [folder for folder in folders if folder.name == run]
        if not wanted:
            run_names = ", ".join(dict.fromkeys(folder.name for folder in folders))
            raise ValueError(f"No run {run!r}; found: {printable(run_names)}.")
    wanted_s = _second_of(wanted[0].name)
    near = {
        folder
        for folder in folders
        if (at := _second_of(folder.name)) and wanted_s and abs(at - wanted_s) <= _NEAR_S
    }
    return [name for name in names if PurePosixPath(name).parent in near.union(wanted)]


def _second_of(folder: str) -> float:
    """The second that TensorFlow names a run's folder by; 0 for another name."""
    second = _SECOND.match(folder)
    try:
        return time.mktime(time.strptime(second[0], "%Y_%m_%d_%H_%M_%S")) if second else 0.0
    except (ValueError, OverflowError):
        return 0.0
