"""The names of TensorFlow, Keras, JAX, PyTorch, IPython and CPython that a capture hooks or needs to read.

Each with what is lost without it. Not here: what a library cannot give up and be itself (an op's name and
inputs, a layer's weights and the arguments that it was made with, ``sys.meta_path``), and that without which
there is no magic at all: IPython's decorators and ``register_magics``, what it makes of a magic's line,
``run_cell``, ``user_ns``, ``get_ipython`` and ``display``.

One ``Seam`` is one name: ``tensorflow:profiler.experimental.Trace`` is looked up in the module before the
colon, and only if the user's code has imported that; nothing here imports. What begins with ``keras:`` stands
for tf_keras too. ``library`` looks them up as a capture begins, and says what is missing.

Some cannot be looked up (``is_on_objects``), and are read with a default: what an ``__init__`` sets is on no
class, and to make a graph or a layer in order to look would count up the names of the user's own; what
compiling sets is None before; a kernel has what a terminal has not. LiteRT's are another process': what it
misses, the notes of its result say.

Without a name, what hangs on it is lost and no more: no failure of ours reaches the user's code.
"""

import sys
from collections.abc import Iterable
from itertools import chain
from typing import Any

from profnb.capture.seam import Seam, on_objects

# What hooks cost beside the call itself, where the caches hold them; two to five times that behind a call
# that waited for other threads.
_A_STEP = "2 to 4 us a step, all through the cell"
_A_RUN = "some 0.2 ms a fit, evaluate or predict"
_IN_WINDOW = "3 to 10 us a call, while the window is open"
_ONCE = "as it is called, once or twice a cell"

_ANY = ("any_name",)
_KERAS_3 = "keras:ops"
KERAS_LIBRARIES = ("keras", "tf_keras")
_KERAS_ON_JAX = "keras.src.backend.jax.trainer:JAXTrainer"

# TensorFlow's profiler.
_NO_TRACE = "nothing is traced, and steps are only timed"
_NO_CALLS = "calls of a tf.function are no steps"
_NO_MARKERS = "steps have no markers in the trace, and source lines no times"
_PROFILER = "tensorflow:profiler.experimental"
START = Seam(f"{_PROFILER}.start", _NO_TRACE, 2, cost=_ONCE)
STOP = Seam(f"{_PROFILER}.stop", _NO_TRACE, 0, cost=_ONCE)
PROFILER_OPTIONS = Seam(
    f"{_PROFILER}.ProfilerOptions", "the profiler's levels are its own", 0,
    ("host_tracer_level", "python_tracer_level", "device_tracer_level"),
)  # fmt: skip
ALREADY_RUNNING = Seam(
    "tensorflow:errors.AlreadyExistsError", "a profiler that runs already is not replaced"
)
TRACE = Seam(f"{_PROFILER}.Trace", _NO_MARKERS, 1, _ANY, cost=_IN_WINDOW)
TRACE_METADATA = Seam(f"{_PROFILER}.Trace.set_metadata", _NO_CALLS, 1, _ANY, cost=_IN_WINDOW)

