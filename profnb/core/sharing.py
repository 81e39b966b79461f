"""The rule for what leaves in a page, a notebook, an export, JSON or a saved run: one for all of them.

It holds no absolute path, no name of a host and none of a user: of a path stays its end, from the package on
where it is one's, and of names a word. Where source was not wanted (``--no-source``) it holds no name of the
user's files either, of code or data. Tables in the kernel (``p.events`` and others) have what was recorded.
"""

import getpass
import os
import platform
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

from markupsafe import Markup

PIECE = Markup('<span style="display:inline-block">{}</span>')  # of a text that breaks where it may

_FILE, _HOST, _USER, _HOME = "file", "host", "user", "home"
_PART = r"[^\s/\\\"'<>|:;,()\[\]{}*?&#`\x00-\x1f]+"
# A backslash in front of a quote is JSON's, and the quote's.
_SLASH = r"(?:/|\\\\|\\(?!\"))+"
# An absolute path of two parts or more. What stands in front of it is no part of a name, a URL or base64; a
# part has no colon, so that /job:localhost/replica:0 is none. Backslashes are doubled in JSON.
_PATH = re.compile(
    rf"(?:(?<![\w/+.~<\\-])/(?=[^/])|(?<![a-z])file:/+|(?<!\w)[A-Za-z]:[/\\]+)(?:{_PART}{_SLASH})+(?:{_PART})?"
)
_LIBRARY_FILES = re.compile(r"(?:site|dist)-packages/|lib(?:64)?/python3\.\d+/")
_PIECE_BEGIN, _, _PIECE_END = PIECE.partition("{}")
_BROKEN = re.compile(rf"(?:{_PIECE_BEGIN}[^<]*{_PIECE_END}){{2,}}")
_SEPARATORS = re.compile(r"[/\\]+")
_HOMES = frozenset({"home", "Users", "users"})
_KEPT_PARTS = 2
_PUBLIC = frozenset({"/content/drive", "/kaggle/input"})  # the same for everybody
# Of code and data, whole or a shard of several; a relative path in front belongs to it.
_FILES = re.compile(
    r"\b(?:gs|gcs|s3|s3a|hdfs|abfs|az|viewfs|cns)://[^\s\"'<>&]+"
    r"|(?<![\w./+@-])(?:[\w.@+-]+/)*[\w.@+-]+(?:-\d{3,}-of-\d{3,}|\.(?:py|pyx|ipynb|tfrecords?|records?|csv|tsv|"
    r"jsonl?|parquet|np[yz]|h5|hdf5|keras|txt|jpe?g|png|gif|webp|bmp|tiff?|wav|flac|mp[34]|avi|zip|tar|t?gz|bz2|"
    r"xz|pkl|pickle|ptl?|pth|safetensors|arrow|feather|db|sqlite|xml|ya?ml|bin|dat|lmdb|zarr|mat|tflite)\b)"
    r"(?:-\d+-of-\d+)?(?![\w(])"
)
_CUT = re.compile(r"([\w.@+/-]{3,})…")  # a name that was too long for its place
# Names that tell nobody apart, or stand in our own sentences.
_COMMON = re.compile(
    "localhost|hosts?|users?|root|admin|ubuntu|jovyan|colab|kaggle|train|test|model|worker|chief|local|device|"
    "input|output|kernel|python|cuda|steps?|main|server|cluster|notebook|jupyter|tensorflow|keras|torch|pytorch|"
    r"node|data|files?|home|unknown|none|cpu|gpu|tpu|profnb|\d+",
    re.IGNORECASE,
)
_SHORTEST = 3


def short_path(path: str) -> str:
    """Give the end of an absolute path: from its package on, or two parts, without a user's home.

    Args:
        path: As the file's system writes it.
    """
    parts = [part for part in _SEPARATORS.split(path.removeprefix("file:")) if part]
    whole = "/".join(parts)
    if library := list(_LIBRARY_FILES.finditer(whole)):  # packages lie in a library
        return whole[library[-1].start() :]
    if parts and parts[0].endswith(":"):
        del parts[0]
    first = 0
    for at, part in enumerate(parts):
        is_home = at and (parts[at - 1] in _HOMES or part in _users())
        first = at + 1 if is_home or (not at and part == "root") else first
    return "/".join(parts[first:][-_KEPT_PARTS:]) or _HOME


@cache
def _users() -> frozenset[str]:
    """Find what the user of this process is called, by name and home."""
    names = {os.path.basename(os.path.expanduser("~"))}  # noqa: PTH111, PTH119 - a home may be no path
    with suppress(OSError, KeyError, ImportError):  # no such user
        names.add(getpass.getuser())
    return _telling(names)


def _telling(names: Iterable[str]) -> frozenset[str]:
    """Choose the names that tell somebody apart, each with its first part where it has a domain."""
    whole = {part for name in names for part in (name, name.partition(".")[0])}
    return frozenset(
        name for name in whole if len(name) >= _SHORTEST and not _COMMON.fullmatch(name)
    )


