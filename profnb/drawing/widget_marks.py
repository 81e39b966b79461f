"""What marks an output with widgets of ours, so that a saved notebook can be repaired."""

from markupsafe import Markup

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
OURS = "Live controls need the kernel"  # as reports of 0.1 say it; now they are hidden
HIDDEN = Markup(
    '<span class="profnb-detail"></span>'
)  # what hidden widgets show without a kernel: nothing
