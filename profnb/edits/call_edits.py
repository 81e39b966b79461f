"""Edits of calls and functions: what calls are given, what is set before the rest runs, what is compiled.

A function is compiled, under ``tf.function`` or ``jax.jit``, only where nothing but its result comes of it,
as far as its text and the values of its names tell. It sets no name, item or attribute outside, prints
nothing and makes no tensor a number. What it reads is bound once, because what it read first stays in what is
compiled.
"""

import re
import sys
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import libcst as cst
from libcst.metadata.scope_provider import BuiltinAssignment

from profnb.advice.proposals import Advice
from profnb.capture.environment import count_cores
from profnb.capture.models.layer_facts import is_a, is_keras
from profnb.causes.numbers import SELDOM
from profnb.edits.program_text import (
    LOOPS,
    NOTHING,
    ROUNDING,
    Change,
    Make,
    ProgramText,
    is_module,
    only,
)
from profnb.edits.source_text import (
    DoesNotFitError,
    Piece,
    SourceText,
    certain,
    has_stars,
    keyword_of,
    method_of,
    path_of,
    receiver,
    require,
    root_of,
    walk,
)

_SAVED, _LAST_BATCH = "what is saved", "last batch of an epoch"
_LOADER, _CHECKPOINT = r"torch\.utils\.data\..*\bDataLoader", r".*\.ModelCheckpoint"
_THREADS = r"tensorflow\.config\.threading\.set_intra_op_parallelism_threads"
_WAITS_FOR_VALIDATION = ("EarlyStopping", "ReduceLROnPlateau")
_NO_16_BITS = ("softmax", "sigmoid", "exponential")
_WORKERS = f"num_workers={min(count_cores(), 4)}, persistent_workers=True"
_GPU_THREADS = "import os; os.environ['TF_GPU_THREAD_MODE'] = 'gpu_private'"
Condition = Callable[[ProgramText, SourceText, cst.Call], bool]
_RANDOM_NUMBERS = "random numbers"
_NO_PART = (
    cst.Await, cst.Yield, cst.Try, cst.TryStar, cst.While, cst.Global, cst.Nonlocal, cst.Del, cst.ClassDef,
    cst.Import, cst.ImportFrom, cst.Raise, cst.Assert, cst.NamedExpr, cst.Match, cst.CompIf,
    cst.FormattedString,
)  # fmt: skip
_BUILTINS = {
    "zip", "len", "range", "enumerate", "list", "tuple", "dict", "sum", "reversed", "isinstance", "True",
    "False", "None",
}  # fmt: skip
# Methods of tensors, tapes, layers, optimizers and metrics that are ops, or read what Python has.
_METHODS = {
    "tensorflow": {
        "gradient", "watch", "apply_gradients", "apply", "update_state", "result", "assign", "assign_add",
        "assign_sub", "scale_loss", "get_scaled_loss", "get_unscaled_gradients", "items", "keys", "values",
    },
    "jax": {
        "apply", "update", "items", "keys", "values", "mean", "sum", "max", "min", "astype", "reshape",
        "transpose", "dot", "set", "add",
    },
}  # fmt: skip
_PACKAGES_OF = {"tensorflow": ("tensorflow", "keras", "tf_keras"), "jax": ("jax", "optax", "flax")}
_TRANSFORMS = {"jax.grad", "jax.value_and_grad", "jax.vmap"}
_NOT_COMPILED = {"py_function", "numpy_function", "py_func", "summary", "io", "data", "callbacks"}
_CALLED_KINDS = ("Layer", "Loss", "Metric")
_COMPILED_KINDS = ("Function", "PolymorphicFunction", "PjitFunction")
_NO_TENSORS = (list, dict, set, type)
_TAPES = "tensorflow.GradientTape"
_MOST_TURNS = 32  # of a loop that is written out in the graph
_FEW_ROWS = 256  # that one call predicts as one batch
_ONE_ROW = re.compile(r"\[(None|np\.newaxis|tf\.newaxis)[,\]]|\[(\w+):\2\+(\d{1,2})[,\]]")
_MADE_ONE_ROW = re.compile(r"(np\.expand_dims\(.*,(axis=)?0\)|.*\.reshape\(\(?1,.*\))$")


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


