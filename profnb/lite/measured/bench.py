"""What all that is measured of some files shares: their interpreter, a folder, the shape of a run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profnb.lite.conversion import Converted
from profnb.lite.findings import LiteModel
from profnb.lite.given import GivenData, plain_array, write_examples
from profnb.lite.process.interpreters import InterpreterProcess


@dataclass
class Bench:
    """Where models are measured.

    Attributes:
        converted: The models.
        batch: Examples of a run.
        folder: Where arrays pass to the interpreters and back.
        engine: Which interpreter runs them.
        version: Its version, once one has run.
        order: Of the arrays of the data, as the interpreters' inputs come.
        notes: What a reader should know of how it was measured.
    """

    converted: Sequence[Converted]
    batch: int
    folder: Path
    engine: str
    version: str = ""
    order: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def begin(self) -> InterpreterProcess:
        """A process of its own, as a broken file may end it."""
        return InterpreterProcess(self.engine)

    def place(self, path: Path, threads: int) -> dict[str, Any]:
        """What opens a file in an interpreter."""
        return {"path": str(path), "threads": threads, "batch": self.batch}

    def place_of(self, model: LiteModel) -> dict[str, Any]:
        """What opens the file of a model."""
        return self.place(self.path_of(model), model.threads)

    def path_of(self, model: LiteModel) -> Path:
        """The file of a model, whatever number of threads its name ends with."""
        paths = {one.name: one.path for one in self.converted}
        path = paths.get(model.name) or paths[model.name.rpartition(", ")[0]]
        assert path is not None
        return path

    def write(self, name: str, data: GivenData, rows: slice) -> str:
        """Examples for an interpreter to read; the file's path."""
        arrays = [plain_array(data.inputs[at][rows]) for at in self.order]
        return write_examples(self.folder / f"{name}.npz", arrays)