# JAX's profiler.
_NO_JAX = "JAX's work is not traced, and steps are only timed"
_NO_JAX_MARKERS = "JAX's trace has no step markers"
_JAX_STEP = "jax:profiler.StepTraceAnnotation"
JAX_START = Seam("jax:profiler.start_trace", _NO_JAX, 1, ("profiler_options",), cost=_ONCE)
JAX_STOP = Seam("jax:profiler.stop_trace", _NO_JAX, 0, cost=_ONCE)
JAX_SESSION = Seam("jax._src.profiler:_profile_state", "stopping JAX's profiler takes longer")
JAX_OPTIONS = Seam("jax:profiler.ProfileOptions", "JAX's profiler keeps its default levels", 0)
JAX_ANNOTATION = Seam("jax:profiler.TraceAnnotation", _NO_JAX_MARKERS)
JAX_STEP = Seam(_JAX_STEP, _NO_JAX_MARKERS)
_NO_JAX_STEPS = "steps marked by JAX are not seen"
JAX_STEP_INIT = Seam(f"{_JAX_STEP}.__init__", _NO_JAX_STEPS, 2, ("step_num",), cost=_A_STEP)
JAX_STEP_ENTER = Seam(f"{_JAX_STEP}.__enter__", _NO_JAX_STEPS, cost=_A_STEP)
JAX_STEP_EXIT = Seam(f"{_JAX_STEP}.__exit__", _NO_JAX_STEPS, cost=_A_STEP)
# Starting the profiler sets up JAX's devices, which the code may want to choose before.
JAX_LIVE = Seam("jax:live_arrays", "JAX's trace may end before its steps are computed", 0)
JAX_IS_SET_UP = Seam("jax._src.xla_bridge:backends_are_initialized", _NO_JAX, 0)
JAX_BACKENDS = Seam("jax._src.xla_bridge:backends", _NO_JAX, 0, cost=_ONCE)
# Asking jax.process_index() would set up the devices.
_NO_RANK = "it is not known which process of its job this is"
JAX_JOB = Seam("jax._src.distributed:global_state", _NO_RANK)
JAX_RANK = Seam("jax._src.distributed:State.process_id", _NO_RANK)
JAX_RANKS = Seam("jax._src.distributed:State.num_processes", _NO_RANK)

_JAX_EPOCHS = "keras.src.backend.jax.trainer:JAXEpochIterator"
_IS_PYTHONS = "waiting for batches is Python's"
JAX_BATCHES = Seam(
    f"{_JAX_EPOCHS}._get_iterator", _IS_PYTHONS, 1, only_with=_KERAS_ON_JAX, cost=_A_STEP
)
_NO_EXAMPLES = "how many examples a batch holds on JAX is not known"
JAX_ADAPTER = on_objects(f"{_JAX_EPOCHS}.data_adapter", _NO_EXAMPLES)
_ADAPTER = "keras.src.trainers.data_adapters.data_adapter:DataAdapter"
ADAPTER_BATCHES = Seam(f"{_ADAPTER}.num_batches", _NO_EXAMPLES, only_with=_KERAS_ON_JAX)
ADAPTER_SIZE = Seam(f"{_ADAPTER}.batch_size", _NO_EXAMPLES, only_with=_KERAS_ON_JAX)
ADAPTER_HAS_REST = Seam(f"{_ADAPTER}.has_partial_batch", _NO_EXAMPLES, only_with=_KERAS_ON_JAX)
ADAPTER_REST = Seam(f"{_ADAPTER}.partial_batch_size", _NO_EXAMPLES, only_with=_KERAS_ON_JAX)

_IN_FLIGHT = "training that still runs as an epoch ends is none"
JAX_STATE_SYNC = Seam(f"{_KERAS_ON_JAX}.jax_state_sync", _IN_FLIGHT, 1, only_with=_KERAS_ON_JAX)
JAX_STATE = on_objects(f"{_KERAS_ON_JAX}._jax_state", _IN_FLIGHT)

