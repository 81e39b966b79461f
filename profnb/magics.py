"""The magics: parse, capture or load, show. No logic of their own."""

from argparse import SUPPRESS, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from traitlets import Bool

from profnb.capture.cell import call_after_cell, make_transformer
from profnb.captured import CapturedProfile
from profnb.comparison import compare
from profnb.errors import ProfnbError
from profnb.options import CaptureOptions
from profnb.profile import Profile, load
from profnb.view.frontend import show_sentence
from profnb.warm import warm_in_background

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
Show = Callable[[Profile, bool | None], None]

__all__ = ["ProfnbMagics", "load_magics", "unload_magics"]


def _unquoted(text: str) -> str:
    """An argument without the quotes around it, which IPython leaves."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


_CELL_MAGICS = ("tfprofile", "tftimeline")
_DEFAULTS = CaptureOptions()
_SHOW_ARGUMENTS = (
    argument(
        "--json", metavar="FILE", type=_unquoted,
        help="also write a Chrome trace (timeline.json) for chrome://tracing and Perfetto",
    ),
    argument("--live", dest="live", action="store_true", default=None, help="add live controls"),
    argument("--no-live", dest="live", action="store_false", help="leave live controls out"),
)  # fmt: skip
_CAPTURE_ARGUMENTS = (
    argument("-o", "--out", metavar="NAME", help="bind the profile to this name"),
    argument("-q", "--quiet", action="store_true", help="show nothing"),
    argument(
        "-n", "--steps", type=int, default=_DEFAULTS.max_steps,
        help="stop tracing after this many steps (default %(default)s); the cell goes on",
    ),
    argument(
        "-w", "--warmup", type=int, default=_DEFAULTS.warmup_steps,
        help="leave this many first steps out of averages, besides those that trace or compile",
    ),
    argument(
        "-t", "--seconds", type=float, default=_DEFAULTS.max_seconds,
        help="stop tracing after this many seconds (default %(default)s)",
    ),
    argument(
        "-d", "--logdir", type=_unquoted, help="keep the trace here, in TensorBoard's layout"
    ),
    argument("--label", type=_unquoted, help="a name for the result, shown in its report"),
    argument(
        "--host-level", type=int, choices=(1, 2, 3), default=_DEFAULTS.host_level,
        help="detail of host events: 1 critical, 2 info (default), 3 verbose",
    ),
    argument("--source", dest="source", action="store_true", default=True, help=SUPPRESS),
    argument(
        "--no-source", dest="source", action="store_false",
        help="do not find the lines of your code that the time goes to",
    ),
    argument("--python", action="store_true", help="sample Python's stack, 1000 times a second"),
    argument(
        "--python-tracer", action="store_true",
        help="let TensorFlow record every Python call (slow; TensorFlow 2.20 and 2.21 ignore it)",
    ),
    argument("--no-device", action="store_true", help="do not record device activity"),
    *_SHOW_ARGUMENTS,
)  # fmt: skip
_OPEN_ARGUMENTS = (
    argument("what", type=_unquoted, help="a trace file, a logdir, or the name of a result"),
    argument("--run", help="which run of the logdir (default: the newest)"),
    argument("--host", help="which host of the run (default: the first)"),
    argument("-o", "--out", metavar="NAME", help="bind the profile to this name"),
    *_SHOW_ARGUMENTS,
)


def _with_arguments(*arguments: Decorator) -> Decorator:
    """Give a magic these options, so that ``%magic?`` documents them."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for argument_of in reversed(arguments):
            function = argument_of(function)
        documented: Callable[..., Any] = magic_arguments()(function)
        return documented

    return decorate


