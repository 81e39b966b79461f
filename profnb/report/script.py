"""The report's program: one small script of ours that upgrades every report on the page in place.

It is no part of the HTML, because sanitizers differ in what they leave of it (nbconvert's shows the program
as text): it is an ``application/javascript`` output of its own, which pages that run no script drop whole.
The script is constant.
"""

from functools import cache
from importlib import resources

_DRAWING = ("format.js", "sorting.js", "axis.js", "zoom.js", "chart.js", "ask.js")


@cache
def report_script() -> str:
    """The script that upgrades every report on the page it runs in."""
    files = [
        *(resources.files("profnb.drawing") / name for name in _DRAWING),
        *(
            resources.files("profnb.report") / name
            for name in ("table.js", "advice.js", "live.js", "report.js")
        ),
    ]
    return "(function () {\n" + "\n".join(f.read_text(encoding="utf-8") for f in files) + "})();\n"


def script_bundle() -> dict[str, str]:
    """The script as an output of its own, with nothing to see where it does not run."""
    return {"application/javascript": report_script(), "text/plain": ""}
