"""The options of a capture as a magic and ``profnb run`` take them, each documented once."""

from argparse import SUPPRESS, Action, ArgumentParser, Namespace
from dataclasses import fields
from typing import Any

from profnb.core.options import BACKENDS, CaptureOptions


def unquoted(text: str) -> str:
    """Take off the quotes around an argument, which IPython leaves."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


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
        "dest": "max_steps", "metavar": "STEPS", "type": int, "default": _DEFAULTS.max_steps,
        "help": "stop tracing after this many steps (default %(default)s); the code goes on",
    }),
    (("--steps",), {
        "metavar": "RANGE", "action": StepsAction,
        "help": "the range that is a step, by the name that your code gave it (a number is as -n)",
    }),
    (("-w", "--warmup"), {
        "dest": "warmup_steps", "metavar": "WARMUP", "type": int, "default": _DEFAULTS.warmup_steps,
        "help": "leave this many first steps out of averages, besides those that trace or compile",
    }),
    (("-t", "--seconds"), {
        "dest": "max_seconds", "metavar": "SECONDS", "type": float, "default": _DEFAULTS.max_seconds,
        "help": "stop tracing after this many seconds (default %(default)s)",
    }),
    (("-d", "--logdir", "--save"), {
        "dest": "logdir", "metavar": "LOGDIR", "type": unquoted,
        "help": "keep the trace here, in TensorBoard's layout",
    }),
    (("--rank",), {
        "type": int, "metavar": "N",
        "help": "which process of a job this is (default: what TF_CONFIG, RANK, SLURM_PROCID or such say)",
    }),
    (("--label",), {"type": unquoted, "help": "a name for the result, shown in its report"}),
    (("--host-level",), {
        "type": int, "choices": (1, 2, 3), "default": _DEFAULTS.host_level,
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
    (("--no-device",), {
        "dest": "device_tracer", "action": "store_false", "help": "do not record device activity"
    }),
    (("--backend",), {
        "choices": BACKENDS,
        "help": "record by this framework's profiler alone (default: by those of the frameworks that work)",
    }),
)  # fmt: skip


def options_of(arguments: Namespace) -> CaptureOptions:
    """Make of a line's ``CAPTURE_ARGUMENTS`` what to record.

    Raises:
        ValueError: A value cannot be meant.
    """
    return CaptureOptions(**{one.name: getattr(arguments, one.name) for one in fields(_DEFAULTS)})
