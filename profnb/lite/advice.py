"""Findings about models for the device to what to change: the rules.

Bounds are shares of the time of one run of the model that the evidence names. Times of ops are those under
the profiler; where there are none, what needs them stays silent or has no bound.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from profnb.core.columns import group
from profnb.core.printable import LONGEST_NAME, quoted
from profnb.core.units import duration_text, percent_text, range_text
from profnb.lite.findings import KERAS, LiteFindings, LiteModel, LiteOp
from profnb.subjects.advising import Finding

_OPS_GUIDE = "https://ai.google.dev/edge/litert/models/ops_compatibility"
_CONVERSION = "https://ai.google.dev/edge/litert/models/convert"
_QUANTIZING = "https://developers.google.com/edge/litert/quantization/model_optimization"
_SHAPES = ("SHAPE", "STRIDED_SLICE", "PACK", "RESHAPE")
_CONVERTING = ("QUANTIZE", "DEQUANTIZE")
_LEAST_GAIN = 0.02  # of a run: a gain below this is not worth a sentence
_LEAST_UNDELEGATED, _FEWEST_EXAMPLES, _MOST_CLIPPED, _LEAST_ERROR = 0.05, 20, 0.01, 0.02
_MOST_INFLATED = 2
_FIXED = "keras.Input(shape, batch_size=1)  # or profnb.lite(model, ..., fixed_batch=True) to see the gain"
_CALIBRATED = (
    "profnb.lite(model, data, representative=x_train[:500])  # examples as the device will see them"
)


def advise_lite(findings: LiteFindings, calibrated: tuple[int, str]) -> list[Finding]:
    """Say everything that the rules have to say, what can gain most first.

    ``calibrated`` tells how many examples int8 was calibrated with, and where they are from.
    """
    working = group((op.model, op) for op in findings.ops if op.kernel != "folded")
    of_ops = [(one, working[one.name]) for one in findings.measured if one.name in working]
    advice: list[Finding] = []
    for rule in (_split_delegate, _not_delegated, _custom):  # of the first model that it finds
        advice += list(filter(None, (rule(one, ops) for one, ops in of_ops)))[:1]
    advice += filter(None, (_not_quantized(one, ops) for one, ops in of_ops))
    advice += *_slower(findings), *_threads(findings), *_calibration(findings, calibrated[0])

    def weight(one: Finding) -> float:
        return one.concerned_fraction if one.bound_fraction is None else one.bound_fraction

    worth_it = [a for a in advice if a.bound_fraction is None or a.bound_fraction >= _LEAST_GAIN]
    return sorted(worth_it, key=weight, reverse=True)


def _share(model: LiteModel, ops: Sequence[LiteOp]) -> float | None:
    """Share of a run under the profiler in these ops; None where that is not known."""
    share = sum(op.self_ps for op in ops) / model.profiled_ps
    return None if math.isnan(share) else share


def _shape_chain(ops: Sequence[LiteOp]) -> list[LiteOp]:
    """The ops outside of the delegate that work out a shape: from SHAPE to the RESHAPE that takes it."""
    shaping = [op for op in ops if op.kernel == "built-in" and op.op_type in _SHAPES]
    layers = {op.layer for op in shaping if op.op_type == "SHAPE"}
    return [op for op in shaping if op.layer in layers]


def _split_delegate(one: LiteModel, ops: list[LiteOp]) -> Finding | None:
    """A shape with an open batch, worked out in every run between two parts of the delegate."""
    chain = _shape_chain(ops)
    if not chain or not one.delegated_ops:
        return None
    parts = sum(inside for inside, _ in groupby(ops, key=lambda op: op.kernel == "XNNPACK"))
    names = ", ".join(dict.fromkeys(op.op_type for op in chain))
    layers = ", ".join(quoted(name) for name in dict.fromkeys(op.layer for op in chain))
    where = "bypass XNNPACK"
    if parts > 1:
        where = f"divide the model into {parts} parts for XNNPACK"
    share, whole, gain = _share(one, chain), _share(one, ops), ""
    if share is not None and whole is not None:
        # With it goes all that a run spends outside of ops, of which going in and out is part.
        share += max(1 - whole, 0.0)
        gain = f": {percent_text(share)} of a run, including the time outside of ops"
    evidence = (
        f"The batch size of {one.name} is open, so {len(chain)} ops of {layers} ({names}) compute a "
        f"shape in every run. These ops {where}{gain}."
    )
    title = "Fix the batch size"
    return Finding("split-delegate", title, evidence, share, _FIXED, _CONVERSION, 0.05)


def _not_delegated(one: LiteModel, ops: list[LiteOp]) -> Finding | None:
    """Ops with built-in kernels that take a good share of the time."""
    aside, chain = ("WHILE", *_CONVERTING), _shape_chain(ops)
    outside = [op for op in ops if op.kernel == "built-in" and op.op_type not in aside]
    outside = [op for op in outside if op not in chain]
    share = _share(one, outside)
    if not outside or not one.delegated_ops or share is None or share < _LEAST_UNDELEGATED:
        return None
    listed = ", ".join(
        f"{op.op_type} of {quoted(op.layer)} ({op.dtype}, {duration_text(op.self_ps)})"
        for op in sorted(outside, key=lambda op: -op.self_ps)[:3]
    )
    evidence = (
        f"{len(outside)} of {len(ops)} ops run without XNNPACK, {percent_text(share)} of a run: "
        f"{listed}."
    )
    title = f"Ops of {one.name} bypass XNNPACK"
    return Finding("not-delegated", title, evidence, share, "", _OPS_GUIDE)


def _custom(one: LiteModel, ops: list[LiteOp]) -> Finding | None:
    """Ops that TensorFlow Lite does not have itself."""
    custom = [op for op in ops if op.kernel == "custom"]
    if not custom:
        return None
    names = ", ".join(dict.fromkeys(op.op_type for op in custom))
    needs = "kernels of its own"
    if any(op.op_type.startswith("Flex") for op in custom):
        needs = "the Flex delegate, which has TensorFlow's kernels"
    evidence = (
        f"TensorFlow Lite lacks {names}: an app needs {needs}. No accelerator runs these ops."
    )
    title = f"Replace {names}" if len(names) < LONGEST_NAME else "Replace custom ops"
    return Finding("custom-ops", title, evidence, _share(one, custom), "", _OPS_GUIDE, 0.1)


def _not_quantized(one: LiteModel, ops: list[LiteOp]) -> Finding | None:
    """Ops of an int8 model that stay float, and the conversions around them."""
    floats = [op for op in ops if op.dtype == "float32" and op.op_type not in _CONVERTING]
    between = [op for op in ops[1:-1] if op.op_type in _CONVERTING]
    if not one.kind.startswith("int8") or not floats or not between:
        return None
    share = _share(one, [*floats, *between])
    together = "" if share is None else f", together {percent_text(share)} of a run"
    names = dict.fromkeys(f"{op.op_type} of {quoted(op.layer)}" for op in floats[:4])
    have, them, stay = (
        ("have", "them", "ops {} stay") if len(floats) > 1 else ("has", "it", "op {} stays")
    )
    evidence = (
        f"{', '.join(names)} {have} no int8 kernel; {len(between)} QUANTIZE and DEQUANTIZE "
        f"op{'s' * (len(between) > 1)} convert around {them}{together}."
    )
    title = f"{len(floats)} {stay.format(f'of {one.name}')} float"
    return Finding("not-quantized", title, evidence, share, "", _QUANTIZING, 0.05)


def _slower(findings: LiteFindings) -> Iterator[Finding]:
    """A smaller kind that is surely slower than float32."""
    base = findings.base
    if base is None or base.kind != "float32":
        return
    for one in findings.measured:
        ratio, low, high = findings.speedup(one)
        if one.kind == base.kind or one.threads != base.threads or not high < 1:
            continue
        blamed = _slower_layers(findings, one, base)
        interval = range_text(f"{1 / high:.2f}", f"{1 / low:.2f}")
        evidence = (
            f"{one.name} takes {1 / ratio:.2f} times as long ({interval}) on this machine{blamed}. Other "
            "processors differ: time both on the target device first."
        )
        title = f"Keep {base.name}: {one.name} is slower"
        yield Finding("slower-than-float", title, evidence, 1 - ratio, "", _QUANTIZING)


def _slower_layers(findings: LiteFindings, one: LiteModel, base: LiteModel) -> str:
    """The layers that take longer, most first; "" where nothing tells, or the profiler cost too much."""
    if not max(m.profiled_ps / m.latency_ps for m in (one, base)) < _MOST_INFLATED:
        return ""
    times = {row.layer: row.self_ps for row in findings.layers if row.model == base.name}
    rows = (row for row in findings.layers if row.model == one.name)
    more = [(row.self_ps - times.get(row.layer, math.nan), row.layer) for row in rows]
    worst = sorted((pair for pair in more if pair[0] > 0), reverse=True)[:2]
    return "".join(f", {quoted(layer)} {duration_text(extra)} longer" for extra, layer in worst)


def _threads(findings: LiteFindings) -> Iterator[Finding]:
    """More threads that do not make a model surely faster."""
    by_kind = group((one.name.rpartition(", ")[0], one) for one in findings.measured)
    useless, worst = [], 0.0
    for kind, rows in by_kind.items():
        fewest = min(rows, key=lambda row: row.threads)
        for row in rows:
            ratio, low, high = findings.speedup(row, fewest)
            if row is not fewest and kind and not low > 1:
                interval = range_text(f"{low:.2f}", f"{high:.2f}")
                speed = f"{ratio:.2f}x as fast as with {fewest.threads} ({interval})"
                useless.append(f"{row.name} is {speed}")
                worst = max(worst, 1 - ratio if high < 1 else 0.0)
    if useless:
        cores = findings.environment.get("CPU cores", "")
        evidence = f"{'; '.join(useless[:4])}{f', on {cores} cores' if cores else ''}."
        title, code = "More threads do not help", "Interpreter(path, num_threads=1)"
        bound = worst if worst >= _LEAST_GAIN else None
        yield Finding("threads", title, evidence, bound, code, _QUANTIZING, _LEAST_GAIN)


def _calibration(findings: LiteFindings, count: int) -> Iterator[Finding]:
    """Ranges of int8 from too few examples, or from others than the data."""
    kinds = {one.name: one.kind for one in findings.models if one.kind != KERAS}
    rows = [row for row in findings.layers if kinds.get(row.model) == "int8"]
    if not rows or not count:
        return
    wide = [row for row in rows if row.clipped_fraction > _MOST_CLIPPED]
    wide = [row for row in wide if row.error_fraction > _LEAST_ERROR]
    if wide:
        worst = max(wide, key=lambda row: row.clipped_fraction)
        rule, title, weight = "representative-range", "Calibrate with examples like the data", 0.5
        evidence = (
            f"{percent_text(worst.clipped_fraction)} of the outputs of {quoted(worst.layer)} are cut off: "
            f"the data goes beyond the range of the {count} representative examples. The layer's error in "
            f"{worst.model} is {percent_text(worst.error_fraction)}. This costs accuracy, not time."
        )
    elif count < _FEWEST_EXAMPLES:
        rule, title, weight = "few-examples", "Calibrate with more examples", _LEAST_GAIN
        evidence = (
            f"int8's ranges come from {count} example{'s' * (count > 1)}. A few hundred are usual. This may "
            "cost accuracy, not time."
        )
    else:
        return
    yield Finding(rule, title, evidence, None, _CALIBRATED, _QUANTIZING, weight)
