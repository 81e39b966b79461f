"""Edits of a tf.data pipeline: its stages in parallel, cached, prefetched, in another order."""

import re
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, cast

import libcst as cst

from profnb.advice.proposals import Advice
from profnb.capture.models.layer_facts import is_a
from profnb.edits.program_text import (
    NOTHING,
    STAGES,
    CallPlace,
    Change,
    Expression,
    Place,
    ProgramText,
    only,
)
from profnb.edits.source_text import (
    DoesNotFitError,
    Piece,
    SourceText,
    certain,
    has_stars,
    method_of,
    path_of,
    receiver,
    require,
    walk,
)

if TYPE_CHECKING:
    import numpy as np

_ORDER, _ORDER_OF_NUMBERS = "order of examples", "order of random numbers"
_MAPPED = ("map", "interleave")
_WITH_FUNCTION = ("map", "filter", "interleave", "flat_map")
# nothing is kept behind these
_UNLIKE = ("repeat", "apply", "take", "skip", "shard", "concatenate")
_RANDOM_WORDS = ("random", "dropout", "noise", "augment", "shuffle")
_PYTHON = {"numpy_function", "py_function", "py_func"}
_ELEMENT_WISE = re.compile(
    r"tensorflow\.(cast|sqrt|square|abs|(math\.)?(log|exp|divide|multiply|add|subtract)|one_hot)$"
)
_CALCULATION = (
    cst.Tuple, cst.Element, cst.BinaryOperation, cst.UnaryOperation, cst.Name, cst.Attribute, cst.Call,
    cst.Arg, cst.BaseNumber, cst.BaseBinaryOp, cst.BaseUnaryOp, cst.BaseParenthesizableWhitespace,
    cst.TrailingWhitespace, cst.EmptyLine, cst.Comment, cst.Newline, cst.Comma, cst.Dot, cst.LeftParen,
    cst.RightParen, cst.AssignEqual,
)  # fmt: skip
_LARGEST_ARRAY = 1 << 30  # bytes of arrays that a dataset may copy
_OF_FIT = {
    "batch_size", "epochs", "verbose", "callbacks", "validation_data", "shuffle", "validation_freq",
}  # fmt: skip
_CHAIN_GAP = re.compile(r"(\s*(?:\\\r?\n\s*)?)\.\w")


def stages_of(program: ProgramText, text: SourceText, node: cst.BaseExpression) -> list[CallPlace]:
    """The calls that make a dataset, the last stage first and the source last."""
    if isinstance(node, cst.Name):
        return stages_of(program, *certain(program.definition(text, node)))
    call = certain(node if isinstance(node, cst.Call) else None)
    if program.is_source(text, call):
        return [(text, call)]
    require(method_of(call) in STAGES)
    return [(text, call), *stages_of(program, text, certain(receiver(call)))]


def fed(program: ProgramText, place: Place | None) -> Expression:
    """The dataset that the training takes, as it stands in its ``fit`` or its loop."""

    def of_fits(text: SourceText) -> list[cst.BaseExpression]:
        fits = [c for c in text.find(cst.Call) if program.is_call(text, c, "model.fit") and c.args]
        return [c.args[0].value for c in fits if program.is_dataset(text, c.args[0].value)]

    def of_loops(text: SourceText) -> list[cst.BaseExpression]:
        feeds = [_without_enumerate(loop.iter) for loop in text.find(cst.For)]
        return [one for one in feeds if program.is_dataset(text, one)]

    feeds = program.nearest(of_fits) or program.nearest(of_loops)
    if len(feeds) > 1 and place is not None:
        feeds = [one for one in feeds if _is_made_at(program, one, place)]
    return only(feeds)


def _without_enumerate(node: cst.BaseExpression) -> cst.BaseExpression:
    is_one = isinstance(node, cst.Call) and path_of(node.func) == "enumerate"
    return node.args[0].value if isinstance(node, cst.Call) and is_one and node.args else node


def _is_made_at(program: ProgramText, feed: Expression, place: Place) -> bool:
    with suppress(DoesNotFitError):
        return any(_is_at(program, stage, place) for stage in stages_of(program, *feed))
    return False


def _is_at(program: ProgramText, stage: CallPlace, place: Place) -> bool:
    """Tell whether the function of a stage stands on a line."""
    (text, call), (at, line) = stage, place
    function: cst.CSTNode | None = call.args[0].value if call.args else None
    if isinstance(function, cst.Name):
        try:
            text, function = program.function(function.value)
        except DoesNotFitError:
            return False
    return function is not None and text is at and text.has_line(function, line)


