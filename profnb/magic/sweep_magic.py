"""``%%tfsweep``: parse, run the cell once per combination of settings and repetition, show."""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from typing import Any
from uuid import uuid4

from IPython.core.error import UsageError

from profnb.capture.cell import awaits, body_of, names_of, run_quietly
from profnb.capture.switches import BACKEND, FRESH, SWITCHES, missing_backend, switched, switches_of
from profnb.compare.sweeps import setting_text
from profnb.core.options import CaptureOptions
from profnb.magic.magic_options import parse_settings
from profnb.many_traces.sweep_rounds import FreshRound, run_rounds
from profnb.report.frontend import show_sentence
from profnb.report.progress import Progress
from profnb.sweep import Sweep, combine, run_order

_MOST_SETTINGS = 500
_HEADS = ("setting", "runs", "a step or run", "per second")


def sweep_cell(shell: Any, arguments: Namespace, cell: str) -> Sweep:
    """Run a cell's body with each combination of settings, and show what each achieves.

    Args:
        shell: The IPython shell.
        arguments: See ``magic_options.sweep_arguments``.
        cell: The body.

    Raises:
        UsageError: A setting cannot be meant, or the cell does not read it.
    """
    body = body_of(f"%%magic\n{cell}")
    choices = parse_settings(arguments.settings)
    try:
        read, bound = names_of(shell, body)
    except SyntaxError as error:
        raise UsageError(f"The cell is not valid Python: {error}") from None
    unread = [name for name in choices if name not in read and name not in SWITCHES]
    if unread:
        raise UsageError(
            f"The cell does not read {', '.join(unread)}, so no value changes anything. Use the name in the "
            f"cell. Only {', '.join(SWITCHES)} work unread."
        )
    assigned = [name for name in choices if name in bound]
    if assigned:
        raise UsageError(
            f"The cell gives {', '.join(assigned)} a value, so the sweep's value would not count. Take the "
            "line out of the cell."
        )
    if arguments.steps < 1:
        raise UsageError(f"steps must be at least 1, got {arguments.steps}.")
    settings = combine(choices)
    if len(settings) > _MOST_SETTINGS:
        raise UsageError(
            f"{len(settings):,} combinations are too many. Give fewer values: at most {_MOST_SETTINGS} run."
        )
    if awaits(shell, body):
        raise UsageError("The cell awaits something; cells that await cannot be repeated.")
    sweep = Sweep(settings, arguments.metric)
    make_runs = _run if arguments.executor is None else _run_elsewhere
    interrupted = make_runs(shell, sweep, arguments, body, read)
    if interrupted and not any(sweep.profiles):
        raise UsageError("Interrupted before the first run was done.")
    if not arguments.quiet:
        sweep.report()
        if interrupted:
            show_sentence(interrupted)
    return sweep


def _run(shell: Any, sweep: Sweep, arguments: Namespace, body: str, read: frozenset[str]) -> str:
    """Make the runs; say what an interrupt left undone, or ""."""
    options = CaptureOptions(max_steps=arguments.steps)
    order = list(run_order(len(sweep.settings), arguments.repeat))
    is_fresh = any(name in FRESH for name in sweep.settings[0])
    for row, setting in enumerate(sweep.settings):
        sweep.errors[row] = missing_backend(setting.get(BACKEND, ""))
    with closing(Progress(len(order), _HEADS, is_quiet=arguments.quiet)) as progress:
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
                with _bound(shell.user_ns, setting), switched(switches) as applied:
                    sweep.run_here(row, options, lambda: run_quietly(shell, body), shell.user_ns)
                sweep.without_effect |= switches.keys() - applied
            except KeyboardInterrupt:
                return f"Interrupted; the {done} runs of {len(order)} so far are kept."
            except Exception as error:  # noqa: BLE001 - whatever Keras says of a switch's value
                sweep.errors[row] = f"{type(error).__name__}: {error}"
    return ""


def _executor_of(shell: Any, name: str) -> Executor:
    """Find the executor of this name, also of a Dask client."""
    executor = shell.user_ns.get(name)
    give = getattr(executor, "get_executor", None)  # Dask's Client, whose own futures are others
    if not isinstance(executor, Executor) and callable(give):
        executor = give()
    if not isinstance(executor, Executor):
        raise UsageError(
            "--executor takes the name of a concurrent.futures.Executor, such as a ProcessPoolExecutor or "
            f"Dask's client.get_executor(). {name} is "
            f"{'not defined' if executor is None else type(executor).__name__}."
        )
    return executor


def _run_elsewhere(
    shell: Any, sweep: Sweep, arguments: Namespace, body: str, read: frozenset[str]
) -> str:
    """Make the runs on an executor's workers: first those that are traced, then rounds of all others.

    Traces of a setting may come from any worker, as no time of theirs is compared, unless there is no other
    run. Of a setting that failed no more runs are made.
    """
    del read  # workers look themselves
    executor = _executor_of(shell, arguments.executor)
    options = CaptureOptions(max_steps=arguments.steps)
    rows = len(sweep.settings)
    order = list(run_order(rows, arguments.repeat))
    token = uuid4().hex

    def round_of(number: int, chosen: Sequence[int], *, traces: bool = False) -> FreshRound:
        runs = tuple((row, dict(sweep.settings[row])) for row in chosen)
        return FreshRound(number, body, runs, options, traces, f"{token} {number} {chosen}")

    first = [order[:rows]] if arguments.repeat == 1 else [[row] for row in order[:rows]]
    done = 0
    with closing(Progress(len(order), _HEADS, is_quiet=arguments.quiet)) as progress:

        def make(rounds: Sequence[FreshRound]) -> None:
            nonlocal done
            progress.show(done, "")
            for one, result in run_rounds(executor, rounds):
                if not isinstance(result, str):
                    sweep.take_round(result)
                elif not one.traces:
                    sweep.crew.lost.append(f"Round {one.number}: {result}")
                done += len(one.runs)
                for row, _ in one.runs:
                    if one.traces and isinstance(result, str):
                        sweep.errors[row] = result
                    progress.fill(row, *sweep.row_words(row))
                progress.show(done, "")

        try:
            make([round_of(0, chosen, traces=True) for chosen in first])
            left = [
                [row for row in order[at : at + rows] if not sweep.errors[row]]
                for at in range(rows, len(order), rows)
            ]
            make([round_of(at, chosen) for at, chosen in enumerate(left, start=1) if chosen])
        except KeyboardInterrupt:
            return (
                f"Interrupted; the {done} runs of {len(order)} so far are kept. Workers finish the runs in "
                "progress."
            )
    return ""


@contextmanager
def _bound(namespace: dict[str, Any], setting: Mapping[str, object]) -> Iterator[None]:
    """Bind names inside the block; afterwards they are what they were."""
    before = {name: namespace[name] for name in setting if name in namespace}
    namespace.update(setting)
    try:
        yield
    finally:
        for name in setting:
            namespace.pop(name, None)
        namespace.update(before)
