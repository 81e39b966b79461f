"""Devices as the report shows them: why the busiest one was idle, its kernels, its copies.

Only where the trace has device work; a trace without any shows none of this, and a note says why.
"""

from typing import Any

import numpy as np

from profnb.core.units import MISSING, PS_PER_MS, bar_text, count_text, duration_text, percent_text
from profnb.drawing.figures import LEGEND_ABOVE, axis, chart
from profnb.drawing.markup import Cell, figure_text
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import CAUSE_COLOURS, colour_of
from profnb.subjects.device.devices import COPIES, DEVICES, CopyTable, DeviceTable
from profnb.subjects.device.idle import IDLE, IDLE_CAUSES, WORK, IdleTable
from profnb.subjects.device.kernels import KERNELS, KernelTable, tells_tensor_cores
from profnb.subjects.device.launches import LAUNCHES, STREAMS, LaunchTable, StreamTable
from profnb.subjects.device.precision import IN_TF32, WIDTHS, ops_without_tensor_cores
from profnb.subjects.device.roofline import find_rates
from profnb.subjects.layers.name_scopes import op_title
from profnb.subjects.study import Study
from profnb.trace.names import kernel_titles

_SHOWN_KERNELS, _SHOWN_DEVICES, _SHOWN_STREAMS = 10, 32, 12
_SHOWN_MISSED = 6
_LONGEST_KERNEL = 64
_WORK_COLOURS = ("device compute", "device collectives", "device to device")


def device_sections(study: Study) -> list[Section]:
    """Show what devices did; nothing where no device ran anything."""
    device, plane = study.device, study.program.device
    if plane is None:
        return []
    sections, idle = [], device.idle
    if len(device.use) > 1:
        sections.append(_device_section(device.use))
    if idle is not None and idle.total_ps.sum():
        sections.append(_idle_section(idle))
    if len(device.launches):
        sections.append(_launch_section(device.launches, idle))
    if len(device.streams) > 1:
        sections.append(_stream_section(device.streams))
    if len(device.kernels):
        tells = tells_tensor_cores(study, plane)
        sections.append(_kernel_section(study, tells=tells))
        if tells and study.program.is_nvidia:
            sections.extend(_missed_section(device.kernels, study, plane))
    if len(device.copies):
        sections.append(_copy_section(device.copies))
    return sections


def _device_section(devices: DeviceTable) -> Section:
    return section_of(
        DEVICES,
        devices,
        "device utilization_fraction compute_us copy_us collective_us hidden_collective_fraction",
        title="Devices",
        tab="Device",
        sentence=(
            f"{len(devices)} devices worked. The busiest worked {percent_text(devices.imbalance)} longer "
            "than the mean."
        ),
        bar=Bar.of(devices.utilization, colour_of("device compute"), full=1),
        rows=range(min(len(devices), _SHOWN_DEVICES)),
    )


def _idle_section(idle: IdleTable) -> Section:
    whole = int(idle.total_ps.sum())
    order = [row for row in np.argsort(-idle.total_ps, kind="stable") if idle.total_ps[row]]
    return section_of(
        IDLE,
        idle,
        "cause occurrences total_us idle_fraction longest_us",
        title="Idle time of the device",
        tab="Device",
        sentence=(
            f"{idle.device} was idle {percent_text(whole / idle.window_ps)} of the "
            f"time{' of the averaged steps' if idle.aside_ps else ''}, mostly {IDLE_CAUSES[order[0]]}."
        ),
        bar=Bar.of(idle.total_ps, lambda row: CAUSE_COLOURS[IDLE_CAUSES[row]], full=whole),
        rows=order,
        figure=utilization_figure(idle),
    )


def _launch_section(launches: LaunchTable, idle: IdleTable | None) -> Section:
    """Launches of kernels; they set the pace where the device waited longer for them than it worked."""
    kernels, calls = int(launches.kernels.sum()), int(launches.calls.sum())
    launching = IDLE_CAUSES.index("kernel launch")
    is_waited_for = idle is not None and idle.total_ps[launching] > idle.busy_ps
    tiny = percent_text(launches.tiny.sum() / kernels)
    sentence = f"{tiny} of the kernels are shorter than 10 µs."
    if calls:
        pace = ": launching, not computing, sets the pace of the device"
        sentence += (
            f" {percent_text(launches.longer_calls.sum() / calls)} of the {count_text(calls)} launch calls "
            f"took longer than their kernels{pace if is_waited_for and launches.sets_the_pace else ''}."
        )
    return section_of(
        LAUNCHES,
        launches,
        "device kernels kernels_per_step calls launch_us delay_us delay_p95_us",
        title="Launches",
        tab="Device",
        sentence=sentence,
        bar=Bar.of(launches.kernels, colour_of("kernel launch"), 8),
        rows=range(min(len(launches), _SHOWN_DEVICES)),
    )


def _stream_section(streams: StreamTable) -> Section:
    return section_of(
        STREAMS,
        streams,
        "stream device kernels copies busy_us busy_fraction",
        title="Streams",
        tab="Device",
        bar=Bar.of(streams.busy_ps, colour_of("device compute"), full=streams.window_ps or 1),
        rows=range(min(len(streams), _SHOWN_STREAMS)),
    )


