"""``profnb.lite`` and what it gives: tables, a report in every form, a file that opens without a kernel.

Models for the device are converted, run and judged beside the Keras model. Imports nothing heavy before it is
called. Two results are compared kind by kind: how much faster, how much smaller, and what it does to the
outputs.
"""

import gzip
import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from profnb.core.arguments import count, counts, listed, unquoted
from profnb.core.errors import TraceFormatError
from profnb.core.printable import printable
from profnb.core.safe_files import open_regular, ours_alone, whole_file
from profnb.core.sharing import Sharing
from profnb.core.table import TableOf
from profnb.report.result import ComparedResult, SharedResult

if TYPE_CHECKING:
    import pandas as pd

    from profnb.advice.proposals import Advice
    from profnb.compare.speedup import Difference
    from profnb.lite.findings import Interval, LiteFindings, LiteModel
    from profnb.report.report import Report

KINDS = ("float32", "float16", "dynamic", "int8")
ALLOWED = ("select-tf", "custom")
_RESULT_SUFFIX = ".lite.json.gz"
_RESULT_VERSION = 1
_LARGEST_RESULT = 1 << 28
_TOP = {
    "models": "latency_ms: model bytes latency_ms latency_low_ms latency_high_ms speedup metric",
    "layers": "self_us: model layer self_us error_fraction",
    "ops": "self_us: model op_type layer kernel self_us self_fraction",
}

# Flags and settings of argparse's ``add_argument``, and of IPython's ``argument``.
CONVERSION_ARGUMENTS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--kinds",), {
        "type": listed, "default": list(KINDS), "metavar": "KIND,KIND",
        "help": f"of {', '.join(KINDS)} (all)",
    }),
    (("--representative",), {
        "type": unquoted, "metavar": "NAME",
        "help": "what int8 is calibrated with (default: the first 100 examples of the data)",
    }),
    (("--threads",), {
        "type": counts, "default": [1], "metavar": "N,N", "help": "threads of the interpreter (default 1)",
    }),
    (("--batch-size",), {
        "type": count, "default": 1, "metavar": "N", "help": "examples of a run (default 1)"
    }),
    (("--allow",), {
        "type": listed, "default": [], "metavar": "WHAT,WHAT",
        "help": f"of {', '.join(ALLOWED)}: ops that TensorFlow Lite does not have",
    }),
    (("--fixed-batch",), {"action": "store_true", "help": "convert for exactly this batch size"}),
    (("--label",), {"type": unquoted, "help": "a name for the result"}),
)  # fmt: skip

# What these say, by the names of ``lite``'s arguments.
OPTIONS = ("kinds", "representative", "threads", "batch_size", "allow", "fixed_batch", "label")


def lite(
    model: Any,
    data: Any = None,
    kinds: Sequence[str] = KINDS,
    representative: Any = None,
    threads: Sequence[int] = (1,),
    batch_size: int = 1,
    *,
    allow: Sequence[str] = (),
    fixed_batch: bool = False,
    seconds: float = 3.0,
    label: str | None = None,
) -> "LiteResult":
    """Convert a model to LiteRT (TensorFlow Lite) and say what each kind costs and gains.

    Needs ``pip install 'profnb[litert]'`` to run the models, and TensorFlow to convert them.

    Args:
        model: A Keras model; the path of a SavedModel, ``.keras`` or ``.tflite`` file or a list of those; the
            bytes of one; several under names (``{"plain": model, "pruned": other}``); or the path of what
            ``save`` wrote, which is opened. What tensorflow-model-optimization wrapped is unwrapped by it.
        data: ``(x, y)``, ``x`` alone, a ``tf.data.Dataset`` of batches, or the path of an ``.npz`` with x
            and y. At most 10,000 examples are judged. Without it there are times of random input only.
        kinds: Of "float32", "float16", "dynamic" (weights of 8 bits) and "int8" (all of it).
        representative: What int8 is calibrated with: arrays, a dataset, or a function as TensorFlow's
            converter takes it; by default the first 100 examples of the data.
        threads: Threads of the interpreter; each kind is run with each.
        batch_size: Examples of a run.
        allow: "select-tf" for ops that only TensorFlow has, "custom" for ops of the app's own.
        fixed_batch: Whether to convert for exactly this batch; by default as the model says, and for more
            than one example always.
        seconds: How long to time, about, all of them together.
        label: What to call the result.

    Raises:
        CaptureError: Nothing could be converted or run.
        FileNotFoundError: There is nothing at a path.
        TraceFormatError: A saved result is damaged.
        ValueError: An argument cannot be meant, or the data do not fit the model.
    """
    if isinstance(model, str | os.PathLike) and is_saved(Path(model)):
        return open_result(model)
    if isinstance(kinds, str) or not kinds or set(kinds) - set(KINDS):
        raise ValueError(f"kinds takes a list of {', '.join(KINDS)}, got {kinds!r}.")
    if isinstance(allow, str) or set(allow) - set(ALLOWED):
        raise ValueError(f"allow takes a list of {', '.join(ALLOWED)}, got {allow!r}.")
    if not len(threads) or any(int(one) < 1 for one in threads):
        raise ValueError(f"threads takes whole numbers from 1, got {tuple(threads)}.")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
    if not 0 < seconds < math.inf:
        raise ValueError(f"seconds must be more than 0, got {seconds}.")
    from profnb.lite.measuring import measure_models

    return LiteResult(measure_models(
        model, data, kinds, representative, tuple(map(int, threads)), batch_size,
        allow=allow, fixed_batch=fixed_batch, seconds=seconds, label=label,
    ))  # fmt: skip


