"""``%%tfsweep``: parse, run the cell once per combination of settings and repetition, show."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from IPython.core.error import UsageError

from profnb.capture.cell import body_of, names_of, run_quietly
from profnb.capture.switches import FRESH, SWITCHES, apply_switches, switches_of
from profnb.compare.sweeps import setting_text
from profnb.core.options import CaptureOptions
from profnb.magic_options import parse_settings
from profnb.report.frontend import show_sentence
from profnb.report.running.progress import Progress
from profnb.sweep import Sweep, combine, run_order

__all__ = ["sweep_cell"]

_MOST_SETTINGS = 500


def sweep_cell(shell: Any, arguments: Namespace, cell: str) -> Sweep:
    """Run a cell's body with each combination of settings, and show what each achieves.

    Args:
        shell: The IPython shell.
        arguments: See ``magic_options.SWEEP_ARGUMENTS``.
        cell: The body.

    Raises:
        UsageError: A setting cannot be meant, or the cell does not read it.
    """
    body = body_of(f"%%magic\n{cell}")
    choices = parse_settings(arguments.settings)
    try:
        read, bound = names_of(shell, body)
    except SyntaxError as error:
        raise UsageError(f"The cell is no Python: {error}") from None
    unread = [name for name in choices if name not in read and name not in SWITCHES]
    if unread:
        raise UsageError(
            f"The cell does not read {', '.join(unread)}. Use the name in the cell; switches that work "
            f"without are {', '.join(SWITCHES)}."
        )
    assigned = [name for name in choices if name in bound]
    if assigned:
        raise UsageError(
            f"The cell gives {', '.join(assigned)} a value itself, so the sweep's would not count. Take that "
            "line out of the cell."
        )
    if arguments.steps < 1:
        raise UsageError(f"steps must be at least 1, got {arguments.steps}.")
    settings = combine(choices)
    if len(settings) > _MOST_SETTINGS:
        raise UsageError(f"{len(settings):,} combinations; {_MOST_SETTINGS} are the most.")
    if shell.should_run_async(body, transformed_cell=shell.transform_cell(body)):
        raise UsageError("The cell awaits something; such a cell cannot be run again and again.")
    sweep = Sweep(settings, arguments.metric)
    interrupted = _run(shell, sweep, arguments, body, read)
    if interrupted and not any(sweep.profiles):
        raise UsageError("Interrupted before the first run was done.")
    if not arguments.quiet:
        sweep.report()
        if interrupted:
            show_sentence(interrupted)
    return sweep


def _run(shell: Any, sweep: Sweep, arguments: Namespace, body: str, read: frozenset[str]) -> str:
    """Make the runs; what an interrupt left undone, or ""."""
    options = CaptureOptions(max_steps=arguments.steps)
    order = list(run_order(len(sweep.settings), arguments.repeat))
    is_fresh = any(name in FRESH for name in sweep.settings[0])
    heads = ("setting", "runs", "a step or run", "per second")
    with closing(Progress(len(order), heads, is_quiet=arguments.quiet)) as progress:
        for done, row in enumerate(order):
            if done:
                progress.fill(order[done - 1], *sweep.row_words(order[done - 1]))
            if sweep.errors[row]:  # it failed before, and would again
                continue
            setting = sweep.settings[row]
            progress.show(done, setting_text(setting))
            try:
                if is_fresh:
                    sweep.run_in_fresh_process(row, options, body)
                    continue
                switches = switches_of(setting, read)
                with _bound(shell.user_ns, setting), apply_switches(switches) as applied:
                    sweep.run_here(row, options, lambda: run_quietly(shell, body), shell.user_ns)
                sweep.without_effect |= switches.keys() - applied
            except KeyboardInterrupt:
                return f"Interrupted after {done} of {len(order)} runs, which are kept."
            except Exception as error:  # noqa: BLE001 - whatever Keras says of a switch's value
                sweep.errors[row] = f"{type(error).__name__}: {error}"
    return ""


@contextmanager
def _bound(namespace: dict[str, Any], setting: Mapping[str, object]) -> Iterator[None]:
    """Bind names inside the block; afterwards they are what they were."""
    missing = object()
    before = {name: namespace.get(name, missing) for name in setting}
    namespace.update(setting)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is missing:
                namespace.pop(name, None)
            else:
                namespace[name] = value
