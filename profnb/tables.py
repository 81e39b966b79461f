"""The tables of a profile: each one a pandas DataFrame, made fresh on access.

Times are in the unit of the column's suffix and a missing value is NaN.
"""

from profnb.core.table import TableOf


class Tables:
    """The tables of ``Profile``."""

    steps = TableOf("steps.spine", "STEPS", "study")
    step_times = TableOf("steps.spine", "STEP_TIMES", "_step_times")
    events = TableOf("steps.spine", "EVENTS", "study.recorded")
    ops = TableOf("subjects.ops.op_table", "OPS", "study.layers.ops")
    input_pipeline = TableOf("subjects.input.pipeline", "INPUT_PIPELINE", "study.input.pipeline")
    input_waits = TableOf("subjects.input.waiting", "INPUT_WAITS", "study.input.waiting")
    buffers = TableOf("subjects.input.pipeline", "BUFFERS", "study.input.buffer_samples")
    memory_peak = TableOf("subjects.memory.peak", "MEMORY_PEAK", "study.memory.peak")
    memory_summary = TableOf("subjects.memory.peak", "MEMORY_SUMMARY", "study.memory.use")
    memory_kinds = TableOf("subjects.layers.memory_kinds", "MEMORY_KINDS", "_memory_kinds")
    op_memory = TableOf("subjects.memory.peak", "OP_MEMORY", "study.memory.ops")
    memory = TableOf("subjects.memory.allocators", "MEMORY", "study.memory.samples")
    kernels = TableOf("subjects.device.kernels", "KERNELS", "study.device.kernels")
    copies = TableOf("subjects.device.devices", "COPIES", "study.device.copies")
    precision = TableOf("subjects.device.precision", "PRECISION", "study.device.precision")
    devices = TableOf("subjects.device.devices", "DEVICES", "study.device.use")
    device_steps = TableOf("subjects.device.devices", "DEVICE_STEPS", "study")
    idle = TableOf("subjects.device.idle", "IDLE", "study.device.idle")
    utilization = TableOf("subjects.device.idle", "UTILIZATION", "study.device.idle")
    launches = TableOf("subjects.device.launches", "LAUNCHES", "study.device.launches")
    streams = TableOf("subjects.device.launches", "STREAMS", "study.device.streams")
    ranges = TableOf("subjects.source.range_table", "RANGES", "study.source.ranges")
    roofline = TableOf("subjects.device.roofline", "ROOFLINE", "study.device.roofline")
    op_roofline = TableOf("subjects.bounds.op_roofline", "OP_ROOFLINE", "study.bounds.roofline")
    xla = TableOf("subjects.xla.xla_ops", "XLA", "study.xla.ops")
    xla_modules = TableOf("subjects.xla.xla_ops", "XLA_MODULES", "study.xla.modules")
    layers = TableOf("subjects.layers.layer_table", "LAYERS", "study.layers.table")
    source_lines = TableOf("subjects.source.source_lines", "SOURCE_LINES", "study.source.lines")
    cell_breakdown = TableOf("subjects.cell.cell_breakdown", "CELL_BREAKDOWN", "_cell_breakdown")
    cell_tree = TableOf("causes.cell_tree", "CELL_TREE", "tree")
    system = TableOf("subjects.system.machine_use", "SYSTEM", "_machine")
    energy = TableOf("subjects.system.machine_use", "ENERGY", "_energy")
    scalars = TableOf("tf1.event_file", "SCALARS", "_scalars")
    python = TableOf("subjects.python.python_time", "PYTHON", "_python")
    trials = TableOf("compare.trial_table", "TRIALS", "tried")
