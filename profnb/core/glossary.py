"""The field's terms as profnb uses them, each once: for the documentation's glossary, and for hover texts.

They stand in ``glossary.json``, from which ``docs/glossary.md`` is written (``python docs/make.py``). A
column of the report whose heading is a term, or one of its ``headings``, shows the term's sentence under the
pointer.
"""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Term:
    """One term.

    Attributes:
        sentence: What it is, in one plain sentence.
        rule: Its unit, or the rule by which it is measured; "" for none.
        shows: Where it is seen; "" for everywhere.
        elsewhere: What other tools call it; "" for the same.
        headings: Headings of columns that mean the same.
    """

    sentence: str
    rule: str = ""
    shows: str = ""
    elsewhere: str = ""
    headings: tuple[str, ...] = ()


GLOSSARY: dict[str, dict[str, Term]] = {
    title: {name: Term(**facts) for name, facts in terms.items()}
    for title, terms in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8")).items()
}
_BY_HEADING = {
    heading: term.sentence
    for terms in GLOSSARY.values()
    for name, term in terms.items()
    for heading in (name, *term.headings)
}


def explain(heading: str) -> str:
    """Say what the term of a heading means, in a sentence; "" where the heading is no term."""
    return _BY_HEADING.get(heading.lower(), "")
