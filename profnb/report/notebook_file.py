"""Saved notebooks to notebooks that GitHub and nbviewer can show.

A frontend that saves widgets may write ``metadata.widgets`` without the ``state`` key that the format
requires (Colab does); GitHub then shows "Invalid Notebook" for the whole file, and nbconvert fails.
Live controls are of no use without their kernel, so profnb's own are taken out as well.
"""

import json
import os
from pathlib import Path
from typing import Any

from profnb.core.safe_files import whole_file
from profnb.drawing.live_outputs import HIDDEN, OURS, WIDGET_VIEW

_STATE = "application/vnd.jupyter.widget-state+json"


def clean_notebook(
    path: str | os.PathLike[str], target: str | os.PathLike[str] | None = None
) -> list[str]:
    """Repair a saved notebook.

    Args:
        path: The notebook.
        target: Where to write it; in place by default.

    Returns:
        What was changed, in sentences; empty if there was nothing to do, and then nothing is written
        in place.

    Raises:
        ValueError: The file is not a notebook.
        OSError: It cannot be read or written.
    """
    source = Path(path)
    try:
        notebook = json.loads(source.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"{source} is not a notebook: no JSON. Give an .ipynb file.") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ValueError(  # noqa: TRY004 - the file is wrong, not the caller
            f"{source} is not a notebook of format 4: it has no list of cells."
        )
    changes = [*_repair_state(notebook), *_remove_controls(notebook)]
    if changes or target is not None:
        text = _written(notebook, source)
        with whole_file(Path(target or source)) as partial:
            partial.write_bytes(text)
    return changes


def _written(notebook: dict[str, Any], source: Path) -> bytes:
    try:
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    except RecursionError:
        raise ValueError(f"{source} is not a notebook: its JSON is too deep.") from None
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:  # half a character, which JSON can only name
        return (json.dumps(notebook, indent=1) + "\n").encode("ascii")


def _repair_state(notebook: dict[str, Any]) -> list[str]:
    metadata = notebook.get("metadata")
    widgets = metadata.get("widgets") if isinstance(metadata, dict) else None
    if not isinstance(widgets, dict):
        return []
    saved = widgets.get(_STATE, widgets)
    if isinstance(saved, dict) and "state" in saved:
        return []
    del notebook["metadata"]["widgets"]
    return ["Removed widget metadata without a state, which makes GitHub call the file invalid."]


def _is_ours(output: Any) -> bool:
    data = output.get("data") if isinstance(output, dict) else None
    if not isinstance(data, dict) or WIDGET_VIEW not in data:
        return False
    return OURS in _text(data.get("text/plain")) or _text(data.get("text/html")) == HIDDEN


def _text(value: Any) -> str:
    """A text, as one or as lines; nothing where it is something else."""
    lines = value if isinstance(value, list) else [value]
    return "".join(line for line in lines if isinstance(line, str))


def _remove_controls(notebook: dict[str, Any]) -> list[str]:
    removed = 0
    for cell in notebook["cells"]:
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        if isinstance(outputs, list):
            kept = [output for output in outputs if not _is_ours(output)]
            removed += len(outputs) - len(kept)
            cell["outputs"] = kept
    return [f"Removed {removed} live controls that need a kernel."] if removed else []
