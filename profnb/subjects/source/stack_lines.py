"""Python's stacks in PyTorch's trace (``with_stack=True``) to the line of the user's that ran each event.

PyTorch has written stacks in three ways, and the exact line stands in two of them::

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
from profnb.core.columns import Bools, Int32s, Int64s
from profnb.steps.nesting import find_parents, nearest_of
from profnb.trace.model import Trace

_CALL_STACK, _CALL_FROM = "Call stack", "CallFrom"
_FUNCTION = re.compile(r"([^()]{1,500}\.pyw?|<[^<>]{1,200}>)\((\d{1,9})\): (.{1,300})")
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


@dataclass(frozen=True, slots=True)
class StackLines:
    """The line of the user's that ran each event.

    Attributes:
        place: Row of ``places`` for each event, or -1, shape (E,).
        places: (file, line).
        functions: The function that the line begins, where only that is known; "" for an exact line.
    """

    place: Int64s
    places: tuple[tuple[str, int], ...]
    functions: tuple[str, ...]


def find_stack_lines(trace: Trace) -> StackLines | None:
    """Find the line of each event by the stacks that are recorded with it; None where no stack tells one.

    Args:
        trace: The trace.
    """
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


def _by_call_stack(trace: Trace, places: dict[tuple[str, int, str], int]) -> Int64s:
    stacks = trace.stats.texts(_CALL_STACK)
    place = np.full(len(trace.events), -1, np.int64)
    if not len(stacks):
        return place
    rows = [_innermost(text, places) for text in stacks.texts]
    place[stacks.events] = np.array(rows, np.int64)[stacks.values.astype(np.int64)]
    return place


def _innermost(stack: str, places: dict[tuple[str, int, str], int]) -> int:
    """The place of the innermost of the user's functions in ``inner;outer``, or -1."""
    for part in stack.split(";"):
        match = _FUNCTION.fullmatch(part)
        if match and _is_users(match[1]):
            return places.setdefault((match[1], int(match[2]), ""), len(places))
    return -1


def _by_functions(trace: Trace, places: dict[tuple[str, int, str], int]) -> Int64s:
    """By the events of Python's functions around each event."""
    of_name = np.full(len(trace.names), -1, np.int64)
    for row in np.flatnonzero(trace.names.rows_where(lambda name: "): " in name)).tolist():
        match = _FUNCTION.fullmatch(trace.names[row])
        if match and _is_users(match[1]):
            key = match[1], int(match[2]), match[3]
            of_name[row] = places.setdefault(key, len(places))
    place = np.where(trace.is_host_event, of_name[trace.events.name], -1)
    place[_is_op(trace)] = -1
    callers = trace.stats.texts(_CALL_FROM)
    if len(callers):
        rows = np.array([_place_of(text, places) for text in callers.texts], np.int64)
        called = rows[callers.values.astype(np.int64)]
        is_open = (
            place[callers.events] < 0
        )  # inside of the user's own function its caller does not matter
        place[callers.events[is_open]] = called[is_open]
    return place


def _spread(place: Int64s, parent: Int64s | Int32s) -> Int64s:
    """The place of each event: its own, or that of the nearest event around it that has one, or -1."""
    if not (place >= 0).any():
        return place
    nearest = nearest_of(parent, place >= 0)
    return np.where(nearest >= 0, place[nearest], -1)


def _is_op(trace: Trace) -> Bools:
    assert trace.is_op_name is not None
    return np.asarray(trace.by_name(trace.is_op_name))


def _place_of(caller: str, places: dict[tuple[str, int, str], int]) -> int:
    match = _CALLER.fullmatch(caller)
    if match is None or not _is_users(match[1]):
        return -1
    return places.setdefault((match[1], int(match[2]), ""), len(places))


def _is_users(file: str) -> bool:
    """Whether a file is the user's own, by what PyTorch calls it."""
    path = file.replace("\\", "/")
    if path.startswith(("/", "<")) or path[1:2] == ":":
        return is_user_file(path)
    top = path.split("/")[0].removesuffix(".py")
    return top not in sys.stdlib_module_names and top not in _LIBRARIES and is_user_file(path)
