"""The magics: parse, capture or load, show. No logic of their own."""

from argparse import Namespace
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import parse_argstring
from traitlets import Bool

from profnb.capture import seams
from profnb.capture.cell import as_written, can_transform, loaded_magics, make_transformer
from profnb.capture.hooks import put_back_uncovered, replace_attribute
from profnb.comparison import compare
from profnb.core.safe_files import remove_leftovers
from profnb.drawing.live_outputs import LiveOutputs
from profnb.lite.entry import LiteResult
from profnb.loading import say_last_death
from profnb.magic import known_results, magic_options
from profnb.magic.cell_runs import CellRuns, FailedCellError
from profnb.profile import Profile
from profnb.warm import Warming

_CELL_MAGICS = ("tfprofile", "tftimeline")


@magics_class
class ProfnbMagics(Magics):
    """``%%tfprofile`` and ``%%tftimeline``, ``%tfprofile`` and ``%tftimeline``."""

    live = Bool(
        None, allow_none=True, help="Whether reports get live controls; by default not in Colab."
    ).tag(config=True)

    def __init__(self, shell: Any) -> None:
        """Register with a shell and begin compiling in the background."""
        super().__init__(shell)
        self._warming = Warming()
        self._written: dict[str, str] = {}  # the magics' lines, by what stands in their place
        self._transform = make_transformer(_CELL_MAGICS, shell.user_ns, self._written)
        self.hooked = ExitStack()
        self._hook_tracebacks()
        self._results = known_results.KnownResults(shell)
        self._runs = CellRuns(shell, self._results, lambda: self._warming, lambda: self.live)
        self.live_outputs = LiveOutputs(shell)

    def _hook_tracebacks(self) -> None:
        """Let tracebacks show the magic's line as it was written."""
        tracebacks = seams.TRACEBACKS.of(self.shell)
        shown = seams.TRACEBACK.of(tracebacks)
        if shown is None:
            return

        def structured_traceback(*arguments: Any, **keywords: Any) -> Any:
            pieces = shown(*arguments, **keywords)
            if not isinstance(pieces, list) or not self._written:
                return pieces
            written = self._written
            return [as_written(one, written) if isinstance(one, str) else one for one in pieces]

        name = seams.TRACEBACK.attributes[0]
        self.hooked.enter_context(replace_attribute(tracebacks, name, structured_traceback))

    @no_var_expand
    @line_magic("_tfprofile_begin")
    def _begin_tfprofile(self, line: str) -> None:
        """Stand in place of ``%%tfprofile``, as the input transformer writes it."""
        self._runs.begin_before_cell(parse_argstring(self.tfprofile_cell, line), Profile.report)

    @no_var_expand
    @line_magic("_tftimeline_begin")
    def _begin_tftimeline(self, line: str) -> None:
        """Stand in place of ``%%tftimeline``, likewise."""
        self._runs.begin_before_cell(parse_argstring(self.tftimeline_cell, line), Profile.timeline)

    @no_var_expand
    @cell_magic("tfprofile")
    @magic_options.cell_arguments
    def tfprofile_cell(self, line: str, cell: str) -> None:
        """Profile the TensorFlow work of this cell and show where its time went.

        The cell runs exactly as without this line. Keras' fit, evaluate and predict and loops over a
        tf.function are divided into steps by themselves; mark others with `with profnb.step(i):`.
        The last result is also in `_tfprofile`.
        """
        self._runs.run(parse_argstring(self.tfprofile_cell, line), cell, Profile.report)

    @no_var_expand
    @cell_magic("tftimeline")
    @magic_options.cell_arguments
    def tftimeline_cell(self, line: str, cell: str) -> None:
        """Show the timeline of this cell's TensorFlow work: threads, streams, events, steps.

        The cell runs and is captured as with %%tfprofile; press ? in the timeline for its keys.
        """
        self._runs.run(parse_argstring(self.tftimeline_cell, line), cell, Profile.timeline)

    @line_magic("tfprofile")
    @magic_options.open_arguments
    def tfprofile_line(self, line: str) -> None:
        """Show the report of a saved trace, or of a result again."""
        arguments = _parse_open(self.tfprofile_line, line)
        self._results.open(arguments, is_fleet=True).report(arguments.live)

    @line_magic("tftimeline")
    @magic_options.open_arguments
    def tftimeline_line(self, line: str) -> None:
        """Show the timeline of a saved trace, or of an earlier result."""
        arguments = _parse_open(self.tftimeline_line, line)
        opened = self._results.open(arguments, is_fleet=True)
        if isinstance(opened, LiteResult):
            raise UsageError("A LiteRT result has no timeline. `%tfprofile NAME` shows the result.")
        opened.timeline(arguments.live)

    @line_magic("tfcompare")
    @magic_options.compare_arguments
    def tfcompare_line(self, line: str) -> None:
        """Compare results with the first: how much faster, how sure, and where it comes from.

        Repeat the cells (--repeat 5), or give lists of profiles, for an interval that holds from run to run.
        """
        arguments = parse_argstring(self.tfcompare_line, line)
        if len(arguments.what) < 2:
            raise UsageError(
                "Name two results or more: `%tfcompare before after`, by label, variable or path."
            )
        first, *others = [(name, self._results.source(name)) for name in arguments.what]
        pairs = [([first[0], name], [first[1], source]) for name, source in others]
        with magic_options.as_usage_error():
            results = [compare(*of, labels=known_results.labels_of(by, of)) for by, of in pairs]
        self._results.keep(results if len(results) > 1 else results[0], arguments.out)
        for result in [] if arguments.quiet else results:
            result.report()

    @line_magic("tfhistory")
    @magic_options.history_arguments
    def tfhistory_line(self, line: str) -> None:
        """Show the runs that were kept: step times over runs, and where they became slower or faster.

        `profnb.history()` is the same as a DataFrame; `profnb history --alarm` asks from a shell.
        """
        arguments = parse_argstring(self.tfhistory_line, line)
        from profnb.history.showing import open_history

        with magic_options.as_usage_error():
            history = open_history(label=arguments.label, path=arguments.history)
            if arguments.label and not history.rows:
                history = open_history(cell=arguments.label, path=arguments.history)
        self._results.keep(history.frame(), arguments.out)
        if not arguments.quiet:
            history.report()

    @no_var_expand
    @cell_magic("tfsweep")
    @magic_options.sweep_arguments
    def tfsweep_cell(self, line: str, cell: str) -> None:
        """Run this cell once per combination of settings and show which is fastest, and at what cost.

        For example `%%tfsweep batch_size=32,64,128 jit_compile=False,True --repeat 3`. The cell's own output
        is hidden. The last sweep is in `_tfsweep`, its profiles in `_tfsweep.profiles`.
        """
        arguments = parse_argstring(self.tfsweep_cell, line)
        from profnb.magic.sweep_magic import sweep_cell

        with self._warming.paused():
            sweep = sweep_cell(self.shell, arguments, cell)
        self._results.keep(sweep, "_tfsweep")
        self._results.keep(sweep.table, arguments.out)
        if not any(sweep.profiles):
            raise FailedCellError

    @line_magic("tflite")
    @magic_options.lite_arguments
    def tflite_line(self, line: str) -> None:
        """Convert a model to LiteRT (TensorFlow Lite) and show what each kind costs and gains.

        For example `%tflite model --data x_test y_test`. The last result is also in `_tflite`.
        """
        arguments = parse_argstring(self.tflite_line, line)
        with self._warming.paused():
            known_results.lite_line(self.shell, arguments)

    @line_magic("tfmemory")
    @magic_options.memory_arguments
    def tfmemory_line(self, line: str) -> None:
        """Forecast the memory of a step at any batch size, and the largest batch that fits.

        For example `%tfmemory model x y`, or `%tfmemory step batch` for your own loop. The last forecast is
        also in `_tfmemory`.
        """
        arguments = parse_argstring(self.tfmemory_line, line)
        with self._warming.paused():
            forecast = known_results.memory_line(self.shell, arguments)
        self._results.keep(forecast, "_tfmemory", arguments.out)


