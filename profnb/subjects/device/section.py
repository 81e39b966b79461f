"""What devices did, as the report shows it: why the busiest one was idle, its kernels, its copies.

Only where the trace has device work; a trace without any shows none of this, and a note says why.
"""

import numpy as np

from profnb.subjects.device.copies import CopyTable
from profnb.subjects.device.devices import DeviceTable
from profnb.subjects.device.idle import IDLE_CAUSES, IdleTable
from profnb.subjects.device.kernels import KernelTable
from profnb.subjects.device.launches import LaunchTable, StreamTable
from profnb.subjects.device.precision import WIDTHS, Precision
from profnb.subjects.study import Study
from profnb.core.units import MISSING, bar_text, bytes_text, count_text, duration_text, percent_text
from profnb.drawing.figures import utilisation_figure
from profnb.drawing.section import Section
from profnb.drawing.html_table import Cell
from profnb.drawing.theme import CAUSE_COLOURS, colour_of

__all__ = ["device_sections"]

_SHOWN_KERNELS, _SHOWN_DEVICES, _SHOWN_STREAMS = 10, 32, 12
_SHOWN_MISSED = 6
_HALF = 0.5
_LONGEST_KERNEL = 64


def device_sections(study: Study) -> list[Section]:
    """The tables on devices; none where no device ran anything."""
    if not study.has_device:
        return []
    sections = []
    if len(study.devices) > 1:
        sections.append(_device_section(study.devices))
    if study.idle is not None and study.idle.total_ps.sum():
        sections.append(_idle_section(study.idle))
    if len(study.launches):
        sections.append(_launch_section(study.launches))
    if len(study.streams) > 1:
        sections.append(_stream_section(study.streams, study.devices.window_ps))
    if len(study.kernels):
        sections.append(_kernel_section(study.kernels, study.precision))
        sections.extend(_missed_section(study.kernels))
    if len(study.copies):
        sections.append(_copy_section(study.copies))
    return sections


def _device_section(devices: DeviceTable) -> Section:
    used = devices.utilisation
    rows = [
        (
            bar_text(float(used[row]), 12),
            devices.device[row],
            percent_text(float(used[row])),
            duration_text(int(devices.compute_ps[row])),
            duration_text(int(devices.copy_ps[row])),
            duration_text(int(devices.collective_ps[row])),
            percent_text(devices.hidden_collective_ps[row] / devices.collective_ps[row])
            if devices.collective_ps[row]
            else MISSING,
        )
        for row in range(min(len(devices), _SHOWN_DEVICES))
    ]
    return Section(
        title="Devices",
        sentence=(
            f"{len(devices)} devices ran something; the busiest was busy "
            f"{percent_text(devices.imbalance)} longer than the mean."
        ),
        headings=("", "device", "busy", "compute", "copies", "collectives", "of it hidden"),
        rows=rows,
        numbers=(False, False, True, True, True, True, True),
        colours=[colour_of("device compute")] * len(rows),
        tab="Device",
    )


def _idle_section(idle: IdleTable) -> Section:
    whole = int(idle.total_ps.sum())
    order = [row for row in np.argsort(-idle.total_ps, kind="stable") if idle.total_ps[row]]
    share = whole / idle.window_ps
    most = IDLE_CAUSES[order[0]]
    return Section(
        title="Idle time of the device",
        sentence=(
            f"{idle.device} was idle {percent_text(share)} of the time from the first step to the last, "
            f"most of it {most}."
        ),
        headings=("", "what the host did then", "times", "total", "of idle", "longest"),
        rows=[
            (
                bar_text(idle.total_ps[row] / whole, 12),
                IDLE_CAUSES[row],
                count_text(int(idle.occurrences[row])),
                duration_text(int(idle.total_ps[row])),
                percent_text(idle.total_ps[row] / whole),
                duration_text(int(idle.longest_ps[row])),
            )
            for row in order
        ],
        numbers=(False, False, True, True, True, True),
        colours=[CAUSE_COLOURS[IDLE_CAUSES[row]] for row in order],
        tab="Device",
        figure=utilisation_figure(idle),
    )