def _options(arguments: Namespace) -> CaptureOptions:
    try:
        return CaptureOptions(
            max_steps=arguments.steps,
            max_seconds=arguments.seconds,
            warmup_steps=arguments.warmup,
            logdir=arguments.logdir,
            label=arguments.label,
            host_level=arguments.host_level,
            source=arguments.source,
            python=arguments.python,
            python_tracer=arguments.python_tracer,
            device_tracer=not arguments.no_device,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


class _FailedCellError(Exception):
    """The cell failed and its own traceback has been shown; this one stays silent."""

    def _render_traceback_(self) -> list[str]:
        return []


@magics_class
class ProfnbMagics(Magics):
    """``%%tfprofile`` and ``%%tftimeline``, ``%tfprofile`` and ``%tftimeline``."""

    live = Bool(
        None, allow_none=True, help="Whether reports get live controls; by default not in Colab."
    ).tag(config=True)

    def __init__(self, shell: Any) -> None:
        """Register with a shell and begin compiling in the background."""
        super().__init__(shell)
        self._warming = warm_in_background()
        self._transform = make_transformer(_CELL_MAGICS)

    def _begin(self, arguments: Namespace) -> CapturedProfile:
        options = _options(arguments)
        if arguments.out is not None and not arguments.out.isidentifier():
            raise UsageError(f"-o takes a variable name, got {arguments.out!r}.")
        self._warming.join()  # what compiles now would count as the cell's own time
        captured = CapturedProfile(options)
        captured.start()
        return captured

    def _end(self, captured: CapturedProfile, arguments: Namespace, show: Show) -> None:
        profile = captured.profile
        self.shell.user_ns["_tfprofile"] = profile
        if arguments.out is not None:
            self.shell.user_ns[arguments.out] = profile
        captured.finish(self.shell.user_ns)
        if not arguments.quiet:
            show(profile, arguments.live)
        _write_json(profile, arguments)

    def _run_cell(self, arguments: Namespace, cell: str, show: Show) -> None:
        """Run a cell's body for a caller that bypassed the input transformer."""
        captured = self._begin(arguments)
        try:
            # The comment keeps line numbers: the body began on the cell's second line.
            result = self.shell.run_cell(cell if cell.startswith("%%") else f"#\n{cell}")
        finally:
            self._end(captured, arguments, show)
        if not result.success:
            raise _FailedCellError

    def _begin_before_cell(self, arguments: Namespace, show: Show) -> None:
        captured = self._begin(arguments)
        call_after_cell(self.shell, lambda _: self._end(captured, arguments, show))

    @no_var_expand
    @line_magic("_tfprofile_begin")
    def _begin_tfprofile(self, line: str) -> None:
        """What the input transformer writes in place of ``%%tfprofile``."""
        self._begin_before_cell(parse_argstring(self.tfprofile_cell, line), Profile.report)

    @no_var_expand
    @line_magic("_tftimeline_begin")
    def _begin_tftimeline(self, line: str) -> None:
        """What the input transformer writes in place of ``%%tftimeline``."""
        self._begin_before_cell(parse_argstring(self.tftimeline_cell, line), Profile.timeline)

    @no_var_expand
    @cell_magic("tfprofile")
    @_with_arguments(*_CAPTURE_ARGUMENTS)
    def tfprofile_cell(self, line: str, cell: str) -> None:
        """Profile the TensorFlow work of this cell and show where its time went.

        The cell runs exactly as without this line. Keras' fit, evaluate and predict and loops over a
        tf.function are divided into steps by themselves; mark others with `with profnb.step(i):`.
        The last result is also in `_tfprofile`.
        """
        self._run_cell(parse_argstring(self.tfprofile_cell, line), cell, Profile.report)

    @no_var_expand
    @cell_magic("tftimeline")
    @_with_arguments(*_CAPTURE_ARGUMENTS)
    def tftimeline_cell(self, line: str, cell: str) -> None:
        """Show the timeline of this cell's TensorFlow work: threads, streams, events, steps.

        The cell runs and is captured as with %%tfprofile; press ? in the timeline for its keys.
        """
        self._run_cell(parse_argstring(self.tftimeline_cell, line), cell, Profile.timeline)

    @line_magic("tfprofile")
    @_with_arguments(*_OPEN_ARGUMENTS)
    def tfprofile_line(self, line: str) -> None:
        """Show the report of a saved trace, or of a result again."""
        arguments = parse_argstring(self.tfprofile_line, line)
        self._open(arguments).report(arguments.live)

    @line_magic("tftimeline")
    @_with_arguments(*_OPEN_ARGUMENTS)
    def tftimeline_line(self, line: str) -> None:
        """Show the timeline of a saved trace, or of an earlier result."""
        arguments = parse_argstring(self.tftimeline_line, line)
        self._open(arguments).timeline(arguments.live)

    @line_magic("tfcompare")
    @_with_arguments(
        argument(
            "what", nargs=2, type=_unquoted, help="two results (names), or lists of them, or paths"
        ),
        argument("-o", "--out", metavar="NAME", help="bind the comparison to this name"),
        argument("-q", "--quiet", action="store_true", help="show nothing"),
    )
    def tfcompare_line(self, line: str) -> None:
        """Compare the second with the first: how much faster, how sure, and where it comes from.

        Give lists of profiles, one per run, for an interval that holds from run to run.
        """
        arguments = parse_argstring(self.tfcompare_line, line)
        sources = [self.shell.user_ns.get(name, name) for name in arguments.what]
        try:
            result = compare(*sources, labels=_labels(arguments.what, sources))
        except (ProfnbError, OSError, ValueError, TypeError, AttributeError) as error:
            raise UsageError(str(error)) from None
        if arguments.out is not None:
            self.shell.user_ns[arguments.out] = result
        if not arguments.quiet:
            result.report()

    def _open(self, arguments: Namespace) -> Profile:
        """The result of this name, or the trace at this path."""
        profile = self.shell.user_ns.get(arguments.what)
        if not isinstance(profile, Profile):
            try:
                profile = load(Path(arguments.what), run=arguments.run, host=arguments.host)
            except (ProfnbError, OSError, ValueError) as error:
                raise UsageError(str(error)) from None
        if arguments.out is not None:
            self.shell.user_ns[arguments.out] = profile
        _write_json(profile, arguments)
        return profile


def _labels(names: list[str], sources: list[Any]) -> tuple[str, str]:
    """What to call two results: their own labels where they have different ones, else their names."""
    first, second = (
        getattr(getattr(source, "options", None), "label", None) or name
        for source, name in zip(sources, names, strict=True)
    )
    return (first, second) if first != second else (names[0], names[1])


def _write_json(profile: Profile, arguments: Namespace) -> None:
    """Write the Chrome trace where it was asked for; a file that cannot be written is one sentence."""
    if arguments.json is None or not profile.has_trace:
        return
    try:
        profile.to_chrome_trace(arguments.json)
    except OSError as error:
        show_sentence(f"The Chrome trace was not written: {error}")


def load_magics(shell: Any) -> None:
    """Register the magics; loading twice changes nothing."""
    if "ProfnbMagics" in shell.magics_manager.registry:
        return
    magics = ProfnbMagics(shell)
    shell.register_magics(magics)
    shell.input_transformers_cleanup.append(magics._transform)


def unload_magics(shell: Any) -> None:
    """Take back what ``load_magics`` did."""
    magics = shell.magics_manager.registry.pop("ProfnbMagics", None)
    if magics is None:
        return
    shell.input_transformers_cleanup.remove(magics._transform)
    for kind, names in magics.magics.items():
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
