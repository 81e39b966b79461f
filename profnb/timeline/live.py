"""Questions from a timeline in the browser to the kernel, and the answers.

A saved timeline holds what fits; while the kernel lives, zooming in asks for the events of the window.
"""

from base64 import b64encode
from functools import partial
from typing import Any

import numpy as np

from profnb.drawing.live_outputs import show_bridge
from profnb.subjects.study import Study
from profnb.timeline.pack import event_details, pack_timeline, unit_of
from profnb.timeline.scene import Scene

_MOST_MARKS, _MOST_DETAILS = 30_000, 500
_FARTHEST_PS = 1 << 62


def answer_question(scene: Scene, question: str) -> str:
    """What a timeline's script asked, as text.

    Args:
        scene: The trace, what was found in it, and its lanes.
        question: ``hello``; ``window FROM TO`` for the packed marks of a window in base64; or
            ``event ROW BEGIN`` for the stats of the event that begins there. Times are in the
            timeline's units.

    Returns:
        The answer; "" for a question that makes no sense, which a page may ask.
    """
    if question == "hello":
        return "here"
    kind, *numbers = question.split() or [""]
    if len(numbers) != 2 or not all(n.lstrip("-").isdecimal() and len(n) < 16 for n in numbers):
        return ""
    first, second = int(numbers[0]), int(numbers[1])
    begin_ps, unit_ps = unit_of(scene)
    if kind == "window":
        ends = (begin_ps + first * unit_ps, begin_ps + max(second, first + 1) * unit_ps)
        window = tuple(min(max(end, -_FARTHEST_PS), _FARTHEST_PS) for end in ends)
        packed = pack_timeline(scene, _MOST_MARKS, _MOST_DETAILS, (window[0], window[1]))
        return b64encode(packed.data).decode("ascii")
    if kind == "event":
        events = scene.study.trace.events
        matches = np.flatnonzero(
            (scene.lanes.lane == first) & ((events.begin_ps - begin_ps) // unit_ps == second)
        )
        return event_details(scene, int(matches[0])) if matches.size else ""
    return ""


def show_live_detail(study: Study, timeline_id: str) -> Any:
    """Make the kernel answer the timeline of this id.

    Returns:
        What lives on; None in Colab.
    """
    return show_bridge(timeline_id, partial(answer_question, Scene(study)))
