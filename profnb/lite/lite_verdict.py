"""The answer of a LiteRT result in a sentence: what a kind gains, and its price."""

import math
from typing import Any

from profnb.core.units import bytes_text, duration_text, range_text
from profnb.lite.findings import LiteFindings, Price

_SAME_SIZE = 0.005


def verdict_text(findings: LiteFindings) -> str:
    """Say in a sentence what the fastest kind gains, and its price."""
    base = findings.base
    if base is None:
        return "No model could be run."
    others = [one for one in findings.measured if one is not base]
    if not others:
        return f"{base.name}: {duration_text(base.latency_ps)} a run, {bytes_text(base.bytes)}."
    best = max(others, key=lambda one: findings.speedup(one).value)
    smaller = "no smaller"
    if best.bytes < base.bytes * 0.95:
        smaller = f"{base.bytes / best.bytes:.1f}x smaller"
    gain = f"{best.name} is {_speedup_text(*findings.speedup(best), base.name)} and {smaller}"
    return f"{gain}{_price_text(findings.price(best), findings)}."


def _speedup_text(ratio: float, low: float, high: float, other: str) -> str:
    """Say how much faster something is, with its interval: "4.1x faster than float32 (3.9 to 4.3)"."""
    if high < 1:
        interval = range_text(_factor(1 / high), _factor(1 / low))
        return f"{_factor(1 / ratio)}x slower than {other} ({interval})"
    if low <= 1:
        interval = range_text(f"{low:.2f}", f"{high:.2f}")
        return f"as fast as {other}, within the interval of these runs ({interval} of the speed)"
    return f"{_factor(ratio)}x faster than {other} ({range_text(_factor(low), _factor(high))})"


def _factor(value: float) -> str:
    return f"{value:.1f}" if value >= 1.95 else f"{value:.2f}"


def difference_text(row: Any, labels: tuple[str, str], findings: LiteFindings) -> str:
    """Say what one kind of B gains over that of A, and its price.

    Args:
        row: A ``LiteDifference``.
        labels: What A and B are called.
        findings: A's findings, for what the metric is.
    """
    one, two = (f"{row.name} of {label}" for label in labels)
    time = row.time
    size = row.second.bytes / row.first.bytes
    if math.isnan(size) or abs(size - 1) < _SAME_SIZE:
        smaller = "of the same size"
    else:
        smaller = f"{1 / size:.2f}x smaller" if size < 1 else f"{size:.2f}x larger"
    speedup = _speedup_text(1 / time.ratio, 1 / time.high, 1 / time.low, one)
    return f"{two} is {speedup} and {smaller}{_price_text(row.price, findings)}."


def _price_text(price: Price | None, findings: LiteFindings) -> str:
    """Say what it costs in what the model is for: "; accuracy 0.3 points lower (0.1 to 0.6)"."""
    if price is None:
        return ""
    scale, unit = (100, " points") if findings.is_score else (1, "")

    def text(value: float) -> str:
        return f"{value * scale:.1f}" if findings.is_score else f"{value:.3g}"

    interval = range_text(text(price.low), text(price.high))
    if not price.difference:
        said = f"the same ({interval}{unit})"
    elif not price.is_sure:
        said = f"differs by {text(price.difference)}{unit}, perhaps by chance ({interval})"
    elif price.difference < 0:
        interval = range_text(text(-price.high), text(-price.low))
        said = f"{text(-price.difference)}{unit} lower ({interval})"
    else:
        said = f"{text(price.difference)}{unit} higher ({interval})"
    return f"; {findings.metric} {said}"
