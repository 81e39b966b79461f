"""Kernels of XLA's command buffers to the instructions that they ran.

On a GPU XLA starts runs of instructions as one CUDA graph. Its kernels name the graph (``command_buffer_1``)
and not their instruction. The order in which the saved program runs tells it, as kernels begin in that order:

    program           kernels of a graph
    custom-call.3     sm90_xmma_gemm_...     a library's, and custom-call.3 is the only call of one there
    tanh_fusion       tanh_fusion            a fusion's kernel is named after it
    fusion.4          fusion_4
    fusion.5          fusion_4               or after an earlier one that does the same

Where kernels and instructions do not fit, the kernels keep the name of their graph.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from profnb.core.columns import Bools, Int64s
from profnb.steps.streams import directions_of_copies
from profnb.trace.hlo import HloModule
from profnb.trace.model import Trace
from profnb.trace.names import CORRELATION_ID

GRAPH = "command_buffer"  # what the graphs' names begin with
_64_BITS = (1 << 64) - 1
_FUSION = "fusion"
_LIBRARY_CALLS = frozenset({"custom-call", "convolution", "dot", "fft", "sort"})
_UNNAMED = re.compile(r"[^A-Za-z0-9_]")
_NUMBERS = re.compile(r"(_\d+)+$")


def find_instructions_of_graphs(
    trace: Trace,
    events: Int64s,
    in_graph: Bools,
    program: Int64s,
    programs: Mapping[int, HloModule],
) -> Int64s:
    """Find the instruction of each event that names a graph.

    Args:
        trace: The trace.
        events: N events of XLA's.
        in_graph: Whether each names a graph, shape (N,).
        program: The number of each one's program, as 64 bits, shape (N,).
        programs: The saved programs.

    Returns:
        Rows of the programs' instructions, -1 for other events and where it is not certain, shape (N,).
    """
    rows = np.flatnonzero(in_graph)
    rows = rows[trace.is_device_line[trace.lines.of_event[events[rows]]]]
    rows = rows[directions_of_copies(trace, events[rows]) < 0]
    instruction = np.full(events.size, -1, np.int64)
    launch = trace.stats.integers(CORRELATION_ID).of(events[rows]).astype(np.int64)
    order = np.lexsort((trace.events.begin_ps[events[rows]], launch))
    rows, launch = rows[order], launch[order]
    instructions_of: dict[tuple[int, ...], Int64s] = {}  # every launch of a graph is alike
    for kernels in np.split(rows, np.flatnonzero(np.diff(launch)) + 1):
        module = programs.get(int(program[kernels[0]]) & _64_BITS) if kernels.size else None
        if module is None:
            continue
        names = trace.events.name[events[kernels]].tolist()
        key = (module.program_id, *names)
        if key not in instructions_of:
            instructions_of[key] = _match(module, [trace.names[name] for name in names])
        instruction[kernels] = instructions_of[key]
    return instruction


def _match(module: HloModule, kernels: Sequence[str]) -> Int64s:
    """Find the instruction of each kernel of a graph, in the program or in the body of one of its loops.

    Args:
        module: The program.
        kernels: Names of the N kernels of one launch, in the order of their begins.

    Returns:
        Rows of the program's instructions, -1 where that is not certain, shape (N,).
    """
    placed = [_place(module, schedule, kernels) for schedule in module.schedules]
    most = max((exact for exact, _ in placed), default=0)
    best = [rows for exact, rows in placed if exact == most]
    return best[0] if most and len(best) == 1 else np.full(len(kernels), -1, np.int64)


def _place(module: HloModule, schedule: Int64s, kernels: Sequence[str]) -> tuple[int, Int64s]:
    """Place kernels in a schedule: how many have their instruction's name, 0 if they do not fit; all rows."""
    instruction = np.full(len(kernels), -1, np.int64)
    opcodes = [module.opcodes[row] for row in schedule.tolist()]
    fusions = [at for at, opcode in enumerate(opcodes) if opcode == _FUSION]
    names = [_UNNAMED.sub("_", module.names[schedule[at]]) for at in fusions]
    bases = {_NUMBERS.sub("", name) for name in names}
    of_fusion = [at for at, kernel in enumerate(kernels) if _NUMBERS.sub("", kernel) in bases]
    exact, first = _first_fusion([kernels[at] for at in of_fusion], names)
    if not exact:
        return 0, instruction
    placed = fusions[first : first + len(of_fusion)]
    instruction[of_fusion] = schedule[placed]
    ends = [-1, *of_fusion, len(kernels)]
    around = [fusions[first - 1] if first else -1, *placed, *fusions[first + len(of_fusion) :][:1]]
    around += [len(opcodes)] * (len(ends) - len(around))
    for part, end in enumerate(ends[1:]):
        between = range(ends[part] + 1, end)
        calls = [
            at for at in range(around[part] + 1, around[part + 1]) if opcodes[at] in _LIBRARY_CALLS
        ]
        if len(calls) in (1, len(between)):
            instruction[list(between)] = schedule[calls]
    return exact, instruction


def _first_fusion(kernels: Sequence[str], names: Sequence[str]) -> tuple[int, int]:
    """Where some kernels in a row begin among the fusions, and how many of them have the very name.

    Returns:
        0 and -1 where they do not fit, or fit in several places alike.
    """
    bases = [_NUMBERS.sub("", name) for name in names]
    wanted = [_NUMBERS.sub("", kernel) for kernel in kernels]
    count = len(kernels)
    starts = [at for at in range(len(names) - count + 1) if bases[at : at + count] == wanted]
    exact = [sum(map(str.__eq__, names[at : at + count], kernels)) for at in starts]
    most = max(exact, default=0)
    return (most, starts[exact.index(most)]) if count and exact.count(most) == 1 else (0, -1)
