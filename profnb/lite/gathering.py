"""What ``profnb.lite`` was given, to converted models, and those to a result."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from profnb.core.errors import CaptureError
from profnb.core.safe_files import check_regular, folder_prefix
from profnb.lite.conversion import Converted, convert_model, is_keras, read_file, stripped
from profnb.lite.findings import LiteFindings
from profnb.lite.given import read_data, read_examples
from profnb.lite.measured.keras_side import KerasSide, layers_of
from profnb.lite.measured.measuring import Measuring
from profnb.lite.result import LiteResult

_MOST_CALIBRATED = 100


def measure_models(
    model: Any, data: Any, kinds: Sequence[str], representative: Any, threads: tuple[int, ...], batch_size:
    int,
    *, allow: Sequence[str], fixed_batch: bool, seconds: float, label: str | None,
) -> LiteResult:  # fmt: skip
    """Convert, run and judge; the arguments are those of ``profnb.lite``, checked."""
    given = read_data(data)
    examples, source = read_examples(representative, given, _MOST_CALIBRATED)
    with tempfile.TemporaryDirectory(prefix=folder_prefix()) as name:
        converted: list[Converted] = []
        kerases: list[tuple[str, Any]] = []
        notes: list[str] = []
        layers: dict[str, list[tuple[str, str]]] = {}
        sources = _sources(model, Path(name))
        for at, (called, one) in enumerate(sources):
            prefix = f"{called} " if len(sources) > 1 and not isinstance(one, Converted) else ""
            if isinstance(one, Converted):
                converted.append(one)
                continue
            plain, trained = stripped(one)
            if trained:
                what = "trained for int8" if trained == "int8" else trained
                notes.append(f"{called} is {what} with tensorflow-model-optimization.")
            shapes = [array.shape for array in given.inputs]
            if is_keras(plain):
                if shapes:
                    KerasSide(
                        plain, shapes, given.names
                    )  # a wrong shape is said before anything is converted
                kerases.append((called, plain))
            folder = Path(name) / str(at)
            folder.mkdir()
            made = convert_model(
                plain, kinds, folder, examples=examples, names=given.names, batch_size=batch_size,
                allow=allow, fixed_batch=fixed_batch or batch_size > 1, is_trained=trained == "int8",
            )  # fmt: skip
            named = [replace(each, name=f"{prefix}{each.name}") for each in made]
            layers |= {each.name: layers_of(plain) for each in named}
            converted += named
        calibrated = (len(examples[0]) if examples else 0, source)
        measuring = Measuring(converted, given, calibrated, threads, batch_size, seconds)
        reference = kerases[0][1] if kerases else None
        if len(kerases) > 1:
            notes.append(f"The Keras model that all are compared with is {kerases[0][0]}.")
        title = label or ", ".join(called for called, _ in sources)
        with redirect_stdout(StringIO()):
            findings = measuring.measure(title, reference, layers, notes)
    _raise_if_empty(findings)
    return LiteResult(findings)


def _sources(model: Any, folder: Path) -> list[tuple[str, Any]]:
    """What was given, under names: Keras models, paths of SavedModels, and files that are converted."""
    if isinstance(model, Mapping):
        if not model:
            raise ValueError("There is no model to convert.")
        return [(str(name), _source(one, folder, str(name))[1]) for name, one in model.items()]
    if isinstance(model, list | tuple):
        return [_source(one, folder, "") for one in model]
    return [_source(model, folder, "")]


def _source(model: Any, folder: Path, name: str) -> tuple[str, Any]:
    if isinstance(model, bytes | bytearray):
        called = name or "model"
        return called, read_file(folder / f"{called}.tflite", bytes(model))
    if is_keras(model):
        return name or str(model.name), model
    if not isinstance(model, str | os.PathLike):
        raise ValueError(  # noqa: TRY004 - what is given may be of many types
            f"A Keras model, the bytes of a .tflite file or a path is needed, got a {type(model).__name__}."
        )
    path = Path(model).expanduser()
    if path.is_dir():
        if not (path / "saved_model.pb").exists():
            raise CaptureError(f"{path.name} is a folder without saved_model.pb, so no SavedModel.")
        return name or path.name, path
    if path.suffix in (".keras", ".h5"):
        check_regular(path)
        import keras

        return name or path.stem, keras.saving.load_model(path)
    converted = read_file(path)
    return name or path.stem, replace(converted, name=name or path.stem)


def _raise_if_empty(findings: LiteFindings) -> None:
    if not findings.measured:
        reasons = [f"{one.name}: {one.error}" for one in findings.models if one.error]
        raise CaptureError(" ".join(reasons) or "No model could be run.")
