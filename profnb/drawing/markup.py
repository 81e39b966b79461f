"""HTML that a type tells from text, so that a name from a trace is escaped everywhere and nothing twice.

A function that makes HTML returns ``Markup`` and builds it from a literal: ``Markup("<b>{}</b>").format(x)``
escapes what is plain text and leaves what is ``Markup``. Nothing in profnb writes a tag outside of such a
literal or escapes by hand; a test looks for both. What is no literal becomes ``Markup`` here alone.
"""

from markupsafe import Markup, escape

__all__ = ["figure_text", "script_element"]


def figure_text(text: str) -> str:
    """Text for a figure, whose labels and hover texts plotly reads as a little HTML."""
    return str(escape(text))


def script_element(program: str) -> Markup:
    """A program as an element of a page.

    Args:
        program: Ours or plotly's, never what comes from a trace.
    """
    closed = program.replace("</script", "<\\/script")
    return Markup("<script>{}</script>").format(Markup(closed))  # noqa: S704  # our own program
