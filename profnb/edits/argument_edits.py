"""Edits of what calls are given, and statements that set something before the rest runs."""

import re
import sys
from collections.abc import Callable

import libcst as cst

from profnb.advice.proposals import Advice
from profnb.capture.environment import count_cores
from profnb.capture.models.layer_facts import is_a, is_keras
from profnb.causes.numbers import SELDOM
from profnb.edits.program_text import NOTHING, ROUNDING, Change, Make, ProgramText, only
from profnb.edits.source_text import (
    DoesNotFitError,
    SourceText,
    certain,
    has_stars,
    keyword_of,
    method_of,
    path_of,
    receiver,
    require,
    root_of,
)

_SAVED, _LAST_BATCH = "what is saved", "last batch of an epoch"
_LOADER, _CHECKPOINT = r"torch\.utils\.data\..*\bDataLoader", r".*\.ModelCheckpoint"
_THREADS = r"tensorflow\.config\.threading\.set_intra_op_parallelism_threads"
_WAITS_FOR_VALIDATION = ("EarlyStopping", "ReduceLROnPlateau")
_NO_16_BITS = ("softmax", "sigmoid", "exponential")
_WORKERS = f"num_workers={min(count_cores(), 4)}, persistent_workers=True"
_GPU_THREADS = "import os; os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private'"
Condition = Callable[[ProgramText, SourceText, cst.Call], bool]


def _given(what: str, arguments: str, alters: str, fits: Condition = lambda *_: True) -> Make:
    """An edit that gives the only call of a kind one argument more, or some."""

    def give(program: ProgramText, advice: Advice) -> Change:
        text, call = program.call(what, advice)
        require(fits(program, text, call))
        pieces = [piece for one in arguments.split(", ") for piece in text.put_argument(call, one)]
        return f"{arguments} in {path_of(call.func) or method_of(call)}()", alters, pieces

    return give


def _may_validate_less(program: ProgramText, text: SourceText, call: cst.Call) -> bool:
    """Tell whether a fit validates, in enough epochs and with nothing that waits for each time."""
    epochs, callbacks = keyword_of(call, "epochs"), keyword_of(call, "callbacks")
    validates = keyword_of(call, "validation_data") or keyword_of(call, "validation_split")
    if validates is None or epochs is None or not isinstance(epochs.value, cst.Integer):
        return False
    words = set() if callbacks is None else program.words(text, callbacks)
    return int(epochs.value.value, 0) >= SELDOM and words.isdisjoint(_WAITS_FOR_VALIDATION)


def _may_have_workers(_: ProgramText, __: SourceText, call: cst.Call) -> bool:
    """Tell whether a process of its own begins with all that the notebook has defined, and has a core."""
    is_named = all(arg.keyword is not None for arg in call.args[1:])
    return is_named and sys.platform.startswith("linux") and count_cores() > 1


several_steps = _given("model.compile", "steps_per_execution=16", "how often batch callbacks run")
jit_of_model = _given("model.compile", "jit_compile=True", ROUNDING)
validated_less = _given(
    "model.fit", f"validation_freq={SELDOM}", "how often it validates", _may_validate_less
)
even_batches = _given(
    "dataset.batch", "drop_remainder=True", _LAST_BATCH, lambda _, __, call: len(call.args) == 1
)
even_loader = _given(_LOADER, "drop_last=True", _LAST_BATCH)
workers = _given(_LOADER, _WORKERS, "random numbers in the dataset", _may_have_workers)
pinned = _given(_LOADER, "pin_memory=True", NOTHING)
any_shapes = _given(r"torch\.compile", "dynamic=True", ROUNDING)


def _replaced(what: str, keyword: str, value: str, alters: str) -> Make:
    """An edit that puts another value in place of a number, or of True, that the only call has."""

    def replace(program: ProgramText, advice: Advice) -> Change:
        text, call = program.call(what, advice)
        old = certain(keyword_of(call, keyword) if keyword else only(call.args)).value
        require(isinstance(old, cst.Integer) or path_of(old) == "True")
        new = value.format(tf=program.alias("tensorflow", text, call)) if "{tf}" in value else value
        said = f"{keyword}={new}" if keyword else new
        where = path_of(call.func) or method_of(call)
        return f"{said} in {where}()", alters, [text.put(old, new)]

    return replace


