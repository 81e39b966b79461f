"""What the devices of one trace say of one another, in the trace's own advice.

What the device that is looked at loses in collectives is waiting or exchange, which call for different
remedies. Where the trace has several devices that meet, it tells: a device that holds the others up takes the
place of advice on exchange and on uneven work; where none does, exchange is what it takes, waiting left out.
"""

from dataclasses import replace

from profnb.core.units import duration_text, percent_text
from profnb.fleet.costs import FEWEST_STEPS
from profnb.fleet.device_digests import digest_devices
from profnb.fleet.meeting import find_meeting
from profnb.fleet.merging import merge
from profnb.fleet.verdict import judge, time_hosts
from profnb.subjects.advising import Finding
from profnb.subjects.study import Study
from profnb.trace.runs.capture_times import CaptureTime

__all__ = ["refine_with_devices"]

_EXCHANGE, _UNEVEN = "exposed-collectives", "imbalance"
_MOST = 2_000  # collectives of a device: as many as a report has time for
_LEAST_EXCHANGE = 0.05  # of the step, as the advice asks for
_ALL = " profnb.load_fleet(p), of this profile or its file, shows all devices."


def refine_with_devices(study: Study, advice: list[Finding]) -> list[Finding]:
    """Findings that know what the devices of a trace waited for one another.

    Args:
        study: The trace's analyses.
        advice: The advice as its busiest device alone gives it.
    """
    digests = digest_devices(study, "", CaptureTime(), _MOST)
    meeting = find_meeting(digests).digests
    merged = merge(meeting)
    if len(meeting) < len(digests):  # what does something else is no replica
        advice = [one for one in advice if one.rule != _UNEVEN]
    if merged is None or merged.telling.size < FEWEST_STEPS:
        return advice
    times = time_hosts(meeting, merged)
    verdict = judge(meeting, merged, times)
    if verdict.findings:
        (named,) = verdict.findings
        of_all = replace(named, evidence=f"{named.evidence} {verdict.why}", code=named.code + _ALL)
        return [*(one for one in advice if one.rule not in (_EXCHANGE, _UNEVEN)), of_all]
    exchange, wait = float(times.exchange_ps.mean()), float(times.wait_ps.mean())
    share = exchange / max(float(times.step_ps.mean()), 1.0)
    return [
        _without_waiting(one, share, exchange, wait, verdict.remark)
        if one.rule == _EXCHANGE
        else one
        for one in advice
        if one.rule != _EXCHANGE or share >= _LEAST_EXCHANGE
    ]


def _without_waiting(
    one: Finding, share: float, exchange_ps: float, wait_ps: float, remark: str
) -> Finding:
    bound = share if one.bound_fraction is None else min(one.bound_fraction, share)
    return replace(
        one,
        evidence=f"{one.evidence} {duration_text(exchange_ps)} of a step is exchange, {percent_text(share)} "
        f"of it, and {duration_text(wait_ps)} waiting for one another (means of all devices), for none of "
        f"them in most steps.{remark and ' '}{remark}",
        bound_fraction=bound,
    )
