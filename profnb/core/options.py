"""The choice of what to record: one frozen value that the magics, the API and the command line share.

Its options as a line takes them stand here too, each documented once.
"""

import os
from argparse import SUPPRESS, Action, ArgumentParser, Namespace
from dataclasses import dataclass, fields
from typing import Any

from profnb.core.arguments import count, number, unquoted, whole

_USUAL_STEPS, _SECONDS = 100, 20.0
BACKENDS = ("tensorflow", "jax", "pytorch")


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """The bounds and levels of one capture.

    Attributes:
        max_steps: The window closes after this many traced steps; the cell goes on untraced. By default also
            when stopping and reading would take a twentieth of the cell so far, and half a second.
        max_seconds: ... or this long after the first step ended, whichever comes first; a first step that is
            traced or compiled may take six times that.
        warmup_steps: Steps at the start that stay out of every average, besides those in which a
            function was traced or compiled.
        logdir: Keep the capture here in TensorBoard's layout; None keeps it in memory only.
        label: A name for the result, shown in its report.
        host_level: 1 critical, 2 info, 3 verbose host events (TensorFlow's host_tracer_level); PyTorch
            records shapes too at 3, which tell the operations of layers.
        source: Find the lines of the user's code that ops came from. Costs 1 to 2 %, for a step of half a
            millisecond up to 5 %; before Python 3.12, eager ops find theirs with ``python`` only, PyTorch's
            with ``python_tracer`` too.
        python: Sample Python's stack too, a thousand times a second.
        python_tracer: Let TensorFlow or PyTorch record every Python call. Costly: it slows the cell (a small
            model on PyTorch to half its speed) and grows the trace; TensorFlow 2.20 and 2.21 ignore it.
        device_tracer: Record device activity (CUPTI on a GPU).
        memory: Tell Python's objects by line, through memray where that is installed, and PyTorch's blocks of
            memory by op. Costs time with each of them.
        steps: The name of a range that is a step; by default steps are found.
        rank: Which process of a job this is, for the name of a kept trace; what the job's launcher says
            (``TF_CONFIG``, ``RANK``, ``SLURM_PROCID`` ...) where it is None.
        backend: Record by the profiler of "tensorflow", "jax" or "pytorch" alone; by default by those of
            the frameworks that do the work.
    """

    max_steps: int = _USUAL_STEPS
    max_seconds: float = _SECONDS
    warmup_steps: int = 0
    logdir: str | os.PathLike[str] | None = None
    label: str | None = None
    host_level: int = 2
    source: bool = True
    python: bool = False
    python_tracer: bool = False
    device_tracer: bool = True
    memory: bool = False
    steps: str | None = None
    rank: int | None = None
    backend: str | None = None

    @property
    def bounds_events(self) -> bool:
        """Tell whether the window closes, too, when reading it would take long: unless -n or -t ask."""
        return (self.max_steps, self.max_seconds) == (_USUAL_STEPS, _SECONDS)

    def __post_init__(self) -> None:
        """Refuse values that cannot be meant; a folder given as a path object becomes text.

        Raises:
            ValueError: A bound is not positive or a level does not exist.
        """
        if self.logdir is not None:
            object.__setattr__(self, "logdir", os.fspath(self.logdir))
        backends, steps = ", ".join(BACKENDS), self.steps
        for is_meant, refusal in (
            (self.max_steps >= 1, f"steps must be at least 1, got {self.max_steps}."),
            (self.max_seconds > 0, f"seconds must be positive, got {self.max_seconds}."),
            (self.warmup_steps >= 0, f"warmup must be 0 or more, got {self.warmup_steps}."),
            ("://" not in str(self.logdir), f"logdir must be a local folder, got {self.logdir!r}."),
            (self.backend in (None, *BACKENDS), f"backend must be one of {backends}, got {self.backend!r}."),
            (self.host_level in (1, 2, 3), f"host level must be 1, 2 or 3, got {self.host_level}."),
            (steps is None or str(steps).strip(), "steps takes the name of a range, got an empty one."),
            (not isinstance(steps, int), f"steps takes a range's name: max_steps={steps} is a number."),
            (self.rank is None or self.rank >= 0, f"rank must be 0 or more, got {self.rank}."),
        ):  # fmt: skip
            if not is_meant:
                raise ValueError(refusal)


