"""What devices did, as the report shows it: why the busiest one was idle, its kernels, its copies.

Only where the trace has device work; a trace without any shows none of this, and a note says why.
"""

import numpy as np

from profnb.core.printable import cut_middle
from profnb.core.units import MISSING, bar_text, count_text, duration_text, percent_text
from profnb.drawing.drawn_tables import Cell
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import CAUSE_COLOURS, colour_of
from profnb.steps.streams import busiest_device
from profnb.subjects.device.copies import COPIES, CopyTable
from profnb.subjects.device.device_charts import utilization_figure
from profnb.subjects.device.devices import DEVICES, DeviceTable
from profnb.subjects.device.idle import IDLE, IDLE_CAUSES, IdleTable
from profnb.subjects.device.kernels import KERNELS, KernelTable
from profnb.subjects.device.launches import LAUNCHES, STREAMS, LaunchTable, StreamTable
from profnb.subjects.device.peaks import is_nvidia, tells_tensor_cores
from profnb.subjects.device.precision import WIDTHS, Precision, ops_without_tensor_cores
from profnb.subjects.layers.op_title import op_title
from profnb.subjects.study import Study

_SHOWN_KERNELS, _SHOWN_DEVICES, _SHOWN_STREAMS = 10, 32, 12
_SHOWN_MISSED = 6
_LONGEST_KERNEL = 64


def device_sections(study: Study) -> list[Section]:
    """The tables on devices; none where no device ran anything."""
    if not study.has_device:
        return []
    sections = []
    if len(study.device.use) > 1:
        sections.append(_device_section(study.device.use))
    if study.device.idle is not None and study.device.idle.total_ps.sum():
        sections.append(_idle_section(study.device.idle))
    if len(study.device.launches):
        idle = study.device.idle
        launching = idle.total_ps[IDLE_CAUSES.index("kernel launch")] if idle else 0
        is_pace = study.device.launches.sets_the_pace and idle and launching > idle.busy_ps
        sections.append(_launch_section(study.device.launches, sets_the_pace=bool(is_pace)))
    if len(study.device.streams) > 1:
        sections.append(_stream_section(study.device.streams))
    if len(study.device.kernels):
        plane = busiest_device(study.trace)
        tells = plane is not None and tells_tensor_cores(study.trace, plane, study.framework)
        sections.append(_kernel_section(study.device.kernels, study.device.precision, tells=tells))
        if plane is not None and tells and is_nvidia(study.trace, plane):
            sections.extend(_missed_section(study.device.kernels))
    if len(study.device.copies):
        sections.append(_copy_section(study.device.copies))
    return sections


def _device_section(devices: DeviceTable) -> Section:
    return section_of(
        DEVICES,
        devices,
        (
            "device",
            "utilization_fraction",
            "compute_us",
            "copy_us",
            "collective_us",
            "hidden_collective_fraction",
        ),
        title="Devices",
        tab="Device",
        sentence=(
            f"{len(devices)} devices ran something; the busiest was busy "
            f"{percent_text(devices.imbalance)} longer than the mean."
        ),
        bar=Bar(lambda row: float(devices.utilization[row]), colour_of("device compute")),
        rows=range(min(len(devices), _SHOWN_DEVICES)),
    )


def _idle_section(idle: IdleTable) -> Section:
    whole = int(idle.total_ps.sum())
    order = [row for row in np.argsort(-idle.total_ps, kind="stable") if idle.total_ps[row]]
    return section_of(
        IDLE,
        idle,
        ("cause", "occurrences", "total_us", "idle_fraction", "longest_us"),
        title="Idle time of the device",
        tab="Device",
        sentence=(
            f"{idle.device} was idle {percent_text(whole / idle.window_ps)} of the time"
            f"{' of the steps that the averages are of' if idle.aside_ps else ''}, most of it "
            f"{IDLE_CAUSES[order[0]]}."
        ),
        bar=Bar(
            lambda row: float(idle.total_ps[row] / whole),
            lambda row: CAUSE_COLOURS[IDLE_CAUSES[row]],
        ),
        rows=order,
        figure=utilization_figure(idle),
    )


def _launch_section(launches: LaunchTable, *, sets_the_pace: bool) -> Section:
    """How kernels were launched; it sets the pace where the device waited longer for it than it worked."""
    kernels = int(launches.kernels.sum())
    calls = int(launches.calls.sum())
    sentence = (
        f"{percent_text(launches.tiny.sum() / kernels)} of the kernels are shorter than 10 µs."
    )
    if calls:
        sentence += (
            f" {percent_text(launches.longer_calls.sum() / calls)} of the {count_text(calls)} calls that "
            "launched them took longer than what they started"
        )
        sentence += (
            ": launching, not computing, sets the pace of the device." if sets_the_pace else "."
        )
    return section_of(
        LAUNCHES,
        launches,
        (
            "device",
            "kernels",
            "kernels_per_step",
            "calls",
            "launch_us",
            "delay_us",
            "delay_p95_us",
        ),
        title="Launches",
        tab="Device",
        sentence=sentence,
        bar=Bar(
            lambda row: float(launches.kernels[row] / launches.kernels.max()),
            colour_of("kernel launch"),
            8,
        ),
        rows=range(min(len(launches), _SHOWN_DEVICES)),
    )


