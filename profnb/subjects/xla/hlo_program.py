"""An instruction of an HLO program: what it costs, and which named op it works for where XLA left no name.

Costs are floating-point operations and bytes, from shapes alone.
A product of matrices does two operations for each multiplication, a convolution likewise and only where its
window lies on real data, an elementwise instruction one per element, a reduction one per element that it
takes away; transcendental functions and data movement do none. A fusion does what is inside it. Bytes are
those of operands and result, less what a slice does not touch. These are the rules of XLA's own cost
analysis, so the figures agree with ``jax.jit(f).lower(x).compile().cost_analysis()``; library calls (cuBLAS,
cuDNN, oneDNN), which that leaves at zero, are counted as the product or convolution they are.

Source: openxla/xla xla/service/hlo_cost_analysis.cc and gpu_hlo_cost_analysis.cc (5a3e9fa3).

XLA's passes rewrite instructions and drop what they were asked for by. On a CPU that meets the gradients of
convolutions' kernels, what max-pooling's gradient is expanded to, and copies that change a layout: over half
of the time of a small convolutional model in JAX. The program itself tells whom they work for:

    copy -> convolution (no name) -> adam/add -> adam/sub <- parameter -> jvp(conv)/conv_general_dilated

- What only moves numbers (a copy, a transposition) works for its users, if all are of one scope.
- So does the search for the largest number of each window, if its users are a select-and-scatter.
- A product of something backward that no layer uses is the gradient of a parameter: of the one of as many
  numbers that is updated with it and that a layer's forward product reads, if only one layer's does.

All else stays without a name. Only programs of JAX are looked at: their names tell forward and backward.
"""

import json
import re
from contextlib import suppress
from math import nan, prod
from typing import Any

import numpy as np

from profnb.core.columns import group
from profnb.core.errors import TraceFormatError
from profnb.trace.hlo import CONVOLUTION, DOT, WINDOW, HloModule
from profnb.trace.wire import Messages

_MOVES = frozenset({
    "bitcast", "broadcast", "concatenate", "constant", "copy", "get-tuple-element", "iota", "parameter",
    "reshape", "slice", "transpose",
})  # fmt: skip
PRODUCTS = frozenset({"dot", "convolution"})
_EXPANDED = "select_and_scatter"
_FORWARD_SCOPE = re.compile(r"jvp\(.*\)")
_MOST_HOPS = 2_000
_LONGEST_CHAIN = 50
_TUPLE = 13  # PrimitiveType (xla_data.proto)


def fused_bodies(module: HloModule, row: int) -> list[range]:
    """The rows inside a fusion, body by body; none for an instruction that is no fusion."""
    return [
        range(*module.offsets[body : body + 2].tolist())
        for body in module.called_by(row)
        if body >= 0 and module.is_fused[body]
    ]


