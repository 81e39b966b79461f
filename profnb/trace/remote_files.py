"""A URL to local copies of the trace files that it holds, through ``fsspec`` (gs, s3, memory and others).

``fsspec`` is no dependency: it is imported when somebody gives a path with ``://``. Only the run that is
opened is copied: its folder, and those whose names, which tell seconds, are within a minute of it.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from profnb.core.errors import ProfnbError, TraceFormatError
from profnb.core.printable import printable, shortened
from profnb.core.safe_files import claim_folder, folder_prefix
from profnb.trace.runs import XPLANE_SUFFIX, is_trace_name, prefer

_SIDECAR_SUFFIX = ".profnb.json.gz"
_SECOND = re.compile(r"\d{4}(_\d\d){5}")
_NEAR_S = 60
# What no name of a file of ours holds: what leads elsewhere, and what some system does not take.
_UNSAFE = re.compile(r'^\.+$|[\x00-\x1f/\\:*?"<>|]')
_WEB = ("http", "https")
# Bounds: a listing may have no end, nor may a file. TensorBoard's layout is three folders deep.
_MOST_LISTED, _DEEPEST_FOLDER, _LARGEST_PAGE = 20_000, 12, 16 << 20
_LARGEST_FILE, _MOST_BYTES_FETCHED = 2 << 30, 16 << 30
_LONGEST_ERROR = 200
_PACKAGE_OF_SCHEME = {"gs": "gcsfs", "gcs": "gcsfs", "s3": "s3fs", "abfs": "adlfs", "az": "adlfs"}


def is_url(path: object) -> bool:
    """Tell whether a path names a place that is not in the local file system."""
    return isinstance(path, str) and "://" in path


def fetch_traces(url: str, run: str | None = None) -> "TemporaryDirectory[str]":
    """Copy the traces of a URL into a temporary folder, with what profnb keeps beside them.

    No name in the listing decides where a file is written: that is always inside the temporary folder.

    Args:
        url: A trace file, a run's folder or a logdir.
        run: Which run's folder; by default the newest.

    Returns:
        The folder, which is removed with the object.

    Raises:
        ProfnbError: A package is missing that opens such URLs, or it failed; the message says which and how.
        FileNotFoundError: There is nothing there.
        TraceFormatError: There is no trace there, or more than is read.
        ValueError: No such run.
    """
    with _failures_told(url):
        files, root = _open(url)
        names = _find(files, root, url)
    chosen = names if names == [root] else _choose(names, run)
    with _failures_told(url):
        folder = TemporaryDirectory(prefix=folder_prefix())
        try:
            _copy(files, chosen, Path(folder.name), url)
        except BaseException:
            folder.cleanup()
            raise
    return folder


def _copy(files: Any, names: list[str], folder: Path, url: str) -> None:
    """Copy files, each with what stands beside it, into a folder; of each of theirs one in there."""
    callback, left = import_module("fsspec.callbacks").Callback, _MOST_BYTES_FETCHED
    places: dict[PurePosixPath, Path] = {}
    for name in filter(files.isfile, names):
        parent = PurePosixPath(name).parent
        if parent not in places:
            places[parent] = claim_folder(folder, _local(parent.name))
        beside = name.removesuffix(XPLANE_SUFFIX) + _SIDECAR_SUFFIX
        for one in [name, *filter(files.isfile, [beside])]:
            target = places[parent] / _local(PurePosixPath(one).name)
            check = partial(_check_bytes, url, min(left, _LARGEST_FILE))
            files.get_file(one, str(target), callback=callback(hooks={"bound": check}))
            left -= target.stat().st_size


def _check_bytes(url: str, most: int, size: int | None, copied: int, **_: object) -> None:
    """Stop copying what is too much, or says that it will be."""
    if max(size or 0, copied) > most:
        raise TraceFormatError(
            f"More than {most / 1e9:.1f} GB at {printable(url)}. Give a single run, of fewer steps."
        )


def _local(name: str) -> str:
    """The name of a file or folder of ours for one of a listing, which may be anything."""
    return _UNSAFE.sub("_", name) or "run"


def _find(files: Any, root: str, url: str) -> list[str]:
    """The traces below a folder, or the file itself; a listing without end is refused."""
    if files.isfile(root) and not root.endswith("/"):  # on the web a folder may be read too
        return [root]
    names: list[str] = []
    seen = 0
    for _, folders, listed in files.walk(root, maxdepth=_DEEPEST_FOLDER, detail=True):
        seen += 1 + len(folders) + len(listed)
        if seen > _MOST_LISTED:
            raise TraceFormatError(
                f"More than {_MOST_LISTED:,} files and folders at {printable(url)}. Give a single run."
            )
        paths = (file["name"] for file in listed.values())
        names += [path for path in paths if is_trace_name(PurePosixPath(path).name)]
    if not names:
        raise TraceFormatError(f"No *{XPLANE_SUFFIX} under {printable(url)}.")
    return sorted(prefer(names, lambda path: PurePosixPath(path).name))


@contextmanager
def _failures_told(url: str) -> Iterator[None]:
    """Say in a sentence what failed inside of the package that opens such URLs, whatever it raises."""
    try:
        yield
    except (ProfnbError, FileNotFoundError):
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {shortened(str(error), _LONGEST_ERROR)}"
        raise ProfnbError(
            f"Reading {printable(url)} failed ({said}). Try again, or copy the traces here."
        ) from error


def list_traces(url: str) -> list[str]:
    """The traces of all runs under a URL, each a URL of its own."""
    with _failures_told(url):
        files, root = _open(url)
        names = _find(files, root, url)
        return [url] if names == [root] else [str(files.unstrip_protocol(n)) for n in names]


def _open(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    protocol = url.partition("://")[0]
    package = _PACKAGE_OF_SCHEME.get(protocol, "")
    try:
        options = {"client_kwargs": {"response_class": _page_type()}} if protocol in _WEB else {}
        files, root = import_module("fsspec.core").url_to_fs(url, **options)
    except ImportError as error:
        raise ProfnbError(
            f"Opening {protocol}:// needs a package ({error}): pip install {f'fsspec {package}'.strip()}"
        ) from None
    if not files.exists(root):
        raise FileNotFoundError(f"No file or folder at {printable(url)}.")
    return files, str(root)


@cache  # fsspec keeps a file system for those that are opened alike
def _page_type() -> type:
    """Make what reads a page of a web server's listing: to a bound, as a page may have no end."""

    async def text(response: Any, *_: object, **__: object) -> str:
        page = bytearray()
        async for piece in response.content.iter_any():
            page += piece
            if len(page) > _LARGEST_PAGE:
                response.close()
                raise TraceFormatError(
                    f"More than {_LARGEST_PAGE / 1e6:.0f} MB of names on a page. Give a single run."
                )
        return page.decode("utf-8", "replace")

    return type("BoundedPage", (import_module("aiohttp").ClientResponse,), {"text": text})


def _choose(names: list[str], run: str | None) -> list[str]:
    """The files of the run that was asked for, or of the newest one, by the names of their folders."""
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
