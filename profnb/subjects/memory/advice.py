"""Rules of advice on memory."""

from profnb.core.units import count_text, percent_text
from profnb.subjects.advising import Finding, guide, idle_share_of
from profnb.subjects.study import Study

__all__ = ["larger_batch"]

_FAR = 64  # times the batch that ran: what grows with it was too small beside the rest to go by


def larger_batch(study: Study) -> Finding | None:
    """Twice the batch fits into the device, which idles a fifth of the time or more, not for want of data.

    What it saves has no bound that the trace tells: larger kernels are more efficient too, and recorded
    doublings saved up to 54 % of the time per example.
    """
    idle = study.device.idle
    use = next((u for u in study.memory.use if u.largest_batch and u.batch_size), None)
    if (
        idle is None
        or use is None
        or use.batch_size is None
        or use.largest_batch < 2 * use.batch_size
    ):
        return None
    share = float(idle.total_ps.sum() / idle.window_ps)
    for_data = sum(idle_share_of(study, cause) for cause in ("waiting for input", "copying input"))
    if share - for_data < 0.2 or study.steps.is_window:
        return None
    return Finding(
        "larger-batch", "Use a larger batch",
        f"The device was idle {percent_text(share)} of the time, and its memory would hold "
        f"{_batch_text(use.largest_batch, use.batch_size)} (now {count_text(use.batch_size)}).",
        None,
        f"batch_size={2 * use.batch_size}; scale the learning rate with it.",
        guide(study, "gpu_performance_analysis"),
        (share - for_data) / 2,
    )  # fmt: skip


def _batch_text(largest: int, now: int) -> str:
    """How large: an estimate of two digits; far from what was measured it is none."""
    if largest > _FAR * now:
        return f"a batch more than {_FAR} times as large"
    return f"a batch of about {count_text(largest - largest % int(10 ** max(len(str(largest)) - 2, 0)))}"