# PyTorch's profiler.
_NO_TORCH = "PyTorch's work is not traced, and steps are only timed"
_TORCH_PROFILE = "torch.profiler:profile"
TORCH_PROFILE = Seam(_TORCH_PROFILE, _NO_TORCH, 0, ("activities", "with_stack"))
TORCH_PROFILE_START = Seam(f"{_TORCH_PROFILE}.start", _NO_TORCH, 1)
TORCH_PROFILE_STOP = Seam(f"{_TORCH_PROFILE}.stop", _NO_TORCH, 1)
TORCH_PROFILE_EXPORT = Seam(f"{_TORCH_PROFILE}.export_chrome_trace", _NO_TORCH, 2)
_TORCH_JOBS = "torch.distributed:init_process_group"  # some builds have none
TORCH_HAS_JOB = Seam("torch.distributed:is_initialized", _NO_RANK, 0, only_with=_TORCH_JOBS)
TORCH_RANK = Seam("torch.distributed:get_rank", _NO_RANK, 0, only_with=_TORCH_JOBS)
TORCH_RANKS = Seam("torch.distributed:get_world_size", _NO_RANK, 0, only_with=_TORCH_JOBS)
TORCH_ACTIVITY = Seam("torch.profiler:ProfilerActivity", _NO_TORCH)
TORCH_RECORD = Seam("torch.profiler:record_function", "PyTorch's trace has no step markers", 1)
_MEETS_OURS = "a profiler of the code's own meets ours"
TORCH_RUNS_HERE = Seam("torch._C._autograd:_profiler_enabled", _MEETS_OURS, 0)
TORCH_RUNS = Seam("torch.autograd.profiler:_is_profiler_enabled", _MEETS_OURS)
TORCH_AUTOGRAD_ENTER = Seam("torch.autograd.profiler:profile.__enter__", _MEETS_OURS, 1, cost=_ONCE)
TORCH_PREPARE = Seam("torch.autograd.profiler:profile._prepare_trace", _MEETS_OURS, 1, cost=_ONCE)
TORCH_LAZY = Seam("torch:__getattr__", "PyTorch's profiler may take seconds to start", 1)
TORCH_PROFILE_INSIDE = on_objects(f"{_TORCH_PROFILE}.profiler", _MEETS_OURS)
_NO_MODULES = "PyTorch's ops have no layers"
TORCH_CALL = Seam("torch.nn:Module.__call__", _NO_MODULES, 1, cost=_IN_WINDOW)
TORCH_FAST_RECORD = Seam(
    "torch._C._profiler:_RecordFunctionFast", "marking PyTorch's layers takes longer", 1
)
TORCH_COMPILED_MODULE = on_objects(
    "torch._dynamo.eval_frame:_orig_mod", "compiled modules have other names"
)
TORCH_COMPILED_CALL = on_objects("torch.nn:_compiled_call_impl", "parts of compiled modules show 0")
_IS_READ = "torch.compile compiles profnb's hooks too"
_DYNAMO = "torch._dynamo:reset"
_COMPILES = "torch._dynamo.callback:callback_handler"
TORCH_COMPILE_CALLBACKS = tuple(
    Seam(f"{_COMPILES}.{name}_{at}_callback", _IS_READ, 1, only_with=_DYNAMO)
    for at in ("start", "end")
    for name in ("register", "remove")
)
TORCH_SKIPS = Seam("torch._dynamo.trace_rules:add", _IS_READ, 1, only_with=_DYNAMO)
_NO_SCOPES_THERE = "Keras' ops on PyTorch have no layers"
KERAS_SCOPE, KERAS_SCOPE_EXIT = (
    Seam(f"keras:name_scope.{at}", _NO_SCOPES_THERE, 1, only_with=_KERAS_3, cost=_IN_WINDOW)
    for at in ("__enter__", "__exit__")
)
KERAS_SCOPE_LAYER = on_objects("keras:name_scope.caller", _NO_SCOPES_THERE)
KERAS_METRICS = Seam(
    "keras:Model.compute_metrics", "Keras' metrics on PyTorch are not told apart", cost=_IN_WINDOW
)

_NO_LOOPS = "loops over PyTorch make no steps"
TORCH_STEP_HOOK = Seam(
    "torch.optim.optimizer:register_optimizer_step_post_hook", _NO_LOOPS, 1, cost=_A_STEP
)
TORCH_ZERO_GRAD = Seam("torch.optim.optimizer:Optimizer.zero_grad", _NO_LOOPS, 1, cost=_A_STEP)
_BATCHES = "torch.utils.data.dataloader:_BaseDataLoaderIter"
TORCH_NEXT_BATCH = Seam(f"{_BATCHES}.__next__", _NO_LOOPS, 1, cost=_A_STEP)
TORCH_COLLATES = on_objects(f"{_BATCHES}._auto_collation", _NO_LOOPS)

