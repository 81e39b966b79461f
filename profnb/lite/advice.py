"""What to change of a model for the device: the rules.

Bounds are shares of the time of one run of the model that the evidence names. Times of ops are those under
the
profiler; where there are none, what needs them stays silent or has no bound.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from profnb.core.printable import quoted
from profnb.core.units import duration_text, percent_text, range_text
from profnb.lite.findings import KERAS, LiteFindings, LiteModel, LiteOp
from profnb.subjects.advising import Finding

_OPS = "https://ai.google.dev/edge/litert/models/ops_compatibility"
_CONVERSION = "https://ai.google.dev/edge/litert/models/convert"
_QUANTIZING = "https://developers.google.com/edge/litert/quantization/model_optimization"
_SHAPES = ("SHAPE", "STRIDED_SLICE", "PACK", "RESHAPE")
_CONVERTING = ("QUANTIZE", "DEQUANTIZE")
_LEAST = 0.02  # of a run: a gain below this is not worth a sentence
_LEAST_UNDELEGATED, _FEWEST_EXAMPLES, _MOST_CLIPPED, _LEAST_ERROR = 0.05, 20, 0.01, 0.02
_NAME, _MOST_INFLATED = 60, 2


def advise_lite(findings: LiteFindings, calibrated: tuple[int, str]) -> list[Finding]:
    """Everything the rules have to say, what can gain most first.

    Args:
        findings: What is known.
        calibrated: How many examples int8 was calibrated with, and where they are from.
    """
    advice = [
        *_split_delegate(findings), *_not_delegated(findings), *_custom(findings),
        *_not_quantized(findings), *_slower(findings), *_threads(findings),
        *_calibration(findings, calibrated),
    ]  # fmt: skip
    bounded = [one for one in advice if one.bound_fraction is None or one.bound_fraction >= _LEAST]
    return sorted(bounded, key=_weight, reverse=True)


def _weight(advice: Finding) -> float:
    return advice.concerned_fraction if advice.bound_fraction is None else advice.bound_fraction


def _models(findings: LiteFindings) -> Iterator[tuple[LiteModel, list[LiteOp]]]:
    """Models with ops, what only unpacks weights left out."""
    for one in findings.measured:
        ops = [op for op in findings.ops if op.model == one.name and op.kernel != "folded"]
        if ops:
            yield one, ops


def _share(model: LiteModel, ops: Sequence[LiteOp]) -> float:
    """Share of a run under the profiler in these ops; NaN where that is not known."""
    return sum(op.self_ps for op in ops) / model.profiled_ps


def _shape_chain(ops: Sequence[LiteOp]) -> list[LiteOp]:
    """The ops outside of the delegate that work out a shape: from SHAPE to the RESHAPE that takes it."""
    layers = {op.layer for op in ops if op.op_type == "SHAPE" and op.kernel == "built-in"}
    return [
        op for op in ops if op.layer in layers and op.kernel == "built-in" and op.op_type in _SHAPES
    ]


def _split_delegate(findings: LiteFindings) -> Iterator[Finding]:
    """A shape with an open batch, worked out in every run between two parts of the delegate."""
    for one, ops in _models(findings):
        chain = _shape_chain(ops)
        if not chain or not one.delegated_ops:
            continue
        parts = sum(inside for inside, _ in groupby(ops, key=lambda op: op.kernel == "XNNPACK"))
        bound = None
        if not math.isnan(one.profiled_ps):
            # What goes away with it, and all that a run spends outside of ops, of which going in and out
            # is part.
            bound = _share(one, chain) + max(1 - _share(one, ops), 0.0)
        names = ", ".join(dict.fromkeys(op.op_type for op in chain))
        layers = ", ".join(quoted(name, _NAME) for name in dict.fromkeys(op.layer for op in chain))
        where = (
            f"divide the model into {parts} parts for XNNPACK"
            if parts > 1
            else "run outside of XNNPACK"
        )
        yield Finding(
            "split-delegate",
            "Fix the batch size",
            f"The batch of {one.name} is open, so {len(chain)} ops of {layers} ({names}) work out "
            f"a shape in every run "
            f"and {where}"
            + (
                "."
                if bound is None
                else f"; with all that a run spends outside of ops they are {percent_text(bound)} of it."
            ),
            bound,
            "keras.Input(shape, batch_size=1)  # or profnb.lite(model, ..., fixed_batch=True) to "
            "see what it gains",
            _CONVERSION,
            0.05,
        )
        return


def _not_delegated(findings: LiteFindings) -> Iterator[Finding]:
    """Ops with built-in kernels that take a good share of the time."""
    for one, ops in _models(findings):
        chain = _shape_chain(ops)
        outside = [
            op for op in ops
            if op.kernel == "built-in" and op not in chain and op.op_type not in ("WHILE", *_CONVERTING)
        ]  # fmt: skip
        share = _share(one, outside)
        if outside and one.delegated_ops and share >= _LEAST_UNDELEGATED:
            largest = sorted(outside, key=lambda op: -op.self_ps)[:3]
            listed = ", ".join(
                f"{op.op_type} of {quoted(op.layer, _NAME)} ({op.dtype}, {duration_text(op.self_ps)})"
                for op in largest
            )
            yield Finding(
                "not-delegated",
                f"Ops of {one.name} run outside of XNNPACK",
                f"{len(outside)} of its {len(ops)} ops have built-in kernels, "
                f"{percent_text(share)} of a run: {listed}.",
                share,
                "",
                _OPS,
            )
            return


def _custom(findings: LiteFindings) -> Iterator[Finding]:
    """Ops that TensorFlow Lite does not have itself."""
    for one, ops in _models(findings):
        custom = [op for op in ops if op.kernel == "custom"]
        if not custom:
            continue
        share = _share(one, custom)
        names = ", ".join(dict.fromkeys(op.op_type for op in custom))
        flex = any(op.op_type.startswith("Flex") for op in custom)
        needs = (
            "the Flex delegate, which has TensorFlow's kernels" if flex else "kernels of its own"
        )
        yield Finding(
            "custom-ops",
            f"Replace {names}" if len(names) < _NAME else "Replace custom ops",
            f"TensorFlow Lite has no {names}; an app needs {needs}, and no accelerator takes "
            f"{'it' if len(custom) == 1 else 'them'}.",
            None if math.isnan(share) else share,
            "",
            _OPS,
            0.1,
        )
        return


def _not_quantized(findings: LiteFindings) -> Iterator[Finding]:
    """Ops of an int8 model that stay float, and the conversions around them."""
    for one, ops in _models(findings):
        if not one.kind.startswith("int8"):
            continue
        floats = [op for op in ops if op.dtype == "float32" and op.op_type not in _CONVERTING]
        between = [op for op in ops[1:-1] if op.op_type in _CONVERTING]
        if not floats or not between:
            continue
        share = _share(one, [*floats, *between])
        names = ", ".join(
            dict.fromkeys(f"{op.op_type} of {quoted(op.layer, _NAME)}" for op in floats[:4])
        )
        yield Finding(
            "not-quantized",
            f"{len(floats)} op{'s' * (len(floats) > 1)} of {one.name} stay{'s' * (len(floats) == 1)} float",
            f"{names} {'have' if len(floats) > 1 else 'has'} no int8 kernel; {len(between)} "
            f"QUANTIZE and DEQUANTIZE op{'s' * (len(between) > 1)} convert around "
            f"{'them' if len(floats) > 1 else 'it'}"
            + ("." if math.isnan(share) else f", together {percent_text(share)} of a run."),
            None if math.isnan(share) else share,
            "",
            _QUANTIZING,
            0.05,
        )


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
        yield Finding(
            "slower-than-float",
            f"{one.name} gains no time",
            f"It takes {1 / ratio:.2f}x as long as {base.name} ({interval}) on this machine"
            f"{blamed}. Other processors differ: time it on the device before it is chosen for speed.",
            1 - ratio,
            "",
            _QUANTIZING,
        )


def _slower_layers(findings: LiteFindings, one: LiteModel, base: LiteModel) -> str:
    """The layers that take longer, most first; "" where nothing tells, or the profiler cost too much."""
    if (
        not max(one.profiled_ps / one.latency_ps, base.profiled_ps / base.latency_ps)
        < _MOST_INFLATED
    ):
        return ""
    times = {(row.model, row.layer): row.self_ps for row in findings.layers}
    more = [
        (row.self_ps - times.get((base.name, row.layer), math.nan), row.layer)
        for row in findings.layers
        if row.model == one.name
    ]
    worst = sorted((m for m in more if m[0] > 0), reverse=True)[:2]
    return "".join(
        f", {quoted(layer, _NAME)} {duration_text(extra)} longer" for extra, layer in worst
    )


def _threads(findings: LiteFindings) -> Iterator[Finding]:
    """More threads that do not make a model surely faster."""
    by_kind: dict[str, list[LiteModel]] = {}
    for one in findings.measured:
        by_kind.setdefault(one.name.rpartition(", ")[0], []).append(one)
    useless, worst = [], 0.0
    for kind, rows in by_kind.items():
        fewest = min(rows, key=lambda row: row.threads)
        for row in rows:
            ratio, low, high = findings.speedup(row, fewest)
            if row is not fewest and kind and not low > 1:
                interval = range_text(f"{low:.2f}", f"{high:.2f}")
                useless.append(
                    f"{row.name} is {ratio:.2f}x as fast as with {fewest.threads} ({interval})"
                )
                worst = max(worst, 1 - ratio if high < 1 else 0.0)
    if useless:
        cores = findings.environment.get("CPU cores", "")
        yield Finding(
            "threads",
            "More threads do not help",
            f"{'; '.join(useless[:4])}{f', on {cores} cores' if cores else ''}.",
            worst if worst >= _LEAST else None,
            "Interpreter(path, num_threads=1)",
            _QUANTIZING,
            _LEAST,
        )


def _calibration(findings: LiteFindings, calibrated: tuple[int, str]) -> Iterator[Finding]:
    """Ranges of int8 from too few examples, or from others than the data."""
    count, _ = calibrated
    rows = [row for row in findings.layers if _kind(findings, row.model) == "int8"]
    if not rows or not count:
        return
    wide = [
        row
        for row in rows
        if row.clipped_fraction > _MOST_CLIPPED and row.error_fraction > _LEAST_ERROR
    ]
    code = "profnb.lite(model, data, representative=x_train[:500])  # examples as the device will see them"
    if wide:
        worst = max(wide, key=lambda row: row.clipped_fraction)
        yield Finding(
            "representative-range",
            "Calibrate with examples like the data",
            f"{percent_text(worst.clipped_fraction)} of what {quoted(worst.layer, _NAME)} gives "
            f"for the data lies outside of the "
            f"range that the {count} representative examples set, and is cut off there; its error "
            f"in {worst.model} is "
            f"{percent_text(worst.error_fraction)}. This costs accuracy, not time.",
            None,
            code,
            _QUANTIZING,
            0.5,
        )
    elif count < _FEWEST_EXAMPLES:
        yield Finding(
            "few-examples",
            "Calibrate with more examples",
            f"int8's ranges come from {count} example{'s' * (count > 1)}; a few hundred are "
            f"usual. This may cost accuracy, "
            "not time.",
            None,
            code,
            _QUANTIZING,
            _LEAST,
        )


def _kind(findings: LiteFindings, name: str) -> str:
    return next((one.kind for one in findings.models if one.name == name and one.kind != KERAS), "")
