"""``profnb``, the command: run, report, timeline, table, compare, history, gains, lite, clean and demo.

What they say goes to standard output, but for ``run``: there that is the program's, byte by byte, and the
answer goes to standard error.
"""

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profnb import __version__
from profnb.core.arguments import Parser, count, new_file, percentage, whole
from profnb.core.errors import ProfnbError
from profnb.core.options import CAPTURE_ARGUMENTS, TRY_ARGUMENTS, options_of
from profnb.core.printable import for_terminal, printable, printable_lines, styled, terminal_columns
from profnb.core.units import percent_text
from profnb.history.door import keep
from profnb.history.place import VARIABLE, choose
from profnb.lite.entry import CONVERSION_ARGUMENTS

if TYPE_CHECKING:
    from profnb.profile import Profile

_MOST_ROWS_PRINTED = 60
_BROKEN_PIPE = 128 + 13  # as a shell says of a program that SIGPIPE ended


def _say(text: str) -> None:
    """Print text that may hold names of others, which command no terminal."""
    print(for_terminal(printable_lines(text)))


def _answer(text: str) -> None:
    """Print an answer, which begins with what is most important."""
    print(styled(for_terminal(printable_lines(text))))


def _keep(profile: "Profile", *, is_whole: bool, is_quiet: bool) -> None:
    """Keep a program's run in the history, unless it failed."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    remark = keep(profile, file=str(file)) if file and is_whole else ""
    if remark and not is_quiet:
        _say(remark)


def _run(arguments: argparse.Namespace) -> None:
    from profnb.program import run_program
    from profnb.report.progress import shown_at_bottom

    stderr = sys.stderr  # the program may put something else in its place, or close it

    def show(profile: "Profile") -> None:
        """Say the answer; trouble of ours changes nothing about the program's end."""
        ended = sys.exc_info()[1]
        is_whole = ended is None or (isinstance(ended, SystemExit) and ended.code in (None, 0))
        with suppress(OSError, ValueError, AttributeError):  # whatever the program made of it
            sys.stdout.flush()
        with suppress(OSError, ValueError), redirect_stdout(stderr):
            try:
                if not arguments.quiet:
                    print()
                    _answer(profile.summary())
                _try(profile, arguments, stderr, is_whole=is_whole)
                if arguments.out is not None:
                    _say(f"Report: {profile.to_html(arguments.out)}")
                if options.logdir is not None:
                    kept = profile.recordings[0].path
                    is_kept = kept is not None and kept.exists()
                    _say(f"Trace: {kept}" if is_kept else "There is no trace to keep.")
                _keep(profile, is_whole=is_whole, is_quiet=arguments.quiet)
            except KeyboardInterrupt:
                _say("profnb: interrupted, so the answer is not complete.")
            except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
                _say(f"profnb: the answer is not complete ({type(error).__name__}: {error}).")

    refuse, what = arguments.parser.error, "module" if arguments.module else "Python file"
    if not arguments.program:
        refuse(f"it takes a {what} to run")
    name = arguments.program[0]
    try:
        options = options_of(arguments)
    except ValueError as error:
        refuse(str(error).rstrip("."))
    choose(arguments.history)
    logdir = options.logdir and Path(options.logdir).expanduser().absolute()
    options = replace(options, label=options.label or Path(name).name, logdir=logdir)
    watch = None if arguments.quiet else partial(shown_at_bottom, stderr)
    if not run_program(arguments.program, options, show, is_module=arguments.module, watch=watch):
        refuse(f"there is no {what} {name!r}")


def _try(profile: "Profile", arguments: argparse.Namespace, stream: Any, *, is_whole: bool) -> None:
    """Try a script's advice where that is asked for, and say what came of it."""
    if not arguments.tries or not is_whole:
        return
    from profnb.report.progress import bottom_line_of
    from profnb.trials.script_runs import try_in_terminal

    slot = None if arguments.quiet else bottom_line_of(stream)
    text = try_in_terminal(profile, arguments, vars(sys.modules["__main__"]), slot)
    if not arguments.quiet:
        _say(f"\n{text}")


def _demo(arguments: argparse.Namespace) -> None:
    from profnb.demo import run_demo

    result = run_demo(arguments.out, arguments.steps, arguments.epochs)
    print()
    _answer(result.summary())
    _say(f"\nReport: {arguments.out}")