class Served:
    """Whom the instructions of one program work for."""

    def __init__(self, module: HloModule) -> None:
        """Nothing is looked up yet."""
        self._module = module
        self._is_jax = any("jvp(" in module.op_names[row] for row in range(len(module)))
        order = np.argsort(module.operands, kind="stable")
        user = np.repeat(np.arange(len(module)), np.diff(module.operand_offsets))
        used = module.operands[order]
        self._users = user[order]
        self._offsets = np.searchsorted(used, np.arange(len(module) + 1))
        self._op_names: dict[int, str] = {}

    def op_name(self, row: int) -> str:
        """An op of the scope and direction that an instruction works for; "" where not certain."""
        return self._name(row, 0) if self._is_jax else ""

    def _name(self, row: int, depth: int) -> str:
        if name := self._own_name(row):
            return name
        if row not in self._op_names:
            self._op_names[row] = ""  # of what is met again below
            if depth < _LONGEST_CHAIN:
                self._op_names[row] = self._find_name(row, depth)
        return self._op_names[row]

    def _own_name(self, row: int) -> str:
        """The name of an instruction or of what is inside it, its root's first."""
        names = self._module.op_names
        if names[row]:
            return names[row]
        inside = (at for body in fused_bodies(self._module, row) for at in reversed(body))
        return next((names[at] for at in inside if names[at]), "")

    def _find_name(self, row: int, depth: int) -> str:
        opcodes = self._opcodes(row)
        if opcodes <= _MOVES:
            return self._of_users(row, depth)
        if "reduce-window" in opcodes:
            name = self._of_users(row, depth)
            return name if name.rpartition("/")[2].startswith(_EXPANDED) else ""
        return self._of_gradient(row) if opcodes & PRODUCTS else ""

    def _of_users(self, row: int, depth: int) -> str:
        """The name of one of the users, if all are of one scope of a layer."""
        names = [self._name(user, depth + 1) for user in self._users_of(row)]
        scopes = {name.rpartition("/")[0] for name in names}
        return names[0] if len(scopes) == 1 and "jvp(" in names[0] else ""

    def _of_gradient(self, row: int) -> str:
        """The gradient of the forward product whose parameter is updated with a product."""
        if not any(self._is_backward(operand) for operand in self._module.operands_of(row)):
            return ""  # an optimizer's own product
        parameters = (one for one in self._updated_with(row) if self._size(one) == self._size(row))
        products = {name for parameter in parameters for name in self._products_of(parameter)}
        if len({name.rpartition("/")[0] for name in products}) != 1:
            return ""
        name = min(products)
        scope = next(filter(_FORWARD_SCOPE.fullmatch, name.split("/")), "")
        return name.replace(scope, f"transpose({scope})", 1) if scope else ""

    def _is_backward(self, row: int) -> bool:
        """Tell whether a layer's backward pass made a number, through what only moves it."""
        for _ in range(_LONGEST_CHAIN):
            name = self._own_name(row) if row >= 0 else ""
            operands = self._module.operands_of(row) if row >= 0 else []
            if name or len(operands) != 1 or not self._opcodes(row) <= _MOVES:
                return "transpose(jvp(" in name
            row = operands[0]
        return False

    def _updated_with(self, row: int) -> set[int]:
        """The parameters that an instruction meets on its way out; none where a layer uses it first."""
        met: list[int] = []
        waiting, seen = [row], {row}
        while waiting:
            for user in self._users_of(waiting.pop()):
                if user in seen or self._module.opcodes[user] == "tuple":
                    continue
                if len(seen) > _MOST_HOPS or "jvp(" in self._own_name(user):
                    return set()
                seen.add(user)
                waiting.append(user)
                met += [self._source(operand) for operand in self._module.operands_of(user)]
        return set(met) - {-1}

    def _source(self, row: int) -> int:
        """The parameter, or the part of one, that an instruction only moves; -1 for any other."""
        module = self._module
        for _ in range(_LONGEST_CHAIN):
            if row < 0 or not self._opcodes(row) <= _MOVES:
                break
            operands = module.operands_of(row)
            is_part = module.opcodes[row] == "get-tuple-element"
            if not operands or (is_part and module.opcodes[operands[0]] == "parameter"):
                return row if is_part or module.opcodes[row] == "parameter" else -1
            row = operands[0] if len(operands) == 1 else -1
        return -1

    def _products_of(self, parameter: int) -> set[str]:
        """Names of the forward products that read a parameter, through what only moves it."""
        names = set()
        waiting, seen = [parameter], {parameter}
        while waiting and len(seen) < _MOST_HOPS:
            for user in set(self._users_of(waiting.pop())) - seen:
                opcodes, name = self._opcodes(user), self._own_name(user)
                seen.add(user)
                if opcodes <= _MOVES:
                    waiting.append(user)
                elif opcodes & PRODUCTS and "jvp(" in name and "transpose(" not in name:
                    names.add(name)
        return names

    def _size(self, row: int) -> float:
        """Count the numbers that an instruction makes; -1 for a tuple, which has several arrays."""
        shapes = self._module.shapes
        return -1.0 if shapes.element_type[row] == _TUPLE else float(shapes.elements[row])

    def _opcodes(self, row: int) -> set[str]:
        """The opcodes of an instruction: its own, or those inside of a fusion."""
        module = self._module
        inside = {module.opcodes[at] for body in fused_bodies(self._module, row) for at in body}
        called = module.targets[row].lower()
        inside |= {"convolution"} if "conv" in called and "convert" not in called else set()
        return inside or {module.opcodes[row]}

    def _users_of(self, row: int) -> list[int]:
        users: list[int] = self._users[self._offsets[row] : self._offsets[row + 1]].tolist()
        return users


