"""A trace several times after itself: as long a training as one likes, without recording it.

    python tests/benchmarks/repeat_trace.py IN.xplane.pb OUT.xplane.pb TIMES

Each line of the host has its events TIMES times, each time later by the length of the trace, with the ids of steps,
runs and hand-overs of their own, so that nothing of one repetition belongs to another. Needs TensorFlow.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
from tensorflow.tsl.profiler.protobuf import xplane_pb2

STEP, OTHERS = "step_num", ("_p", "_c", "id")  # what must differ between repetitions
NEW_ID = 0x1000_0000_0001


def extent_ps(plane):
    first = min(line.timestamp_ns for line in plane.lines if line.events)
    return max(
        (line.timestamp_ns - first) * 1000 + event.offset_ps + event.duration_ps for line in plane.lines for event in line.events
    )


def shift(plane, later_ps, steps):
    """Move every event by ``later_ps``, and give what it hands over, and its step, other ids."""
    names = {number: entry.name for number, entry in plane.stat_metadata.items()}
    for line in plane.lines:
        for event in line.events:
            event.offset_ps += later_ps
            for stat in event.stats:
                name = names[stat.metadata_id]
                if name == STEP:
                    stat.int64_value += steps
                elif name in OTHERS and stat.uint64_value:
                    stat.uint64_value = (stat.uint64_value + NEW_ID) % (1 << 64)
                elif name in OTHERS and stat.int64_value not in (0, -1):  # no id
                    stat.int64_value = (stat.int64_value + NEW_ID + (1 << 63)) % (1 << 64) - (1 << 63)


def only_events(line):
    part = xplane_pb2.XLine()
    part.events.extend(line.events)
    return part.SerializeToString()


def main(source, target, times):
    space = xplane_pb2.XSpace.FromString(open(source, "rb").read())
    host = next(plane for plane in space.planes if plane.name == "/host:CPU")
    numbers = [key for key, entry in host.stat_metadata.items() if entry.name == STEP]
    steps = 1 + max((stat.int64_value for line in host.lines for event in line.events for stat in event.stats if stat.metadata_id in numbers), default=0)
    length = extent_ps(host)
    parts = [[] for _ in host.lines]
    for repetition in range(times):
        for row, line in enumerate(host.lines):
            parts[row].append(only_events(line))
        if repetition + 1 < times:
            shift(host, length, steps)
    for line in host.lines:
        del line.events[:]
    lines = [line.SerializeToString() + b"".join(of_line) for line, of_line in zip(host.lines, parts, strict=True)]
    del host.lines[:], parts
    with open(target, "wb") as file:
        for plane in space.planes:
            raw = plane.SerializeToString()
            if plane is host or plane.name == host.name:
                raw += b"".join(b"\x1a" + varint(len(line)) + line for line in lines)
            file.write(b"\x0a" + varint(len(raw)) + raw)


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