def _load(arguments: argparse.Namespace) -> "Profile":
    from profnb.loading import load

    choice = {"run": arguments.run, "host": arguments.host, "steps": arguments.steps}
    return load(arguments.path, **choice, warmup_steps=arguments.warmup)


def _report(arguments: argparse.Namespace) -> None:
    from profnb.loading import last
    from profnb.many_traces.fleets import find_fleet
    from profnb.trace.runs import find_traces

    if arguments.last == (arguments.path is not None):
        arguments.parser.error("it takes a path, or --last")
    if arguments.list and not arguments.last:
        for trace in find_traces(arguments.path):
            path, size_mb = printable(str(trace.path)), trace.path.stat().st_size / 1e6
            _say(f"run {trace.run}  host {trace.host}  {size_mb:.1f} MB  {path}")
        return
    is_of_one = arguments.last or arguments.host is not None or arguments.steps is not None
    fleet = None if is_of_one else find_fleet(arguments.path, arguments.run)
    result = last() if arguments.last else fleet or _load(arguments)
    if arguments.out is not None:
        _say(f"Report: {result.to_html(arguments.out).resolve()}")
    if arguments.json:
        print(result.to_json())
        return
    if arguments.text or arguments.out is None:
        _answer(result.summary())


def _timeline(arguments: argparse.Namespace) -> None:
    from profnb.timeline.element import build_timeline

    result = _load(arguments)
    if arguments.out is None:
        _say(build_timeline(result.study).text)
    elif arguments.out.suffix in {".html", ".htm"}:
        _say(f"Timeline: {result.to_html(arguments.out).resolve()}")
    else:
        _say(f"Chrome trace: {result.to_chrome_trace(arguments.out).resolve()}")


def _table(arguments: argparse.Namespace) -> None:
    from profnb.core.table import frame_text, tables_of
    from profnb.tables import Tables

    tables = tables_of(Tables)
    if arguments.name is None:
        Path(arguments.path).expanduser().stat()  # a path that is not there is an error here too
        _say("\n".join(f"{name:20}  {table.rows}" for name, table in tables.items()))
        return
    if arguments.name not in tables:
        raise ValueError(
            f"There is no table {arguments.name!r}. The tables are: {', '.join(tables)}."
        )
    table, frame = tables[arguments.name], getattr(_load(arguments), arguments.name)
    if arguments.json:
        print(json.dumps(table.to_json(frame), default=str))
        return
    _say(table.rows)
    if len(frame):
        _say(frame_text(frame, _MOST_ROWS_PRINTED, terminal_columns()))
    if len(frame) > _MOST_ROWS_PRINTED:
        _say(f"{_MOST_ROWS_PRINTED} of {len(frame):,} rows; --json has all.")
    if not len(frame):
        _say("This table is empty for this trace.")


def _compare(arguments: argparse.Namespace) -> int:
    from profnb.comparison import Comparison, compare

    result = compare(arguments.first, arguments.second)
    if arguments.markdown and not isinstance(result, Comparison):
        raise ValueError("--markdown is for traces; results of `profnb lite` have text and --json.")
    if arguments.markdown:
        _say(result.to_markdown())
    else:
        _answer(result.summary())
    limit = arguments.fail_if_slower
    leading = result.leading
    if limit is None or leading.ratio <= 1 + limit:
        return 0
    if not leading.is_different:
        if isinstance(result, Comparison) and leading.is_open:
            _say("\nOne run a side proves nothing. Give several: a logdir counts as all its runs.")
        return 0
    each = "" if leading is result.difference else " per example"
    _say(f"\nSlower{each} by more than {percent_text(limit)}.")
    return 1


def _lite(arguments: argparse.Namespace) -> None:
    from profnb.lite.entry import OPTIONS, is_saved, lite

    paths = arguments.model
    if len(paths) > 1 and any(is_saved(Path(path)) for path in paths):
        raise ValueError("Give one saved result. `profnb compare A B` takes two.")
    options = {name: getattr(arguments, name) for name in OPTIONS}
    result = lite(paths[0] if len(paths) == 1 else paths, arguments.data, **options)
    if arguments.save is not None:
        path = result.save(arguments.save)
        print(f"Result: {printable_lines(str(path.resolve()))}", file=sys.stderr)
    if arguments.out is not None:
        path = result.to_html(arguments.out)
        print(f"Report: {printable_lines(str(path.resolve()))}", file=sys.stderr)
    if arguments.json:
        print(result.to_json())
    else:
        _answer(result.summary())


