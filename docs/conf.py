"""The documentation as a site, made by Sphinx: `python -m sphinx -W --keep-going docs build/docs`.

Pages are Markdown (MyST), the API is the docstrings. A page that is put into this folder
is named in a list of `index.md`; `-W` fails where it is not.
"""

from pathlib import Path

import profnb

project = "profnb"
version = release = profnb.__version__
author = copyright = "the authors of profnb"  # noqa: A001 - Sphinx's own name for it
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["build"]
html_theme = "furo"
html_title = "profnb"
html_copy_source = False
myst_heading_anchors = 3
myst_fence_as_directive = ["toctree"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Columns", "params_style")]  # of a table
# Links to files of the repository that are no pages; any other that leads nowhere fails the build.
_ROOT = Path(__file__).parents[1]
_FILES = [
    *_ROOT.glob("*.md"),
    *(path for room in ("profnb", "tests", "notebooks") for path in (_ROOT / room).rglob("*.*")),
]
nitpick_ignore = [
    ("myst", up + path.relative_to(_ROOT).as_posix()) for path in _FILES for up in ("", "../")
]