not_eager = _replaced("model.compile", "run_eagerly", "False", ROUNDING)
all_cores = _replaced(_THREADS, "", "0", ROUNDING)  # takes a fresh process
threads_as_needed = _replaced("dataset.map", "num_parallel_calls", "{tf}.data.AUTOTUNE", NOTHING)
saved_at_epoch_ends = _replaced(_CHECKPOINT, "save_freq", '"epoch"', _SAVED)


def saved_less(program: ProgramText, advice: Advice) -> Change:
    """Save after several epochs over arrays, not after each."""
    text, call = program.call(_CHECKPOINT, advice)
    at, fit = program.call("model.fit", advice)
    size = keyword_of(fit, "batch_size")
    arrays = [arg.value for arg in fit.args[:1] if arg.keyword is None]
    require(at is text and arrays and is_a(program.value(at, arrays[0]), "ndarray", "numpy"))
    require(not has_stars(fit) and keyword_of(fit, "validation_split") is None)
    require(keyword_of(call, "save_best_only") is None)  # it compares what only epochs have
    require(size is None or isinstance(size.value, cst.Integer | cst.Name))
    of = "32" if size is None else text.text(size.value)
    argument = f"save_freq={SELDOM} * -(-len({text.text(arrays[0])}) // {of})"
    return f"saved after every {SELDOM}th epoch", _SAVED, text.put_argument(call, argument)


def in_16_bits(program: ProgramText, advice: Advice) -> Change:
    """Set Keras' policy before the model is built, where its last layer can compute in 16 bits."""
    at, fit = program.call("model.fit", advice)
    name = certain(receiver(fit))
    text, _node = only(program.bindings(path_of(name)))
    last = [*getattr(program.value(at, name), "layers", ())][-1:]
    activations = {getattr(getattr(one, "activation", None), "__name__", "") for one in last}
    require(last and activations.isdisjoint(_NO_16_BITS))
    require(not is_keras(last[0], "Softmax", "Activation"))
    layers = re.compile(
        r"(keras|tensorflow)\..*(\blayers\.\w+|\.Sequential|\.Input)|keras\.(Sequential|Input)"
    )
    built = [c for c in text.find(cst.Call) if layers.fullmatch(program.meaning(text, c.func))]
    require(built)
    first = text.statement(min(built, key=text.begin))
    try:
        keras = program.alias("keras", text, first)
    except DoesNotFitError:
        keras = f"{program.alias('tensorflow', text, first)}.keras"
    line = f'{keras}.mixed_precision.set_global_policy("mixed_float16")'
    return "mixed precision", "precision", [text.put_line(first, line)]


def setting(program: ProgramText, advice: Advice) -> Change:
    """Put the advice's own line, which is a call that sets something, before the cell's first one."""
    text = program.texts[0]
    try:
        line = cst.parse_expression(advice.code)
    except cst.ParserSyntaxError:
        raise DoesNotFitError from None
    statements = [node for node in text.statements if not _is_import(node)]
    if not isinstance(line, cst.Call) or not statements:
        raise DoesNotFitError
    root = path_of(root_of(line.func))
    module = {"tf": "tensorflow"}.get(root, root)
    code = advice.code.replace(root, program.alias(module, text, statements[0]), 1)
    return code, "precision", [text.put_line(statements[0], code)]


def _is_import(node: cst.CSTNode) -> bool:
    first = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
    return isinstance(first, cst.Import | cst.ImportFrom)


def gpu_threads(program: ProgramText, _: Advice) -> Change:
    """Set TensorFlow's threads before it is imported; it takes a fresh process."""

    def find(text: SourceText) -> list[cst.CSTNode]:
        imports = filter(_is_import, text.statements)
        return [node for node in imports if "tensorflow" in text.text(node)][:1]

    text, node = only(program.nearest(find))
    return "threads of the GPU's own", NOTHING, [text.put_line(node, _GPU_THREADS)]