# TensorFlow's functions, and the graphs that they are traced into.
_NO_LINES = "ops of traced functions have no source lines"
_NO_SCOPES = "layers are told by the names of ops alone"
_NO_REASONS = "why functions are traced anew is not told"
_ONE_OF_TWO = "which of two graphs of one name ran is not known"
_NO_METRICS = "ops of optimizers and metrics are not told apart"
_TF_FUNCTION = "tensorflow.python.eager.polymorphic_function.polymorphic_function:Function"
SIGNATURES = Seam(f"{_TF_FUNCTION}.pretty_printed_concrete_signatures", _NO_REASONS, 1)
TRACING_COUNT = Seam(f"{_TF_FUNCTION}.experimental_get_tracing_count", _NO_CALLS, 1)
PYTHON_FUNCTION = Seam(f"{_TF_FUNCTION}.python_function", _NO_REASONS)
TRACED_CALLBACKS = Seam(
    "tensorflow.python.eager.polymorphic_function.transform:CONCRETE_FUNCTION_CALLBACKS",
    _NO_REASONS,
)
CALL_FUNCTION = Seam(f"{_TF_FUNCTION}.__call__", _NO_CALLS, 1, cost=_A_STEP)
CONCRETE_FUNCTIONS = Seam(f"{_TF_FUNCTION}._list_all_concrete_functions", _NO_METRICS, 1)
EXECUTING_EAGERLY = Seam("tensorflow:executing_eagerly", _NO_SCOPES, 0)
DEFAULT_GRAPH = Seam("tensorflow:compat.v1.get_default_graph", _NO_SCOPES, 0)
UNIQUE_NAME = Seam("tensorflow:Graph.unique_name", _NO_SCOPES, 2, ("mark_as_used",))
GRAPH_OPERATIONS = Seam("tensorflow:Graph.get_operations", _NO_LINES, 1)
FUNC_GRAPH = Seam("tensorflow:__internal__.FuncGraph", _NO_LINES)
CAPTURES = Seam("tensorflow:__internal__.FuncGraph.captures", "optimizers' ops have no layers")
INTERNAL_CAPTURES = Seam("tensorflow:__internal__.FuncGraph.internal_captures", _NO_LINES)
OUTER_GRAPH = Seam("tensorflow:__internal__.FuncGraph.outer_graph", _NO_LINES)
GRAPH_NAME = on_objects("tensorflow:__internal__.FuncGraph.name", _NO_LINES)
_CONCRETE = "tensorflow.python.eager.polymorphic_function.concrete_function:ConcreteFunction"
FUNCTION_GRAPH = Seam(f"{_CONCRETE}.graph", _NO_METRICS)
CONCRETE_FUNCTION = Seam(_CONCRETE, _ONE_OF_TWO)
FUNCTION_NAME = on_objects("tensorflow:types.experimental.ConcreteFunction.name", _ONE_OF_TWO)
GRAPH_FUNCTIONS = on_objects("tensorflow:Graph._functions", _NO_SCOPES)
GRAPH_KEY = on_objects("tensorflow:Graph._graph_key", "the order of old graphs")
OP_TRACEBACK = Seam("tensorflow:Operation.traceback", _NO_LINES)
USER_FRAMES = Seam("tensorflow.python.util._tf_stack:StackTrace.get_user_frames", _NO_LINES, 1)

# TensorFlow's tapes.
_NO_TAPES = "gradients that are computed eagerly make no steps"
TAPE_ENTER = Seam("tensorflow:GradientTape.__enter__", _NO_TAPES, 1, cost=_A_STEP)
TAPE_GRADIENT = Seam("tensorflow:GradientTape.gradient", _NO_TAPES, 3, cost=_IN_WINDOW)