def check_compiled(
    program: ProgramText,
    text: SourceText,
    node: cst.FunctionDef,
    library: str,
    around: tuple[str, ...] = (),
) -> None:
    """Look whether a function can be compiled.

    Raises:
        DoesNotFitError: It cannot, or that is not certain.
    """
    name, params = node.name.value, node.params
    nodes = list(walk(node.body))
    targets = [n.target for n in nodes if isinstance(n, cst.AssignTarget | cst.AugAssign | cst.For)]
    set_parts = (part for target in targets for part in walk(target))
    refused = (*_NO_PART, cst.If, cst.IfExp) if library == "jax" else _NO_PART
    require(not isinstance(params.star_arg, cst.Param) and params.star_kwarg is None)
    require(name not in around and node.asynchronous is None)
    require(not any(isinstance(one, refused) for one in nodes))
    require(not any(isinstance(one, cst.Attribute | cst.Subscript) for one in set_parts))
    is_fine: dict[type[cst.CSTNode], Callable[[Any], bool]] = {
        cst.For: _is_short,
        cst.CompFor: _is_short,
        cst.With: lambda one: all(_is(program, text, i.item, _TAPES) for i in one.items),
        cst.Call: lambda one: _is_op(program, text, one, library),
        cst.FunctionDef: lambda one: not one.decorators and one.asynchronous is None,
        cst.Name: lambda one: _stays(program, text, one, library, (*around, name)),
    }
    require(all(is_fine[type(one)](one) for one in nodes if type(one) in is_fine))


def _is_short(loop: cst.For | cst.CompFor) -> bool:
    """Tell whether a loop has few turns for sure: as many as there are weights, or as a number says."""
    call = loop.iter
    name = path_of(call.func) if isinstance(call, cst.Call) else ""
    if name != "range":
        return name in ("zip", "enumerate", "reversed") or isinstance(call, cst.Attribute)
    ends = [arg.value for arg in call.args] if isinstance(call, cst.Call) else []
    return all(isinstance(end, cst.Integer) and int(end.value, 0) <= _MOST_TURNS for end in ends)


def _is(program: ProgramText, text: SourceText, node: cst.CSTNode, what: str) -> bool:
    """Tell whether an expression, or what it calls, is what has this full name."""
    return program.meaning(text, node.func if isinstance(node, cst.Call) else node) == what


def _is_op(program: ProgramText, text: SourceText, call: cst.Call, library: str) -> bool:
    """Tell whether a call is one that a compiled function can make; what its names are is asked apart."""
    func, meaning = call.func, program.meaning(text, call.func)
    parts = meaning.split(".")
    if parts[0] in _PACKAGES_OF[library]:
        is_drawn = "random" in parts and library != "jax"
        is_made = parts[-1][:1].isupper() and parts[-1] != "GradientTape"
        return not is_drawn and not is_made and _NOT_COMPILED.isdisjoint(parts)
    if isinstance(func, cst.Call):
        return program.meaning(text, func.func) in _TRANSFORMS
    if not isinstance(func, cst.Name):
        return not meaning and method_of(call) in _METHODS[library]
    # An argument is taken for what the cell has by that name.
    value = program.names.get(func.value)
    is_callable = is_keras(value, *_CALLED_KINDS) or type(value).__name__ in _COMPILED_KINDS
    is_function = type(program.value(text, func)) is FunctionType
    return is_callable or is_function or func.value in _BUILTINS


def _stays(
    program: ProgramText, text: SourceText, name: cst.Name, library: str, around: tuple[str, ...]
) -> bool:
    """Tell whether what a name stands for when the function is traced is what it stands for in all calls."""
    scope = text.scope(name)
    if scope is None or not program.is_global(text, name):
        return True  # an attribute, a keyword, or the function's own
    value = program.value(text, name)
    if is_module(value):
        return True
    if name.value not in program.names:
        is_builtin = any(isinstance(one, BuiltinAssignment) for one in scope[name.value])
        return is_builtin and name.value in _BUILTINS
    is_kept = program.is_bound_once(name.value) and not program.is_set_inside(name.value)
    if issubclass(type(value), _NO_TENSORS) or not is_kept:
        return False
    is_library = str(getattr(value, "__module__", "")).partition(".")[0] in _PACKAGES_OF[library]
    if type(value) is FunctionType and not is_library:
        check_compiled(program, *program.function(name.value), library, around)
    return True


