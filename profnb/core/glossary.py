"""The field's terms as profnb uses them, each once: for the documentation's glossary, and for hover texts.

``docs/glossary.md`` is written from here (``python docs/make.py``), and a column of the report whose heading
is a term, or one of its ``headings``, shows the term's sentence under the pointer.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """What a term means.

    Attributes:
        sentence: What it is, in one plain sentence.
        rule: Its unit, or the rule by which it is measured; "" for none.
        shows: Where it is seen; "" for everywhere.
        elsewhere: What other tools call it; "" for the same.
        headings: Headings of columns that mean the same.
    """

    sentence: str
    rule: str = ""
    shows: str = ""
    elsewhere: str = ""
    headings: tuple[str, ...] = ()


GLOSSARY: dict[str, dict[str, Term]] = {
    "What is recorded": {
        "capture": Term(
            "The act of recording one trace.",
            "It is bounded: 100 steps or 20 s by default.",
            "`%%tfprofile`, `profnb.profile()`",
            "session (XProf), profiling run (Nsight)",
        ),
        "trace": Term(
            "Everything that one capture recorded.",
            "Times are picoseconds since its first event.",
            "`p.trace`, `p.events`",
            "profile, XSpace (XProf), report (Nsight)",
        ),
        "plane": Term(
            "One source of a trace: a host or a device.",
            "`/host:CPU`, `/device:GPU:0`.",
            "`p.events`",
            "process (Chrome traces), rank's trace (HTA)",
        ),
        "line (of a trace)": Term(
            "One timeline of a plane: a thread of a host, or a stream of a device.",
            "Its events stand in time order. Not a lane, not a source line.",
            "`p.events.line`, the timeline's labels",
            "track (Perfetto), row (Nsight), thread (Chrome traces)",
        ),
        "source line": Term(
            "A line of the user's code, as file and number.",
            "Always with the word source, because a line alone is a thread or stream.",
            '`p.source_lines`, the tab "Source"',
            "stack frame (PyTorch)",
        ),
        "event": Term(
            "One named timespan on a line.",
            "Half-open, [begin, end).",
            "`p.events`",
            "slice (Perfetto), range (Nsight), activity (Kineto)",
        ),
        "stat": Term(
            "A typed key and value of an event.",
            shows="the details under a mark of the timeline",
            elsewhere="arg (Chrome traces), XStat (XProf)",
        ),
        "host": Term(
            "The side on which Python and the CPU's threads run.",
            'In a table, side "host".',
            elsewhere="CPU (PyTorch)",
        ),
        "device": Term(
            "A GPU or TPU core, which runs what a host sends it.",
            'A trace without a device shows missing values, never zeros. In a table, side "device".',
            "`p.devices`",
            "accelerator, core (XProf), CUDA device (PyTorch)",
        ),
        "side": Term("Whether something ran on the host or on a device.", shows="`p.ops`, `p.xla`"),
        "stream": Term(
            "A queue of a device, which runs its work one after the other.",
            shows="`p.streams`",
            elsewhere="XLine of a GPU plane (XProf)",
        ),
    },
    "What is drawn": {
        "lane": Term(
            "One level of the timeline's drawing: events that contain others stand one lane above them.",
            "A line of the trace has as many lanes as its events nest deep; one lane's never overlap.",
            "`%%tftimeline`",
            "depth, track (Perfetto)",
        ),
        "mark": Term(
            "What a lane draws: an event, or a block of several that are too short to be seen.",
            "Nothing is left out; a block says how many events it is.",
            "`%%tftimeline`",
            "slice (Perfetto)",
        ),
        "row": Term(
            "One line of a table, and nothing else.",
            'Each table says what one row is: "One row per ...".',
            "every table",
        ),
    },
    "Steps": {
        "step": Term(
            "One iteration of the training.",
            "From its marker's begin to its end. With `steps_per_execution` one step is several iterations.",
            "`p.steps`",
            "iteration (Nsight, HTA), batch (Keras), ProfilerStep (PyTorch)",
        ),
        "step time": Term(
            "A step's duration.",
            "Its nine categories add up to it, to the picosecond.",
            "`p.steps.duration_ms`",
            "iteration time, latency",
        ),
        "gap": Term(
            "The time from a step's end to the next step's begin.",
            "Callbacks, logging and fetching data in Python; NaN after the last step.",
            '`p.steps.gap_ms`, "between steps" in the report',
            "not shown (XProf), idle time (HTA)",
            ("between steps", "gap to next step"),
        ),
        "period": Term(
            "A step's duration and the gap behind it, unless that is a pause or between epochs or phases.",
            "What the wall clock sees of the loop: examples per second are counted by it.",
            "the headline, `p.input_waits`",
            "step time including the gap",
        ),
        "pause": Term(
            "A gap far outside: rare, more than ten times the median gap and more than 100 ms.",
            "No part of a step: a fact of its own, with when it came. On a device it is idle time.",
            "the headline's facts, `p.steps.gap_kind`",
        ),
        "warm-up": Term(
            "Steps at the start that stay out of every average.",
            "Something was traced or compiled, or a slow first one; as many more as `--warmup` says.",
            "`p.steps.is_warmup`",
            "skipped steps",
        ),
        "part (of a cell)": Term(
            "What some of a cell's wall time went to: train steps, validation, a callback, imports, Python.",
            "The innermost one counts, traced or not; the parts add up to the cell, to the nanosecond.",
            "`p.cell_breakdown`, the report's second line",
        ),
        "tree of the cell": Term(
            "The cell's wall time by who called whom: fit, its epochs, a callback, what that calls.",
            "Steps are counted, the rest is seen by looks at the stack; the self times add up to the cell.",
            "`p.cell_tree`, `p.what_if`",
        ),
        "phase": Term(
            "What steps are for: train, test, predict, or the function that a loop calls.",
            "Averages speak of one phase, training if there is any.",
            "`p.steps.phase`",
        ),
        "window": Term(
            "A trace in which no step was found, taken as a whole.",
            "Its averages are totals.",
            "the headline",
        ),
    },
    "Where a step's time goes": {
        "category": Term(
            "The kind of activity that an instant of a step is charged to.",
            "Exactly one of nine: where several are active, the one that stands first in this table "
            "(a copy to the device only after kernel launches).",
            "`p.steps`, the step chart",
            "EventType (XProf), temporal breakdown (HTA)",
        ),
        "device compute": Term("Kernels run on the device."),
        "output": Term("Copies from the device to the host.", elsewhere="Memcpy DtoH"),
        "device to device": Term(
            "Copies within a device or between devices; on a worker of a cluster, sending to other tasks and "
            "receiving from them.",
            elsewhere="Memcpy DtoD, P2P, RecvTensor (TF1)",
        ),
        "input": Term(
            "The training waits for the next batch, or copies it to the device.",
            elsewhere="data loading (PyTorch), infeed (TPU)",
        ),
        "device collectives": Term(
            "Devices or workers exchange data with each other, or wait for one another to do so.",
            "On a host, where no op computes meanwhile.",
            elsewhere="communication (HTA), NCCL",
        ),
        "kernel launch": Term(
            "The host's work that starts a kernel, where no kernel runs at that instant.",
            elsewhere="cudaLaunchKernel (Nsight, PyTorch)",
        ),
        "compilation": Term("XLA compiles a program."),
        "host compute": Term("Ops run on the host's CPU."),
        "all others": Term(
            "No op is active: mostly Python.",
            "The report calls it after what did not run there: not TensorFlow, not JAX.",
            elsewhere="idle, overhead",
            headings=("not tensorflow", "not jax", "not pytorch"),
        ),
        "work between steps": Term("What the host runs in gaps in which a new iterator is made."),
    },
    "Several hosts": {
        "fleet": Term(
            "The hosts of one capture, or devices of one process, that took part in the same collectives.",
            "A run's files whose captures overlapped in time.",
            "`profnb.load_fleet`, `%tfprofile`",
            "pod (XProf), ranks (HTA)",
        ),
        "own work": Term(
            "What a host does between leaving one collective and entering the next.",
            "By its own clock; own work, waiting and exchange add up to the step.",
            "`f.hosts`, `f.steps`",
        ),
        "waits": Term(
            "As long as the longest own work of all hosts is longer than this one's.",
            "At most the time in the collective.",
            "`f.hosts`, `f.steps`",
        ),
        "exchange": Term(
            "The rest of the time in collectives: transfer, and what cannot be told from it.",
            shows="`f.hosts`, `f.steps`",
        ),
    },
    "Ops and their time": {
        "op": Term(
            "An operation of the framework, such as `model/dense/MatMul`.",
            "Its name says where, its type (`MatMul`) says what.",
            "`p.ops`",
            "operator (PyTorch), node (TF1), framework op (XProf)",
            ("op of the framework",),
        ),
        "kernel": Term(
            "A function that a device runs; one op may start several, or none.",
            "Copies and memsets are none.",
            "`p.kernels`",
            "CUDA kernel (Nsight)",
            ("kernels",),
        ),
        "launch": Term(
            "The host's call that starts a kernel.",
            "Its delay is from the end of the call to the kernel's begin.",
            "`p.launches`",
            "cudaLaunchKernel, CUDA API call (Nsight)",
        ),
        "delay": Term(
            "The time from the end of a launch to the begin of its kernel.",
            "Near zero where the device waited for the host, long where work queues up.",
            "`p.launches`",
            "queue delay (HTA)",
            ("delay 95 %",),
        ),
        "total time": Term(
            "Time from begin to end, with everything that ran inside.",
            "The sum over all occurrences.",
            "`total_us`",
            "accumulated, cumulative, inclusive; CPU total (PyTorch)",
            ("total",),
        ),
        "self time": Term(
            "Time from begin to end, less what the events directly inside it cover.",
            "Where events nest, the self times of a thread add up to its busy time.",
            "`self_us`",
            "exclusive; self CPU (PyTorch)",
            ("self", "own time"),
        ),
        "occurrences": Term(
            "How often something ran.",
            "A count over all steps of the trace unless the column says per step.",
            "`occurrences`",
            "calls (PyTorch), instances (Nsight), count (HTA)",
            ("runs",),
        ),
        "busy time": Term(
            "Time during which at least one event ran; what runs at once counts once.",
            shows="`p.devices`, `p.streams`, the timeline",
            headings=("busy",),
        ),
        "utilization": Term(
            "Busy time as a fraction of the time from the first step's begin to the last one's end.",
            "0 to 1 in columns, percent in text.",
            "`p.devices`, `p.utilization`",
            "GPU utilization (PyTorch), duty cycle (XProf)",
        ),
        "idle time": Term(
            "Time in which nothing runs on any stream of a device.",
            "Each instant has one cause; causes add up to the idle time.",
            "`p.idle`",
            "bubble (HTA)",
            ("idle",),
        ),
        "occupancy": Term(
            "How many of the threads that a GPU's processor can hold a kernel could fill, in percent.",
            "Theoretical: from registers, shared memory and block size, not measured.",
            "`p.kernels`",
            "theoretical occupancy (Nsight)",
        ),
        "fraction": Term(
            "A part of a whole as a number from 0 to 1; as text it is a percentage and called a share.",
            "Columns end with `_fraction`.",
            "every table",
            headings=("share", "own share", "of kernel time"),
        ),
        "running total": Term(
            "The share that a row has together with all rows above it.",
            "Of its side, host or device; it follows the rows that are shown and their order.",
            "the op table of the report",
            "cumulative share, sum %",
        ),
        "copy": Term(
            "A transfer of bytes between host and device, or within a device.",
            "Its direction says from where to where; filling memory is listed beside copies.",
            "`p.copies`",
            "memcpy, memset (Nsight)",
            ("direction",),
        ),
        "operations": Term(
            "Multiplications and additions, counted from the shapes that the work is done on.",
            "A multiplication with an addition is two.",
            "`p.layers`, `p.roofline`",
            "flops",
        ),
        "achieved": Term(
            "Operations that were done in a second of its time.", shows="the layers' parts"
        ),
        "tensor core": Term(
            "A part of a GPU that multiplies small matrices of 16-bit numbers (or TF32) at once.",
            'Of a kernel: "used", "not used" where its kind of work could have; empty for other work.',
            "`p.kernels`",
        ),
    },
    "Programs": {
        "function": Term(
            "A `tf.function`, which TensorFlow traces once for each kind of argument.",
            "Tracing here is TensorFlow's own, not the capture of a trace.",
            "advice on retracing",
            "graph",
        ),
        "program": Term(
            "What XLA compiled and a device or the CPU runs as one: a module with its id.",
            "XLA's own word is module, and `p.xla_modules` has one row for each.",
            "`p.xla`, `p.xla_modules`",
            "HloModule (XLA), program (XProf)",
        ),
        "XLA op": Term(
            "An instruction of a program that ran as one piece; a fusion is one, made of many ops.",
            shows="`p.xla`",
            elsewhere="HLO op (XProf)",
        ),
        "layer": Term(
            "A Keras layer of a live model, or a name scope where no model is known.",
            "Forward, backward and update are its parts.",
            "`p.layers`",
            "module (PyTorch)",
        ),
    },
    "Input": {
        "iterator": Term(
            "The running form of one transformation of a `tf.data` pipeline.",
            "`Iterator::Root::Map`: each name is inside the one before it.",
            "`p.input_pipeline`",
            "input op (XProf)",
        ),
        "wait": Term(
            "The time in which the training stands still for the next element.",
            "Charged to the iterators and functions that worked, or waited, meanwhile.",
            "`p.input_waits`, `p.input_pipeline`",
            "input-bound time (XProf), DataLoader time (PyTorch)",
        ),
    },
    "Advice and comparison": {
        "saving": Term(
            "The least and the most that following an advice saves of the cell's wall time.",
            "Of a trace that was loaded: of its window. Each advice is told as what it adds to those "
            "before it.",
            "`p.advice`",
            "estimated speedup (Nsight Compute)",
        ),
        "where": Term(
            "The line of your code that an advice speaks of.",
            "Empty where it is not known.",
            "`p.advice`",
        ),
        "bound by": Term(
            "Which limit of the machine an op comes near: operations (compute), memory, or neither.",
            "It reaches 60 % of the peak; the bytes are the least, each tensor read or written once.",
            "`p.op_roofline`, `p.layers`",
            "compute-bound, memory-bound; SOL (Nsight Compute)",
        ),
        "roofline": Term(
            "The fastest that a device could do an op: its peak of operations, or what memory delivers.",
            "Which of both holds depends on operations per byte.",
            "`p.roofline`, `p.op_roofline`",
        ),
        "run": Term(
            "One execution of a cell or script in a comparison or sweep.",
            "Runs differ from each other by more than their steps tell.",
            "`profnb.compare`, `%%tfsweep`",
            "repetition, trial",
        ),
        "middle half": Term(
            "From where to where the middle half of the times lie.", "The quartiles."
        ),
        "95 % interval": Term(
            "Where the true value lies in 95 of 100 such measurements.",
            "Intervals that are far apart tell two settings apart.",
        ),
        "metric": Term(
            "What Keras measured of the learning, such as accuracy.",
            shows="`History`",
            elsewhere="score",
        ),
        "worst": Term("The value of the worst run."),
        "difference": Term(
            "By how much the second differs from the first, and whether that is sure."
        ),
    },
}

_BY_HEADING = {
    heading: term.sentence
    for terms in GLOSSARY.values()
    for name, term in terms.items()
    for heading in (name, *term.headings)
}


def explain(heading: str) -> str:
    """What the term of a heading means, in a sentence; "" where the heading is no term."""
    return _BY_HEADING.get(heading.lower(), "")


def glossary_markdown() -> str:
    """The documentation's page on terms."""
    parts = [
        "# Glossary",
        "The field's terms as profnb uses them. Written by `docs/make.py` from `profnb/core/glossary.py`.",
    ]
    for title, terms in GLOSSARY.items():
        rows = [
            f"| **{name}** | {term.sentence} {term.rule}".rstrip()
            + f" | {term.shows} | {term.elsewhere} |"
            for name, term in terms.items()
        ]
        head = "| term | meaning | where it shows | in other tools |\n| --- | --- | --- | --- |"
        parts.append(f"## {title}\n\n" + "\n".join([head, *rows]))
    return "\n\n".join(parts) + "\n"