class StepsAction(Action):
    """``--steps 50`` bounds the window as ``-n 50`` does; ``--steps train_iter`` names the step's range."""

    def __call__(
        self, _parser: ArgumentParser, namespace: Namespace, values: Any, _flag: str | None = None
    ) -> None:
        """Take a number for the bound and any other text for a name."""
        text = unquoted(values)
        if text.isdecimal():
            namespace.max_steps = int(text)
        else:
            namespace.steps = text


_DEFAULTS = CaptureOptions()
# Flags and settings of argparse's ``add_argument``, and of IPython's ``argument``.
CAPTURE_ARGUMENTS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("-n",), {
        "dest": "max_steps", "metavar": "STEPS", "type": count, "default": _DEFAULTS.max_steps,
        "help": "stop tracing after this many steps (default %(default)s); the code goes on",
    }),
    (("--steps",), {
        "metavar": "RANGE", "action": StepsAction,
        "help": "the range that is a step, by the name that your code gave it (a number is as -n)",
    }),
    (("-w", "--warmup"), {
        "dest": "warmup_steps", "metavar": "WARMUP", "type": whole(0), "default": _DEFAULTS.warmup_steps,
        "help": "leave this many first steps out of averages, besides those that trace or compile",
    }),
    (("-t", "--seconds"), {
        "dest": "max_seconds", "metavar": "SECONDS", "type": number, "default": _DEFAULTS.max_seconds,
        "help": "stop tracing after this many seconds (default %(default)s)",
    }),
    (("-d", "--logdir", "--save"), {
        "dest": "logdir", "metavar": "LOGDIR", "type": unquoted,
        "help": "keep the trace here, in TensorBoard's layout",
    }),
    (("--rank",), {
        "type": whole(0), "metavar": "N",
        "help": "which process of a job this is (default: what TF_CONFIG, RANK, SLURM_PROCID or such say)",
    }),
    (("--label",), {"type": unquoted, "help": "a name for the result, shown in its report"}),
    (("--host-level",), {
        "type": count, "choices": (1, 2, 3), "default": _DEFAULTS.host_level,
        "help": "detail of host events: 1 critical, 2 info (default), 3 verbose; with 3 PyTorch's ops have "
        "shapes, which tell the operations of layers",
    }),
    (("--source",), {"dest": "source", "action": "store_true", "default": True, "help": SUPPRESS}),
    (("--no-source",), {
        "dest": "source", "action": "store_false",
        "help": "do not find the lines of your code that the time goes to",
    }),
    (("--python",), {"action": "store_true", "help": "sample Python's stack, 1000 times a second"}),
    (("--python-tracer",), {
        "action": "store_true",
        "help": "let TensorFlow or PyTorch record every Python call (slow; TensorFlow 2.20 and 2.21 ignore "
        "it); tells the lines of PyTorch's ops before Python 3.12",
    }),
    (("--memory",), {
        "action": "store_true",
        "help": "tell Python's objects by line (needs memray) and PyTorch's memory by op; slower",
    }),
    (("--no-device",), {
        "dest": "device_tracer", "action": "store_false", "help": "do not record device activity"
    }),
    (("--backend",), {
        "choices": BACKENDS,
        "help": "record by this framework's profiler alone (default: by those of the frameworks that work)",
    }),
)  # fmt: skip


TRY_ARGUMENTS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--try-seconds",), {
        "type": number, "default": 60.0, "metavar": "SECONDS",
        "help": "try for this long, about (default %(default)s)",
    }),
    (("--try-anyway",), {
        "action": "store_true",
        "help": "try edits although the code may write elsewhere, or change what nobody can put back",
    }),
)  # fmt: skip


def options_of(arguments: Namespace) -> CaptureOptions:
    """Make of a line's ``CAPTURE_ARGUMENTS`` what to record.

    Raises:
        ValueError: A value cannot be meant.
    """
    return CaptureOptions(**{one.name: getattr(arguments, one.name) for one in fields(_DEFAULTS)})