def _launch_section(launches: LaunchTable) -> Section:
    kernels = int(launches.kernels.sum())
    launched = int(launches.launched.sum())
    sentence = (
        f"{percent_text(launches.tiny.sum() / kernels)} of the kernels are shorter than 10 µs."
    )
    if launched:
        outlived = float(launches.outlived.sum() / launched)
        sentence += f" {percent_text(outlived)} are shorter than the call that launched them"
        sentence += (
            ": launching, not computing, sets the pace of the device." if outlived > _HALF else "."
        )

    def told(value: float) -> str:
        return MISSING if np.isnan(value) else duration_text(value)

    return Section(
        title="Launches",
        sentence=sentence,
        headings=("", "device", "kernels", "per step", "call", "delay", "delay p95"),
        rows=[
            (
                bar_text(float(launches.kernels[row] / launches.kernels.max()), 8),
                launches.device[row],
                count_text(int(launches.kernels[row])),
                MISSING
                if np.isnan(launches.per_step[row])
                else count_text(int(launches.per_step[row])),
                told(float(launches.launch_ps[row])),
                told(float(launches.delay_ps[row])),
                told(float(launches.late_ps[row])),
            )
            for row in range(min(len(launches), _SHOWN_DEVICES))
        ],
        numbers=(False, False, True, True, True, True, True),
        colours=[colour_of("kernel launch")] * min(len(launches), _SHOWN_DEVICES),
        tab="Device",
    )


def _stream_section(streams: StreamTable, window_ps: int) -> Section:
    shown = range(min(len(streams), _SHOWN_STREAMS))
    whole = window_ps or 1
    return Section(
        title="Streams",
        sentence="",
        headings=("", "stream", "device", "kernels", "copies", "busy", "of the time"),
        rows=[
            (
                bar_text(float(streams.busy_ps[row] / whole), 12),
                streams.stream[row],
                streams.device[row],
                count_text(int(streams.kernels[row])),
                count_text(int(streams.copies[row])),
                duration_text(int(streams.busy_ps[row])),
                percent_text(float(streams.busy_ps[row] / whole)),
            )
            for row in shown
        ],
        numbers=(False, False, False, True, True, True, True),
        colours=[colour_of("device compute")] * len(shown),
        tab="Device",
    )


def _kernel_section(kernels: KernelTable, precision: Precision) -> Section:
    fractions = kernels.fraction
    shown = range(min(_SHOWN_KERNELS, len(kernels)))
    time = int(kernels.total_ps.sum())
    in_cores = int(kernels.total_ps[kernels.uses_tensor_core].sum())
    missed = kernels.is_tensor_core_eligible & ~kernels.uses_tensor_core
    could = int(kernels.total_ps[missed].sum())
    sentence = (
        f"{count_text(int(kernels.occurrences.sum()))} kernels, {duration_text(time)} in all: "
        f"{percent_text(in_cores / time)} in tensor cores, {percent_text(could / time)} in kernels of "
        f"matrix products and convolutions that did not use them. {_precision_text(precision)}"
        if time
        else f"{count_text(int(kernels.occurrences.sum()))} kernels."
    )
    return Section(
        title="Kernels",
        sentence=sentence,
        headings=("", "kernel", "runs", "total", "share", "mean", "tensor core"),
        rows=[
            (
                bar_text(float(fractions[row] / fractions[0]) if time else 0.0, 8),
                _kernel_cell(kernels.kernel_name[row], kernels.op_name[row]),
                count_text(int(kernels.occurrences[row])),
                duration_text(int(kernels.total_ps[row])),
                percent_text(float(fractions[row])),
                duration_text(kernels.total_ps[row] / kernels.occurrences[row]),
                _core_text(kernels, row),
            )
            for row in shown
        ],
        numbers=(False, False, True, True, True, True, False),
        colours=[colour_of("device compute")] * len(shown),
        tab="Kernels",
    )