class LiteResult(SharedResult):
    """Models for the device, side by side. Shown in a notebook, it is its report.

    Attributes:
        findings: What is known, as values.
    """

    models = TableOf("lite.findings", "LITE_MODELS", "findings.rows")
    layers = TableOf("lite.findings", "LITE_LAYERS", "findings.layers")
    ops = TableOf("lite.findings", "LITE_OPS", "findings.ops")

    def __init__(self, findings: "LiteFindings") -> None:
        """Wrap what was found."""
        self.findings = findings

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        from profnb.lite.section import verdict_text

        return verdict_text(self.findings)

    @property
    def advice(self) -> "list[Advice]":
        """Changes to make, what can gain most first; what it saves is of a run of the slowest model."""
        from profnb.advice.proposals import as_advice

        rounds = [median(one.round_ps) for one in self.findings.measured if one.round_ps]
        return [as_advice(one, max(rounds, default=math.nan)) for one in self.findings.advice]

    @property
    def notes(self) -> list[str]:
        """Sentences to know before trusting the figures."""
        return list(self.findings.notes)

    @property
    def environment(self) -> dict[str, str]:
        """Packages that interpreted, and the machine."""
        return dict(self.findings.environment)

    @cached_property
    def _report(self) -> "Report":
        from profnb.lite.section import lite_sections
        from profnb.report.report import Report

        findings = self.findings
        settings = dict(findings.environment)
        machine, cores = settings.pop("Machine", ""), settings.pop("CPU cores", "")
        used = ", ".join(f"{name} {value}" for name, value in settings.items())
        size = "one example" if findings.batch_size == 1 else f"{findings.batch_size} examples"
        return Report(
            title=findings.title,
            headline=self.verdict.rstrip("."),
            answer=f"{findings.title}, {size} a run, with {used} on {machine} ({cores} CPU cores).",
            notes=findings.notes,
            sections=lite_sections(findings),
            advice=self.advice,
            foot="Shared, this shows names of models, layers and ops, and no source code.",
        )

    def to_dict(self) -> dict[str, Any]:
        """Give what the report says as plain values: at most 8 kB as JSON, by the schema of all reports."""
        from profnb.report.as_data import report_data

        return report_data(
            self._report,
            None,
            {name: getattr(self, name) for name in _TOP},
            source=self.findings.title,
            environment=self.environment,
            advice=self.advice,
            tops=_TOP,
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write all of it to a file that ``profnb.lite(path)`` and ``profnb.load(path)`` open.

        Returns:
            The file's path; its name ends with ``.lite.json.gz``.
        """
        target = Path(path).expanduser()
        if not target.name.endswith(_RESULT_SUFFIX):
            target = target.with_name(target.name + _RESULT_SUFFIX)
        codec, kind = _codec()
        contents = {"profnb_lite": _RESULT_VERSION, "findings": codec.encode(self.findings, kind)}
        with whole_file(target) as partial:
            partial.write_bytes(gzip.compress(json.dumps(Sharing().values(contents)).encode()))
        return target

    def __repr__(self) -> str:
        return f"<LiteRT models of {printable(self.findings.title)}>"


def _codec() -> tuple[Any, type]:
    """Make what writes and reads findings, and give their class."""
    from profnb.capture.saved.codec import Codec, Limit
    from profnb.lite.findings import LiteFindings, LiteModel

    def check_findings(findings: LiteFindings) -> None:
        if not findings.models:
            raise ValueError("no models")
        most = 1.0 if findings.metric == "accuracy" else sys.float_info.max
        if not all(0 <= score <= most for model in findings.models for score in model.scores):
            raise ValueError("a score that is no number")

    def check_model(model: LiteModel) -> None:
        if not all(0 < time_ps < math.inf for time_ps in model.round_ps):
            raise ValueError("a run that took no time, or for ever")

    limits = {"LiteFindings.ops": Limit((200_000,)), "LiteFindings.layers": Limit((100_000,))}
    return Codec(limits, {LiteFindings: check_findings, LiteModel: check_model}), LiteFindings


def is_saved(path: Path) -> bool:
    """Tell whether this is the name of what ``save`` writes."""
    return path.name.endswith(_RESULT_SUFFIX)


def open_result(path: str | os.PathLike[str]) -> LiteResult:
    """Open what ``save`` wrote.

    Raises:
        FileNotFoundError: It is not there.
        TraceFormatError: It is damaged, or something else.
    """
    target = Path(path).expanduser()
    with ours_alone(target, "profnb.lite saves"):
        with open_regular(target) as packed, gzip.open(packed) as file:
            text = file.read(_LARGEST_RESULT + 1)
        contents = json.loads(text) if len(text) <= _LARGEST_RESULT else {}
        if contents["profnb_lite"] != _RESULT_VERSION:
            raise TraceFormatError(f"version {str(contents['profnb_lite'])[:20]}")
        codec, kind = _codec()
        return LiteResult(codec.decode(contents["findings"], kind))


@dataclass(frozen=True)
class LiteDifference:
    """One kind in both results.

    Its fields are what ``findings.LITE_DIFFERENCES`` shows; the price is unknown where the data differ.
    """

    name: str
    first: "LiteModel"
    second: "LiteModel"
    time: "Difference"
    price: "Interval"


class LiteComparison(ComparedResult):
    """Two LiteRT results side by side; shown in a notebook, it is its report.

    Attributes:
        first: A.
        second: B.
        labels: What they are called.
    """

    kinds = TableOf("lite.findings", "LITE_DIFFERENCES", "differences")

    def __init__(self, first: "LiteResult", second: "LiteResult", labels: tuple[str, str]) -> None:
        """Compare nothing yet."""
        self.first, self.second, self.labels = first, second, labels

    @cached_property
    def differences(self) -> "Sequence[LiteDifference]":
        """The kinds that both have, in the order of A."""
        import numpy as np

        from profnb.compare.speedup import RunSet, compare_runs
        from profnb.lite.findings import NO_INTERVAL

        one, two = self.first.findings, self.second.findings
        judged, judged_again = ((each.data_digest, each.metric) for each in (one, two))
        is_same_data = bool(one.data_digest) and judged == judged_again
        others = {model.name: model for model in two.models if len(model.round_ps)}
        rows = []
        for model in one.models:
            other = others.get(model.name)
            if other is not None and len(model.round_ps):
                sides = zip(self.labels, (model, other), strict=True)
                runs = [RunSet(label, (np.array(each.round_ps),)) for label, each in sides]
                time = compare_runs(runs[0], runs[1])
                price = one.price(other, model) if is_same_data else NO_INTERVAL
                rows.append(LiteDifference(model.name, model, other, time, price))
        return rows

    @property
    def _spoken_of(self) -> "LiteDifference | None":
        """The kind that the verdict is of: the fastest one of A for the device."""
        devices = [row for row in self.differences if row.name != "Keras"]
        return min(devices, key=lambda row: row.first.latency_ps, default=None)

    @property
    def difference(self) -> "Difference":
        """The difference of the kind that is fastest in A: the time of a run of B over that of A."""
        from profnb.compare.speedup import Difference

        return self._spoken_of.time if self._spoken_of else Difference()

    @property
    def table(self) -> "pd.DataFrame":
        """One row per kind that both have; see ``kinds``."""
        return self.kinds

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        from profnb.lite.section import difference_text

        row = self._spoken_of
        if row is None:
            return "The two results have no kind in common."
        return difference_text(row, self.labels, self.first.findings)

    @property
    def guards(self) -> list[str]:
        """Further differences than the one that was meant, in sentences; read them before the verdict."""
        one, two = self.first.findings, self.second.findings
        guards = [
            f"{name} differs: {one.environment.get(name, 'none')} and {two.environment.get(name, 'none')}."
            for name in dict.fromkeys([*one.environment, *two.environment])
            if one.environment.get(name) != two.environment.get(name)
        ]
        if one.batch_size != two.batch_size:
            guards.append(f"Batch size differs: {one.batch_size} and {two.batch_size}.")
        if one.data_digest != two.data_digest:
            guards.append("The two were judged on different data, so accuracy is not compared.")
        guards.append(
            "The two were timed at different times. Models of one profnb.lite call are timed by turns."
        )
        return guards

    @cached_property
    def _report(self) -> "Report":
        from profnb.lite.section import difference_section
        from profnb.report.report import Report

        title = f"{self.labels[0]} and {self.labels[1]}"
        sections = [difference_section(self.differences, self.labels)] if self.differences else []
        return Report(title, self.verdict.rstrip("."), notes=self.guards, sections=sections)

    def __repr__(self) -> str:
        return f"<LiteComparison of {self.labels[0]} and {self.labels[1]}>"
