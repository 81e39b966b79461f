"""Numbers to text: the one place that decides how a quantity is written.

Every function takes a plain number in the unit its name ends with and returns text with a unit a
person would choose. A missing value (NaN or None) becomes an em dash, never a zero.
"""

import math
from collections.abc import Sequence
from typing import TypeGuard

MISSING = "—"
PS_PER_S, PS_PER_MS, PS_PER_US = 1e12, 1e9, 1e6
NS_PER_S, GB = 1e9, 1e9
PS_PER_NS = 1000  # an integer: nanoseconds become picoseconds exactly

_DURATIONS_PS = ((1e12, "s"), (1e9, "ms"), (1e6, "µs"), (1e3, "ns"), (1.0, "ps"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_MANY_TIMES = 3.0  # a person reads 3,200 % twice
_EIGHTHS = " ▏▎▍▌▋▊▉"


def _is_known(value: float | None) -> TypeGuard[float]:
    return value is not None and not math.isnan(value)


def _three_digits(value: float) -> str:
    """Write at most three significant digits, without an exponent: 1.23, 12.3, 123, 1,234."""
    if value == 0:
        return "0"
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    return f"{value:,.{digits}f}"


def _scaled_text(value: float, scales: Sequence[tuple[float, str]], unit: str = "") -> str:
    """Write a value by the first scale that leaves a digit before the point; the last one holds for less."""
    scale, prefix = next((s for s in scales if abs(value) >= s[0] * 0.9995), scales[-1])
    return f"{_three_digits(value / scale)} {prefix}{unit}"


def duration_text(duration_ps: float | None) -> str:
    """A duration with the unit that leaves one to three digits before the point.

    Args:
        duration_ps: Picoseconds; None or NaN where the duration is not known.
    """
    if not _is_known(duration_ps):
        return MISSING
    return _scaled_text(duration_ps, _DURATIONS_PS) if duration_ps else "0 ms"


def signed_text(difference_ps: float) -> str:
    """A difference of durations with its sign: "+1.20 ms"."""
    sign = "+" if difference_ps > 0 else "-" if difference_ps < 0 else ""
    return sign + duration_text(abs(difference_ps))


def percent_text(fraction: float | None) -> str:
    """A fraction in 0..1 as a percentage; what is there but rounds to nothing is "<0.1 %"."""
    if not _is_known(fraction):
        return MISSING
    return "<0.1 %" if 0 < fraction < 0.0005 else f"{fraction * 100:,.1f} %"


def range_text(low: str, high: str) -> str:
    """Two quantities in words as a range: "3.1 to 4.2", and "3.1" where both read the same."""
    return low if low == high else f"{low} to {high}"


def durations_text(low_ps: float, high_ps: float) -> str:
    """A range of durations, the unit once where both have it: "2.4 to 2.7 s"."""
    low, high = duration_text(low_ps), duration_text(high_ps)
    number, _, unit = low.partition(" ")
    return range_text(number if high.endswith(f" {unit}") and low != high else low, high)


def longer_text(low: float, high: float | None = None, than: str = "") -> str:
    """Say how much longer something takes: "8.0 % longer"; from 300 % on "33 times as long".

    Args:
        low: What it takes more, as a fraction of what it is compared with.
        high: The same, where it is a range.
        than: What it is compared with, if that is to be said.
    """
    high = low if high is None else high
    if low < _MANY_TIMES:
        said = f"{range_text(percent_text(low), percent_text(high))} longer"
        return f"{said} than {than}" if than else said
    said = f"{range_text(count_text(round(1 + low)), count_text(round(1 + high)))} times as long"
    return f"{said} as {than}" if than else said


def count_text(count: float | None) -> str:
    """A count with thousands separators; at most three significant digits after the point."""
    if not _is_known(count):
        return MISSING
    return f"{count:,.0f}" if float(count).is_integer() else _three_digits(count)


def counted_text(count: int, noun: str) -> str:
    """A count with its noun: "1 host", "1,204 hosts"; nouns whose plural adds an s."""
    return f"{count_text(count)} {noun}{'' if count == 1 else 's'}"


def bytes_text(count: float | None) -> str:
    """A number of bytes in decimal units: 512 B, 6.29 MB.

    Args:
        count: Bytes; None or NaN where it is not known.
    """
    if not _is_known(count):
        return MISSING
    is_small = abs(count) < _BYTES[-1][0] * 0.9995
    return f"{count:.0f} B" if is_small else _scaled_text(count, _BYTES)


def rate_text(per_second: float | None, unit: str) -> str:
    """A rate with three digits and the prefix that fits: 1.31e15 of "flop/s" is "1.31 Pflop/s"."""
    return _scaled_text(per_second, _PREFIXES, unit) if _is_known(per_second) else MISSING


def examples_text(per_second: float) -> str:
    """Examples a second, whole where there are ten: "1,167 examples/s", "2.43 examples/s", "1 example/s"."""
    count = count_text(round(per_second) if per_second >= 10 else per_second)
    return f"{count} {'example' if count == '1' else 'examples'}/s"


def bar_text(fraction: float | None, width: int = 20) -> str:
    """A bar of block characters, readable where neither style nor script survive.

    Args:
        fraction: Length in 0..1; values outside are clipped, a missing value gives no bar.
        width: Characters of a full bar.
    """
    if not _is_known(fraction):
        return ""
    eighths = round(min(max(fraction, 0.0), 1.0) * width * 8)
    full, rest = divmod(max(eighths, int(fraction > 0)), 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def metric_text(value: float | None, *, is_score: bool) -> str:
    """A metric of training: scores in 0..1 (accuracy, AUC) as a percentage, others with four digits.

    Args:
        value: The metric; None or NaN where it is not known.
        is_score: Whether larger is better.
    """
    if not _is_known(value):
        return MISSING
    return f"{value * 100:.1f} %" if is_score and 0 <= value <= 1 else f"{value:.4g}"