# TensorFlow 1's session runs, and tfprof.
_NO_RUNS = "session runs are not traced"
_RUNS_LOG = "TensorFlow logs some lines in each traced session run"
_NO_QUEUES = "what is put into queues is not seen"
_NO_TFPROF = "tfprof has no views"
SESSION_RUN = Seam("tensorflow:compat.v1.Session.run", _NO_RUNS, cost=_A_STEP)
INTERACTIVE_RUN = Seam("tensorflow:compat.v1.InteractiveSession.run", _NO_RUNS, cost=_A_STEP)
SAVERS = tuple(
    Seam(f"tensorflow:compat.v1.train.Saver.{name}", "a saver's own runs are steps", 3, cost=_ONCE)
    for name in ("save", "restore")
)
SESSION_HOOKS = tuple(
    Seam(f"tensorflow:compat.v1.train.{hook}.after_run", "a hook's own runs are steps", 3, cost=_ONCE)
    for hook in (
        "CheckpointSaverHook", "SummarySaverHook", "StepCounterHook", "LoggingTensorHook", "ProfilerHook",
    )
)  # fmt: skip
RAW_RUN = Seam("tensorflow:compat.v1.Session._call_tf_sessionrun", _NO_QUEUES, cost=_A_STEP)
# What runs are given instead of ops.
OP_HANDLE = Seam("tensorflow:Operation._c_op", _NO_QUEUES)
SESSION_CONFIG = on_objects(
    "tensorflow:compat.v1.Session._config", "numbers of threads are not known"
)
RUN_OPTIONS = Seam("tensorflow:compat.v1.RunOptions", _NO_RUNS)
FULL_TRACE = Seam("tensorflow:compat.v1.RunOptions.FULL_TRACE", _NO_RUNS)
SOFTWARE_TRACE = Seam("tensorflow:compat.v1.RunOptions.SOFTWARE_TRACE", _RUNS_LOG)
SESSION_DEVICES = Seam("tensorflow:compat.v1.Session.list_devices", _RUNS_LOG, 1)
SESSION_TARGET = Seam(
    "tensorflow:compat.v1.Session.sess_str", "runs in other processes are not traced"
)
RUN_METADATA = Seam("tensorflow:compat.v1.RunMetadata", _NO_RUNS)
TFPROF = Seam("tensorflow:compat.v1.profiler.profile", _NO_TFPROF)
GRAPH_DEF = Seam("tensorflow:compat.v1.GraphDef", _NO_TFPROF)

# What LiteRT models are made and told by.
FREEZE = Seam(
    "tensorflow.python.framework.convert_to_constants:convert_variables_to_constants_v2",
    "a model of Keras 2 that cannot be saved whole is not converted for LiteRT", 1,
    is_on_objects=True,  # what needs it imports it
)  # fmt: skip
LITE_OPS = Seam(
    "ai_edge_litert.interpreter:Interpreter._get_ops_details",
    "ops and layers of LiteRT models are not told", 1,
)  # fmt: skip
_LITERT = "Interpreter.invoke", "SignatureRunner.__call__"
INTERPRETERS = {
    "ai_edge_litert.interpreter": _LITERT, "tensorflow.lite.python.interpreter": _LITERT,
    "onnxruntime.capi.onnxruntime_inference_collection": ("Session.run",),
}  # fmt: skip
INVOKES = tuple(
    Seam(
        f"{at}:{name}", "an interpreter's runs are no steps", only_with=f"{at}:{name.partition('.')[0]}",
        cost=_A_STEP,
    )
    for at, names in INTERPRETERS.items()
    for name in names
)  # fmt: skip

# What loads models.
LOADS = tuple(
    Seam(
        path, "models loaded again and again are not told", only_with=f"{path.partition(':')[0]}:__name__",
        cost=_ONCE,
    )
    for path in (
        "keras.src.saving.saving_lib:load_model",
        "keras.src.legacy.saving.legacy_h5_format:load_model_from_hdf5",
        "tensorflow.python.saved_model.load:load_partial",
        *(f"{at}:Interpreter.__init__" for at in list(INTERPRETERS)[:2]),
    )
)  # fmt: skip

