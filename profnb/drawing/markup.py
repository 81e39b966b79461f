"""HTML that a type tells from text, so that a name from a trace is escaped everywhere and nothing twice.

A function that makes HTML returns ``Markup`` and builds it from a literal: ``Markup("<b>{}</b>").format(x)``
escapes what is plain text and leaves what is ``Markup``. Nothing in profnb writes a tag outside of such a
literal or escapes by hand; a test looks for both. What is no literal becomes ``Markup`` here alone.
"""

import base64
import hashlib
import json
import re
from typing import Any

from markupsafe import Markup, escape

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def without_controls(html: Markup) -> Markup:
    """Replace characters that are no text: controls, and those that turn what follows around."""
    return Markup(_CONTROLS.sub("\ufffd", str(html)))  # noqa: S704  # nothing becomes markup by this


def figure_text(text: str) -> str:
    """Escape text for a figure, whose labels and hover texts plotly reads as a little HTML."""
    return str(escape(text))


def json_attribute(value: Any) -> Markup:
    """Write a value as an attribute, as JSON in single quotes: an escaped double one takes five letters."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for mark, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("'", "&#39;")):
        text = text.replace(mark, written)
    return Markup("'{}'").format(Markup(text))  # noqa: S704  # escaped above


def script_element(program: str) -> Markup:
    """Make a program an element of a page.

    Args:
        program: Ours or plotly's, never what comes from a trace.
    """
    closed = program.replace("</script", "<\\/script").replace("\r\n", "\n")
    return Markup("<script>{}</script>").format(Markup(closed))  # noqa: S704  # our own program


def content_policy(*scripts: Markup) -> Markup:
    """Make the element of a page's head that says what it may do: run these programs, and nothing else.

    No network, no frame, no form, no other program: should a name from a trace ever become markup, it could
    do nothing. Styles stand in attributes, and charts are saved as pictures, so both are allowed.

    Args:
        scripts: Elements that ``script_element`` made; empty ones count for nothing.
    """
    hashes, none = [], "'none'"
    for script in filter(None, scripts):
        program = str(script).removeprefix("<script>").removesuffix("</script>")
        digest = hashlib.sha256(program.encode("utf-8", "replace")).digest()
        hashes.append(f"'sha256-{base64.b64encode(digest).decode('ascii')}'")
    rules = (
        "default-src 'none'",
        f"script-src {' '.join(hashes) or none}",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return Markup('<meta http-equiv="Content-Security-Policy" content="{}">').format(
        "; ".join(rules)
    )