_ELEMENTWISE = frozenset({
    "abs", "add", "and", "ceil", "clamp", "clz", "compare", "complex", "convert", "divide", "floor",
    "imag", "is-finite", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "real",
    "reduce-precision", "remainder", "round-nearest-afz", "round-nearest-even", "select", "shift-left",
    "shift-right-arithmetic", "shift-right-logical", "sign", "stochastic-convert", "subtract", "xor",
})  # fmt: skip
_NESTED = frozenset({"fusion", "call", "map", "async-start"})
_REDUCTIONS = frozenset({"reduce", "reduce-window", "select-and-scatter", "scatter", "all-reduce"})
_FREE = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "add-dependency",
    "while", "conditional", "call", "async-start", "async-update", "async-done", "partition-id",
    "replica-id", "domain",
})  # fmt: skip
IN_FLIGHT = ("copy-start", "copy-done")  # their time is not that of the copy
_READS_A_PART = frozenset({"slice", "dynamic-slice", "gather"})
_PRODUCT_CALLS = ("gemm", "matmul", "dot")
_LHS_CONTRACTED = 1
_DEEPEST_CALLED = 16
_LARGEST_WINDOW = 1 << 22
_DAMAGED = (TraceFormatError, ValueError, OverflowError, IndexError)


class Costs:
    """Operations and bytes of the instructions of one module, each worked out once.

    What a hostile module claims is bounded: nesting to 16 levels, each computation costed once.
    """

    def __init__(self, module: HloModule) -> None:
        """Nothing is computed yet."""
        self._module = module
        self._of_computation: dict[int, float] = {}
        self._of_body: dict[int, tuple[list[tuple[int, float, float | None]], float | None]] = {}

    def flops(self, row: int) -> float:
        """Floating-point operations of one run of an instruction; NaN where they cannot be told."""
        with suppress(*_DAMAGED):  # dimensions are read only here, and may be anything
            return self._flops(row, 0)
        return nan

    def _flops(self, row: int, depth: int) -> float:
        module = self._module
        opcode = module.opcodes[row]
        elements = float(module.shapes.elements[row])
        result = 0.0
        if opcode in _ELEMENTWISE:
            result = elements
        elif opcode == "dot":
            _, contracted = self._part(DOT, row).split_numbers(_LHS_CONTRACTED)
            result = self._product_flops(row, contracted.tolist())
        elif opcode == "convolution":
            data, kernel, *_ = module.operands_of(row)
            result = self._convolution_flops(row, data, kernel, row)
        elif opcode == "custom-call":
            result = self._library_flops(row)
        elif opcode in _NESTED:
            each = elements if opcode == "map" else 1.0
            result = each * sum(self._inside(part, depth) for part in module.called_by(row))
        elif opcode in _REDUCTIONS:
            result = self._reduction_flops(row, opcode, depth)
        elif opcode == "sort":
            longest = self._elements_of_operand(row, 0)
            result = longest * float(np.log2(max(longest, 1)))
        return result

    def bytes(self, row: int) -> float:
        """Bytes that one run of an instruction reads and writes at least; NaN where not known."""
        with suppress(*_DAMAGED):
            return self._bytes(row)
        return nan

    def _bytes(self, row: int) -> float:
        module = self._module
        opcode = module.opcodes[row]
        size = module.shapes.bytes
        operands = module.operands_of(row)
        written = float(size[row])
        bodies = [part for part in module.called_by(row) if part >= 0]
        if opcode == "fusion" and len(bodies) == 1:
            return self._fusion_bytes(row, operands, bodies[0])
        if opcode in IN_FLIGHT or opcode == "fusion":
            return nan
        if opcode in _READS_A_PART:
            return 2 * written
        if opcode == "dynamic-update-slice" and len(operands) > 1:
            return 2 * float(size[operands[1]])
        used_bytes = float(sum(size[used] for used in operands if used >= 0))
        return 0.0 if opcode in _FREE else written + used_bytes

    def _inside(self, computation: int, depth: int) -> float:
        """Operations of one run of a computation: the sum over its instructions."""
        if computation < 0 or depth > _DEEPEST_CALLED:
            return nan
        if computation not in self._of_computation:
            self._of_computation[computation] = nan  # until it is summed, against circles
            rows = range(*self._module.offsets[computation : computation + 2].tolist())
            self._of_computation[computation] = sum(self._flops(row, depth + 1) for row in rows)
        return self._of_computation[computation]

    def _elements_of_operand(self, row: int, which: int) -> float:
        operand = self._module.operands_of(row)[which]
        return float(self._module.shapes.elements[operand]) if operand >= 0 else nan

    def _reduction_flops(self, row: int, opcode: str, depth: int) -> float:
        module = self._module
        select, each = (self._inside(module.called_by(row)[at], depth) for at in (0, -1))
        elements = float(module.shapes.elements[row])
        operands = module.operands_of(row)
        if opcode == "all-reduce":
            used = [at for at in operands if at >= 0]
            return each * sum(map(float, module.shapes.elements[used]))
        if opcode == "reduce":
            return each * (self._elements_of_operand(row, 0) - elements)
        if opcode == "scatter":
            return each * self._elements_of_operand(row, len(operands) - 1)
        window = prod(size for size, *_ in self._window(row))
        if opcode == "reduce-window":
            return each * elements * (window - 1)
        return self._elements_of_operand(row, 1) * (select * (window - 1) + each)

    def _product_flops(self, row: int, contracted: list[int]) -> float:
        module = self._module
        first, *_ = *module.operands_of(row), -1
        left = module.shapes.of(first) if first >= 0 else ()
        if first < 0 or any(not 0 <= at < len(left) for at in contracted):
            return nan
        return 2.0 * float(module.shapes.elements[row]) * prod(float(left[at]) for at in contracted)

    def _part(self, field: int, row: int) -> Messages:
        return self._module.parts[field].rows(slice(row, row + 1))

    def _window(self, row: int) -> list[tuple[int, int, int, int, int, int]]:
        """(size, stride, padding low, padding high, window dilation, base dilation) per dimension."""
        window = self._part(WINDOW, row).split(1, "WindowDimension")
        columns = (column.tolist() for column in window.numbers(1, 2, 3, 4, 5, 6))
        return [
            (size, max(stride, 1), low, high, max(dilation, 1), max(base_dilation, 1))
            for size, stride, low, high, dilation, base_dilation in zip(*columns, strict=True)
        ]

    def _convolution_flops(self, row: int, data: int, kernel: int, result: int) -> float:
        """A convolution's operations, padding left out.

        ``row`` describes it; the others have the shapes of its input, filter and output.
        """
        module = self._module
        described = self._part(CONVOLUTION, row)
        if min(data, kernel, result) < 0 or described.begins == described.ends:
            return nan
        features_in, batch, features_out = (int(one[0]) for one in described.numbers(3, 9, 10))
        input_at, output_at = (described.split_numbers(field)[1].tolist() for field in (11, 12))
        left, filters, output = (module.shapes.of(at) for at in (data, kernel, result))
        positions = prod(
            _valid_positions(left[i], output[o], *window)
            for i, o, window in zip(input_at, output_at, self._window(row), strict=True)
        )
        features = filters[features_in] * output[features_out]
        return float(2 * positions * features * output[batch] / int(module.batch_groups[row]))

    def _library_flops(self, row: int) -> float:
        """A product or convolution that a library computes; 0 for calls that compute neither."""
        module = self._module
        target = module.targets[row]
        if "conv" in target.lower() and len(module.operands_of(row)) > 1:
            data, kernel, *_ = module.operands_of(row)
            result = row
            if module.shapes.element_type[row] == _TUPLE:  # what takes its first part
                users = np.flatnonzero(module.operands == row)
                owners = np.searchsorted(module.operand_offsets, users, side="right") - 1
                taking = (at for at in owners if module.opcodes[at] == "get-tuple-element")
                result = int(next(taking, -1))
            if "BackwardInput" in target:
                data, result = result, data
            elif "BackwardFilter" in target:
                kernel, result = result, kernel
            return self._convolution_flops(row, data, kernel, result)
        if any(word in target.lower() for word in _PRODUCT_CALLS):
            contracted = _contracted(module.configs[row])
            return nan if contracted is None else self._product_flops(row, contracted)
        return nan if target else 0.0

    def _fusion_bytes(self, row: int, operands: list[int], body: int) -> float:
        """A fusion reads of each operand what its inside touches, and writes what its root makes."""
        size = self._module.shapes.bytes
        reads, written = self._touched(body)
        total = float(size[row]) if written is None else written
        for number, parameter_bytes, touched in reads:
            has_operand = 0 <= number < len(operands) and operands[number] >= 0
            whole = float(size[operands[number]]) if has_operand else parameter_bytes
            total += whole if touched is None else min(whole, touched)
        return total

    def _touched(self, body: int) -> tuple[list[tuple[int, float, float | None]], float | None]:
        """Bytes that the inside of a fusion touches, worked out once for each body.

        Returns:
            For each parameter (number, its bytes, bytes that are read or None for all); and the bytes that
            are written, or None for the whole result.
        """
        if body in self._of_body:
            return self._of_body[body]
        module = self._module
        size = module.shapes.bytes
        rows = range(*module.offsets[body : body + 2].tolist())
        users = group((used, inner) for inner in rows for used in module.operands_of(inner))
        root = int(module.roots[body])
        in_place = root >= 0 and module.opcodes[root] == "dynamic-update-slice"
        operands = module.operands_of(root) if in_place else []
        reads: list[tuple[int, float, float | None]] = []
        for inner in (one for one in rows if module.opcodes[one] == "parameter"):
            takers = users.get(inner, [])
            touched: float | None = None
            if in_place and takers == [root] and operands[:1] == [inner]:
                touched = 0.0  # updated where it stands
            elif takers and all(module.opcodes[user] in _READS_A_PART for user in takers):
                touched = float(sum(size[user] for user in takers))
            reads.append((int(module.parameter_numbers[inner]), float(size[inner]), touched))
        update = operands[1] if len(operands) > 1 else -1
        self._of_body[body] = reads, float(size[update]) if update >= 0 else None
        return self._of_body[body]


