"""The devices of one trace to what they say of one another, in the trace's own advice.

What the device that is looked at loses in collectives is waiting or exchange, which call for different
remedies. Where the trace has several devices that meet, it tells: a device that holds the others up takes the
place of advice on exchange and on uneven work; where none does, exchange is what it takes, waiting left out.
"""

from dataclasses import replace

from profnb.advice.cell_model import Model
from profnb.advice.proposals import Proposal
from profnb.causes.numbers import LEFT
from profnb.core.units import duration_text, percent_text
from profnb.fleet.digest import digest_devices
from profnb.fleet.merging import find_meeting, merge
from profnb.fleet.verdict import FEWEST_STEPS, judge, time_hosts
from profnb.trace.runs import CaptureTime

_EXCHANGE, _UNEVEN = "exposed-collectives", "imbalance"
_MOST_COLLECTIVES = 2_000  # collectives of a device: as many as a report has time for
_ALL = " profnb.load_fleet(p), of this profile or its file, shows all devices."


def refine_with_devices(model: Model, proposals: list[Proposal]) -> list[Proposal]:
    """Proposals that know what the devices of a trace waited for one another.

    Args:
        model: What is known of the cell.
        proposals: What is proposed by its busiest device alone.
    """
    if model.study is None:
        return proposals
    digests = digest_devices(model.study, "", CaptureTime(), _MOST_COLLECTIVES)
    meeting = find_meeting(digests).digests
    merged = merge(meeting)
    if len(meeting) < len(digests):  # what does something else is no replica
        proposals = [one for one in proposals if one.rule != _UNEVEN]
    if merged is None or merged.telling.size < FEWEST_STEPS:
        return proposals
    times = time_hosts(meeting, merged)
    verdict = judge(meeting, merged, times)
    if verdict.findings:
        (named,) = verdict.findings
        edit = model.some_of((), verdict.gain_fraction, (0.0, LEFT), "the others wait for it")
        slow = Proposal(
            named.rule, named.title, f"{named.evidence} {verdict.why}", named.code + _ALL, named.link, [edit]
        )  # fmt: skip
        return [*(one for one in proposals if one.rule not in (_EXCHANGE, _UNEVEN)), slow]
    exchange, wait = float(times.exchange_ps.mean()), float(times.wait_ps.mean())
    share = exchange / max(float(times.step_ps.mean()), 1.0)
    more = (
        f" {duration_text(exchange)} of a step ({percent_text(share)}) is exchange, {duration_text(wait)} "
        "waiting for other devices (means of all devices). In most steps no single device is "
        f"late.{verdict.remark and ' '}{verdict.remark}"
    )
    edit = model.some_of(("device collectives",), share, (0.0, LEFT), "exchange can be hidden")
    return [
        replace(one, evidence=one.evidence + more, edits=[edit]) if one.rule == _EXCHANGE else one
        for one in proposals
    ]
