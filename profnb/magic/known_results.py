"""What a magic's line names: a result in the notebook, a label, a trace's path."""

import keyword
import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from profnb.capture.profiler.remote import SCHEME
from profnb.core.errors import ProfnbError
from profnb.core.printable import printable
from profnb.lite.entry import LiteResult
from profnb.loading import load
from profnb.profile import Profile
from profnb.several.fleet_loading import find_fleet
from profnb.several.fleets import Fleet


def say(sentence: str) -> None:
    """Show one sentence where the cell's output is."""
    from profnb.report.frontend import (
        show_sentence,  # only now: loading the extension takes no time
    )

    show_sentence(sentence)


class KnownResults:
    """The results that a notebook's magics know by a name.

    Args:
        shell: Whose variables they are.

    Attributes:
        by_label: Results of ``--label``.
    """

    def __init__(self, shell: Any) -> None:
        """None has a label yet."""
        self._shell = shell
        self.by_label: dict[str, Profile] = {}

    def keep(self, result: Any, *names: str | None) -> None:
        """Bind a result to variables of the notebook."""
        self._shell.user_ns.update(
            dict.fromkeys((name for name in names if name is not None), result)
        )

    def source(self, name: str) -> Any:
        """What to compare: a result or a list of them by its label or name, or a path that exists."""
        named_source = self.by_label.get(name, self._shell.user_ns.get(name))
        if named_source is not None and not isinstance(named_source, str | os.PathLike):
            listed = [named_source] if isinstance(named_source, Profile) else named_source
            if isinstance(listed, Sequence) and all(isinstance(one, Profile) for one in listed):
                return named_source
            if isinstance(named_source, LiteResult):
                return named_source
            raise UsageError(
                f"{name!r} is a {type(named_source).__name__}, not a profile or a list of them."
            )
        path = Path(named_source or name).expanduser()
        if not path.exists():
            labels = printable(", ".join(self.by_label)) or "none"
            raise UsageError(f"There is no result, label or path {name!r} (labels: {labels}).")
        return path

    def open(self, arguments: Namespace, *, is_fleet: bool = False) -> Any:
        """The result of this name, or the trace at this path; all hosts of it where that is wanted."""
        profile: Any = self.by_label.get(arguments.what, self._shell.user_ns.get(arguments.what))
        kinds = Profile | LiteResult | Fleet if is_fleet else Profile | LiteResult
        if not isinstance(profile, kinds):
            try:
                profile = _load(arguments, is_fleet=is_fleet)
            except (ProfnbError, OSError, ValueError) as error:
                raise UsageError(printable(str(error))) from None
            is_whole = arguments.run is None and arguments.host is None
            if is_whole and isinstance(profile, Profile):
                profile.opened_as = arguments.what
        if arguments.out is not None:
            self._shell.user_ns[arguments.out] = profile
        if isinstance(profile, Profile):
            write_json(profile, arguments)
        return profile


def _load(arguments: Namespace, *, is_fleet: bool) -> Profile | Fleet:
    """What a path, a URL or the addresses of running processes give."""
    if is_fleet and arguments.what.startswith(SCHEME):
        from profnb.several.tracing_remotely import trace_remotely

        return trace_remotely(arguments.what, arguments.seconds)
    if is_fleet and arguments.host is None:
        fleet = find_fleet(arguments.what, arguments.run)
        if fleet is not None:
            return fleet
    return load(arguments.what, run=arguments.run, host=arguments.host)


def check_name(name: str | None) -> None:
    """Refuse a name for ``-o`` that no variable can have."""
    if name is not None and (not name.isidentifier() or keyword.iskeyword(name)):
        raise UsageError(f"-o takes a variable name, got {name!r}.")


def labels_of(names: list[str], sources: list[Any]) -> tuple[str | None, str | None]:
    """What to call two results: labels where they have different ones, else names; None for saved traces."""
    labels = [getattr(getattr(source, "options", None), "label", None) for source in sources]
    if labels[0] == labels[1]:
        labels = [None, None]
    first, second = (
        label or (None if isinstance(source, Path) else name)
        for label, source, name in zip(labels, sources, names, strict=True)
    )
    return first, second


def write_json(profile: Any, arguments: Namespace) -> None:
    """Write the Chrome trace where it was asked for; a file that cannot be written is one sentence."""
    if arguments.json is None or not getattr(profile, "has_trace", False):
        return
    try:
        profile.to_chrome_trace(arguments.json)
    except OSError as error:
        say(f"The Chrome trace was not written: {error}")
