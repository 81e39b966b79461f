"""XLA programs built by hand, as the bytes of an HloProto; see ``traces``."""

from traces import message, plane, varint

F32, F16, BF16, S32, PRED = 11, 10, 16, 4, 1


def shape(kind, *dims, parts=()):
    packed = b"".join(varint(size) for size in dims)
    return message((2, 13 if parts else kind), *(((3, packed),) if dims else ()), *((4, part) for part in parts))


def op(name, opcode, result, *operands, calls=(), op_name="", op_type="", source=None, target="", config="", **fields):
    """An instruction; ``operands`` and ``calls`` are names, ``fields`` are (number, bytes or int)."""
    return name, opcode, result, operands, calls, op_name, op_type, source, target, config, fields


def parameter(name, number, result):
    return op(name, "parameter", result, number=(9, number))


def dot(name, result, left, right, contracted=(1,), **more):
    dims = message((1, b"".join(map(varint, contracted))), (2, b"".join(map(varint, (0,)))))
    return op(name, "dot", result, left, right, dims=(30, dims), **more)


def convolution(name, result, data, kernel, window, groups=1, **more):
    """NHWC by HWIO; ``window`` is (size, stride, padding low, padding high) of each spatial dimension."""
    dims = message(
        (7, 0), (8, 3), (11, b"".join(map(varint, (1, 2)))), (3, 2), (4, 3), (6, b"".join(map(varint, (0, 1)))),
        (9, 0), (10, 3), (12, b"".join(map(varint, (1, 2)))),
    )  # fmt: skip
    sides = [message((1, s), (2, t), (3, lo), (4, hi), (5, 1), (6, 1)) for s, t, lo, hi in window]
    return op(
        name, "convolution", result, data, kernel,
        dims=(16, dims), window=(15, message(*((1, side) for side in sides))), groups=(50, groups), **more,
    )  # fmt: skip


def program(name, computations, entry, fused=(), allocations=(), schedule=None):
    """``computations`` maps names to lists of instructions, the last of which is the root.

    ``schedule`` maps computations to names of their instructions in the order in which they run.
    """
    numbers = {text: at + 1 for at, text in enumerate(computations)}
    encoded = []
    for text, instructions in computations.items():
        ids = {row[0]: at + 1 for at, row in enumerate(instructions)}
        body = [
            message(
                (1, n), (2, opcode), (3, result), (35, ids[n]),
                (36, b"".join(varint(ids[used]) for used in operands)),
                (38, b"".join(varint(numbers[called]) for called in calls)),
                (7, message((1, op_type), (2, op_name), *(((3, source[0]), (4, source[1])) if source else ()))),
                *(((28, target),) if target else ()), *(((43, config),) if config else ()), *fields.values(),
            )
            for n, opcode, result, operands, calls, op_name, op_type, source, target, config, fields in instructions
        ]  # fmt: skip
        encoded.append(message(
            (1, text), *((2, one) for one in body), (5, numbers[text]), (6, len(instructions)), (7, int(text in fused)),
        ))  # fmt: skip
    sequences = []
    for text, names in (schedule or {}).items():
        ids = {row[0]: at + 1 for at, row in enumerate(computations[text])}
        sequences.append((1, message((1, numbers[text]), (2, message((1, b"".join(varint(ids[one]) for one in names)))))))
    scheduled = [(7, message(*sequences))] if sequences else []
    module = message((1, name), (6, numbers[entry]), *scheduled, *((3, one) for one in encoded))
    buffers = message(*((3, message((2, size), *((flag, 1) for flag in flags))) for size, *flags in allocations))
    return message((1, module), *(((3, buffers),) if allocations else ()))


def metadata_plane(**programs):
    """``/host:metadata`` with programs: ``name=(id, bytes)``."""
    return plane("/host:metadata", of_names={f"{name}({number})": {"Hlo Proto": raw} for name, (number, raw) in programs.items()})