def _valid_positions(
    size: int, steps: int, window: int, stride: int, low: int, high: int, dilation: int, base: int
) -> float:
    """Count the (output, window) positions of one dimension that lie on an element of the input."""
    del high
    if max(size, steps, window, stride, abs(low), dilation, base) > _LARGEST_WINDOW:
        raise ValueError(f"A convolution over {size} elements")
    offsets = np.arange(window, dtype=np.int64) * dilation - low
    if base == 1:  # outputs o with 0 <= o * stride + offset < size are a range
        first = np.maximum(-(offsets // stride), 0)
        last = np.minimum((size - 1 - offsets) // stride, steps - 1)
        return float(np.maximum(last - first + 1, 0).sum())
    if window * steps > _LARGEST_WINDOW:
        raise ValueError(f"A convolution of {window} by {steps} positions")
    at = offsets[:, None] + np.arange(steps, dtype=np.int64) * stride
    return float(((at >= 0) & (at % base == 0) & (at // base < size)).sum())


def _contracted(config: str) -> list[int] | None:
    """The left operand's contracted dimensions in a library call's configuration, or None."""
    if len(config) > 1 << 16:
        return None
    try:
        section: Any = json.loads(config)
        for key in ("gemm_backend_config", "onednn_matmul_config"):
            section = section.get(key, section)
        return [int(at) for at in section["dot_dimension_numbers"]["lhs_contracting_dimensions"]]
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return None
