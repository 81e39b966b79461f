"""Ops of PyTorch to source lines: Python calls each, so the line that was running then is theirs.

- an op, and the device work that it launched: the line at which the thread was that called it, as the capture
  followed it, or as the stack in the trace tells it;
- a backward op: the line of the forward op that made its node of autograd; the line that asked for the
  gradients (``loss.backward()``) is known besides. What the user's own code runs in a node stays with it;
- where Keras' ``fit`` runs layers, with no line of the user's in between: the line that made the layer;
- an op of a thread that was not watched, outside of every node: none.

PyTorch has written stacks (``with_stack=True``) in three ways, and the exact line stands in two of them::

    until 1.12    an op's "Call stack"     torch/nn/modules/module.py(1051): _call_impl;train.py(46): <module>
    since 1.13    events around the op     train.py(12): forward               where the function begins
    since 2.1x    and who called these     ... "CallFrom": "train.py:46"

so of an op the innermost call that the user's code made tells the line, by who called it. Where nobody says
that, or the op was called by an operator (``a + b``), which is no call, the function's first line stands for
all of it. Of functions that ran before recording began, some versions give the line that they were at then.

Newer versions drop the beginning of a path that Python imports from, so that a name may be a package's
(``torch/nn/modules/module.py``), the standard library's (``threading.py``) or the user's (``train.py``,
``models/net.py``): a package is known by its name.

Source: torch/csrc/autograd/profiler_python.cpp, torch/csrc/autograd/profiler_kineto.cpp (1.8 to 2.15).
"""

import re
import sys
from dataclasses import dataclass

import numpy as np

from profnb.capture.source.user_code import is_user_file, shorten_files
from profnb.core.columns import Bools, Int32s, Int64s, flags_at
from profnb.steps.nesting import find_parents, nearest_of
from profnb.subjects.layers.called_scopes import find_makers, find_nodes, on_hosts
from profnb.subjects.source.code_times import LineHistory, Work
from profnb.trace.model import Trace
from profnb.trace.names import KINETO_SCOPE, STEP_NUM

_CALL_STACK, _CALL_FROM = "Call stack", "CallFrom"
_PYTHON_FRAME = re.compile(r"([^()]{1,500}\.pyw?|<[^<>]{1,200}>)\((\d{1,9})\): (.{1,300})")
_ROOTED = re.compile(r"[/\\]|[A-Za-z]:")
_CALLER = re.compile(r"(.{1,500}\.pyw?|<[^<>]{1,200}>):(\d{1,9})")
_PACKAGES = """
    IPython PIL PyQt5 accelerate aiohttp albumentations apex asttokens attr bitsandbytes catalyst click
    cloudpickle colorama coverage cv2 datasets dateutil debugpy deepspeed detectron2 dgl diffusers einops
    evaluate fairscale fastai fastcore fire flash_attn flax fsspec functorch gym gymnasium h5py httpx
    huggingface_hub hydra ignite imageio ipykernel ipywidgets jax jaxlib jinja2 joblib jupyter_client keras
    kornia lightning lightning_fabric lightning_utilities matplotlib megatron mmcv mmdet mmengine monai
    multiprocess networkx nltk numba numpy nvidia omegaconf onnx onnxruntime openai optimum optuna orjson
    packaging pandas peft pkg_resources pluggy plotly prompt_toolkit psutil pyarrow pydantic pytest _pytest
    pytorch_lightning ray regex requests rich safetensors scipy sentence_transformers sentencepiece setuptools
    six skimage sklearn skorch spacy stable_baselines3 sympy tensorboard tensorboardX tensorflow tf_keras
    thinc tiktoken timm tokenizers torch torch_geometric torch_tb_profiler torch_xla torchao torchaudio
    torchdata torchgen torchmetrics torchrec torchtext torchtitan torchtune torchvision tornado tqdm traitlets
    transformer_engine transformers triton trl typeguard typing_extensions ultralytics urllib3 vllm wandb
    xformers yaml zmq profnb
"""
_LIBRARIES = frozenset(_PACKAGES.split())
_NONE = 0