# TensorFlow's input pipelines and settings.
_NO_DATASETS = "iterators are not named after their datasets' functions"
DATASET = Seam("tensorflow:data.Dataset", "a sweep cannot prefetch")
_NO_CALL_COSTS = "what a change saves is told in wider ranges"
DATASET_RANGE = Seam("tensorflow:data.Dataset.range", _NO_CALL_COSTS, 1)
FUNCTION = Seam("tensorflow:function", _NO_CALL_COSTS, 1)
DATASET_INPUTS = Seam("tensorflow:data.Dataset._inputs", _NO_DATASETS, 1)
CARDINALITY = Seam("tensorflow:data.Dataset.cardinality", "datasets have no lengths", 1)
DATASET_TENSORS = on_objects("tensorflow:data.Dataset._tensors", "files have no sizes")
DATASET_FUNCTIONS = on_objects(
    "tensorflow:data.Dataset._map_func|_predicate|_reduce_func|_init_func", _NO_DATASETS
)
WRAPPED_FUNCTION = on_objects("tensorflow:data.Dataset._map_func._func", _NO_DATASETS)
_NO_PYTHON = "functions of Python that pipelines call have no names"
PYTHON_FUNCTIONS = Seam("tensorflow.python.ops.script_ops:_py_funcs._funcs", _NO_PYTHON)
CALLED_BY_GRAPHS = on_objects(
    "tensorflow.python.ops.script_ops:EagerFunc._func|_generator", _NO_PYTHON
)
DEVICES = Seam("tensorflow:config.list_physical_devices", "accelerators have no names", 0)
THREADING = Seam("tensorflow:config.threading", "numbers of threads are not known")
VERSION = Seam("tensorflow:__version__", "versions are not known")

# Keras 3 and Keras 2.
_NO_BATCHES = "Keras' batches are no steps"
_NO_LAYERS = "layers are not told apart"
_CALLBACKS = "keras:callbacks.CallbackList"
_NO_FITS = "fits and the models in them are not told apart"


def _by_phase(path: str, lost: str, cost: str) -> dict[str, Seam]:
    return {
        phase: Seam(path.format(phase), lost.format(phase), cost=cost)
        for phase in ("train", "test", "predict")
    }


