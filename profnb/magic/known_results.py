"""Results by what a magic's line names: a variable, a label, a path; ``%tflite`` and ``%tfmemory``."""

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from profnb.capture.profiler.tensorflow_door import SCHEME
from profnb.core.printable import printable
from profnb.core.units import GB
from profnb.lite.entry import OPTIONS, LiteResult, lite
from profnb.loading import last, load
from profnb.magic.magic_options import as_usage_error
from profnb.many_traces.fleets import Fleet, find_fleet, trace_remotely
from profnb.profile import Profile


def say(sentence: str) -> None:
    """Show one sentence where the cell's output is."""
    from profnb.report.frontend import show_sentence  # loading the extension takes no time

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
        self._shell.user_ns.update(dict.fromkeys(filter(None, names), result))

    def source(self, name: str) -> Any:
        """Find what to compare: a result or a list of them by its label or name, or a path that exists."""
        named_source = self.by_label.get(name, self._shell.user_ns.get(name))
        if named_source is not None and not isinstance(named_source, str | os.PathLike):
            if isinstance(named_source, Profile | LiteResult):
                return named_source
            listed = named_source if isinstance(named_source, Sequence) else [None]
            if all(isinstance(one, Profile) for one in listed):
                return named_source
            raise UsageError(
                f"{name!r} is of type {type(named_source).__name__}, not a result or a list of results. Give "
                "what `%%tfprofile -o NAME` kept."
            )
        path = Path(named_source or name).expanduser()
        if not path.exists():
            labels = printable(", ".join(self.by_label)) or "none"
            raise UsageError(
                f"There is no result, label or file {name!r} (labels: {labels}). Keep a result with "
                "`%%tfprofile --label NAME`."
            )
        return path

    def open(self, arguments: Namespace, *, is_fleet: bool = False) -> Any:
        """Find the result of this name, or open the trace at this path; all hosts of it where wanted."""
        if arguments.last == (arguments.what is not None):
            raise UsageError("--last opens the last cell that died; leave out the path or name.")
        profile: Any = self.by_label.get(arguments.what, self._shell.user_ns.get(arguments.what))
        kinds = Profile | LiteResult | Fleet if is_fleet else Profile | LiteResult
        if not isinstance(profile, kinds):
            with as_usage_error():
                profile = _load(arguments, is_fleet=is_fleet)
            is_whole = arguments.run is arguments.host is arguments.steps is None
            if is_whole and isinstance(profile, Profile):
                profile.opened_as = arguments.what
        self.keep(profile, arguments.out)
        if isinstance(profile, Profile):
            write_json(profile, arguments)
        return profile


def _load(arguments: Namespace, *, is_fleet: bool) -> Profile | Fleet:
    """Open a path, a URL or the addresses of running processes."""
    if arguments.last:
        return last()
    if is_fleet and arguments.what.startswith(SCHEME):
        return trace_remotely(arguments.what, arguments.seconds)
    if is_fleet and arguments.host is None and arguments.steps is None:
        fleet = find_fleet(arguments.what, arguments.run)
        if fleet is not None:
            return fleet
    return load(arguments.what, run=arguments.run, host=arguments.host, steps=arguments.steps)


def labels_of(names: list[str], sources: list[Any]) -> tuple[str | None, str | None]:
    """Name two results: labels where they have different ones, else names; None for saved traces."""
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


def lite_line(shell: Any, arguments: Namespace) -> LiteResult:
    """Convert a model and show what each kind costs and gains.

    Args:
        shell: The IPython shell.
        arguments: See ``magic_options.lite_arguments``.

    Raises:
        UsageError: A name is not there, or the model cannot be converted or run.
    """
    namespace, options = shell.user_ns, {name: getattr(arguments, name) for name in OPTIONS}
    with as_usage_error():
        model = _named(namespace, arguments.model, "model")
        x, *y = [_named(namespace, name, "data") for name in arguments.data] or [None]
        if arguments.representative is not None:
            options["representative"] = _named(namespace, arguments.representative, "data")
        result = lite(model, (x, y[0]) if y else x, **options)
    namespace.update(dict.fromkeys(filter(None, ("_tflite", arguments.out)), result))
    if not arguments.quiet:
        result.report()
    return result


def _named(namespace: dict[str, Any], name: str, what: str) -> Any:
    """Find what is bound to a name, or the path that exists."""
    if name in namespace:
        return namespace[name]
    path = Path(name).expanduser()
    if not path.exists():
        raise UsageError(
            f"There is no {what} and no file {printable(name)!r}: give a variable of this notebook, or "
            "a path."
        )
    return path


def memory_line(shell: Any, arguments: Namespace) -> Any:
    """Forecast what the line names, and show it.

    Args:
        shell: The IPython shell.
        arguments: See ``magic_options.memory_arguments``.

    Raises:
        UsageError: A name is not there, or the step cannot run.
    """
    from profnb.forecast.fitting import fits  # not as the magics load

    names = [name for name in (arguments.model, arguments.x, arguments.y) if name is not None]
    missing = [name for name in names if name not in shell.user_ns]
    if missing:
        raise UsageError(f"There is no {printable(missing[0])!r} in this notebook.")
    limit = None if arguments.limit_gb is None else int(arguments.limit_gb * GB)
    values = (shell.user_ns[name] for name in names)
    with as_usage_error():
        forecast = fits(*values, batch_sizes=arguments.batch_sizes, limit_bytes=limit)
    if not arguments.quiet:
        forecast.report()
    return forecast