@dataclass(frozen=True, slots=True)
class StackLines:
    """The line of the user's that ran each event."""

    place: Int64s  # row of ``places`` for each event, or -1, shape (E,)
    places: tuple[tuple[str, int], ...]  # (file, line)
    # the function that the line begins, where only that is known; "" for an exact line
    functions: tuple[str, ...]


def find_stack_lines(trace: Trace) -> StackLines | None:
    """Find the line of each event by the stacks that are recorded with it; None where no stack tells one."""
    if trace.is_op_name is None:
        return None
    places: dict[tuple[str, int, str], int] = {}
    parent = find_parents(trace.events.end_ps, trace.lines.offsets)
    by_stack = _spread(_by_call_stack(trace, places), parent)
    around = _spread(_by_functions(trace, places), parent)
    if not places:
        return None
    names = shorten_files(dict.fromkeys(file for file, *_ in places if _ROOTED.match(file)), "")
    listed = tuple((names.get(file, file), line) for file, line, _ in places)
    place = np.where(by_stack >= 0, by_stack, around)
    return StackLines(place, listed, tuple(function for *_, function in places))


def _note(
    places: dict[tuple[str, int, str], int], match: re.Match[str] | None, function: str = ""
) -> int:
    """The row of the place that a pattern told, or -1 where that is none of the user's."""
    if match is None or not _is_users(match[1]):
        return -1
    return places.setdefault((match[1], int(match[2]), function), len(places))


def _by_call_stack(trace: Trace, places: dict[tuple[str, int, str], int]) -> Int64s:
    """By the innermost of the user's functions in ``inner;outer``."""
    stacks = trace.stats.texts(_CALL_STACK)
    rows = np.full(len(stacks.texts), -1, np.int64)
    for at, text in enumerate(stacks.texts):
        noted = (_note(places, _PYTHON_FRAME.fullmatch(part)) for part in text.split(";"))
        rows[at] = next((row for row in noted if row >= 0), -1)
    place = np.full(len(trace.events), -1, np.int64)
    place[stacks.events] = rows[stacks.values.astype(np.int64)]
    return place


def _by_functions(trace: Trace, places: dict[tuple[str, int, str], int]) -> Int64s:
    """By the events of Python's functions around each event."""
    assert trace.is_op_name is not None
    of_name = np.full(len(trace.names), -1, np.int64)
    for row in np.flatnonzero(trace.names.rows_where(lambda name: "): " in name)).tolist():
        if match := _PYTHON_FRAME.fullmatch(trace.names[row]):
            of_name[row] = _note(places, match, match[3])
    is_function = trace.is_host_event & ~trace.by_name(trace.is_op_name)
    place = np.where(is_function, of_name[trace.events.name], -1)
    callers = trace.stats.texts(_CALL_FROM)
    matches = map(_CALLER.fullmatch, callers.texts)
    rows = np.array([_note(places, match) for match in matches], np.int64)
    is_open = place[callers.events] < 0  # the caller of the user's own function does not matter
    place[callers.events[is_open]] = rows[callers.values[is_open].astype(np.int64)]
    return place


def _spread(place: Int64s, parent: Int64s | Int32s) -> Int64s:
    """The place of each event: its own, or that of the nearest event around it that has one, or -1."""
    if not (place >= 0).any():
        return place
    nearest = nearest_of(parent, place >= 0)
    return np.where(nearest >= 0, place[nearest], -1)


def _is_users(file: str) -> bool:
    """Tell if a file is the user's own, by PyTorch's name for it."""
    path = file.replace("\\", "/")
    if path.startswith(("/", "<")) or path[1:2] == ":":
        return is_user_file(path)
    top = path.split("/")[0].removesuffix(".py")
    return top not in sys.stdlib_module_names and top not in _LIBRARIES and is_user_file(path)