def _history(arguments: argparse.Namespace) -> int:
    from profnb.history.showing import open_history

    history = open_history(arguments.cell, arguments.label, arguments.history)
    if arguments.csv:
        print(history.to_csv(), end="")
        return 0
    if not arguments.alarm:
        _answer(history.summary())
        return 0
    _answer("\n".join(history.sentences()) or history.title)
    return 1 if history.alarms else 0


def _gains(arguments: argparse.Namespace) -> None:
    from profnb.history.series import kept_trials
    from profnb.trials.promises import gains_text, summarize_gains

    _answer(gains_text(summarize_gains(kept_trials(arguments.history))))


def _clean(arguments: argparse.Namespace) -> None:
    from profnb.report.notebook_file import clean_notebook

    changes = clean_notebook(arguments.notebook, arguments.out)
    _say("\n".join(changes) or "Nothing to repair.")


def _parser() -> argparse.ArgumentParser:
    what = "A TensorFlow, JAX and PyTorch profiler: in the notebook, and here."
    parser = Parser(prog="profnb", description=what)
    parser.add_argument("--version", action="version", version=f"profnb {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        run_command: Callable[[argparse.Namespace], int | None],
        summary: str,
        *parents: Any,
        usage: str | None = None,
    ) -> argparse.ArgumentParser:
        name = run_command.__name__.removeprefix("_")
        made = commands.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.",
            parents=parents, usage=usage,
            allow_abbrev=False,  # a script's own words are none of ours, cut short
        )  # fmt: skip
        made.set_defaults(run_command=run_command, parser=made)
        return made

    page = argparse.ArgumentParser(add_help=False)
    page.add_argument(
        "-o", "--out", type=new_file, metavar="FILE.html", help="write a page that works offline"
    )
    path, saved = (argparse.ArgumentParser(add_help=False) for _ in range(2))
    path.add_argument("path", help="a trace of any format, run folder or logdir")
    saved.add_argument("--run", help="which run (default: the newest)")
    hosts = "which host of the run (default: the first; `report` takes all that worked together)"
    saved.add_argument("--host", help=hosts)
    saved.add_argument("--steps", metavar="RANGE", help="the range that is a step, by its name")
    saved.add_argument(
        "-w", "--warmup", type=whole(0), default=0, help="steps to leave out of averages"
    )

    line = "[OPTIONS] SCRIPT [ARGS ...]"
    usage = f"profnb run {line}\n       profnb run {line.replace('SCRIPT', '-m MODULE')}"
    summary = "profile a script or module, and say on standard error where its time went"
    _add_run_options(command(_run, summary, page, usage=usage))

    report = command(_report, "report on a saved trace or TensorBoard logdir", saved, page)
    report.add_argument("path", nargs="?", help="a trace of any format, run folder or logdir")
    report.add_argument("--last", action="store_true", help="on the last cell whose process died")
    report.add_argument("--text", action="store_true", help="print the report (default without -o)")
    report.add_argument("--json", action="store_true", help="print it for programs, at most 8 kB")
    report.add_argument("--list", action="store_true", help="list runs and hosts")

    timeline = command(_timeline, "convert a trace, or show it as text", path, saved)
    timeline.add_argument(
        "-o",
        "--out",
        type=new_file,
        help="FILE.html: a page that works offline; else a Chrome trace (.json, .json.gz)",
    )

    table = command(_table, "print one table of a trace, as text or JSON", path, saved)
    table.add_argument("name", nargs="?", help="which table (default: list them)")
    table.add_argument("--json", action="store_true", help="every row, and what columns mean")

    compare = command(_compare, "compare saved traces, and say whether a change helped")
    compare.add_argument("first", help="A: a trace, or a logdir with one or several runs")
    compare.add_argument("second", help="B")
    compare.add_argument(
        "--markdown", action="store_true", help="print it for a pull request, as GitHub renders it"
    )
    slower = "exit with 1 if B is slower than A by more than this, and surely so (for CI)"
    compare.add_argument("--fail-if-slower", type=percentage, metavar="PERCENT", help=slower)

    _add_history_options(
        command(_history, "list the runs that were kept, and where they became slower"),
        command(_gains, "say by rule what advice promised, and what its trials measured"),
    )
    _add_lite_options(command(_lite, "run and compare LiteRT (TensorFlow Lite) models", page))

    clean = command(_clean, "repair a saved notebook for GitHub and nbviewer")
    clean.add_argument("notebook", help="the .ipynb file; changed in place unless -o is given")
    clean.add_argument("-o", "--out", type=new_file, help="write the repaired notebook here")

    demo = command(_demo, "profile a small real training and write its report")
    demo.add_argument(
        "-o", "--out", type=new_file, default="profnb-demo.html", help="HTML file (%(default)s)"
    )
    demo.add_argument("--steps", type=count, default=200, help="steps per epoch (%(default)s)")
    demo.add_argument("--epochs", type=count, default=2, help="epochs (%(default)s)")
    return parser