def _kernel_section(study: Study, *, tells: bool) -> Section:
    """The kernels; ``tells`` is true where their names tell which ran in tensor cores."""
    kernels, precision, layers = study.device.kernels, study.device.precision, study.layers.names
    time, count = int(kernels.total_ps.sum()), int(kernels.occurrences.sum())
    titles = kernel_titles(kernels.kernel_name[:_SHOWN_KERNELS], _LONGEST_KERNEL)

    def kernel_cell(row: int) -> Cell:
        """The op and, fainter, the kernel without what C++ puts around its name."""
        start = kernels.kernel_name[row].removeprefix("void ")
        if kernels.op_name[row] == kernels.kernel_name[row]:
            return titles[row], "", "", start if titles[row] != start else ""
        title = op_title(kernels.op_name[row], named=layers)
        return title.name, "", titles[row], f"{title.full}\n{start}"

    in_cores = int(kernels.total_ps[kernels.uses_tensor_core].sum())
    missed = kernels.is_tensor_core_eligible & ~kernels.uses_tensor_core
    could = int(kernels.total_ps[missed].sum())
    cores = np.where(kernels.uses_tensor_core, "used", np.where(missed, "not used", "")).tolist()
    sentence = "1 kernel" if count == 1 else f"{count_text(count)} kernels"
    if time:
        sentence += f", {duration_text(time)} in all"
    if time and tells:
        sentence += f": {percent_text(in_cores / time)} in tensor cores"
        if kernels.is_tensor_core_eligible.any():
            missing = percent_text(could / time)
            sentence += f", {missing} in matrix products and convolutions without tensor cores"
    widths = ", ".join(
        f"{percent_text(float(precision.fraction[row]))} {WIDTHS[row]}"
        for row in np.argsort(-precision.total_ps, kind="stable").tolist()
        if precision.total_ps[row]
    )
    by_width = f"By the width of their numbers: {widths}." if widths else ""
    sentence += f". {by_width}" if time else "."
    return section_of(
        KERNELS,
        kernels,
        (
            Shown("kernel", kernel_cell),
            "occurrences total_us fraction mean_us",
            *([Shown("tensor core", cores.__getitem__)] if tells else []),
        ),
        title="Kernels",
        tab="Kernels",
        sentence=sentence,
        bar=Bar.of(kernels.total_ps, colour_of("device compute"), 8),
        rows=range(min(_SHOWN_KERNELS, len(kernels))),
    )


def _missed_section(kernels: KernelTable, study: Study, plane: int) -> list[Section]:
    """The ops that could have used tensor cores and did not; none where all did or none could."""
    totals = ops_without_tensor_cores(kernels)
    whole = int(kernels.total_ps.sum())
    shown = sorted(totals, key=lambda name: -totals[name][0])[:_SHOWN_MISSED]
    if not shown or not totals[shown[0]][0]:
        return []
    more = len(totals) - len(shown)
    has_tf32 = "TF32" in find_rates(study.trace.planes[plane])
    tf32 = study.program.text_of(IN_TF32).rstrip(".") if has_tf32 else ""
    remedy = tf32 and f" In 32 bits this device has TF32: {tf32}."
    return [
        Section(
            title="Ops without tensor cores",
            sentence="Matrix products and convolutions with most time on the ordinary cores. Tensor cores "
            "take 16-bit numbers (TF32 on newer GPUs), best in multiples of 8. The data fixes the inputs "
            "of the first layer and the outputs of the last."
            f"{remedy}" + (f" {count_text(more)} more are in p.kernels." if more > 0 else ""),
            headings=("", "op", "runs", "total", "of kernel time"),
            rows=[
                (
                    bar_text(totals[name][0] / totals[shown[0]][0], 8),
                    op_title(name, named=study.layers.names).cell,
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


def _copy_section(copies: CopyTable) -> Section:
    def memory(row: int) -> str:
        kinds = (copies.source_kind[row], copies.destination_kind[row])
        return " to ".join(kind for kind in kinds if kind) or MISSING

    return section_of(
        COPIES,
        copies,
        (
            Shown("direction", lambda row: copies.direction[row].replace("set", "memset")),
            Shown("memory", memory, meaning="the kind of memory it was read from, and written to"),
            "occurrences total_us bytes gigabytes_per_second",
        ),
        title="Copies",
        tab="Kernels",
        bar=Bar.of(copies.total_ps, colour_of("device to device"), 8),
    )


def utilization_figure(idle: IdleTable) -> dict[str, Any]:
    """Draw what the device did over time: work below, idle time by its cause above, 100 % together."""
    x = [round(float(begin) / PS_PER_MS, 4) for begin in idle.bin_begin_ps]
    width = (idle.window_ps + idle.aside_ps) / PS_PER_MS / max(len(x), 1)
    x.append(round(x[-1] + width, 4))
    names = [*WORK, *(f"idle: {cause}" for cause in IDLE_CAUSES)]
    colours = [*map(colour_of, _WORK_COLOURS), *(CAUSE_COLOURS[cause] for cause in IDLE_CAUSES)]
    shares = np.round(100 * idle.bin_shares.T, 2)
    fills = [*colours[: len(WORK)]]
    fills += ["rgba({},{},{},0.35)".format(*bytes.fromhex(c[1:7])) for c in colours[len(WORK) :]]
    data = [
        {
            "type": "scatter", "mode": "lines", "name": name, "x": x, "y": [*values, values[-1]],
            "stackgroup": "one", "line": {"width": 0, "shape": "hv", "color": colour}, "fillcolor": fill,
            "hovertemplate": f"%{{x:.4g}} ms: %{{y:.3g}} % {name}<extra></extra>",
        }
        for name, colour, fill, values in zip(names, colours, fills, shares.tolist(), strict=True)
        if any(values)
    ]  # fmt: skip
    title = figure_text(f"What {idle.device} did, and causes of idle time")
    return chart(
        title, 300, data, legend={**LEGEND_ABOVE, "traceorder": "normal"},
        margin={"l": 56, "r": 12, "t": 84, "b": 34},
        xaxis={**axis(""), "showgrid": False, "ticksuffix": " ms"},
        yaxis={**axis("% of the time"), "range": [0, 100]},
    )  # fmt: skip