class CalledRows:
    """Finds the row of each op's source line.

    ``places``, the rows by (file, line), that of none first, grows; ``layers`` is where a layer was made.
    ``source_lines`` is where the user's code was, with the trace's line of that thread; or stacks.
    """

    def __init__(
        self, trace: Trace, places: dict[tuple[str, int], int], layers: dict[str, tuple[str, int]],
        source_lines: tuple[LineHistory, int] | StackLines,
    ) -> None:  # fmt: skip
        """Find what is around each event."""
        self._trace, self._source_lines = trace, source_lines
        lines = source_lines if isinstance(source_lines, StackLines) else source_lines[0]
        rows = [places.setdefault(place, len(places)) for place in lines.places]
        self._row_of = np.array([*rows, _NONE], np.int64)
        parent = find_parents(trace.events.end_ps, trace.lines.offsets)
        is_node = find_nodes(trace)
        is_scope = on_hosts(trace, lambda name: name.startswith(KINETO_SCOPE))
        self._scope = nearest_of(parent, is_scope)
        around = nearest_of(parent, is_node | is_scope)
        self._in_node: Bools = (around >= 0) & is_node[around]
        self._node = np.where(self._in_node, around, -1)
        nodes = np.flatnonzero(is_node)
        self._maker = np.full(len(trace.events), -1, np.int64)
        self._maker[nodes] = find_makers(trace, nodes, self._in_node)
        is_step = flags_at(trace.stats.integers(STEP_NUM).events, len(trace.events))
        self._step = nearest_of(parent, is_step & trace.is_host_event)
        self._layer_of_name = np.full(len(trace.names), _NONE, np.int64)
        for row in np.unique(trace.events.name[is_scope]).tolist():
            parts = trace.names[row].removeprefix(KINETO_SCOPE).split("/")
            made = next((layers[part] for part in reversed(parts) if part in layers), None)
            if made is not None:
                self._layer_of_name[row] = places.setdefault(made, len(places))

    def charge(self, work: Work) -> tuple[Int64s, Int64s, Bools]:
        """Per op: the row of its line, the row that asked for the gradient (else -1), whether it is one."""
        asked = work.asked
        op_line = self._running(asked, is_any_thread=False)
        is_backward, node = self._in_node[asked], self._node[asked]
        maker = np.where(node >= 0, self._maker[node], -1)
        forward = np.where(maker >= 0, self._line_of(maker), _NONE)
        tape = np.where(node >= 0, self._running(node, is_any_thread=True), _NONE)
        at_node = np.where(node >= 0, self._running(node, is_any_thread=False), _NONE)
        is_own_code = (op_line != _NONE) & (op_line != at_node)
        caused = np.where(is_own_code, op_line, np.where(forward != _NONE, forward, tape))
        row = np.where(is_backward, caused, self._line_of(asked))
        has_tape = is_backward & (tape != _NONE) & (tape != row)
        return row, np.where(has_tape, tape, -1), is_backward

    def _running(self, events: Int64s, *, is_any_thread: bool) -> Int64s:
        """The row of the line at which the user's code was as each event began (-1 is any of them)."""
        if isinstance(self._source_lines, StackLines):
            return self._row_of[self._source_lines.place[events]]
        history, thread_line = self._source_lines
        rows = self._row_of[history.place_at(self._trace.events.begin_ps[events])]
        is_here = self._trace.lines.of_event[events] == thread_line
        return rows if is_any_thread else np.where(is_here, rows, _NONE)

    def _line_of(self, events: Int64s) -> Int64s:
        """The row of each forward event's line: that of its layer, where the user only called the whole."""
        row = self._running(events, is_any_thread=False)
        scope, step = self._scope[events], self._step[events]
        layer = self._layer_of_name[self._trace.events.name[scope]]
        layer = np.where(scope >= 0, layer, _NONE)
        begun_at = np.where(step >= 0, self._running(step, is_any_thread=False), -1)
        is_outside = (row == _NONE) | (row == begun_at)
        return np.where((layer != _NONE) & is_outside, layer, row)
