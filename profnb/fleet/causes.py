"""Why a host or device holds the others up: what it has more of than they, and what to look at."""

from collections.abc import Mapping, Sequence

import numpy as np

from profnb.core.units import duration_text
from profnb.fleet.digest import Digest, noun_of
from profnb.fleet.merging import Merged
from profnb.fleet.own_work import OWN_CATEGORIES

_WORTH = 0.2  # of the excess: an op or a line below it explains nothing
_WORDS = {
    "input": "waiting for input",
    "between steps": "Python between steps",
    "all others": "Python inside the step",
}
_REMEDIES = {
    "input": "Look at its input: a slower disk or network, more work per element, or fewer threads. "
    "fleet[{host!r}].report() shows its pipeline.",
    "between steps": "Look at what Python does between the steps on that host only: logging, checkpoints, "
    "callbacks that only the chief runs. fleet[{host!r}].report() has the lines.",
    "all others": "Look at what Python does inside the step on that host only. fleet[{host!r}].report() has "
    "the lines.",
}
_REMEDY = (
    "Look at what differs on that host: more work per step (uneven shards or batches), a slower or shared "
    "machine, another program beside it. fleet[{host!r}].report() shows its ops."
)
_COPYING = ("output", "device to device")
_OF_DEVICES = {
    "device compute": "Look at what differs on that device: more work (uneven batches), other shapes, a "
    "lower clock (heat, power), another program on it (nvidia-smi).",
    "input": "Look at what makes that device's batches: they come later than the others'.",
}
_COPIES_OF_DEVICE = (
    "Look at what is copied to and from that device only: place what it needs on all devices once, and read "
    "results after the last step."
)
_LATE_FOR_DEVICE = (
    "That device gets its work later than the others, from one process that serves all of them: fewer and "
    "larger ops (tf.function, XLA, jax.jit, torch.compile), or a process per device."
)


def find_cause(
    digests: Sequence[Digest], merged: Merged, group: Sequence[int], rest: Sequence[int]
) -> tuple[str, str]:
    """What the group has more of than the median of the others, and what to look at."""
    mean = (merged.categories_ps + merged.beside_ps)[:, merged.steady].mean(axis=1)
    more = mean[list(group)].mean(axis=0) - np.median(mean[list(rest)], axis=0)
    at = int(more.argmax())
    category = OWN_CATEGORIES[at]
    is_device = noun_of(digests) == "device"
    copied = np.array([one.copied_in_ps for one in digests])
    more_copied = copied[list(group)].mean() - np.median(copied[list(rest)])
    is_copying = is_device and category == "input" and more_copied >= more[at] / 2
    word = "copying to the device" if is_copying else _WORDS.get(category, category)
    if category == "input" and not is_device and any(one.has_device for one in digests):
        word = "waiting for input, or copying it to the device,"
    why = f"Why: {duration_text(float(more[at]))} a step more {word} than the others' median."
    for what, spent in (("op", "op_ps"), ("line", "line_ps")):
        named = _most_above([getattr(one, spent) for one in digests], group, rest)
        if named and named[1] >= _WORTH * more[at]:
            why += f" By {what}, {named[0]} is {duration_text(named[1])} longer."
    if is_device:
        is_copying |= category in _COPYING
        return why, _COPIES_OF_DEVICE if is_copying else _OF_DEVICES.get(category, _LATE_FOR_DEVICE)
    return why, _REMEDIES.get(category, _REMEDY).format(host=digests[group[0]].host)


def _most_above(
    spent: Sequence[Mapping[str, float]], group: Sequence[int], rest: Sequence[int]
) -> tuple[str, float] | None:
    """What the group spends most on beyond the median of the others; None where that is not known of all."""
    if not all(spent):
        return None
    names = set().union(*(spent[row] for row in group))
    above = {
        name: float(
            np.mean([spent[row].get(name, 0.0) for row in group])
            - np.median([spent[row].get(name, 0.0) for row in rest])
        )
        for name in names
    }
    name = max(sorted(above), key=lambda one: above[one])
    return name, above[name]
