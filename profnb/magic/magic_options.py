"""The options of the magics: each documented once, for ``%magic?`` and for parsing."""

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, magic_arguments

from profnb.capture.switches import SWITCHES
from profnb.core.arguments import count, counts, number, unquoted, variable, whole
from profnb.core.errors import ProfnbError
from profnb.core.options import CAPTURE_ARGUMENTS, TRY_ARGUMENTS
from profnb.core.printable import printable
from profnb.lite.entry import CONVERSION_ARGUMENTS

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _with_arguments(*arguments: Decorator) -> Decorator:
    """Give a magic these options, so that ``%magic?`` documents them."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for argument_of in reversed(arguments):
            function = argument_of(function)
        documented: Callable[..., Any] = magic_arguments()(function)
        return documented

    return decorate


_rounds = whole(1, 1000)
_QUIET = argument("-q", "--quiet", action="store_true", help="show nothing")


def _out(what: str) -> Decorator:
    named: Decorator = argument(
        "-o", "--out", metavar="NAME", type=variable, help=f"bind the {what} to this name"
    )
    return named


_SHOW = (
    argument(
        "--json", metavar="FILE", type=unquoted,
        help="also write a Chrome trace (timeline.json) for chrome://tracing and Perfetto",
    ),
    argument("--live", dest="live", action="store_true", default=None, help="add live controls"),
    argument(
        "--no-live", dest="live", action="store_false",
        help="leave live controls out, and what is shown while the cell runs",
    ),
)  # fmt: skip
cell_arguments = _with_arguments(
    _out("profile"),
    _QUIET,
    *(argument(*flags, **settings) for flags, settings in CAPTURE_ARGUMENTS),
    argument(
        "--vs", metavar="NAME", type=unquoted,
        help="compare with an earlier result: its label, the name it is bound to, or a path",
    ),
    argument(
        "--repeat", type=_rounds, default=1, metavar="N",
        help="run the cell N times: the first under trace, the others only timed; a repetition that fails "
        "ends the series, not the cell",
    ),
    argument(
        "--try", type=_rounds, nargs="?", const=3, dest="tries", metavar="N",
        help="try the N largest savings (3) that are a safe edit: run the cell as it is and as edited by "
        "turns, and put everything back",
    ),
    *(argument(*flags, **settings) for flags, settings in TRY_ARGUMENTS),
    *_SHOW,
)  # fmt: skip
open_arguments = _with_arguments(
    argument(
        "what", metavar="PATH", type=unquoted, nargs="?",
        help="a trace file, a logdir, a URL, the name of a result, or running processes that profnb.serve: "
        "grpc://HOST:PORT,HOST:PORT",
    ),
    argument(
        "--last", action="store_true", help="what was kept of the last cell whose process died"
    ),
    argument(
        "-t", "--seconds", type=number, default=2.0,
        help="how long to trace running processes (default %(default)s)",
    ),
    argument("--run", help="which run of the logdir (default: the newest)"),
    argument(
        "--host", help="which host of the run (default: all, where they worked together; else the first)"
    ),
    argument("--steps", metavar="RANGE", type=unquoted, help="the range that is a step, by its name"),
    _out("profile"),
    *_SHOW,
)  # fmt: skip
compare_arguments = _with_arguments(
    argument(
        "what", nargs="*", metavar="RESULT", type=unquoted,
        help="results to compare, the first with each of the others: labels, names of results or of lists "
        "of them, or paths",
    ),
    _out("comparison (or list of them)"),
    _QUIET,
)  # fmt: skip
history_arguments = _with_arguments(
    argument(
        "label", nargs="?", type=unquoted, help="only runs of this label, or of code whose hash begins so"
    ),
    argument("--history", metavar="FILE", type=unquoted, help="the file (default: the usual one)"),
    _out("DataFrame"),
    _QUIET,
)  # fmt: skip
sweep_arguments = _with_arguments(
    argument(
        "settings", nargs="+", metavar="NAME=VALUE,VALUE", type=unquoted,
        help="names that the cell reads, bound to each combination of values; or switches applied around it: "
        f"{', '.join(SWITCHES)}",
    ),
    argument(
        "--repeat", type=_rounds, default=1, metavar="N", help="run each combination N times (default 1)"
    ),
    argument(
        "-n", "--steps", type=count, default=20,
        help="trace this many steps of a combination's first run (default %(default)s); others are timed",
    ),
    argument("--metric", type=unquoted, help="the metric of Keras' History to weigh throughput against"),
    argument(
        "--executor", metavar="NAME",
        help="make the runs on the workers of this concurrent.futures.Executor, each in a process of its own",
    ),
    _out("table (a DataFrame)"),
    _QUIET,
)  # fmt: skip
memory_arguments = _with_arguments(
    argument("model", type=unquoted, help="a compiled Keras model, or a function of a step, by its name"),
    argument("x", type=unquoted, help="examples, or the batch that the step takes"),
    argument("y", type=unquoted, nargs="?", help="the examples' targets"),
    argument(
        "--batch-sizes", metavar="N,N,N", type=counts,
        help="the batch sizes to run (default: 8, 16, 32 ...)",
    ),
    argument("--limit-gb", type=number, metavar="GB", help="the most memory there may be"),
    _out("forecast"),
    _QUIET,
)  # fmt: skip
lite_arguments = _with_arguments(
    argument(
        "model", type=unquoted,
        help="a Keras model by its name, or the path of a SavedModel, .keras or .tflite file, or of what "
        "a result's save wrote",
    ),
    argument(
        "--data", nargs="+", metavar="NAME", type=unquoted, default=[],
        help="x and y, a pair of them, a dataset, or the path of an .npz file with x and y",
    ),
    *(argument(*flags, **settings) for flags, settings in CONVERSION_ARGUMENTS),
    _out("result"),
    _QUIET,
)  # fmt: skip


def parse_settings(texts: Sequence[str]) -> dict[str, list[object]]:
    """``["batch_size=32,64", "policy=float32"]`` to ``{"batch_size": [32, 64], "policy": ["float32"]}``.

    Raises:
        UsageError: One is not of this form.
    """
    choices: dict[str, list[object]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name.isidentifier() or not values:
            raise UsageError(
                f"A setting is NAME=VALUE,VALUE such as batch_size=32,64; got {text!r}."
            )
        if name in choices:
            raise UsageError(f"The setting {name} is given twice: give all its values at once.")
        choices[name] = _values(values)
    return choices


def _values(text: str) -> list[object]:
    """Literals where they are some, else text: ``1,2``, ``(3, 3),(5, 5)``, ``sgd,adam``."""
    try:
        return list(ast.literal_eval(f"({text},)"))
    except (ValueError, SyntaxError):
        parts = [part.strip() for part in text.split(",")]
        return [value for part in parts for value in _values(part)] if parts[1:] else [*parts]


@contextmanager
def as_usage_error() -> Iterator[None]:
    """Let what is refused inside the block be one line of the magic's, and no traceback."""
    try:
        yield
    except (ProfnbError, OSError, ValueError) as error:
        raise UsageError(printable(str(error))) from None