def _parse_open(magic: Any, line: str) -> Namespace:
    """The arguments of a line magic, which opens; whoever gives it only options meant the cell's."""
    arguments: Namespace | None = None
    try:
        arguments = parse_argstring(magic, line)
    except UsageError:
        if line and not line.lstrip().startswith("-"):
            raise
    if arguments is not None and (arguments.last or arguments.what is not None):
        return arguments
    name = magic.__name__.removesuffix("_line")
    asked = f"%%{name} {line}".rstrip()
    raise UsageError(
        f"%{name} opens a saved trace or a result. To profile this cell, write as its first line: {asked}"
    )


def load_magics(shell: Any) -> None:
    """Register the magics; loading twice changes nothing."""
    if loaded_magics(shell) is not None:
        return
    remove_leftovers(Path(gettempdir()))
    magics = ProfnbMagics(shell)
    shell.register_magics(magics)
    register = seams.REGISTER.of(seams.EVENTS.of(shell))
    if register is not None:
        # What the code's own patch of one cell uncovers in another goes with that.
        register("post_run_cell", put_back_uncovered)
    if can_transform(shell):
        seams.TRANSFORMERS.of(shell).append(magics._transform)
    if sentence := say_last_death():
        known_results.say(sentence)


def unload_magics(shell: Any) -> None:
    """Take back what ``load_magics`` did."""
    magics = loaded_magics(shell)
    if magics is None:
        return
    manager, transformers = seams.MAGICS_MANAGER.of(shell), seams.TRANSFORMERS.of(shell, [])
    unregister = seams.UNREGISTER.of(seams.EVENTS.of(shell))
    if unregister is not None:
        with suppress(ValueError):  # somebody did it before
            unregister("post_run_cell", put_back_uncovered)
    seams.LOADED_MAGICS.of(manager).pop("ProfnbMagics")
    if magics._transform in transformers:
        transformers.remove(magics._transform)
    magics.live_outputs.end()
    magics.hooked.close()
    for kind, names in magics.magics.items():
        for name in names:
            seams.MAGICS_BY_NAME.of(manager, {}).get(kind, {}).pop(name, None)
