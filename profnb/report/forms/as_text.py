"""A report as plain text, for a terminal and wherever HTML is not shown."""

from profnb.core.printable import filled, for_terminal, printable
from profnb.drawing.drawn_tables import plain_table
from profnb.drawing.section import section_text
from profnb.report.advice import advice_section_text, first_change
from profnb.report.content import Content

_WIDTH = 150


def content_text(content: Content) -> str:
    """The report as plain text: what it says first, then its tables without their details."""
    parts = [printable(f"{content.first_line}. {content.answer}".strip())]
    if content.cell is not None:
        change = f" First change: {first_change(content.advice)}." if content.advice else ""
        parts[0] = f"{filled(printable(f'{content.cell.text}{change}'), _WIDTH)}\n{parts[0]}"
    if content.advice is not None:
        parts.append(advice_section_text(content.advice, content.again))
    parts.extend(f"Note: {printable(note)}" for note in content.notes)
    if content.facts:
        facts = [(f.name, f.value, f"({f.remark})" if f.remark else "") for f in content.facts]
        parts.append(plain_table(facts, (False, True, False)))
    if content.shares:
        rows = [(name, mean, share, bar) for name, bar, mean, share in content.shares]
        parts.append("Mean step\n" + plain_table(rows, (False, True, True, False)))
    parts.extend(section_text(part) for part in content.sections if not part.is_detail)
    return for_terminal("\n\n".join(parts))
