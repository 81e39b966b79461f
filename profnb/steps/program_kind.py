"""The kind of program that a trace is of, decided once; whatever depends on that asks this one value."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from profnb.capture.environment import KERAS_BACKEND
from profnb.capture.recording import Recording
from profnb.capture.step_records import INVOKE, KERAS, SESSION_RUN
from profnb.steps.finding.loops import EAGER_TAPES, EAGER_TURNS
from profnb.steps.finding.sources import ASKED, STEP_MARKERS
from profnb.steps.streams import busiest_device
from profnb.steps.windows import Steps
from profnb.trace.model import Trace
from profnb.trace.names import FUNCTION_CALL, JIT_CALL, MARKED_BY, ONNX_RUNTIME, RECORDER, parse_op

TENSORFLOW, SESSIONS, JAX, PYTORCH, UNKNOWN = "TensorFlow", "TensorFlow 1", "JAX", "PyTorch", ""

# How names begin that only one framework writes, and what stands in them; the first that is met holds.
_WRITTEN: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        PYTORCH, ("aten::", "autograd::", "torch::", "Optimizer.step#", "ProfilerStep#"),
        ("at::native::", "c10::", "PyTorch Profiler"),
    ),
    (JAX, (JIT_CALL, "jit(", "pmap(", "shard_map("), ()),
    (SESSIONS, ("_SOURCE:", "SessionRun", "session_run"), ()),
    (
        TENSORFLOW,
        (
            "ExecutorState::", "EagerLocalExecute", "EagerExecute", "EagerKernelExecute", "FunctionRun",
            "Iterator::", "IteratorGetNext", "tf_Compute", "tf_gpu_private", "tf_data_",
        ),
        ("tensorflow::", "N10tensorflow"),
    ),
    (JAX, ("jit_", "pmap_"), ()),  # a program of any name may be called so
)  # fmt: skip
_TYPE_OF_TENSORFLOW = re.compile(r"[A-Z][A-Za-z0-9]*")
_BACKENDS = {"jax": JAX, "torch": PYTORCH, "openvino": "OpenVINO", "numpy": "NumPy"}
_ROCM = ("hip", "Cijk_", "rocm", "rocblas", "__amd_")


@dataclass(frozen=True, slots=True)
class ProgramKind:
    """The kind of a program.

    Attributes:
        framework: The one whose words to use: TENSORFLOW, SESSIONS, JAX, PYTORCH, or UNKNOWN.
        device: The device plane with the most work, of which the categories are; None where no device worked.
        is_nvidia: Whether that is a GPU of NVIDIA's.
        origin: In words, how its steps were found.
        phase: The phase of the steps that an average speaks of; "" without steps.
        is_own_loop: Whether the steps are the user's own loop, so that ``Model.compile`` cannot help.
        is_fit: Whether Keras' own ``fit``, ``evaluate`` or ``predict`` is recorded to have run the steps.
        backend: What Keras runs on, by its own name; "" where no capture of ours saw Keras.
    """

    framework: str = UNKNOWN
    device: int | None = None
    is_nvidia: bool = False
    origin: str = ""
    phase: str = ""
    is_own_loop: bool = False
    is_fit: bool = False
    backend: str = ""

    @property
    def has_device(self) -> bool:
        """True if anything was recorded on a device."""
        return self.device is not None

    @property
    def is_tensorflow(self) -> bool:
        """True if it is TensorFlow of today, whose functions compile."""
        return self.framework == TENSORFLOW

    @property
    def is_graph(self) -> bool:
        """True if it is TensorFlow 1, whose ops are made for a graph, and not run."""
        return self.framework == SESSIONS

    @property
    def is_jax(self) -> bool:
        """True if it is JAX, whose ops are the instructions that XLA ran."""
        return self.framework == JAX

    @property
    def is_pytorch(self) -> bool:
        """True if it is PyTorch."""
        return self.framework == PYTORCH

    @property
    def computing(self) -> str:
        """The category of ops that compute."""
        return "device compute" if self.has_device else "host compute"

    @property
    def may_return_early(self) -> bool:
        """True if a call may return before its work is done."""
        return self.has_device or self.is_jax or self.is_pytorch

    @property
    def runs_ahead(self) -> bool:
        """True if calls do so: a step's time by the host may be another's."""
        return self.is_jax or (self.is_pytorch and self.has_device)

    @property
    def is_marked(self) -> bool:
        """True if its steps are step markers."""
        return self.origin == STEP_MARKERS

    @property
    def is_as_asked(self) -> bool:
        """True if its steps are the range that was asked for."""
        return self.origin.startswith(ASKED)

    @property
    def is_taped(self) -> bool:
        """True if some of its steps are turns of an eager loop, told by their gradients."""
        return EAGER_TAPES in self.origin

    @property
    def asks_for_elements(self) -> bool:
        """True if some of them are so, told by asking tf.data for the next element."""
        return EAGER_TURNS in self.origin

    @property
    def is_eager(self) -> bool:
        """True if its steps are turns of eager loops."""
        return self.is_taped or self.asks_for_elements

    @property
    def starts_ops_singly(self) -> bool:
        """True if Python starts the ops of its steps one by one."""
        return self.is_eager or self.is_pytorch

    @property
    def runs_sessions(self) -> bool:
        """True if its steps are session runs: from first to last op, where the wall clock times the call."""
        return self.phase.startswith(SESSION_RUN)

    @property
    def invokes(self) -> bool:
        """True if its steps are runs of an interpreter, whose ops no trace has."""
        return self.phase == INVOKE

    @property
    def is_loop_of_keras(self) -> bool:
        """True if Keras, on one backend or another, makes the steps."""
        return bool(self.backend) and not self.is_own_loop

    @property
    def unrecorded_backend(self) -> str:
        """The backend of Keras, where TensorFlow's profiler cannot record that; else ""."""
        title = _BACKENDS.get(self.backend, self.backend[:40])
        is_recorded = self.has_device or self.framework == title
        return "" if is_recorded or title == "tensorflow" else title

    def text_of(self, texts: str | Mapping[str, str]) -> str:
        """Choose what to say to its user: one text is for all; a framework without one has UNKNOWN's."""
        if isinstance(texts, str):
            return texts
        return texts.get(self.framework, texts.get(UNKNOWN, ""))


