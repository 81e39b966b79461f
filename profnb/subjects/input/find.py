"""tf.data's work in a trace, the training's waiting for it, and the reason."""

from dataclasses import replace
from functools import cached_property

from profnb.steps.examples import usual_batch_size
from profnb.steps.spine import Spine
from profnb.subjects.feeds.feeding import Feeding, QueueUse, find_feeding, find_queues
from profnb.subjects.input.diagnosis import InputDiagnosis, diagnose_input, explain_first_element
from profnb.subjects.input.iterators import (
    IteratorTree,
    SmallFiles,
    files_text,
    find_iterators,
    find_small_files,
    name_functions,
)
from profnb.subjects.input.pipeline import (
    BufferSamples,
    InputPipeline,
    find_buffers,
    tabulate_buffers,
    tabulate_input_pipeline,
)
from profnb.subjects.input.waiting import Charges, Waiting, charge_waiting, find_waiting
from profnb.trace.model import Counter


class Input:
    """The input pipeline's part of a trace, each value worked out when asked for."""

    def __init__(self, spine: Spine) -> None:
        """Nothing is computed yet."""
        self._spine = spine

    @cached_property
    def iterators(self) -> IteratorTree:
        """The iterators of tf.data."""
        spine = self._spine
        return find_iterators(spine.trace, spine.parent, spine.function_runs)

    @cached_property
    def _charges(self) -> Charges:
        return charge_waiting(self._spine.trace, self.iterators)

    @cached_property
    def pipeline(self) -> InputPipeline:
        """The cost of each iterator of tf.data."""
        spine = self._spine
        return tabulate_input_pipeline(
            spine.trace, self.iterators, self._charges, spine.parent, spine.recording.datasets
        )

    @cached_property
    def function_lines(self) -> tuple[str, ...]:
        """The user's line at which each iterator's function stands; "" where that is not known."""
        return name_functions(self.pipeline.dataset, self._spine.recording.dataset_lines)

    @cached_property
    def waiting(self) -> Waiting:
        """The training's waiting for its input."""
        spine = self._spine
        return find_waiting(
            spine.trace, spine.steps, spine.gaps, spine.summary.counted, self.iterators, self._charges,
            self.pipeline.parallelism,
        )  # fmt: skip

    @cached_property
    def feeding(self) -> Feeding | None:
        """Python between session runs; None where it is little, or was not sampled."""
        return find_feeding(self._spine)

    @cached_property
    def first_element(self) -> str:
        """The reason why the first element came late, in a sentence; empty where it did not."""
        return explain_first_element(self._spine.trace, self.pipeline, self.waiting)

    @cached_property
    def buffers(self) -> list[Counter]:
        """The elements in tf.data's buffers, one series per iterator with a buffer."""
        return find_buffers(self._spine.trace)

    @cached_property
    def buffer_capacity(self) -> dict[str, int]:
        """The capacity of each iterator's buffer, by its path."""
        capacities = zip(self.iterators.path, self.pipeline.capacity.tolist(), strict=True)
        return {path: capacity for path, capacity in capacities if capacity > 0}

    @cached_property
    def buffer_samples(self) -> BufferSamples | None:
        """The same as one table; None where there is no buffer."""
        return tabulate_buffers(self.buffers, self.buffer_capacity, self.queues)

    @cached_property
    def queues(self) -> list[QueueUse]:
        """The queues of TensorFlow 1 that the traced runs took elements from."""
        return find_queues(self._spine)

    @cached_property
    def diagnosis(self) -> InputDiagnosis | None:
        """The limit of the training's input; None without an input pipeline or steps."""
        if self._spine.steps.is_window:
            return None
        waiting, recording = self.waiting, self._spine.recording
        examples = self._spine.examples[waiting.counted]
        per_element: float | None = usual_batch_size(self._spine.trace)
        if waiting.elements and examples.size and examples.all():
            per_element = float(examples.sum() / waiting.elements)
        diagnosis = diagnose_input(self.pipeline, waiting, per_element)
        files = files_text(recording.file_counts, recording.file_bytes)
        if diagnosis is not None and diagnosis.cause == "small files" and files:
            return replace(diagnosis, sentence=f"{diagnosis.sentence} There are {files}.")
        return diagnosis

    @cached_property
    def small_files(self) -> SmallFiles | None:
        """The iterator that reads a file for each element; None where none reads many."""
        table, sizes = self.pipeline, self._spine.recording.file_bytes
        return find_small_files(table.function_ops, table.function_occurrences, sizes)
