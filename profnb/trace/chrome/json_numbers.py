"""Numbers in JSON bytes to exact integers.

Times are read as decimals, not as floats: a float64 of an epoch in microseconds has a resolution of 0.25 us,
the digits in the file have all of theirs.
"""

import numpy as np

from profnb.core.columns import Bools, Bytes, Int64s
from profnb.core.jit import compiled


@compiled
def _scaled(mantissa: int, scale: int) -> tuple[int, int, bool]:
    """``mantissa * 10 ** -scale`` as (whole, millionths); False if it is too large."""
    if scale <= 0:
        for _ in range(min(-scale, 19)):
            if mantissa > 900_000_000_000_000_000 // 10:
                return 0, 0, False
            mantissa *= 10
        return mantissa, 0, True
    power = np.int64(1)
    for _ in range(min(scale, 18)):
        power *= 10
    if scale > 18:
        return 0, 0, True
    whole = mantissa // power
    rest = mantissa - whole * power
    while power > 1_000_000_000_000:  # room for the product below
        power //= 10
        rest //= 10
    return whole, rest * 1_000_000 // power, True


@compiled
def _decimal(buffer: Bytes, at: int, end: int) -> tuple[int, int, bool]:
    """A JSON number as (whole, millionths), rounded towards minus infinity; False if it is none."""
    negative = at < end and buffer[at] == 45
    if negative:
        at += 1
    whole, part, places, digits = np.int64(0), np.int64(0), 0, 0
    mantissa, scale = np.int64(0), 0  # the leading 17 digits, for numbers with an exponent
    seen_point, valid = False, True
    while at < end:
        byte = buffer[at]
        if 48 <= byte <= 57:
            digit = np.int64(byte) - 48
            if mantissa < 10_000_000_000_000_000:
                mantissa = mantissa * 10 + digit
                scale += 1 if seen_point else 0
            elif not seen_point:
                scale -= 1
            if not seen_point:
                valid = valid and whole < 90_000_000_000_000_000
                whole = whole * 10 + digit if valid else whole
            elif places < 6:
                part = part * 10 + digit
                places += 1
            digits += 1
        elif byte == 46 and not seen_point:
            seen_point = True
        else:
            break
        at += 1
    if digits == 0:
        return 0, 0, False
    for _ in range(places, 6):
        part *= 10
    if at < end and (buffer[at] == 101 or buffer[at] == 69):
        at += 1
        sign, exponent = 1, 0
        if at < end and (buffer[at] == 43 or buffer[at] == 45):
            sign = -1 if buffer[at] == 45 else 1
            at += 1
        if at >= end:
            return 0, 0, False
        while at < end and 48 <= buffer[at] <= 57:
            exponent = min(exponent * 10 + np.int64(buffer[at]) - 48, 100_000)
            at += 1
        whole, part, valid = _scaled(mantissa, scale - sign * exponent)
        valid = valid or mantissa == 0
    if negative:
        whole, part = -whole, -part
        if part < 0:
            whole, part = whole - 1, part + 1_000_000
    return whole, part, valid and at == end


@compiled
def read_decimals(
    buffer: Bytes, begins: Int64s, ends: Int64s, whole: Int64s, part: Int64s, valid: Bools
) -> None:
    """Read N numbers exactly: ``whole + part / 1e6``; what is no finite number is not valid."""
    for row in range(begins.size):
        whole[row], part[row], valid[row] = _decimal(buffer, begins[row], ends[row])


@compiled
def read_integers(buffer: Bytes, begins: Int64s, ends: Int64s, value: Int64s, valid: Bools) -> None:
    """Integers, bare or as strings; what is none is not valid."""
    for row in range(begins.size):
        at, end = begins[row], ends[row]
        if end - at >= 2 and buffer[at] == 34:
            at, end = at + 1, end - 1
        negative = at < end and buffer[at] == 45
        if negative:
            at += 1
        total = np.uint64(0)
        is_number = 0 < end - at <= 20
        while is_number and at < end:
            byte = buffer[at]
            is_number = 48 <= byte <= 57
            total = total * np.uint64(10) + np.uint64(byte) - np.uint64(48)
            at += 1
        value[row] = -np.int64(total) if negative else np.int64(total)
        valid[row] = is_number
