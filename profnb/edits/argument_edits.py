"""Edits of what calls are given, and statements that set something before the rest runs."""

import os
import re
import sys
from collections.abc import Callable

import libcst as cst

from profnb.advice.proposals import Advice
from profnb.causes.numbers import SELDOM
from profnb.edits.dataset_edits import is_dataset
from profnb.edits.program_text import (
    NOTHING,
    ROUNDING,
    CallPlace,
    Change,
    ProgramText,
    is_keras,
    only,
)
from profnb.edits.source_text import (
    DoesNotFitError,
    SourceText,
    has_stars,
    keyword_of,
    method_of,
    path_of,
    root_of,
)

_STEPS_IN_ONE_CALL = 16
_MOST_WORKERS = 4
_WAITS_FOR_VALIDATION = ("EarlyStopping", "ReduceLROnPlateau")
_LAST = ("softmax", "sigmoid", "exponential")
_THREADS = "tensorflow.config.threading.set_intra_op_parallelism_threads"
_GPU_THREADS = "os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private'"


def _given(
    find: Callable[[ProgramText], CallPlace], arguments: str, alters: str, what: str = ""
) -> Callable[[ProgramText, Advice], Change]:
    """An edit that gives the only call of a kind one argument more, or some."""

    def give(program: ProgramText, _: Advice) -> Change:
        text, call = find(program)
        pieces = [piece for one in arguments.split(", ") for piece in text.put_argument(call, one)]
        return f"{arguments} in {what or path_of(call.func)}()", alters, pieces

    return give


def _compile_call(program: ProgramText) -> CallPlace:
    return only(program.calls(lambda text, call: program.is_of_model(text, call, "compile")))


def _fit_call(program: ProgramText) -> CallPlace:
    return only(program.calls(lambda text, call: program.is_of_model(text, call, "fit")))


def _loader_call(program: ProgramText) -> CallPlace:
    def is_loader(text: SourceText, call: cst.Call) -> bool:
        meaning = program.meaning(text, call.func)
        return meaning.startswith("torch.utils.data.") and meaning.endswith(".DataLoader")

    return only(program.calls(is_loader))


def _loader_without_workers(program: ProgramText) -> CallPlace:
    text, call = _loader_call(program)
    # Elsewhere a new process begins without what the notebook has defined.
    if not sys.platform.startswith("linux") or (os.cpu_count() or 1) < 2:
        raise DoesNotFitError
    if len(call.args) > 1 and any(arg.keyword is None for arg in call.args[1:]):
        raise DoesNotFitError
    return text, call


def _validating_fit(program: ProgramText) -> CallPlace:
    """The fit that validates, of enough epochs and with nothing that waits for each validation."""
    text, call = _fit_call(program)
    epochs, callbacks = keyword_of(call, "epochs"), keyword_of(call, "callbacks")
    validates = keyword_of(call, "validation_data") or keyword_of(call, "validation_split")
    if validates is None or epochs is None or not isinstance(epochs.value, cst.Integer):
        raise DoesNotFitError
    words = set() if callbacks is None else program.words(text, callbacks)
    if int(epochs.value.value, 0) < SELDOM or words.intersection(_WAITS_FOR_VALIDATION):
        raise DoesNotFitError
    return text, call


def _training_batch(program: ProgramText) -> CallPlace:
    def is_batch(text: SourceText, call: cst.Call) -> bool:
        is_one = method_of(call) in ("batch", "padded_batch") and len(call.args) < 3
        return is_one and is_dataset(program, text, call)

    return only(program.calls(is_batch))


_WORKERS = f"num_workers={min(os.cpu_count() or 1, _MOST_WORKERS)}, persistent_workers=True"
several_steps = _given(
    _compile_call, f"steps_per_execution={_STEPS_IN_ONE_CALL}", "how often batch callbacks run"
)
jit_of_model = _given(_compile_call, "jit_compile=True", ROUNDING)
validated_less = _given(_validating_fit, f"validation_freq={SELDOM}", "how often it validates")
even_batches = _given(_training_batch, "drop_remainder=True", "last batch of an epoch", "batch")
even_loader = _given(_loader_call, "drop_last=True", "last batch of an epoch")
workers = _given(_loader_without_workers, _WORKERS, "random numbers in the dataset")
pinned = _given(_loader_call, "pin_memory=True", NOTHING)


def _torch_compile_call(program: ProgramText) -> CallPlace:
    return only(program.calls(lambda text, c: program.meaning(text, c.func) == "torch.compile"))


any_shapes = _given(_torch_compile_call, "dynamic=True", ROUNDING)


