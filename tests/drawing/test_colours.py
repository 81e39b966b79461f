"""Colours that stand beside each other differ, for the colour-blind too; text can be read on light and dark pages.

The distance is CIEDE2000 (Sharma, Wu and Dalal, "The CIEDE2000 color-difference formula", 2005), checked by their own
data; deuteranopia is simulated by Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of
color vision deficiency" (2009), severity 1; contrast is that of WCAG 2.2.
"""

from itertools import combinations

import numpy as np
import pytest

from profnb.drawing.theme import CAUSE_COLOURS, CELL_COLOURS, COLOURS, MEMORY_COLOUR, PART_COLOURS, ink_on
from profnb.subjects.memory.section import _ALLOCATOR_COLOURS as MEMORY_LINES

APART, LEAST_CONTRAST, LEAST_TEXT = 12, 3, 4.5
WHITE, DARK = "#ffffff", "#111111"
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]])
DEUTERANOPIA = np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]])


def linear(colour):
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(light):
    t = XYZ @ light / (XYZ @ np.ones(3))
    f = np.where(t > 216 / 24389, np.cbrt(t), (24389 / 27 * t + 16) / 116)
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def ciede2000(one, two):
    (l1, a1, b1), (l2, a2, b2) = one, two
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = 0.5 * (1 - np.sqrt(mean**7 / (mean**7 + 25.0**7)))
    a1, a2 = (1 + g) * a1, (1 + g) * a2
    c1, c2 = np.hypot(a1, b1), np.hypot(a2, b2)
    h1, h2 = (np.degrees(np.arctan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    apart = h2 - h1
    if c1 * c2 == 0:
        turn, between = 0.0, h1 + h2
    else:
        turn = apart - 360 if apart > 180 else apart + 360 if apart < -180 else apart
        between = (h1 + h2) / 2 if abs(apart) <= 180 else (h1 + h2 + (360 if h1 + h2 < 360 else -360)) / 2
    hue = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2))
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    t = 1 - 0.17 * np.cos(np.radians(between - 30)) + 0.24 * np.cos(np.radians(2 * between))
    t += 0.32 * np.cos(np.radians(3 * between + 6)) - 0.2 * np.cos(np.radians(4 * between - 63))
    of_light = (l2 - l1) / (1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2))
    of_chroma, of_hue = (c2 - c1) / (1 + 0.045 * chroma), hue / (1 + 0.015 * chroma * t)
    turned = -2 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7)) * np.sin(np.radians(60 * np.exp(-(((between - 275) / 25) ** 2))))
    return float(np.sqrt(of_light**2 + of_chroma**2 + of_hue**2 + turned * of_chroma * of_hue))


def distance(one, two, *, deuteranopia=False):
    seen = [np.clip(DEUTERANOPIA @ linear(colour), 0, 1) if deuteranopia else linear(colour) for colour in (one, two)]
    return ciede2000(*map(lab, seen))


def contrast(one, two):
    low, high = sorted(float(XYZ[1] @ linear(colour)) + 0.05 for colour in (one, two))
    return high / low


@pytest.mark.parametrize(("one", "two", "told"), [
    ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
    ((50, -1.3802, -84.2814), (50, 0, -82.7485), 1.0),
    ((50, 0, 0), (50, -1, 2), 2.3669),
    ((50, 2.49, -0.001), (50, -2.49, 0.0011), 7.2195),
    ((50, 2.5, 0), (73, 25, -18), 27.1492),
    ((50, 2.5, 0), (56, -27, -3), 31.9030),
    ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
    ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
    ((90.9257, -0.5406, -0.9208), (88.6381, -0.8985, -0.7239), 1.5381),
])  # fmt: skip
def test_the_distance_is_that_of_its_authors(one, two, told):
    assert ciede2000(one, two) == pytest.approx(told, abs=1e-4)
    assert ciede2000(two, one) == pytest.approx(told, abs=1e-4)


def test_deuteranopes_take_red_and_green_for_one_and_yellow_and_blue_apart():
    assert distance("#a08000", "#c06a00", deuteranopia=True) < distance("#a08000", "#c06a00")
    assert distance("#808080", "#808080", deuteranopia=True) == 0
    assert distance("#3d85d1", "#9068c4", deuteranopia=True) < 3  # what device compute and collectives were: one blue
    assert distance("#ffff00", "#0000ff", deuteranopia=True) > 60


CELL = ("imports", "first steps", "train steps", "input", "gaps", "epoch ends", "callbacks", "checkpointing", "around steps", "own lines", "profnb")
NEIGHBOURS = {
    "a step": COLOURS,
    "layers": PART_COLOURS,
    "idle": {**CAUSE_COLOURS, "device compute": COLOURS["device compute"]},
    "a cell": {name: CELL_COLOURS[name] for name in CELL},
    "memory": dict(zip("123456", MEMORY_LINES, strict=True)),
    "bounds": {"compute": COLOURS["device compute"], "memory": MEMORY_COLOUR, "neither": COLOURS["all others"]},
}


@pytest.mark.parametrize("deuteranopia", [False, True], ids=["all", "deuteranopia"])
@pytest.mark.parametrize("place", NEIGHBOURS)
def test_whatever_may_stand_beside_each_other_is_told_apart(place, deuteranopia):
    for (one, first), (two, second) in combinations(NEIGHBOURS[place].items(), 2):
        assert distance(first, second, deuteranopia=deuteranopia) >= APART, f"{one} {first} and {two} {second}"


@pytest.mark.parametrize("own", [*(PART_COLOURS[name] for name in ("forward", "backward", "update")), MEMORY_COLOUR])
def test_what_is_no_category_of_time_has_a_hue_of_its_own(own):
    assert min(distance(own, other) for other in COLOURS.values()) > 8


ALL = {**COLOURS, **PART_COLOURS, **CAUSE_COLOURS, **CELL_COLOURS, "memory": MEMORY_COLOUR}


@pytest.mark.parametrize("name", ALL)
def test_a_colour_is_seen_on_light_and_dark_pages_and_text_on_it_can_be_read(name):
    assert min(contrast(ALL[name], WHITE), contrast(ALL[name], DARK)) >= LEAST_CONTRAST
    assert contrast(ink_on(ALL[name]).replace("#fff", WHITE).replace("#000", "#000000"), ALL[name]) >= LEAST_TEXT


@pytest.mark.parametrize(("page", "ink"), [(WHITE, "#000000"), (DARK, "#ffffff"), ("#ffffff", "#212121"), ("#111111", "#e0e0e0")])
def test_fainter_text_can_be_read(page, ink):
    """``MUTED`` is the text's own colour, seen through: what the browser shows is a mixture."""
    from profnb.drawing.theme import MUTED

    share = float(MUTED.removeprefix("opacity:"))
    mixed = "#" + "".join(f"{round(share * int(ink[at : at + 2], 16) + (1 - share) * int(page[at : at + 2], 16)):02x}" for at in (1, 3, 5))
    assert contrast(mixed, page) >= LEAST_TEXT
