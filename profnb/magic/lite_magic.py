"""``%tflite``: parse, find what is named, convert and run, show."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from profnb.core.errors import ProfnbError
from profnb.core.printable import printable
from profnb.lite.entry import LiteResult, lite


def lite_line(shell: Any, arguments: Namespace) -> LiteResult:
    """Convert a model and show what each kind costs and gains.

    Args:
        shell: The IPython shell.
        arguments: See ``magic_options.LITE_ARGUMENTS``.

    Raises:
        UsageError: A name is not there, or the model cannot be converted or run.
    """
    namespace = shell.user_ns
    try:
        result = lite(
            _named(namespace, arguments.model, "model"),
            _data(namespace, arguments.data),
            kinds=arguments.kinds,
            representative=None
            if arguments.representative is None
            else _named(namespace, arguments.representative, "data"),
            threads=arguments.threads,
            batch_size=arguments.batch_size,
            allow=arguments.allow,
            fixed_batch=arguments.fixed_batch,
            label=arguments.label,
        )
    except (ProfnbError, OSError, ValueError) as error:
        raise UsageError(printable(str(error))) from None
    namespace["_tflite"] = result
    if arguments.out is not None:
        namespace[arguments.out] = result
    if not arguments.quiet:
        result.report()
    return result


def _named(namespace: dict[str, Any], name: str, what: str) -> Any:
    """What is bound to a name, or the path that exists."""
    if name in namespace:
        return namespace[name]
    path = Path(name).expanduser()
    if not path.exists():
        raise UsageError(f"There is no {what} and no path {printable(name)!r}.")
    return path


def _data(namespace: dict[str, Any], names: list[str]) -> Any:
    """One thing, or x and y."""
    if not names:
        return None
    examples = [_named(namespace, name, "data") for name in names]
    return examples[0] if len(examples) == 1 else (examples[0], examples[1])
