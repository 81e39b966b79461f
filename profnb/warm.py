"""Compile our kernels before they are needed, in the background.

Numba compiles each kernel on first use and keeps the result on disk. ``%load_ext profnb`` starts this, so
that the cost hides behind the user's own imports; it is about the same work as reading one tiny trace.
"""

import contextlib
import threading

__all__ = ["tiny_trace", "warm_in_background", "warm_up"]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _message(*fields: tuple[int, int | bytes]) -> bytes:
    """A protobuf message of varint (int) and length-delimited (bytes) fields."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += _varint(number << 3) + _varint(value)
        else:
            out += _varint(number << 3 | 2) + _varint(len(value)) + value
    return out


def tiny_trace() -> bytes:
    """An XSpace with a step marker, an op and iterators on the host, a kernel, and a program of XLA's."""

    def entry(number: int, name: bytes) -> bytes:
        return _message((1, number), (2, _message((1, number), (2, name))))

    marker_stats = _message((1, 1), (4, 1)), _message((1, 2), (4, 0))
    marker = _message((1, 1), (2, 0), (3, 1000), (4, marker_stats[0]), (4, marker_stats[1]))
    op = _message((1, 2), (2, 100), (3, 500))
    waits = [_message((1, number), (2, 600), (3, 90 - number)) for number in (3, 4)]
    line = _message(
        (1, 1), (2, b"python"), (3, 1), (4, op), (4, marker), *((4, wait) for wait in waits)
    )
    plane = _message(
        (2, b"/host:CPU"), (3, line),
        (4, entry(1, b"train")), (4, entry(2, b"MatMul:MatMul")),
        (4, entry(3, b"Iterator::Root")), (4, entry(4, b"Iterator::Root::Prefetch")),
        (5, entry(1, b"_r")), (5, entry(2, b"step_num")),
    )  # fmt: skip
    work = _message((1, 1), (2, 200), (3, 100), (4, _message((1, 1), (5, b"a"))))
    device = _message(
        (2, b"/device:GPU:0"), (3, _message((1, 1), (2, b"Stream #1"), (3, 1), (4, work))),
        (4, entry(1, b"kernel")), (5, entry(1, b"hlo_op")),
    )  # fmt: skip
    shape = _message((2, 11), (3, b"\x02"))
    instruction = _message((1, b"a"), (2, b"add"), (3, shape), (35, 1), (36, b"\x01"))
    program = _message((1, _message((3, _message((2, instruction), (5, 1), (6, 1))), (6, 1))))
    told = _message((1, 1), (2, b"f(1)"), (5, _message((1, 1), (6, program))))
    metadata = _message(
        (2, b"/host:metadata"), (4, _message((1, 1), (2, told))), (5, entry(1, b"Hlo Proto"))
    )
    return _message((1, plane), (1, device), (1, metadata))


def warm_up() -> None:
    """Read and analyse a tiny trace, which compiles everything or loads it from the cache."""
    import numpy as np

    from profnb.report.notes import notes_of
    from profnb.steps.step_tables import STEPS
    from profnb.subjects.study import Study
    from profnb.timeline.element import build_timeline
    from profnb.trace.xplane import read_xplane

    study = Study(read_xplane(np.frombuffer(tiny_trace(), np.uint8), "warm-up"))
    STEPS.frame(study)
    len(study.ops.table), len(study.xla.ops), study.device.idle
    len(notes_of(study))
    build_timeline(study)


def _warm_up_quietly() -> None:
    """Warm up; what is wrong here will be wrong, and said, when a trace is read."""
    with contextlib.suppress(Exception):
        warm_up()


def warm_in_background() -> threading.Thread:
    """Start ``warm_up`` in a thread; join it before measuring anything."""
    thread = threading.Thread(target=_warm_up_quietly, name="profnb-warm-up", daemon=True)
    thread.start()
    return thread