BATCH_BEGIN = _by_phase(f"{_CALLBACKS}.on_{{}}_batch_begin", _NO_BATCHES, _A_STEP)
BATCH_END = _by_phase(f"{_CALLBACKS}.on_{{}}_batch_end", _NO_BATCHES, _A_STEP)
RUN_BEGIN = _by_phase(f"{_CALLBACKS}.on_{{}}_begin", _NO_FITS, _A_RUN)
RUN_END = _by_phase(f"{_CALLBACKS}.on_{{}}_end", "what fits reached is not kept", _A_RUN)
ON_BATCH = _by_phase("keras:Model.{}_on_batch", "{}_on_batch makes no steps", _A_STEP)
EPOCH_END = Seam(
    f"{_CALLBACKS}.on_epoch_end", "a batch that an epoch cuts off counts as a step", cost=_A_RUN
)
# Keras 3's ``model`` makes the model's state whole each time on JAX, which takes longer than a small step.
CALLBACK_MODEL = Seam(f"{_CALLBACKS}._model|model", "fits have no models", only_with=_KERAS_3)
CALLBACK_PARAMS = on_objects(f"{_CALLBACKS}.params", "how long a run takes is not estimated")
STEPS_PER_EXECUTION = on_objects(
    "keras:Model.steps_per_execution|_steps_per_execution", "steps count as one iteration"
)
MODEL = Seam("keras:Model", _NO_LAYERS)
LAYER_CALL = Seam("keras:layers.Layer.__call__", _NO_SCOPES, cost=_IN_WINDOW)
FLATTEN_LAYERS = Seam("keras:layers.Layer._flatten_layers", "layers inside of layers are not told")
_NO_SHAPES = "layers have no shapes"
_NO_COSTS = "what layers compute is not counted"
INBOUND_NODES = on_objects("keras:layers.Layer._inbound_nodes", _NO_SHAPES)
NODE_INPUTS = Seam("keras.src.ops.node:Node.input_tensors", _NO_SHAPES, only_with=_KERAS_3)
NODE_OUTPUTS = Seam(
    "keras.src.ops.node:Node.output_tensors|outputs", _NO_SHAPES, only_with=_KERAS_3
)
_NO_ORDER = "where the gradient has to reach is not known"
NODE_PARENTS = Seam("keras.src.ops.node:Node.parent_nodes", _NO_ORDER, only_with=_KERAS_3)
NODE_LAYER = on_objects("keras.src.ops.node:Node.operation|layer", _NO_ORDER)
LAYER_GRAPH = on_objects("keras:Model._nodes_by_depth|_operations", _NO_ORDER)
BUILT_SHAPES = on_objects("keras:layers.Layer._build_shapes_dict", _NO_SHAPES)
BUILT_SHAPE = on_objects("keras:layers.Layer._build_input_shape", _NO_SHAPES)
OPEN_NAME_SCOPE = on_objects("keras:layers.Layer._open_name_scope", _NO_SCOPES)
KERNELS = tuple(
    on_objects(f"keras:layers.Layer._{name}|{name}", _NO_COSTS)
    for name in ("kernel", "depthwise_kernel", "pointwise_kernel", "recurrent_kernel")
)
HEADS = {
    name: on_objects(f"keras:layers.MultiHeadAttention._{name}|{name}", _NO_COSTS)
    for name in ("num_heads", "num_query_heads", "key_dim", "head_dim", "value_dim")
}
ATTENTION_INPUTS, ATTENTION_SHAPES = (
    {
        name: on_objects(f"keras:layers.MultiHeadAttention._{name}_{what}", _NO_COSTS)
        for name in ("query", "key", "value")
    }
    for what in ("dense", "shape")
)
STEP_FUNCTIONS = {
    phase: on_objects(f"keras:Model.{phase}_function", _NO_METRICS) for phase in ON_BATCH
}
COMPILED_LOSS = on_objects("keras:Model.compiled_loss", _NO_SCOPES)
LOSSES = on_objects("keras:Model.compiled_loss._losses", _NO_SCOPES)
VARIABLE_VALUE = on_objects("keras:Variable._value", "optimizers' ops have no layers")
BACKEND = Seam("keras:backend.backend", "what Keras runs on is not known", 0)
POLICY = Seam("keras:mixed_precision.dtype_policy|global_policy", "the precision is not known", 0)
_STAYS = "random numbers behind a trial go on from where it ended"
EAGER_CONTEXT = on_objects("tensorflow.python.eager.context:context", _STAYS)
EAGER_RANDOM = on_objects("tensorflow.python.eager.context:Context._rng", _STAYS)
EAGER_RESEED = on_objects("tensorflow.python.eager.context:Context._set_global_seed", _STAYS)
EAGER_SEED = on_objects("tensorflow.python.eager.context:Context._seed", _STAYS)
KERAS_STATE = on_objects("keras.src.backend.common.global_state:GLOBAL_STATE_TRACKER", _STAYS)
FIGURES = on_objects("matplotlib._pylab_helpers:Gcf.figs", "trials add to open figures")
SET_POLICY = Seam("keras:mixed_precision.set_global_policy", "a sweep cannot set the precision", 1)
COMPILE = Seam("keras:Model.compile", "a sweep cannot change compile", 1, cost=_ONCE)
FIT = Seam("keras:Model.fit", "a sweep cannot prefetch", 2, cost=_ONCE)

# What else takes a cell's time.
NEXT_ELEMENT = Seam(
    "tensorflow.python.data.ops.iterator_ops:OwnedIterator.__next__",
    "steps of eager loops over datasets are not timed",
    cost=_A_STEP,
)