def find_program_kind(trace: Trace, steps: Steps, recording: Recording) -> ProgramKind:
    """Find what kind of program a trace is of."""
    framework = _find_framework(trace)
    if framework == UNKNOWN and "TensorFlow" in recording.environment:
        framework = TENSORFLOW
    device = busiest_device(trace)
    phase, seen = steps.main_phase or "", recording.steps
    makers = {seen.kinds[kind] for kind in set(seen.kind)}
    makers = makers or set(trace.stats.texts(MARKED_BY).texts)
    if steps.origin == STEP_MARKERS and not phase.startswith(SESSION_RUN):
        # Of a fit there are runs: Keras 2 marks its own steps, as a user may.
        is_own = bool(makers) and KERAS not in makers and not any(seen.run)
    else:
        is_own = not steps.is_window
    is_fit, backend = bool(makers) and not is_own, recording.environment.get(KERAS_BACKEND, "")
    is_nvidia = device is not None and _is_nvidia(trace, device)
    return ProgramKind(framework, device, is_nvidia, steps.origin, phase, is_own, is_fit, backend)


def _is_nvidia(trace: Trace, plane: int) -> bool:
    """Tell whether a device says no other vendor, and nothing of ROCm was recorded."""
    device = trace.planes[plane]
    vendor = str(device.stats.get("device_vendor", ""))
    if "GPU" not in device.name.upper() or vendor:
        return "nvidia" in vendor.lower()
    return not trace.select_names(lambda name: name.startswith(_ROCM)).any()


def _find_framework(trace: Trace) -> str:
    """TENSORFLOW, SESSIONS, JAX or PYTORCH; UNKNOWN where neither planes, threads, ops nor kernels tell."""
    if trace.is_op_name is not None and not any(RECORDER in plane.stats for plane in trace.planes):
        return PYTORCH
    if any(plane.stats.get(RECORDER) == ONNX_RUNTIME for plane in trace.planes):
        return UNKNOWN
    if any("jax_version" in plane.stats for plane in trace.planes):
        return JAX
    names = [*trace.names.texts, *trace.lines.names.texts, *(plane.name for plane in trace.planes)]
    names.extend(trace.stats.texts("tf_op").texts)
    for framework, prefixes, parts in _WRITTEN:
        if any(n.startswith(prefixes) or any(part in n[:200] for part in parts) for n in names):
            return framework
        if framework == SESSIONS and len(trace.stats.texts(FUNCTION_CALL)):
            return TENSORFLOW
    ops = filter(None, map(parse_op, names))
    is_tensorflow = any(_TYPE_OF_TENSORFLOW.fullmatch(op_type) for _, op_type in ops)
    return TENSORFLOW if is_tensorflow else UNKNOWN
