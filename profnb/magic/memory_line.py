"""``%tfmemory``: the names of a line to a forecast of memory."""

from argparse import Namespace
from typing import Any

from IPython.core.error import UsageError

from profnb.core.errors import ProfnbError
from profnb.core.printable import printable
from profnb.core.units import GB


def memory_line(shell: Any, arguments: Namespace) -> Any:
    """Forecast what the line names, and show it.

    Args:
        shell: The IPython shell.
        arguments: See ``magic_options.MEMORY_ARGUMENTS``.

    Raises:
        UsageError: A name is not there, or the step cannot run.
    """
    from profnb.forecast.fitting import fits  # not as the magics load

    names = [name for name in (arguments.model, arguments.x, arguments.y) if name is not None]
    missing = [name for name in names if name not in shell.user_ns]
    if missing:
        raise UsageError(f"There is no {printable(missing[0])!r} in this notebook.")
    limit = None if arguments.limit_gb is None else int(arguments.limit_gb * GB)
    try:
        forecast = fits(
            *(shell.user_ns[name] for name in names),
            batch_sizes=arguments.batch_sizes,
            limit_bytes=limit,
        )
    except (ProfnbError, OSError, ValueError) as error:
        raise UsageError(printable(str(error))) from None
    if not arguments.quiet:
        forecast.report()
    return forecast