# IPython: its classes, and its shell where one runs.
_NO_CELLS = "source files are not told as cells"
_NO_TRANSFORMING = "cells under a magic cannot await"
_NO_END = "cells are not repeated"
_CLASS = "IPython.core.interactiveshell:InteractiveShell"
_RESULT = "IPython.core.interactiveshell:ExecutionResult"
_RUNS = f"{_CLASS}._instance"
SHELL_IS_THERE = Seam(f"{_CLASS}.initialized", _NO_CELLS, 0)
SHELL_INSTANCE = Seam(f"{_CLASS}.instance", _NO_CELLS, 0)
COMPILER = Seam(f"{_RUNS}.compile", _NO_CELLS, only_with=_RUNS)
CELL_OF_FILE = Seam(  # IPython 7 has none, and numbers its files
    f"{_RUNS}.compile._filename_map", _NO_CELLS, only_with=f"{_RUNS}.compile.format_code_name"
)
HISTORY = Seam(f"{_RUNS}.history_manager", _NO_CELLS, only_with=_RUNS)
CELL_TEXTS = Seam("IPython.core.history:HistoryManager.input_hist_parsed", _NO_CELLS)
TRANSFORMERS = Seam(f"{_CLASS}.input_transformers_cleanup", _NO_TRANSFORMING)
EVENTS = Seam(f"{_RUNS}.events", _NO_TRANSFORMING, only_with=_RUNS)
REGISTER = Seam("IPython.core.events:EventManager.register", _NO_TRANSFORMING, 3)
UNREGISTER = Seam("IPython.core.events:EventManager.unregister", _NO_TRANSFORMING, 3)
CELL_ID = on_objects(
    "IPython.core.interactiveshell:ExecutionInfo.cell_id", "what a report keeps is let go late"
)
SUCCESS = Seam(f"{_RESULT}.success", _NO_END)
RESULT_INFO = on_objects(f"{_RESULT}.info", _NO_END)
RAW_CELL = on_objects("IPython.core.interactiveshell:ExecutionInfo.raw_cell", _NO_END)
_NO_WHY = "why a cell that runs again failed is not told"
FAILED_BEFORE = on_objects(f"{_RESULT}.error_before_exec", _NO_WHY)
FAILED_INSIDE = on_objects(f"{_RESULT}.error_in_exec", _NO_WHY)
SHOW_TRACEBACK = Seam(f"{_CLASS}.showtraceback", _NO_WHY, 2, cost=_ONCE)
CAPTURE_OUTPUT = Seam(
    "IPython.utils.capture:capture_output", "a cell that runs again shows its output again", 0
)
_NO_AWAITING = "cells that await are repeated like others"
TRANSFORM_CELL = Seam(f"{_CLASS}.transform_cell", _NO_AWAITING, 2)
IS_ASYNC = Seam(f"{_CLASS}.should_run_async", _NO_AWAITING, 2, ("transformed_cell",))
_NO_MAGICS = "live controls cannot be configured, and the magics cannot be unloaded"
MAGICS_MANAGER = Seam(f"{_CLASS}.magics_manager", _NO_MAGICS)
LOADED_MAGICS = Seam("IPython.core.magic:MagicsManager.registry", _NO_MAGICS)
MAGICS_BY_NAME = Seam("IPython.core.magic:MagicsManager.magics", _NO_MAGICS)
KERNEL = on_objects(f"{_CLASS}.kernel", "reports are text, as in a terminal")
_NO_SLOT = "nothing is shown while a cell runs"
PUBLISHER = Seam(f"{_RUNS}.display_pub", _NO_SLOT, only_with=_RUNS)
PUBLISH = Seam(
    "IPython.core.displaypub:DisplayPublisher.publish", _NO_SLOT, 3, ("transient", "update")
)
# Under %%capture there is none.
SOCKET = on_objects(f"{_RUNS}.display_pub.pub_socket", _NO_SLOT)
_NO_MAGIC_LINE = "tracebacks show what a magic's line became"
TRACEBACKS = Seam(f"{_RUNS}.InteractiveTB", _NO_MAGIC_LINE, only_with=_RUNS)
TRACEBACK = Seam(
    "IPython.core.ultratb:AutoFormattedTB.structured_traceback", _NO_MAGIC_LINE, cost=_ONCE
)

# Python.
MONITORING = Seam(
    "sys:monitoring", "eager ops have no lines", is_on_objects=sys.version_info < (3, 12)
)
CALL_EVENTS = Seam("sys:setprofile", "Python under 5 ms between two steps has no function names", 1)
CURRENT_FRAMES = Seam("sys:_current_frames", "parts of the whole cell are not told apart", 0)


def _several(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, tuple) else (value,)


_ALL_NAMED = chain.from_iterable(map(_several, tuple(globals().values())))
SEAMS: tuple[Seam, ...] = tuple(seam for seam in _ALL_NAMED if isinstance(seam, Seam))
