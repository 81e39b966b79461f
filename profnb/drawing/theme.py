"""The look: one palette and a few inline styles that hold on light and dark pages alike.

All but the look of tables is inline, because an untrusted notebook drops ``<style>`` but keeps ``style=``. It
either inherits its colour or uses a translucent grey, because no frontend tells us its theme. Colours
have a contrast of at least 3:1 against white and against #111, and those that stand beside each other in a
bar or chart differ for the colour-blind too: by 12 or more (CIEDE2000), in simulated deuteranopia as well.
tests/drawing/test_colours.py measures both.
"""

COLOURS = {
    "device compute": "#2489fd",
    "device to device": "#0198a9",
    "device collectives": "#8143c1",
    "host compute": "#0b7049",
    "kernel launch": "#bc8a02",
    "input": "#ff5875",
    "output": "#a75a05",
    "compilation": "#c3778d",
    "all others": "#737378",
    "work between steps": "#6e8456",
    "between steps": "#476880",
}

# The parts of a layer's work, and memory, have hues of their own: they are no categories of time.
PART_COLOURS = {
    "forward": "#455bd1",
    "backward": "#fb4e16",
    "update": "#4c8a07",
    "recomputation": "#c059e0",
    "loss": "#d07899",
    "metrics": "#046d7d",
    "input": COLOURS["input"],
    "other": COLOURS["all others"],
    "outer layer": "#7a96ac",
    "inner layer": "#855844",
}
MEMORY_COLOUR = "#f327c2"

# Why a device was idle: the colour of what the host did, were it not hidden behind the device.
CAUSE_COLOURS = {
    "compiling": COLOURS["compilation"],
    "waiting for input": COLOURS["input"],
    "synchronising copy": COLOURS["output"],
    "copying input": COLOURS["work between steps"],
    "host compute": COLOURS["host compute"],
    "kernel launch": COLOURS["kernel launch"],
    "host collectives": COLOURS["device collectives"],
    "Python in the step": "#c855a9",
    "Python between steps": COLOURS["between steps"],
    "unknown": COLOURS["all others"],
}

# What a whole cell's time went to: of its nodes that are no category of a step's. Those that differ in a
# detail share a colour; what only holds others is grey.
_PYTHON, _STEPS, _HOLDS = "#157116", "#0c49fc", COLOURS["all others"]
CELL_COLOURS = {
    **COLOURS,
    **dict.fromkeys(("imports", "building models"), "#fc4fb2"),
    **dict.fromkeys(("first steps", "slow first steps", "tracing"), COLOURS["compilation"]),
    **dict.fromkeys(("train steps", "marked steps", "function calls", "session runs"), _STEPS),
    **dict.fromkeys(("validation steps", "evaluation steps", "predict steps"), _STEPS),
    "failed steps": COLOURS["input"],
    "gaps": COLOURS["between steps"],
    "epoch ends": "#cf5724",
    **dict.fromkeys(("around steps", "set-up"), COLOURS["work between steps"]),
    "callbacks": "#cd6ee7",
    "interpreter": COLOURS["input"],
    "checkpointing": "#ac47be",
    **dict.fromkeys(("own lines", "other Python", "eager ops", "framework code"), _PYTHON),
    "waiting for other threads": _PYTHON,
    **dict.fromkeys(("cell", "call", "epoch", "profnb", "other parts"), _HOLDS),
}

TEXT_COLOUR = "#7b7b7b"
GRID = "rgba(128,128,128,0.25)"

ROOT = (
    "font:13px/1.45 var(--jp-ui-font-family,system-ui,-apple-system,'Segoe UI',sans-serif);"
    "color:inherit;max-width:1100px;text-align:left"
)
MUTED = "opacity:0.72"
CHIP = (
    "font-family:monospace;color:inherit;background:rgba(128,128,128,0.16);"
    "padding:1px 6px;border-radius:3px;overflow-wrap:anywhere;white-space:pre-wrap"
)
PLAIN_CELL = "text-align:left"  # where no script runs; drawing/look.js has the rest


def colour_of(category: str) -> str:
    """The colour of a category, the same in every view."""
    return COLOURS.get(category, COLOURS["all others"])


def ink_on(colour: str) -> str:
    """Black or white, whichever reads better on a colour.

    Source: relative luminance of WCAG 2.2.
    """
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#fff" if 1.05 / (light + 0.05) >= (light + 0.05) / 0.05 else "#000"
