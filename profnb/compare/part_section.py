"""The difference of two cells' time by part, as the comparison shows it, and for a pull request."""

import re
from collections.abc import Sequence

from markupsafe import Markup

from profnb.compare.differences import more_or_less, number_of, shown_of
from profnb.compare.tree_differences import PART_DIFFERENCES, PartDifference, difference_sentence
from profnb.core.printable import printable
from profnb.core.units import PS_PER_MS, duration_text, signed_text
from profnb.drawing.section import Section, section_of

Labels = tuple[str, str]
Parts = Sequence[PartDifference]
SLOWER, FASTER, NO_VERDICT = "CAUTION", "TIP", "NOTE"  # what GitHub calls red, green and blue boxes
_SHOWN, _MOST_PARTS_NAMED = 12, 3
_MARKS = re.compile(r"([\\`*_\[\]<>#@|~])")


def part_section(labels: Labels, parts: Parts, picture: Markup | None = None) -> Section:
    """Show where the whole cell's time differs, by name: both trees, a table, and bars to both sides."""
    shown = parts[:_SHOWN]
    return section_of(
        PART_DIFFERENCES,
        shown,
        (
            shown_of(shown, "part", lambda part: (part.part, "", part.inside)),
            number_of(shown, labels[0], lambda part: _text(part.first_ms)),
            number_of(shown, labels[1], lambda part: _text(part.second_ms)),
            number_of(shown, "difference", lambda part: _signed(part.difference_ms)),
            "status",
        ),
        title="Where the time differs",
        sentence=difference_sentence(parts),
        bar=more_or_less([part.difference_ms for part in shown]),
        strip=picture,
    )


def markdown(
    verdict: str, remarks: Sequence[str], labels: Labels, parts: Parts, alert: str = NO_VERDICT
) -> str:
    """Write a comparison for a pull request, as GitHub renders it.

    Args:
        verdict: The answer, in bold, in one of GitHub's coloured boxes.
        remarks: What to know first.
        labels: What A and B are called.
        parts: Where they differ: the first three, all else, and their sum.
        alert: Which of the boxes.
    """
    lines = [f"> [!{alert}]\n> **{_plain(verdict)}**"]
    lines += [f"> {_plain(remark)}" for remark in remarks]
    if parts:
        shown, rest = parts[:_MOST_PARTS_NAMED], parts[_MOST_PARTS_NAMED:]
        names = [_plain(" / ".join(filter(None, (part.inside, part.part)))) for part in shown]
        times = [(n, p.first_ms, p.second_ms) for n, p in zip(names, shown, strict=True)]
        times += [("all else that differs", *_sums(rest))] if rest else []
        times.append(("**together**", *_sums(parts)))
        rows = [("part of the cell", *map(_plain, labels), "difference")]
        rows.append(("---", "---:", "---:", "---:"))
        rows += [(name, _text(one), _text(two), _signed(two - one)) for name, one, two in times]
        lines += [f"**{_plain(difference_sentence(parts))}**"]
        lines.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join(lines) + "\n"


def _sums(parts: Parts) -> tuple[float, float]:
    return sum(part.first_ms for part in parts), sum(part.second_ms for part in parts)


def _text(ms: float) -> str:
    return duration_text(ms * PS_PER_MS)


def _signed(ms: float) -> str:
    return signed_text(ms * PS_PER_MS)


def _plain(text: str) -> str:
    """Text that GitHub shows as it is, on one line."""
    return _MARKS.sub(r"\\\1", printable(text)).replace("\n", " ")
