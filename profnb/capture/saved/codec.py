"""Dataclasses to plain JSON values and back, by the types of their fields and limits that both ways share.

=============================  ==========================================
a field's type                 its JSON value
=============================  ==========================================
a dataclass                    an object; fields with defaults may be missing
``Mapping[str, T]``            an object
``Mapping[int, T]``            a list of pairs
``tuple``, ``list``, a set     a list
``array``                      a list of whole numbers, perhaps as differences to the one before
``bool``, ``int``, ``float``   itself; what is 1e100 or more becomes infinite
``str``                        itself without lone surrogates, cut at 2,000 characters
=============================  ==========================================

``encode`` cuts what is longer than its limit and says where; ``decode`` refuses it. Nothing that stands in a
file is trusted: what is not as the types and limits say raises ``TraceFormatError``.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, islice, pairwise, repeat
from typing import Any, NoReturn, TypeVar

from profnb.core.errors import TraceFormatError

Decoded = TypeVar("Decoded")
_Reader = typing.Callable[[Any], Any]
_LONGEST_STRING, _MOST_ITEMS, _LARGEST_NUMBER = 2000, 10_000, 1e100
_UNIONS = types.UnionType, typing.Union
_CONTAINERS = {tuple: tuple, list: list, Sequence: list, frozenset: frozenset, Collection: list}


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """Bounds of what a field may hold.

    Attributes:
        items: The most items of it, of each of its items, and so on; the last one holds for all further in.
        least: The smallest of its whole numbers.
        end: What all of them are less than.
        has_differences: Whether a column is kept as differences to the row before.
        is_kept: Whether it is kept at all.
    """

    items: tuple[int, ...] = (_MOST_ITEMS,)
    least: int = -(1 << 63)
    end: int = 1 << 63
    has_differences: bool = False
    is_kept: bool = True


_USUAL = Limit()


class _Column:
    """Stands for ``array[int]``, which cannot be written at run time before Python 3.12."""

    def __class_getitem__(cls, _: object) -> type:
        return cls


class Codec:
    """Encodes and decodes dataclasses.

    Args:
        limits: By class and field (``Recording.fits``), or by class for fields that are not named; others
            have the default ``Limit``.
        checks: By class, what must hold between the fields of one; raises ``ValueError``.

    Attributes:
        cut: The fields that ``encode`` cut, in order, as (class and field, items kept).
    """

    def __init__(
        self, limits: Mapping[str, Limit], checks: Mapping[type, typing.Callable[[Any], object]]
    ) -> None:
        """Nothing has been cut."""
        self._limits, self._checks = limits, checks
        self.cut: dict[str, int] = {}
        self._fields: dict[type, list[tuple[dataclasses.Field[Any], Any, str]]] = {}
        self._made: dict[type, list[tuple[str, _Reader]]] = {}

    def fields(self, kind: type) -> list[tuple[dataclasses.Field[Any], Any, str]]:
        """List the fields of a dataclass that are kept, with their types and their names in ``limits``."""
        if kind not in self._fields:
            hints = typing.get_type_hints(kind, localns={"array": _Column})
            named = [(field, f"{kind.__name__}.{field.name}") for field in dataclasses.fields(kind)]
            listed = [(f, hints[f.name], name) for f, name in named if self._limit(name).is_kept]
            self._fields[kind] = listed
        return self._fields[kind]

    def _limit(self, name: str) -> Limit:
        return self._limits.get(name, self._limits.get(name.partition(".")[0], _USUAL))

    def encode(self, value: Any, hint: Any, name: str = "", depth: int = 0) -> Any:  # noqa: C901, PLR0911 - one per kind of value
        """Turn a value into JSON values, cut where it is too long.

        Args:
            value: Of the type ``hint``.
            hint: A dataclass, or the type of a field.
            name: Class and field.
            depth: How deep in the field.
        """
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return _clean(value)
        hint = _arm(hint, value)
        if dataclasses.is_dataclass(hint):
            return {
                field.name: self.encode(getattr(value, field.name), of_field, place)
                for field, of_field, place in self.fields(typing.cast("type[Any]", hint))
            }
        if isinstance(value, float) or hint is float:
            return _bounded(float(value))
        if not isinstance(value, Collection):
            return int(value)
        kept: Any = value.items() if isinstance(value, Mapping) else value
        if len(value) > self._most(name, depth):
            self.cut[name] = self._most(name, depth)
            kept = islice(kept, self.cut[name])
        if hint is _Column:
            column = list(kept)
            if self._limit(name).has_differences:
                return [now - before for before, now in pairwise((0, *column))]
            return column
        hints = _item_types(hint)
        if isinstance(value, tuple | list) and _holds_numbers(hint):
            kept = list(kept)
            if _are_numbers(kept):
                return kept
        if not isinstance(value, Mapping):
            return [self.encode(item, each, name, depth + 1) for item, each in zip(kept, hints)]  # noqa: B905
        key_type, item_type = hints
        pairs = [
            [self.encode(key, key_type), self.encode(item, item_type, name, depth + 1)]
            for key, item in kept
        ]
        return dict(pairs) if key_type is str else pairs

    def _most(self, name: str, depth: int) -> int:
        items = self._limit(name).items
        return items[min(depth, len(items) - 1)]

    def decode(self, value: Any, kind: type[Decoded]) -> Decoded:
        """Make a dataclass from JSON values.

        Raises:
            TraceFormatError: They are not what ``encode`` gives.
        """
        source = _sized(value, dict, 1 << 20, kind.__name__)
        fields = {name: read(source[name]) for name, read in self._readers(kind) if name in source}
        try:
            decoded = kind(**fields)
            self._checks.get(kind, lambda _: None)(decoded)
        except (TypeError, ValueError) as error:  # a field without default is missing
            _refuse(f"{kind.__name__}: {error}")
        return decoded

    def _readers(self, kind: type) -> list[tuple[str, _Reader]]:
        """List the fields of a dataclass that are kept, with what makes the value of each."""
        if kind not in self._made:
            self._made[kind] = [
                (field.name, self.reader(field, hint, name))
                for field, hint, name in self.fields(kind)
            ]
        return self._made[kind]

    def reader(self, field: "dataclasses.Field[Any]", hint: Any, name: str) -> _Reader:
        """Give what makes the value of one field from JSON values."""
        if hint is not _Column:
            return self._reader(hint, name, 0)
        new, limit = field.default_factory, self._limit(name)
        assert callable(new)

        def read(value: Any) -> Any:
            column, numbers = new(), _sized(value, list, limit.items[0], name)
            try:
                column.extend(accumulate(numbers) if limit.has_differences else numbers)
            except (TypeError, OverflowError):
                _refuse(f"something else where whole numbers of {name} belong")
            _claim_within(column, limit, name)
            return column

        return read

    def _reader(self, hint: Any, name: str, depth: int) -> _Reader:
        """Give what makes values of a type: what it asks of types is asked once, for a million values."""
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in _UNIONS:
            arms = {arm: self._reader(arm, name, depth) for arm in arguments}
            first = arms[arguments[0]]
            return lambda value: arms.get(type(value), first)(value)
        if hint is type(None):
            return lambda _: None
        if dataclasses.is_dataclass(hint):
            return lambda value: self.decode(value, typing.cast("type[Any]", hint))
        if origin in (dict, Mapping):
            return self._mapping_reader(arguments, name, depth)
        if origin in _CONTAINERS:
            return self._container_reader(hint, name, depth)
        return self._scalar_reader(hint, name)

    def _mapping_reader(self, arguments: Sequence[Any], name: str, depth: int) -> _Reader:
        kind, most = dict if arguments[0] is str else list, self._most(name, depth)
        read_key = self._scalar_reader(arguments[0], name)
        read_item = self._reader(arguments[1], name, depth + 1)

        def read(value: Any) -> Any:
            listed: Any = _sized(value, kind, most, name)
            pairs = list(listed.items() if kind is dict else listed)
            if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
                _refuse(f"something else where a pair of {name} belongs")
            return {read_key(key): read_item(item) for key, item in pairs}

        return read

    def _container_reader(self, hint: Any, name: str, depth: int) -> _Reader:
        make: Any = _CONTAINERS[typing.cast("Any", typing.get_origin(hint))]
        hints, most, limit = _item_types(hint), self._most(name, depth), self._limit(name)
        holds_numbers = _holds_numbers(hint)
        if not isinstance(hints, tuple):
            read_item = self._reader(next(hints), name, depth + 1)
            each, least = [], 0
        else:
            each = [self._reader(one, name, depth + 1) for one in hints]
            least = most = len(hints)

        def read(value: Any) -> Any:
            items = _sized(value, list, most, name)
            if len(items) < least:
                _refuse(f"{len(items)} values where {most} of {name} belong")
            if holds_numbers and _are_numbers(items):
                _claim_within(items, limit, name)
                return make(items)
            if each:
                return make(one(item) for one, item in zip(each, items, strict=True))
            return make(map(read_item, items))

        return read

    def _scalar_reader(self, hint: Any, name: str) -> _Reader:
        limit = self._limit(name)

        def read(value: Any) -> Any:
            if hint is bool and isinstance(value, int | float) and value in (0, 1):
                return bool(value)
            if hint is str and isinstance(value, str):
                return _clean(value)
            if hint is float and type(value) in (int, float):
                return _bounded(value)
            if hint is int and type(value) is int:
                _claim_within((value,), limit, name)
                return value
            return _refuse(f"{str(value)[:40]!r} where {name} belongs")

        return read


def _claim_within(numbers: Sequence[int], limit: Limit, name: str) -> None:
    if numbers and not limit.least <= min(numbers) <= max(numbers) < limit.end:
        _refuse(f"{name} outside of {limit.least} to {limit.end - 1}")


def _sized(value: Any, kind: type[Decoded], most: int, name: str) -> Decoded:
    """Take a value as an object or a list that is not too long."""
    if not isinstance(value, kind) or len(typing.cast("typing.Sized", value)) > most:
        noun = "an object" if kind is dict else "a list"
        _refuse(f"{type(value).__name__} where {noun} of {name} belongs, of {most:,} at most")
    return value


def _arm(hint: Any, value: object) -> Any:
    """Pick the part of ``str | int`` or ``X | None`` that a value belongs to."""
    if typing.get_origin(hint) not in _UNIONS:
        return hint
    arms = typing.get_args(hint)
    return type(value) if type(value) in arms else arms[0]


def _item_types(hint: Any) -> Any:
    """Give the types of a container's items: a tuple of them, or without end the same."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and arguments[-1] is not Ellipsis:
        return arguments
    if typing.get_origin(hint) in (dict, Mapping):
        return arguments
    return repeat(arguments[0])


def _are_numbers(items: Sequence[Any]) -> bool:
    """Tell whether a list is of whole numbers alone: long ones are, and are checked at once."""
    return {*map(type, items)} == {int}


def _holds_numbers(hint: Any) -> bool:
    return {*typing.get_args(hint)} <= {int, Ellipsis}


def _clean(text: str) -> str:
    return text[:_LONGEST_STRING].encode("utf-8", "replace").decode("utf-8")


def _bounded(number: float) -> float:
    if math.isnan(number) or abs(number) < _LARGEST_NUMBER:
        return float(number)
    return math.copysign(math.inf, number)


def _refuse(what: str) -> NoReturn:
    raise TraceFormatError(what)