def _stream_section(streams: StreamTable) -> Section:
    return section_of(
        STREAMS,
        streams,
        ("stream", "device", "kernels", "copies", "busy_us", "busy_fraction"),
        title="Streams",
        tab="Device",
        bar=Bar(
            lambda row: float(streams.busy_ps[row] / (streams.window_ps or 1)),
            colour_of("device compute"),
        ),
        rows=range(min(len(streams), _SHOWN_STREAMS)),
    )


def _kernel_section(kernels: KernelTable, precision: Precision, *, tells: bool) -> Section:
    """The kernels; ``tells`` is whether their names tell which ran in tensor cores."""
    fractions = kernels.fraction
    time = int(kernels.total_ps.sum())
    in_cores = int(kernels.total_ps[kernels.uses_tensor_core].sum())
    missed = kernels.is_tensor_core_eligible & ~kernels.uses_tensor_core
    could = int(kernels.total_ps[missed].sum())
    count = int(kernels.occurrences.sum())
    sentence = "1 kernel" if count == 1 else f"{count_text(count)} kernels"
    if time:
        sentence += f", {duration_text(time)} in all"
    if time and tells:
        sentence += f": {percent_text(in_cores / time)} in tensor cores"
        if kernels.is_tensor_core_eligible.any():
            sentence += (
                f", {percent_text(could / time)} in kernels of matrix products and convolutions that did not "
                "use them"
            )
    sentence += f". {_precision_text(precision)}" if time else "."
    return section_of(
        KERNELS,
        kernels,
        (
            Shown(
                "kernel", lambda row: _kernel_cell(kernels.kernel_name[row], kernels.op_name[row])
            ),
            "occurrences",
            "total_us",
            "fraction",
            "mean_us",
            *([Shown("tensor core", lambda row: _core_text(kernels, row))] if tells else []),
        ),
        title="Kernels",
        tab="Kernels",
        sentence=sentence,
        bar=Bar(
            lambda row: float(fractions[row] / fractions[0]) if time else 0.0,
            colour_of("device compute"),
            8,
        ),
        rows=range(min(_SHOWN_KERNELS, len(kernels))),
    )


def _missed_section(kernels: KernelTable) -> list[Section]:
    """The ops that could have used tensor cores and did not; none where all did or none could."""
    totals = ops_without_tensor_cores(kernels)
    whole = int(kernels.total_ps.sum())
    shown = sorted(totals, key=lambda name: -totals[name][0])[:_SHOWN_MISSED]
    if not shown or not totals[shown[0]][0]:
        return []
    more = len(totals) - len(shown)
    return [
        Section(
            title="Ops without tensor cores",
            sentence="Matrix products and convolutions that spent most of their time on the ordinary cores. "
            "Tensor cores take 16-bit numbers (TF32 on newer GPUs), best in multiples of 8; the inputs of "
            "the first layer and the outputs of the last one are the data's."
            + (f" {count_text(more)} more are in p.kernels." if more > 0 else ""),
            headings=("", "op", "runs", "total", "of kernel time"),
            rows=[
                (
                    bar_text(totals[name][0] / totals[shown[0]][0], 8),
                    op_title(name).cell,
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
    plain = start.replace("(anonymous namespace)::", "")
    short = plain.partition("(")[0].strip() or start
    short = cut_middle(short, _LONGEST_KERNEL)
    if op == kernel:
        return (short, "", "", start if short != start else "")
    title = op_title(op)
    return (title.name, "", short, f"{title.full}\n{start}")


def _core_text(kernels: KernelTable, row: int) -> str:
    if kernels.uses_tensor_core[row]:
        return "used"
    return "not used" if kernels.is_tensor_core_eligible[row] else ""


def _copy_section(copies: CopyTable) -> Section:
    longest = int(copies.total_ps.max()) or 1

    def memory(row: int) -> str:
        kinds = (copies.source_kind[row], copies.destination_kind[row])
        return " to ".join(kind for kind in kinds if kind) or MISSING

    return section_of(
        COPIES,
        copies,
        (
            Shown(
                "direction",
                lambda row: "memset" if copies.direction[row] == "set" else copies.direction[row],
            ),
            Shown("memory", memory, meaning="the kind of memory it was read from, and written to"),
            "occurrences",
            "total_us",
            "bytes",
            "gigabytes_per_second",
        ),
        title="Copies",
        tab="Kernels",
        bar=Bar(
            lambda row: float(copies.total_ps[row] / longest), colour_of("device to device"), 8
        ),
        rows=range(len(copies)),
    )
