"""Ops for which XLA has no kernel: a step that runs one cannot be compiled, and to ask for it is an error.

``@tf.function(jit_compile=True)`` then raises ("unsupported operations"); Keras warns and goes on without.

Source: the kernels that TensorFlow 2.21 registers for XLA_CPU_JIT, of which these kinds have none.
"""

from profnb.subjects.study import Study

_KINDS = (
    "PyFunc", "EagerPyFunc", "Print", "String", "AsString", "Regex", "StaticRegex", "Lookup",
    "HashTable", "MutableHashTable", "Write", "Decode", "Encode", "ParseExample", "ParseSingleExample",
    "ReadFile", "Unicode", "Substr", "Summary", "ScalarSummary", "HistogramSummary", "ImageSummary",
)  # fmt: skip


def find_uncompilable(study: Study) -> str:
    """The type of an op that XLA cannot compile and a traced step ran, warm-up included; "" for none."""
    runs = study.ops.runs
    is_kind = [op_type.startswith(_KINDS) for _, op_type in runs.keys]
    if not any(is_kind):
        return ""
    in_steps = set(runs.code[study.groups.step[runs.events] >= 0].tolist())
    return next((runs.keys[code][1] for code in sorted(in_steps) if is_kind[code]), "")