def _function_of(program: ProgramText, stage: CallPlace) -> set[str]:
    """The names that the function of a stage uses."""
    text, call = stage
    require(not has_stars(call) and call.args and call.args[0].keyword is None)
    function = call.args[0].value
    root = program.meaning(text, function).partition(".")[0]
    # No method, nor what a call gives.
    require(isinstance(function, cst.Lambda | cst.Name) or root in ("tensorflow", "keras"))
    return program.words(text, function)


def _is_random(words: set[str]) -> bool:
    return any(part in word.lower() for word in words for part in _RANDOM_WORDS)


def _chosen(program: ProgramText, advice: Advice, fits: Callable[[cst.Call], bool]) -> CallPlace:
    """The only stage that is meant: at the advice's line, or else of the nearest source."""

    def find(text: SourceText) -> list[cst.Call]:
        return [c for c in text.find(cst.Call) if fits(c) and program.is_dataset(text, c)]

    place = program.place_of(advice.where)
    everywhere = [(text, call) for text in program.texts for call in find(text)]
    there = [stage for stage in everywhere if place and _is_at(program, stage, place)]
    return only(there or program.nearest(find))


def in_parallel(program: ProgramText, advice: Advice) -> Change:
    """Run the function of a stage on several threads."""
    text, call = _chosen(program, advice, lambda c: method_of(c) in _MAPPED and len(c.args) == 1)
    words = _function_of(program, (text, call))
    require(not words & _PYTHON)  # one thread at a time, which may rely on that
    number = f"{program.alias('tensorflow', text, call)}.data.AUTOTUNE"
    pieces = text.put_argument(call, f"num_parallel_calls={number}")
    alters = _ORDER_OF_NUMBERS if _is_random(words) else NOTHING
    return f"{_named(call)} in parallel", alters, pieces


def _named(call: cst.Call) -> str:
    """A stage with its function, as it is called in a sentence."""
    function = call.args[0].value if call.args else None
    name = f"({function.value})" if isinstance(function, cst.Name) else ""
    return f"{method_of(call)}{name}"


def _append(text: SourceText, node: cst.BaseExpression, method: str) -> Piece:
    """Put one more stage behind a dataset, on a line of its own where the last one has such."""
    behind = receiver(node)
    gap = _CHAIN_GAP.match(text.between(behind, node)) if behind is not None else None
    space = gap[1] if gap is not None and "\n" in gap[1] else ""
    return text.put_behind(node, f"{space}.{method}", is_line=bool(space))


def _end_of(program: ProgramText, feed: Expression) -> Expression:
    """The last stage of a dataset where its source makes it, or the name where the training takes it."""
    text, node = feed
    defined = program.definition(text, node) if isinstance(node, cst.Name) else None
    if defined is None or defined[0] is not text or not isinstance(defined[1], cst.Call):
        return feed
    return defined


def prefetched(program: ProgramText, advice: Advice, size: str = "") -> Change:
    """Make elements ahead of the steps that take them."""
    text, node = _end_of(program, fed(program, program.place_of(advice.where)))
    if isinstance(node, cst.Call) and method_of(node) == "prefetch":
        require(size and len(node.args) == 1 and isinstance(node.args[0].value, cst.Integer))
        return f"prefetch({size})", NOTHING, [text.put(node.args[0].value, size)]
    if isinstance(node, cst.Name) and not size:
        require(not _ends_with_prefetch(program, (text, node)))
    size = size or f"{program.alias('tensorflow', text, node)}.data.AUTOTUNE"
    where = f"behind {method_of(node)}" if method_of(node) else f"on {text.text(node)}"
    return f"prefetch() {where}", NOTHING, [_append(text, node, f"prefetch({size})")]


def _ends_with_prefetch(program: ProgramText, feed: Expression) -> bool:
    """Tell whether the last stage of a dataset prefetches, as far as its sources tell."""
    with suppress(DoesNotFitError):
        return method_of(stages_of(program, *feed)[0][1]) == "prefetch"
    return False


def copied_ahead(program: ProgramText, _: Advice) -> Change:
    """Copy elements to the device ahead of the steps of a loop."""
    text, node = fed(program, None)
    # What Keras puts behind it has to come before.
    require(any(isinstance(one, cst.For) and one.iter is node for one in text.above(node)))
    tensorflow = program.alias("tensorflow", text, node)
    method = f"apply({tensorflow}.data.experimental.prefetch_to_device('/GPU:0'))"
    return "batches copied to the GPU ahead", NOTHING, [_append(text, node, method)]


