"""The profilers of one window: started one by one, stopped together, to one trace that is kept.

TensorFlow and JAX record side by side, each what is its own, on one clock; where both did something (tf.data
feeds JAX), their traces are joined. An XSpace is a list of planes, so two of them behind each other are one.
PyTorch's trace is of another format and stands alone.
"""

import tempfile
from pathlib import Path

from profnb.capture.profiler.jax_door import JaxDoor
from profnb.capture.profiler.profiler_door import Door, Rank, first_line
from profnb.capture.profiler.tensorflow_door import TensorFlowDoor
from profnb.capture.profiler.torch_door import TorchDoor
from profnb.core.options import CaptureOptions
from profnb.core.safe_files import claim_folder, folder_prefix, remove_leftovers

_SUFFIXES = (".xplane.pb", ".pt.trace.json")
# What a trace holds, somewhere, if the framework did anything while it was recorded.
_OF_TENSORFLOW = (
    b"Iterator::", b"tf_data", b"EagerExecute", b"EagerLocalExecute", b"ExecutorState", b"SessionRun",
    b"tf_function_call",
)  # fmt: skip
_OF_JAX = (b"PjitFunction(", b"PjRt")
_OF_TORCH = (b"aten::",)


class Doors:
    """The profilers that one capture may start.

    Args:
        options: What to record, and where to.
        messages: Where what went wrong is said.
    """

    def __init__(self, options: CaptureOptions, messages: list[str]) -> None:
        """Nothing runs yet."""
        self._options, self._messages = options, messages
        self.tensorflow = TensorFlowDoor(options, messages)
        self.jax = JaxDoor(options, messages)
        self.torch = TorchDoor(options, messages)
        self._running: list[Door] = []
        self._logdir: Path | None = None

    @property
    def is_of_thread(self) -> bool:
        """True where only the thread that opened the window may close it."""
        return any(door.is_of_thread for door in self._running)

    def runs(self, door: Door) -> bool:
        """Tell if a profiler runs that was started here."""
        return door in self._running

    def make_folder(self) -> str:
        """A folder that is this capture's alone.

        Profilers name a run by the second in which it ends, so that two captures, of one kernel or of
        several, may write to one file. Inside of the logdir what is written need only be renamed.
        """
        if self._options.logdir is None:
            remove_leftovers(Path(tempfile.gettempdir()))
            return tempfile.mkdtemp(prefix=folder_prefix())
        logdir = self._logdir = Path(self._options.logdir).expanduser().absolute()
        logdir.mkdir(parents=True, exist_ok=True)
        remove_leftovers(logdir)
        return tempfile.mkdtemp(prefix=f".{folder_prefix()}", dir=logdir)

    def start(self, door: Door, folder: str) -> None:
        """Start one of the profilers; whatever it raises goes to the caller."""
        door.start(folder)
        self.tensorflow.tell_of_others()
        self._running.append(door)

    def stop(self, folder: Path) -> Path | None:
        """Stop all that run, whichever of them fails, and keep one trace.

        Returns:
            The trace; None where none was left, which is said.
        """
        traces: dict[Door, Path] = {}
        while self._running:  # each runs until it has stopped, for whoever asks on another thread
            door = self._running[0]
            try:
                path = door.stop(folder)
            except Exception as error:  # noqa: BLE001 - whatever it is, the user's code comes first
                self._messages.append(
                    f"The {door.title} profiler did not stop cleanly ({first_line(error)}) and left no "
                    "trace. The code's own results are complete."
                )
                continue
            finally:
                self._running.remove(door)
            if path is not None:
                traces[door] = path
        if not traces:
            return None
        trace = self._pick(traces)
        if self._logdir is None:
            return trace
        try:
            return _publish(trace, folder, self._logdir, self.tensorflow.rank)
        except OSError as error:
            self._messages.append(
                f"The trace could not be kept in {self._logdir} ({first_line(error)}); this result still "
                "has the trace."
            )
            return trace

    def _pick(self, paths: dict[Door, Path]) -> Path:
        """The trace of the framework that did the work, or of both joined."""
        of_torch = paths.pop(self.torch, None)
        if of_torch is not None and (not paths or _has_any(of_torch.read_bytes(), _OF_TORCH)):
            return of_torch
        if len(paths) < 2:
            return next(iter(paths.values()))
        of_jax, of_tensorflow = paths[self.jax], paths[self.tensorflow]
        jax, tensorflow = of_jax.read_bytes(), of_tensorflow.read_bytes()
        if not _has_any(jax, _OF_JAX):
            return of_tensorflow
        if _has_any(tensorflow, _OF_TENSORFLOW):
            of_jax.write_bytes(jax + tensorflow)
        return of_jax


def _has_any(recorded: bytes, words: tuple[bytes, ...]) -> bool:
    return any(word in recorded for word in words)


def _publish(trace: Path, folder: Path, logdir: Path, rank: Rank | None) -> Path:
    """Move a run from the folder it was written to into the logdir; where its trace is then.

    The processes of a job share the folder of the second in which they end, as TensorFlow's own do, and each
    has a name of its own there, HOST_RANK. Who is alone, or finds its name taken, gets a folder of its own.
    """
    runs, host = logdir / "plugins" / "profile", trace.name
    suffix = next((end for end in _SUFFIXES if host.endswith(end)), "")
    host = host.removesuffix(suffix)
    name = host if rank is None else f"{host}_{rank.name}"
    run = _share_folder(runs, trace.parent.name, name + suffix) if rank is not None else None
    run = run or claim_folder(runs, trace.parent.name)
    for file in trace.parent.iterdir():
        is_own = file.name.startswith(f"{host}.")
        file.replace(run / (name + file.name.removeprefix(host) if is_own else file.name))
    for file in folder.iterdir():  # an empty event file, by which TensorBoard knows a logdir
        if file.is_file():
            file.replace(logdir / file.name)
    return run / f"{name}{suffix}"


def _share_folder(runs: Path, run: str, file: str) -> Path | None:
    """A run's folder, in which an empty file now has the name; None where it was taken already."""
    folder = runs / run
    folder.mkdir(parents=True, exist_ok=True)
    try:
        (folder / file).touch(exist_ok=False)
    except FileExistsError:
        return None
    return folder