def _missed_section(kernels: KernelTable) -> list[Section]:
    """The ops that could have used tensor cores and did not; none where all did or none could."""
    missed = np.flatnonzero(kernels.is_tensor_core_eligible & ~kernels.uses_tensor_core)
    totals: dict[str, tuple[int, int]] = {}
    for row in missed.tolist():
        spent, runs = totals.get(kernels.op_name[row], (0, 0))
        totals[kernels.op_name[row]] = (
            spent + int(kernels.total_ps[row]),
            runs + int(kernels.occurrences[row]),
        )
    whole = int(kernels.total_ps.sum())
    shown = sorted(totals, key=lambda name: -totals[name][0])[:_SHOWN_MISSED]
    if not shown or not totals[shown[0]][0]:
        return []
    more = len(totals) - len(shown)
    return [
        Section(
            title="Ops without tensor cores",
            sentence="Matrix products and convolutions whose kernels ran on the ordinary cores: 32-bit "
            "numbers, or a dimension that is no multiple of 8."
            + (f" {count_text(more)} more are in p.kernels." if more > 0 else ""),
            headings=("", "op", "runs", "total", "of kernel time"),
            rows=[
                (
                    bar_text(totals[name][0] / totals[shown[0]][0], 8),
                    name,
                    count_text(totals[name][1]),
                    duration_text(totals[name][0]),
                    percent_text(totals[name][0] / whole),
                )
                for name in shown
            ],
            numbers=(False, False, True, True, True),
            colours=[colour_of("device compute")] * len(shown),
            tab="Kernels",
        )
    ]


def _precision_text(precision: Precision) -> str:
    """The widths that occur, most time first."""
    order = [
        row for row in np.argsort(-precision.total_ps, kind="stable") if precision.total_ps[row]
    ]
    parts = [f"{percent_text(float(precision.fraction[row]))} {WIDTHS[row]}" for row in order]
    return f"By the width of their numbers: {', '.join(parts)}." if parts else ""


def _kernel_cell(kernel: str, op: str) -> Cell:
    """The op and, fainter, the kernel without what C++ puts around its name."""
    start = kernel.removeprefix("void ")
    short = start.partition("(")[0].strip() or start  # an anonymous namespace begins with a bracket
    short = short[:_LONGEST_KERNEL] + ("…" if len(short) > _LONGEST_KERNEL else "")
    return short if op == kernel else (op, "", short)


def _core_text(kernels: KernelTable, row: int) -> str:
    if kernels.uses_tensor_core[row]:
        return "used"
    return "not used" if kernels.is_tensor_core_eligible[row] else ""


def _copy_section(copies: CopyTable) -> Section:
    longest = int(copies.total_ps.max()) or 1
    bandwidth = copies.bandwidth
    return Section(
        title="Copies",
        sentence="",
        headings=("", "direction", "memory", "times", "total", "bytes", "bandwidth"),
        rows=[
            (
                bar_text(copies.total_ps[row] / longest, 8),
                "memset" if copies.direction[row] == "set" else copies.direction[row],
                " to ".join(k for k in (copies.source_kind[row], copies.destination_kind[row]) if k)
                or MISSING,
                count_text(int(copies.occurrences[row])),
                duration_text(int(copies.total_ps[row])),
                bytes_text(int(copies.bytes[row])) if copies.sized[row] else MISSING,
                MISSING if np.isnan(bandwidth[row]) else f"{bytes_text(bandwidth[row])}/s",
            )
            for row in range(len(copies))
        ],
        numbers=(False, False, False, True, True, True, True),
        colours=[colour_of("device to device")] * len(copies),
        tab="Kernels",
    )
