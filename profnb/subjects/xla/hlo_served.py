"""Instructions that XLA left without a name to the named op that they work for, where that is certain.

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

import re

import numpy as np

from profnb.trace.hlo import HloModule

_MOVES = frozenset(
    {
        "bitcast", "broadcast", "concatenate", "constant", "copy", "get-tuple-element", "iota", "parameter",
        "reshape", "slice", "transpose",
    }
)  # fmt: skip
_PRODUCTS = frozenset({"dot", "convolution"})
_EXPANDED = "select_and_scatter"
_FORWARD_SCOPE = re.compile(r"jvp\(.*\)")
_MOST_HOPS = 2_000
_LONGEST_CHAIN = 50
_TUPLE = 13


def fused_bodies(module: HloModule, row: int) -> list[range]:
    """The rows inside a fusion, body by body; none for an instruction that is no fusion."""
    return [
        range(*module.offsets[body : body + 2].tolist())
        for body in module.called_by(row)
        if body >= 0 and module.is_fused[body]
    ]


class Served:
    """Whom the instructions of one program work for.

    Args:
        module: The program.
    """

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
        name = self._own_name(row) or self._op_names.get(row)
        if name is None:
            self._op_names[row] = ""  # of what is met again below
            name = self._op_names[row] = (
                self._find_name(row, depth) if depth < _LONGEST_CHAIN else ""
            )
        return name

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
        return self._of_gradient(row) if opcodes & _PRODUCTS else ""

    def _of_users(self, row: int, depth: int) -> str:
        """The name of one of the users, if all are of one scope of a layer."""
        names = [self._name(user, depth + 1) for user in self._users_of(row)]
        scopes = {name.rpartition("/")[0] for name in names}
        return names[0] if len(scopes) == 1 and "jvp(" in names[0] else ""

    def _of_gradient(self, row: int) -> str:
        """The gradient of the forward product whose parameter is updated with a product."""
        if not any(self._is_backward(operand) for operand in self._module.operands_of(row)):
            return ""  # an optimizer's own product
        parameters, size = self._updated_with(row), self._size(row)
        products = {
            name
            for parameter in parameters
            if self._size(parameter) == size
            for name in self._products_of(parameter)
        }
        if len({name.rpartition("/")[0] for name in products}) != 1:
            return ""
        parts = min(products).split("/")
        at = next((at for at, part in enumerate(parts) if _FORWARD_SCOPE.fullmatch(part)), None)
        if at is None:
            return ""
        parts[at] = f"transpose({parts[at]})"
        return "/".join(parts)

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
                return -1
            operands = module.operands_of(row)
            is_part = module.opcodes[row] == "get-tuple-element"
            if not operands or (is_part and module.opcodes[operands[0]] == "parameter"):
                return row if is_part or module.opcodes[row] == "parameter" else -1
            if len(operands) > 1:
                return -1
            row = operands[0]
        return -1

    def _products_of(self, parameter: int) -> set[str]:
        """Names of the forward products that read a parameter, through what only moves it."""
        names = set()
        waiting, seen = [parameter], {parameter}
        while waiting and len(seen) < _MOST_HOPS:
            for user in self._users_of(waiting.pop()):
                opcodes, name = self._opcodes(user), self._own_name(user)
                if user in seen:
                    continue
                seen.add(user)
                if opcodes <= _MOVES:
                    waiting.append(user)
                elif opcodes & _PRODUCTS and "jvp(" in name and "transpose(" not in name:
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
