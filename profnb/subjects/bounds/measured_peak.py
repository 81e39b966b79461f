"""The peaks of this machine's CPU, measured on demand: a product of matrices, and a copy.

No table has the peaks of CPUs: which cores a container may use, their clock under load and the memory's
channels differ from machine to machine. So both are measured when somebody asks for it, with NumPy, on all
cores that this process may use:

- products of two square matrices of 32-bit numbers, of several sizes, up to one that takes 30 ms;
- a copy from one array to another, larger than caches, a part on each core: read once, written once.

Each is repeated for half of the time given. The fastest run is what the machine can do, the others say how
sure that is: another program beside it only ever slows a run, so what is measured on a busy machine is too
little. How much of the cores the process had meanwhile is therefore kept, and said where it was not nearly
all; with less than half of them nothing is judged by it. What is measured holds for what this process
captures, until it is measured again; a saved trace may come from another machine.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from profnb.capture.environment import count_cores
from profnb.core.units import counted_text, percent_text, range_text, rate_text
from profnb.subjects.device.roofline import Peak

_LEAST_RUNS = 5
_SMALLEST, _USUAL, _LARGEST_MATRIX = 512, 2048, 8192  # of matrices: rows and columns
_LONG_ENOUGH_S, _TOO_LONG_S = 0.03, 0.1
_NEAR_FASTEST, _ENOUGH = 0.9, 0.5
_COPIED_BYTES = 128 << 20  # for each two cores, four times that at most
_MOST_COPIED = 4


@dataclass(frozen=True, slots=True, repr=False)
class MeasuredPeak:
    """The peaks of a machine's CPU.

    Attributes:
        flops_per_second: Operations on 32-bit numbers in the fastest product of matrices.
        flops_interval: Between which half of the runs lay (first and third quartile).
        bytes_per_second: Bytes read and written in the fastest copy.
        bytes_interval: Likewise.
        threads: Cores that this process may use.
        cores_fraction: Share of their time that it had, 0 to 1.
    """

    flops_per_second: float
    flops_interval: tuple[float, float]
    bytes_per_second: float
    bytes_interval: tuple[float, float]
    threads: int
    cores_fraction: float = 1.0

    @property
    def peak(self) -> Peak | None:
        """The limits, as those of a device; None where others had most of the cores meanwhile."""
        if self.cores_fraction < _ENOUGH:
            return None
        flops, copied = self._interval_texts()
        return Peak(
            {"32-bit": self.flops_per_second},
            self.bytes_per_second,
            f"measured here on {counted_text(self.threads, 'core')}: middle half of the runs {flops} for "
            f"matrix products, {copied} for copies{self._remark}",
        )

    @property
    def _remark(self) -> str:
        left = percent_text(self.cores_fraction)
        remark = f". Both may be higher: other programs left only {left} of the cores' time"
        return "" if self.cores_fraction >= _NEAR_FASTEST else remark

    def _interval_texts(self) -> tuple[str, str]:
        return (
            range_text(*(rate_text(value, "flop/s") for value in self.flops_interval)),
            range_text(*(rate_text(value, "B/s") for value in self.bytes_interval)),
        )

    def __repr__(self) -> str:
        flops, copied = self._interval_texts()
        return (
            f"<{counted_text(self.threads, 'core')}: {rate_text(self.flops_per_second, 'flop/s')} (half "
            f"of the runs {flops}), {rate_text(self.bytes_per_second, 'B/s')} (half of the runs {copied})"
            f"{self._remark}>"
        )


_kept: list[MeasuredPeak] = []


def kept_peak() -> MeasuredPeak | None:
    """The peak that was measured last; None where nobody has."""
    return _kept[-1] if _kept else None


def measure_cpu(seconds: float) -> MeasuredPeak:
    """Measure what the CPU can do, and keep it.

    It takes so many seconds, about; each of both is run five times at least.

    Raises:
        ValueError: There is no time.
    """
    if not seconds > 0:
        raise ValueError(f"seconds must be positive, got {seconds}.")
    threads = count_cores()
    flops, cores = _measure_product(seconds / 2, threads)
    copied = _measure_copy(seconds / 2, threads)
    measured = MeasuredPeak(*_summed(flops), *_summed(copied), threads, cores)
    _kept[:] = [measured]
    return measured


def _summed(rates: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The highest rate, and the middle half of them."""
    low, high = np.percentile(rates, [25, 75])
    return max(rates), (float(low), float(high))


def _rates(run: Callable[[], object], amount: float, seconds: float) -> list[float]:
    """The amount that was done in a second, run by run."""
    rates: list[float] = []
    now = time.perf_counter()
    until = now + seconds
    while len(rates) < _LEAST_RUNS or now < until:
        began = now
        run()
        now = time.perf_counter()
        rates.append(amount / max(now - began, 1e-9))
    return rates


def _measure_product(seconds: float, threads: int) -> tuple[list[float], float]:
    """Operations a second, run by run, of the size that is fastest; and how much of the cores they had."""
    size = _SMALLEST
    best: tuple[list[float], float] = [], 0.0
    while True:
        # Two matrices: of one and itself transposed a library computes only half.
        left, right = (np.full((size, size), value, np.float32) for value in (0.5, 0.25))
        run = partial(np.matmul, left, right, out=np.empty_like(left))
        run()  # what is done once: threads, pages of memory
        began, worked = time.perf_counter(), time.process_time()
        rates = _rates(run, 2.0 * size**3, seconds / 3)
        took = max(time.perf_counter() - began, 1e-9) * threads
        if max(rates) > max(best[0], default=0.0):
            best = rates, min((time.process_time() - worked) / took, 1.0)
        fastest_s = 2.0 * size**3 / max(rates)
        is_enough = size >= _USUAL and fastest_s >= _LONG_ENOUGH_S
        if is_enough or fastest_s >= _TOO_LONG_S or size >= _LARGEST_MATRIX:
            return best
        size *= 2


def _measure_copy(seconds: float, threads: int) -> list[float]:
    size = _COPIED_BYTES * max(1, min(threads // 2, _MOST_COPIED))
    source = np.ones(size, np.uint8)
    target = np.zeros_like(source)
    bounds = np.linspace(0, size, threads + 1).astype(np.int64).tolist()
    parts = [slice(begin, end) for begin, end in pairwise(bounds)]
    with ThreadPoolExecutor(threads) as pool:

        def copy(part: slice) -> None:
            target[part] = source[part]

        def run() -> None:
            list(pool.map(copy, parts))

        run()
        return _rates(run, 2.0 * size, seconds)