@cache
def _any_of(names: frozenset[str]) -> re.Pattern[str] | None:
    """Match any of some names as a word of its own; None for no name."""
    if not names:
        return None
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w-])")


@dataclass(frozen=True)
class Sharing:
    """The rule for what may leave of one result.

    Attributes:
        hosts: Names of hosts that it knows besides this machine's.
        has_files: Whether names of the user's files may.
        names_hosts: Whether those of hosts may: a fleet's results are about them.
        keeps_length: Whether what stands for something is as long as that.
    """

    hosts: tuple[str, ...] = ()
    has_files: bool = True
    names_hosts: bool = False
    keeps_length: bool = False
    _numbers: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    @staticmethod
    def of_all(several: "Iterable[Sharing]") -> "Sharing":
        """Give what may leave of several results that are shown together."""
        kept = list(several)
        hosts = tuple(dict.fromkeys(host for one in kept for host in one.hosts))
        return Sharing(hosts, all(one.has_files for one in kept))

    def encoded(self, piece: bytes) -> bytes:
        """Write a piece of a JSON file as it may leave; most have nothing that is to be looked at."""
        if self.has_files and not any(mark in piece for mark in self._marks):
            return piece
        text = piece.decode("utf-8", "surrogateescape")  # a stat may be no text
        return self.text(text).encode("utf-8", "surrogateescape")

    def text(self, text: str) -> str:
        """Write a text as it may leave."""
        if "/" in text or "\\" in text:
            text = _PATH.sub(self._short, text)
        if not self.has_files:
            text = _CUT.sub(self._without_begin, _FILES.sub(self._without_file, text))
        if self._names is not None:
            text = self._names.sub(self._stand_in, text)
        return text

    def html(self, markup: Markup) -> Markup:
        """Write a fragment as it may leave; it stays one, as no character of markup is made."""
        return type(markup)(self.text(_BROKEN.sub(self._whole, str(markup))))

    def bundle(self, forms: Mapping[str, Any]) -> dict[str, Any]:
        """Write a MIME bundle as it may leave."""
        return {form: self.text(_BROKEN.sub(self._whole, text)) for form, text in forms.items()}

    def masked(self, text: str) -> str:
        """Write a text as it may leave in as many characters, for files in which its length stands."""
        return self._masks.text(text)

    @cached_property
    def _masks(self) -> "Sharing":
        return replace(self, keeps_length=True)

    def _whole(self, broken: re.Match[str]) -> str:
        text = broken[0].replace(_PIECE_BEGIN, "").replace(_PIECE_END, "")
        shared = self.text(text)
        return broken[0] if shared == text else f"{_PIECE_BEGIN}{shared}{_PIECE_END}"

    def values(self, value: Any) -> Any:
        """Write all texts in plain values as they may leave, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.values(key): self.values(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.values(one) for one in value]
        return value

    def _short(self, match: re.Match[str]) -> str:
        if match[0].rstrip("./") in _PUBLIC:
            return match[0]
        short = short_path(match[0])
        if match[0].endswith("…") and not _LIBRARY_FILES.match(short):
            return "…"  # its end, which alone may leave, was cut off
        if not self.has_files and not _LIBRARY_FILES.match(short):
            short = self._number(match[0])
        return self._fitted(short, match[0])

    def _without_file(self, match: re.Match[str]) -> str:
        file = match[0]
        return file if _LIBRARY_FILES.match(file) else self._fitted(self._number(file), file)

    def _without_begin(self, match: re.Match[str]) -> str:
        """Replace the begin of a file's name that stands whole in the same text."""
        whole = next((file for file in self._numbers if file.startswith(match[1])), None)
        return match[0] if whole is None else self._fitted(self._numbers[whole], match[0])

    def _number(self, file: str) -> str:
        """Give what stands for a file; no two are called alike."""
        return self._numbers.setdefault(file, f"{_FILE}{len(self._numbers) + 1}")

    @property
    def names(self) -> list[bytes]:
        """The names that stand for somebody, as they are in files."""
        return [name.encode() for name in (*self._hosts, *_users())]

    @property
    def _marks(self) -> tuple[bytes, ...]:
        paths = [f"{char}/" for char in "\"' =(,:[{|;"] + ["\\n/", ":\\"]
        return (*(mark.encode() for mark in paths), *self.names)

    @cached_property
    def _hosts(self) -> frozenset[str]:
        return frozenset() if self.names_hosts else _telling((*self.hosts, platform.node()))

    @property
    def _names(self) -> re.Pattern[str] | None:
        return _any_of(frozenset({*self._hosts, *_users()}))

    def _stand_in(self, match: re.Match[str]) -> str:
        return self._fitted(_HOST if match[0] in self._hosts else _USER, match[0])

    def _fitted(self, text: str, before: str) -> str:
        """Give what stands for something, as long as that if need be; no name begins with an underscore."""
        room = len(before) - len(text)
        if not self.keeps_length or text == before:
            return text
        if room <= 0:
            return text[: len(before)]
        return f"{'_' * (room - 1)}/{text}" if "/" in text and room > 1 else text + "_" * room