def _replaced(
    program: ProgramText, is_meant: Callable[[SourceText, cst.Arg, cst.Call], bool], value: str
) -> Change:
    """Put another value in place of the only argument that is meant."""

    def find(text: SourceText) -> list[tuple[cst.Call, cst.Arg]]:
        pairs = ((call, arg) for call in text.find(cst.Call) for arg in call.args)
        return [(call, arg) for call, arg in pairs if is_meant(text, arg, call)]

    text, (call, arg) = only(program.nearest(find))
    named = f"{arg.keyword.value}=" if arg.keyword is not None else ""
    what = f"{named}{value} in {path_of(call.func) or method_of(call)}()"
    return what, ROUNDING, [text.put(arg.value, value)]


def not_eager(program: ProgramText, _: Advice) -> Change:
    """Let Keras compile its steps."""
    return _replaced(
        program,
        lambda text, arg, call: (
            program.is_of_model(text, call, "compile")
            and keyword_of(call, "run_eagerly") is arg
            and path_of(arg.value) == "True"
        ),
        "False",
    )


def all_cores(program: ProgramText, _: Advice) -> Change:
    """Let each op use all cores; it takes a fresh process."""
    return _replaced(
        program, lambda text, _, call: program.meaning(text, call.func) == _THREADS, "0"
    )


def threads_as_needed(program: ProgramText, _: Advice) -> Change:
    """Let tf.data choose how many elements it makes at once."""
    tensorflow = program.alias("tensorflow", program.texts[0], program.texts[0].nodes[1])
    what, _alters, pieces = _replaced(
        program,
        lambda text, arg, call: (
            keyword_of(call, "num_parallel_calls") is arg
            and isinstance(arg.value, cst.Integer)
            and is_dataset(program, text, call)
        ),
        f"{tensorflow}.data.AUTOTUNE",
    )
    return what, NOTHING, pieces


def saved_at_epoch_ends(program: ProgramText, _: Advice) -> Change:
    """Save once an epoch, not after so many batches."""
    what, _alters, pieces = _replaced(
        program,
        lambda text, arg, call: (
            program.meaning(text, call.func).endswith(".ModelCheckpoint")
            and keyword_of(call, "save_freq") is arg
            and isinstance(arg.value, cst.Integer)
        ),
        '"epoch"',
    )
    return what, "what is saved", pieces


def saved_less(program: ProgramText, _: Advice) -> Change:
    """Save after several epochs over arrays, not after each."""
    text, call = only(
        program.calls(lambda t, c: program.meaning(t, c.func).endswith(".ModelCheckpoint"))
    )
    if keyword_of(call, "save_best_only") is not None:
        raise DoesNotFitError  # it compares what only epochs have
    at, fit = _fit_call(program)
    size, split = keyword_of(fit, "batch_size"), keyword_of(fit, "validation_split")
    arrays = [arg.value for arg in fit.args[:1] if arg.keyword is None]
    is_array = bool(arrays) and type(program.value(at, arrays[0])).__name__ == "ndarray"
    if at is not text or has_stars(fit) or not is_array or split is not None:
        raise DoesNotFitError
    count, of = text.text(arrays[0]), "32" if size is None else text.text(size.value)
    if size is not None and not isinstance(size.value, cst.Integer | cst.Name):
        raise DoesNotFitError
    argument = f"save_freq={SELDOM} * -(-len({count}) // {of})"
    return f"saved after every {SELDOM}th epoch", "what is saved", text.put_argument(call, argument)


def in_16_bits(program: ProgramText, _: Advice) -> Change:
    """Set Keras' policy before the model is built, where its last layer can compute in 16 bits."""
    at, fit = _fit_call(program)
    assert isinstance(fit.func, cst.Attribute)
    model = program.value(at, fit.func.value)
    text, _node = only(program.bindings(path_of(fit.func.value)))
    last = [*getattr(model, "layers", ())][-1:]
    activations = {getattr(getattr(one, "activation", None), "__name__", "") for one in last}
    if not last or activations.intersection(_LAST) or is_keras(last[0], "Softmax", "Activation"):
        raise DoesNotFitError
    layers = [
        call
        for call in text.find(cst.Call)
        if re.search(r"\blayers\.|\.Sequential$|\.Input$", program.meaning(text, call.func))
    ]
    if not layers:
        raise DoesNotFitError
    first = text.statement(min(layers, key=text.begin))
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
    return "threads of the GPU's own", NOTHING, [text.put_line(node, f"import os; {_GPU_THREADS}")]