def cached(program: ProgramText, advice: Advice) -> Change:
    """Keep what the stages make that are the same in each epoch."""
    stages = stages_of(program, *fed(program, program.place_of(advice.where)))
    kinds = [method_of(call) for _, call in stages]
    require("cache" not in kinds and kinds[-1] != "from_generator")
    kept: CallPlace | None = None
    is_mixed, alters = kinds[-1] == "list_files", NOTHING
    for stage in reversed(stages[:-1]):
        kind = method_of(stage[1])
        words = _function_of(program, stage) if kind in _WITH_FUNCTION else set()
        if _is_random(words) or words & _PYTHON or kind in _UNLIKE:
            break
        is_mixed |= kind == "shuffle"
        if kind in _WITH_FUNCTION:
            kept, alters = stage, _ORDER if is_mixed else NOTHING
    text, call = certain(kept)
    return f"cache() behind {_named(call)}", alters, [_append(text, call, "cache()")]


def batched_before_map(program: ProgramText, advice: Advice) -> Change:
    """Make batches before a function that does the same to each number."""
    text, batch = _chosen(
        program, advice,
        lambda c: method_of(c) == "batch" and len(c.args) == 1 and method_of(receiver(c)) == "map",
    )  # fmt: skip
    mapped = receiver(batch)
    before = certain(receiver(mapped))
    assert isinstance(mapped, cst.Call)
    require(_is_element_wise(program, (text, mapped)))
    pieces = [
        text.put_between(before, mapped, text.between(mapped, batch)),
        text.put_between(mapped, batch, text.between(before, mapped)),
    ]
    return f"batch before {_named(mapped)}", NOTHING, pieces


def _is_element_wise(program: ProgramText, stage: CallPlace) -> bool:
    """Tell whether a function computes with its arguments and plain numbers, each number for itself."""
    text, call = stage
    if not call.args or has_stars(call):
        return False
    function: cst.CSTNode = call.args[0].value
    if isinstance(function, cst.Name):
        text, function = program.function(function.value)
    result: cst.CSTNode | None = function.body if isinstance(function, cst.Lambda) else None
    if isinstance(function, cst.FunctionDef) and not function.decorators:
        returned = text.find(cst.Return, function)
        result = returned[0].value if len(returned) == 1 == len(function.body.body) else None
    if result is None:
        return False
    parameters = {one.name.value for one in text.find(cst.Param, function)}

    def is_of_numbers(node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Call):
            return _ELEMENT_WISE.match(program.meaning(text, node.func)) is not None
        if isinstance(node, cst.Name) and text.scope(node) is not None:
            kind = type(program.value(text, node))
            return node.value in parameters or issubclass(kind, ModuleType | int | float)
        return isinstance(node, _CALCULATION) and not isinstance(node, cst.MatrixMultiply)

    return all(map(is_of_numbers, walk(result)))


def arrays_as_dataset(program: ProgramText, advice: Advice) -> Change:
    """Give ``fit`` a dataset of its arrays, which is made once."""
    text, call = program.call("model.fit", advice)
    given = {arg.keyword.value: arg for arg in call.args if arg.keyword is not None}
    arrays = [arg for arg in call.args if arg.keyword is None]
    require(not has_stars(call) and len(arrays) == 2 and call.args[:2] == (*arrays,))
    require(given.keys() <= _OF_FIT)
    values = [program.value(text, arg.value) for arg in arrays]
    require(all(is_a(value, "ndarray", "numpy") for value in values))
    x, y = (cast("np.ndarray", value) for value in values)
    require(x.ndim and x.shape[:1] == y.shape[:1] and x.dtype != object)
    require(x.nbytes + y.nbytes <= _LARGEST_ARRAY)
    size = text.text(given["batch_size"].value) if "batch_size" in given else "32"
    is_shuffled = "shuffle" not in given
    require(is_shuffled or path_of(given["shuffle"].value) == "False")
    x_name, y_name = map(text.text, arrays)
    dataset = f"{program.alias('tensorflow', text, call)}.data.Dataset"
    dataset += f".from_tensor_slices(({x_name}, {y_name}))"
    dataset += f".shuffle(len({x_name}))" * is_shuffled + f".batch({size})"
    pieces = [text.put(arrays[0], dataset), text.without_argument(call, arrays[1])]
    if "batch_size" in given:
        pieces.append(text.without_argument(call, given["batch_size"]))
    return "arrays as a dataset", _ORDER if is_shuffled else NOTHING, pieces