def _add_run_options(run: argparse.ArgumentParser) -> None:
    run.add_argument("-q", "--quiet", action="store_true", help="do not print the answer")
    for flags, settings in (*CAPTURE_ARGUMENTS, *TRY_ARGUMENTS):
        run.add_argument(*flags, **settings)
    numbers = f"keep the run's numbers in this file (default: {VARIABLE})"
    run.add_argument("--history", metavar="FILE", help=numbers)
    edits = "try the three largest savings that are a safe edit, in fresh processes"
    run.add_argument("--try", action="store_const", const=3, dest="tries", help=edits)
    run.add_argument(
        "-m", "--module", action="store_true", help="run a module, as `python -m` does"
    )
    run.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="SCRIPT", help="what to run, and its arguments"
    )


def _add_history_options(history: argparse.ArgumentParser, gains: argparse.ArgumentParser) -> None:
    for one in (history, gains):
        one.add_argument("--history", metavar="FILE", help="the file (default: the usual one)")
    history.add_argument("--cell", help="only runs of this code: how its hash begins")
    history.add_argument("--label", help="only runs of this label")
    history.add_argument("--csv", action="store_true", help="print every run as CSV")
    alarm = "exit with 1 if a slow-down was found in the latest ten runs of a series (for CI)"
    history.add_argument("--alarm", action="store_true", help=alarm)


def _add_lite_options(lite: argparse.ArgumentParser) -> None:
    models = ".tflite files; or a SavedModel or .keras file to convert; or a saved result"
    lite.add_argument("model", nargs="+", help=models)
    lite.add_argument("--data", metavar="FILE.npz", help="examples: arrays x and y")
    for flags, settings in CONVERSION_ARGUMENTS:
        lite.add_argument(*flags, **settings)
    lite.add_argument(
        "--save", type=new_file, metavar="FILE", help="keep the result, to open or compare it later"
    )
    lite.add_argument("--json", action="store_true", help="print it for programs, at most 8 kB")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0; 1 after an error that is the input's fault, said in one line, or where `compare` found that
        the second is slower than allowed; 2 where the line itself is wrong; 141 where who reads what is
        printed has stopped, as `head` does. What a program of `run` raises is raised, ``SystemExit`` too.
    """
    parsed, strangers = _parser().parse_known_args(arguments)
    if strangers:
        parsed.parser.error(f"there is no option or argument {' '.join(strangers)}")
    if parsed.run_command is _run:  # which leaves errors and streams as they are
        _run(parsed)
        return 0
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # JSON in a terminal that has few characters
            stream.reconfigure(errors="replace")
    try:
        status: int | None = parsed.run_command(parsed)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads it has enough, as `head`; what is left is written nowhere
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except (ProfnbError, OSError, ValueError) as error:
        print(printable_lines(f"profnb: {_trouble(error)}"), file=sys.stderr)
        return 1
    return status or 0


def _trouble(error: Exception) -> str:
    """Say what an error found, and what to do."""
    if not isinstance(error, OSError) or error.filename is None:
        return str(error)
    name = error.filename
    path = Path(os.fsdecode(name) if isinstance(name, bytes) else str(name))
    if isinstance(error, FileNotFoundError):
        return f"There is no {path if path.parent.exists() else path.parent}. Check the path."
    if isinstance(error, IsADirectoryError):
        return f"{path} is a folder. Name a file."
    if isinstance(error, PermissionError):
        return f"You have no permission for {path}. Name another file, or ask its owner."
    return f"{error.strerror}: {path}. Name another file."


if __name__ == "__main__":
    sys.exit(main())