def _decorated(
    program: ProgramText, text: SourceText, node: cst.FunctionDef, library: str, decorator: str
) -> Change:
    require(not node.decorators and isinstance(next(text.above(node)), cst.Module))
    check_compiled(program, text, node, library)
    name = node.name.value
    calls = [(where, call) for where in program.texts for call in where.find(cst.Call)]
    for where, call in ((where, call) for where, call in calls if path_of(call.func) == name):
        numbers = [a.value for a in call.args if _is_number(program.value(where, a.value))]
        require(all(program.is_bound_once(path_of(number)) for number in numbers))
        require(not has_stars(call))  # else traced anew for each number
    words = program.words(text, node)
    alters = _RANDOM_NUMBERS if any("dropout" in word.lower() for word in words) else ROUNDING
    what = decorator.partition("(")[0]
    return f"{what} over {name}", alters, [text.put_line(node, decorator)]


def _is_number(value: object) -> bool:
    return issubclass(type(value), int | float | str)


def tensorflow_function(program: ProgramText, advice: Advice) -> Change:
    """Compile the function that runs its ops one by one."""
    place, name = program.place_of(advice.where), str((advice.edit or {}).get("compiled", ""))
    if name:
        text, node = program.function(name)
    elif place is not None:
        text, line = place
        defined = text.find(cst.FunctionDef)
        node = only([n for n in defined if text.has_line(n, line) and not _is_inner(text, n)])
    else:
        text, node = only(program.nearest(partial(_with_tapes, program)))
    decorator = f"@{program.alias('tensorflow', text, node)}.function(reduce_retracing=True)"
    return _decorated(program, text, node, "tensorflow", decorator)


def _is_inner(text: SourceText, node: cst.CSTNode) -> bool:
    return any(isinstance(one, cst.FunctionDef | cst.ClassDef) for one in text.above(node))


def _is_in_loop(text: SourceText, node: cst.CSTNode) -> bool:
    """Tell whether a loop of the source itself, and of none of its functions, repeats a node."""
    return not _is_inner(text, node) and any(isinstance(one, LOOPS) for one in text.above(node))


def _with_tapes(program: ProgramText, text: SourceText) -> list[cst.FunctionDef]:
    return [
        node
        for node in text.find(cst.FunctionDef)
        if any(_is(program, text, one.item, _TAPES) for one in text.find(cst.WithItem, node))
    ]


def jax_function(program: ProgramText, _: Advice) -> Change:
    """Compile the function that the loop of the cell calls."""
    text = program.texts[0]
    called = [call.func for call in text.find(cst.Call) if _is_in_loop(text, call)]
    functions = [one for one in called if type(program.value(text, one)) is FunctionType]
    names = {path_of(one) for one in functions if program.bindings(path_of(one))}
    where, node = program.function(only(sorted(names)))
    decorator = f"@{program.alias('jax', where, node)}.jit"
    return _decorated(program, where, node, "jax", decorator)


def torch_module(program: ProgramText, _: Advice) -> Change:
    """Compile the module that the cell calls, before it does."""
    text = program.texts[0]
    calls = [c for c in text.find(cst.Call) if is_a(program.value(text, c.func), "Module", "torch")]
    calls = [c for c in calls if not is_a(program.value(text, c.func), "OptimizedModule", "torch")]
    name = only(sorted({path_of(call.func) for call in calls}))
    statement = text.statement(min(calls, key=text.begin))
    ends = [at.end(node) for at, node in program.bindings(name) if at is text]
    require(max(ends, default=0) <= text.begin(statement))
    torch = program.alias("torch", text, statement)
    line = text.put_line(statement, f"{name} = {torch}.compile({name})")
    return f"torch.compile({name})", ROUNDING, [line]


def function_option(program: ProgramText, advice: Advice, argument: str, but: str = "") -> Change:
    """Give the tf.function that is meant one more argument."""

    def find(text: SourceText) -> list[cst.CSTNode]:
        calls = text.find(cst.Call)
        plain = [one.decorator for one in text.find(cst.Decorator)]
        both = [*calls, *(one for one in plain if not isinstance(one, cst.Call))]
        return [one for one in both if _is(program, text, one, "tensorflow.function")]

    text, node = program.only_at(advice.where, find)
    what = f"{argument.partition('=')[0]} of tf.function"
    if not isinstance(node, cst.Call):
        return what, ROUNDING, [text.put_behind(node, f"({argument})")]
    require(not but or keyword_of(node, but) is None)
    return what, ROUNDING, text.put_argument(node, argument)


