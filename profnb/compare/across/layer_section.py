"""Layers of two frameworks side by side, as the comparison shows them."""

import math
from collections.abc import Sequence

from profnb.compare.across.layer_differences import LAYER_DIFFERENCES, LayerDifference
from profnb.core.units import MISSING, count_text, duration_text, range_text
from profnb.drawing.drawn_tables import Cell
from profnb.drawing.section import Bar, Section, Shown, section_of
from profnb.drawing.theme import COLOURS

_MOST_ROWS, _MOST_NAMED = 60, 5
_TITLE = "Layers, forward + backward"


def layer_section(
    labels: tuple[str, str],
    layers: Sequence[LayerDifference],
    op_ps: tuple[float, float],
    frameworks: tuple[str, str],
) -> Section:
    """The table of layers; without rows where one side has none.

    Args:
        labels: What A and B are called.
        layers: The layers of both.
        op_ps: Op time of a mean step of A and of B.
        frameworks: Which frameworks ran.
    """
    if not layers:
        sentence = _sentence(labels, layers, op_ps, frameworks, 0)
        return Section(_TITLE, sentence, (), (), (), (), "", plain=f"{_TITLE}\n{sentence}")
    order = sorted(range(len(layers)), key=lambda row: -_weight(layers[row]))
    shown = sorted(order[:_MOST_ROWS])
    most = max((_weight(row) for row in layers), default=0.0) or 1.0
    return section_of(
        LAYER_DIFFERENCES,
        layers,
        (
            Shown("layer", lambda row: _name(layers[row], labels)),
            *(_of_side(labels, layers, side) for side in (0, 1)),
            Shown(
                f"{labels[1]} / {labels[0]}",
                lambda row: _ratio(layers[row]),
                is_number=True,
                meaning="time of the second over that of the first, with its 95 % interval",
            ),
            Shown("parameters", lambda row: _parameters(layers[row]), is_number=True),
        ),
        title=_TITLE,
        tab="",
        sentence=_sentence(labels, layers, op_ps, frameworks, len(shown)),
        bar=Bar(
            lambda row: _weight(layers[row]) / most,
            lambda row: COLOURS["input" if _more(layers[row]) > 0 else "host compute"],
            8,
        ),
        rows=shown,
    )


def _more(row: LayerDifference) -> float:
    """How much more B spends on it, also where one side has no such layer."""
    first, second = (
        0.0 if math.isnan(side_ps) else side_ps for side_ps in (row.first_ps, row.second_ps)
    )
    return second - first


def _weight(row: LayerDifference) -> float:
    return abs(_more(row))


def _name(row: LayerDifference, labels: tuple[str, str]) -> Cell:
    above, _, name = row.layer.rpartition("/") if row.is_layer else ("", "", row.layer)
    inside = above.partition("/")[2]
    about = [row.layer_type] if row.layer_type else []
    about += [f"in {inside}"] if inside else []
    if row.status != "both":
        about.append(f"only {labels[row.status == 'only in B']}")
    return (name, "", " ".join(about)) if about else name


def _of_side(labels: tuple[str, str], layers: Sequence[LayerDifference], side: int) -> Shown:
    def text(at: int) -> str:
        row = layers[at]
        forward, backward = (
            (row.first_forward_ps, row.first_backward_ps),
            (row.second_forward_ps, row.second_backward_ps),
        )[side]
        if math.isnan(forward):
            return MISSING
        if not row.is_layer:
            return duration_text(forward + backward)
        return f"{duration_text(forward)} + {duration_text(backward)}"

    return Shown(
        labels[side], text, is_number=True,
        meaning="op time of a mean step: forward + backward and all else that is no update of weights",
    )  # fmt: skip


def _ratio(row: LayerDifference) -> str:
    if math.isnan(row.ratio):
        return MISSING
    if math.isnan(row.low):
        return f"{row.ratio:.2f}"
    return f"{row.ratio:.2f} ({range_text(f'{row.low:.2f}', f'{row.high:.2f}')})"


def _parameters(row: LayerDifference) -> str:
    parameter_counts = [
        count_text(int(count))
        for count in (row.first_parameters, row.second_parameters)
        if not math.isnan(count)
    ]
    return " and ".join(dict.fromkeys(parameter_counts)) or MISSING


def _sentence(
    labels: tuple[str, str],
    layers: Sequence[LayerDifference],
    op_ps: tuple[float, float],
    frameworks: tuple[str, str],
    shown: int,
) -> str:
    if not layers:
        return (
            f"{frameworks[0]} and {frameworks[1]} have no ops in common, and of one of them no layers are "
            "known, so there is nothing below the categories to compare."
        )
    both = sum(row.status == "both" for row in layers if row.is_layer)
    every = sum(row.is_layer for row in layers)
    times = " and ".join(
        f"{duration_text(spent)} of {label}'s" for spent, label in zip(op_ps, labels, strict=True)
    )
    words = [
        f"{count_text(both)} of {count_text(every)} layers with ops were found on both sides by name. "
        f"Op time of a mean traced step: {times}, threads added up; Python and waiting between ops are no "
        "part of it."
    ]
    if shown < len(layers):
        words.append(f"{count_text(len(layers) - shown)} more rows are in c.layers.")
    words.extend(
        f"Only {label} has ops of {_listed(only)}."
        for status, label in zip(("only in A", "only in B"), labels, strict=True)
        if (only := [row.layer for row in layers if row.is_layer and row.status == status])
    )
    return " ".join(words)


def _listed(names: Sequence[str]) -> str:
    named = [name.rpartition("/")[2] or name for name in names[:_MOST_NAMED]]
    rest = [f"{count_text(len(names) - len(named))} more"] if len(names) > len(named) else []
    every = [*named, *rest]
    return every[0] if len(every) == 1 else f"{', '.join(every[:-1])} and {every[-1]}"
