"""What is known of the user's source, and samples of Python's stack, to plain JSON values and back.

Times are kept as differences to the row before, which takes a third of the space. Of source that would make
the file too large nothing is kept.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice
from typing import Any

from profnb.capture.saved.checked import Checked
from profnb.capture.source.source_records import (
    ENTERED,
    GraphLines,
    LineRecords,
    SourceRecords,
    StackRecords,
)

__all__ = ["plain_source", "plain_stacks", "read_source", "read_stacks"]

_MOST_ROWS, _MOST_PLACES, _MOST_GRAPHS, _MOST_OPS = 500_000, 200_000, 10_000, 100_000
_MOST_LAYERS, _MOST_CALLED, _MOST_FILES, _MOST_LINES = 20_000, 8, 200, 50_000
_MOST_UNTIMED, _MOST_CHARACTERS = 10_000, 16 << 20
_MOST_STACKS, _MOST_FRAMES, _DEEPEST = 100_000, 200_000, 2_000
_LONGEST_NS, _LAST_LINE = 1 << 60, 1 << 30


def plain_source(records: SourceRecords | None) -> dict[str, Any] | None:
    """Source as JSON values; None for none, or where it would be too large."""
    if records is None or len(records.lines) > _MOST_ROWS or len(records.places) > _MOST_PLACES:
        return None
    files = {file: at for at, file in enumerate(dict.fromkeys(f for f, _ in records.places))}
    lines = records.lines
    return {
        "files": list(files),
        "places": [[files[file], line] for file, line in records.places],
        "lines": {
            "time_ns": _differences(lines.time_ns),
            "code": lines.code.tolist(),
            "line": lines.line.tolist(),
            "files": lines.files,
            "is_sampled": lines.is_sampled,
            "untimed": lines.untimed[:_MOST_UNTIMED],
            "is_cut": lines.is_cut,
        },
        "graphs": [_plain_graph(graph) for graph in records.graphs[:_MOST_GRAPHS]],
        "layers": dict(islice(records.layers.items(), _MOST_LAYERS)),
        "texts": dict(_texts_that_fit(records.texts.items())),
        "cells": records.cells,
    }


def _plain_graph(graph: GraphLines) -> dict[str, Any]:
    return {
        "name": graph.name,
        "op_names": graph.op_names[:_MOST_OPS],
        "op_types": graph.op_types[:_MOST_OPS],
        "places": graph.places[:_MOST_OPS],
        "is_outside": [int(is_outside) for is_outside in graph.is_outside[:_MOST_OPS]],
        "calls": {name: called[:_MOST_CALLED] for name, called in graph.calls.items()},
    }


def _texts_that_fit(
    texts: Iterable[tuple[str, Sequence[str]]],
) -> Iterable[tuple[str, tuple[str, ...]]]:
    left = _MOST_CHARACTERS
    for file, lines in texts:
        left -= sum(map(len, lines))
        if left < 0:
            return
        yield file, tuple(lines[:_MOST_LINES])


def _differences(times: Sequence[int]) -> list[int]:
    return [now - before for before, now in zip((0, *times), times, strict=False)]


def read_source(reader: Checked, value: object) -> SourceRecords | None:
    """Source from JSON values.

    Raises:
        TraceFormatError: It is not what ``plain_source`` gives.
    """
    if value is None:
        return None
    told = reader.mapping(value)
    files = reader.texts(told.get("files"), _MOST_PLACES)
    places = []
    for item in reader.items(told.get("places"), _MOST_PLACES):
        file, line = reader.items(item, 2)
        reader.within([reader.count(file)], 0, len(files), "files of places")
        places.append((files[file], _line(reader, line)))
    layers = reader.mapping(told.get("layers"), _MOST_LAYERS)
    rows = {reader.text(name): reader.number(row) for name, row in layers.items()}
    reader.within(list(rows.values()), 0, len(places), "lines of layers")
    texts = {
        reader.text(file): tuple(reader.texts(lines, _MOST_LINES))
        for file, lines in reader.mapping(told.get("texts"), _MOST_FILES).items()
    }
    return SourceRecords(
        places=places,
        lines=_read_lines(reader, told.get("lines")),
        graphs=tuple(
            _read_graph(reader, graph, len(places))
            for graph in reader.items(told.get("graphs"), _MOST_GRAPHS)
        ),
        layers=rows,
        texts=dict(_texts_that_fit(texts.items())),
        cells=reader.named(told.get("cells"), reader.count),
    )


def _line(reader: Checked, value: object) -> int:
    line = reader.number(value)
    reader.within([line], 0, _LAST_LINE, "line")
    return line


def _read_times(reader: Checked, value: object) -> "array[int]":
    steps = reader.column(value, "q", _MOST_ROWS)
    if len(steps) > 1 and min(steps[1:]) < 0:
        reader.refuse("times that run backwards")
    times = list(accumulate(steps))
    reader.within(times, 0, _LONGEST_NS, "times")
    return array("q", times)


def _read_lines(reader: Checked, value: object) -> LineRecords:
    told = reader.mapping(value)
    lines = LineRecords(
        time_ns=_read_times(reader, told.get("time_ns")),
        code=reader.column(told.get("code"), "i", _MOST_ROWS),
        line=reader.column(told.get("line"), "i", _MOST_ROWS),
        files=reader.texts(told.get("files"), _MOST_PLACES),
        is_sampled=bool(told.get("is_sampled")),
        untimed=[
            (file, _line(reader, line))
            for file, line in map(reader.pair, reader.items(told.get("untimed"), _MOST_UNTIMED))
        ],
        is_cut=bool(told.get("is_cut")),
    )
    if not len(lines.time_ns) == len(lines.code) == len(lines.line):
        reader.refuse("columns of different lengths")
    reader.within(lines.code, -1, len(lines.files), "functions of lines")
    reader.within(lines.line, ENTERED, _LAST_LINE, "lines")
    return lines


def _read_graph(reader: Checked, value: object, places: int) -> GraphLines:
    told = reader.mapping(value)
    own = reader.column(told.get("places"), "q", _MOST_OPS)
    reader.within(own, -1, places, "lines of ops")
    graph = GraphLines(
        name=reader.text(told.get("name")),
        op_names=tuple(reader.texts(told.get("op_names"), _MOST_OPS)),
        op_types=tuple(reader.texts(told.get("op_types"), _MOST_OPS)),
        places=tuple(own),
        is_outside=tuple(map(bool, reader.items(told.get("is_outside"), _MOST_OPS))),
        calls={
            reader.text(name): tuple(reader.texts(called, _MOST_CALLED))
            for name, called in reader.mapping(told.get("calls"), _MOST_OPS).items()
        },
    )
    columns = (graph.op_names, graph.op_types, graph.places, graph.is_outside)
    if len(set(map(len, columns))) != 1:
        reader.refuse("columns of different lengths")
    return graph


def plain_stacks(records: StackRecords | None) -> dict[str, Any] | None:
    """Samples as JSON values; None for none, or where they would be too large."""
    if records is None or len(records) > _MOST_ROWS or len(records.stacks) > _MOST_STACKS:
        return None
    return {
        "begin_ns": records.begin_ns,
        "time_ns": _differences(records.time_ns),
        "stack": records.stack.tolist(),
        "stacks": [stack[:_DEEPEST] for stack in records.stacks],
        "frames": records.frames,
    }


def read_stacks(reader: Checked, value: object) -> StackRecords | None:
    """Samples from JSON values.

    Raises:
        TraceFormatError: They are not what ``plain_stacks`` gives.
    """
    if value is None:
        return None
    told = reader.mapping(value)
    frames = []
    for frame in reader.items(told.get("frames"), _MOST_FRAMES):
        function, file, first, line = reader.items(frame, 4)
        frames.append(
            (reader.text(function), reader.text(file), _line(reader, first), _line(reader, line))
        )
    stacks = [
        tuple(reader.column(stack, "q", _DEEPEST))
        for stack in reader.items(told.get("stacks"), _MOST_STACKS)
    ]
    for stack in stacks:
        reader.within(stack, 0, len(frames), "frames")
    records = StackRecords(
        begin_ns=reader.count(told.get("begin_ns")),
        time_ns=_read_times(reader, told.get("time_ns")),
        stack=reader.column(told.get("stack"), "i", _MOST_ROWS),
        stacks=stacks,
        frames=frames,
    )
    if len(records.time_ns) != len(records.stack):
        reader.refuse("columns of different lengths")
    reader.within(records.stack, 0, len(stacks), "stacks")
    if records.begin_ns >= _LONGEST_NS or (len(records) and records.begin_ns > records.time_ns[0]):
        reader.refuse("samples before sampling began")
    return records