def predicted_on_batch(program: ProgramText, advice: Advice) -> Change:
    """Call the compiled function of ``predict`` without what ``predict`` sets up around it."""
    text, call = program.call("model.predict", advice)
    return "predict_on_batch instead of predict", ROUNDING, _on_batch(program, text, call)


def _on_batch(program: ProgramText, text: SourceText, call: cst.Call) -> list[Piece]:
    given, options = next(iter(call.args), None), call.args[1:]
    keywords = [arg.keyword.value for arg in options if arg.keyword is not None]
    is_fit = given is not None and not given.keyword and _has_few_rows(program, text, given.value)
    is_plain = len(keywords) == len(options) and {"verbose", "batch_size"}.issuperset(keywords)
    require(not has_stars(call) and is_fit and is_plain)
    method = certain(call.func if isinstance(call.func, cst.Attribute) else None).attr
    removed = [text.without_argument(call, arg) for arg in options]
    return [text.put(method, "predict_on_batch"), *removed]


def _has_few_rows(program: ProgramText, text: SourceText, node: cst.BaseExpression) -> bool:
    value = program.value(text, node)
    if is_a(value, "ndarray", "numpy") or is_a(value, "Tensor", "tensorflow"):
        rows = next(iter(getattr(value, "shape", ())), None)
        return rows is not None and int(rows) <= _FEW_ROWS
    look = _ONE_ROW.search if isinstance(node, cst.Subscript) else _MADE_ONE_ROW.match
    return look(re.sub(r"\s", "", text.text(node))) is not None


def compiled_calls(program: ProgramText, advice: Advice) -> Change:
    """Have a callback, or the cell's own loop, call a model compiled."""
    hook = str((advice.edit or {}).get("without", ""))
    if hook:
        name, _, method = hook.partition(".")
        text, node = only(program.bindings(name))
        inside = [one for one in text.find(cst.FunctionDef, node) if one.name.value == method]
        scope: cst.CSTNode | None = only(inside)
    else:
        text, scope = program.texts[0], None
    calls = [c for c in text.find(cst.Call, scope) if scope is not None or _is_in_loop(text, c)]
    pieces = [piece for call in calls for piece in _compiled_call(program, text, call)]
    require(pieces)
    return "the model's compiled function instead of its layers", ROUNDING, pieces


def _compiled_call(program: ProgramText, text: SourceText, call: cst.Call) -> list[Piece]:
    """The pieces that compile a call of a model; none where it is something else."""
    is_predict = method_of(call) == "predict"
    model = receiver(call) if is_predict else call.func
    if model is None or not _is_model(program, text, model):
        return []
    if is_predict:
        return _on_batch(program, text, call)
    training = keyword_of(call, "training")
    is_taped = any(isinstance(one, cst.With) for one in text.above(call))
    is_plain = len(call.args) == 2 and call.args[0].keyword is None and not has_stars(call)
    require(is_plain and not is_taped and path_of(certain(training).value) == "False")
    tensorflow = program.alias("tensorflow", text, call)
    return [
        text.put(model, f"{tensorflow}.convert_to_tensor({text.text(model)}.predict_on_batch"),
        text.without_argument(call, certain(training)),
        text.put_behind(call, ")"),
    ]


def _is_model(program: ProgramText, text: SourceText, node: cst.BaseExpression) -> bool:
    """Tell whether this is a model of one output: one of the cell's, or the one that a callback is of."""
    if path_of(node) == "self.model":
        calls = [(at, call) for at in program.texts for call in at.find(cst.Call)]
        fits = [call for at, call in calls if program.is_call(at, call, "model.fit")]
        names = {path_of(model) for call in fits if (model := receiver(call)) is not None}
        value = program.names.get(only(sorted(names)))
    else:
        value = program.value(text, node)
    return is_keras(value, "Model") and len(getattr(value, "outputs", None) or ()) == 1
