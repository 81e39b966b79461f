"""Watching code that works on PyTorch: its loops make steps, its layers are marked in the trace.

An iteration ends with the optimizer's step. It begins when the batch is there (a ``DataLoader`` has given
it), else with ``zero_grad``; or where the one before ended, without a ``zero_grad``, and where modules are
called before it and none behind it. Waiting for the batch is so in the gap before the step, where the
profiler's events name it. A batch after which nothing is optimized (validation) makes no step. Where several
optimizers take turns, the one that is last before the next batch ends the step; so the first step waits for
that batch to be asked for.

PyTorch's trace does not say which module an op was called by (its stacks do, at twenty times the cost). Each
call of a module puts one event around its ops, for a sixteenth of what a small layer takes; Keras opens a
name scope for each layer, loss and optimizer, which gets one likewise. Modules have the names of
``named_modules()`` of the outermost one that is called: ``Net/encoder/0``. Nothing is marked while no
profiler of ours records PyTorch, or on other threads.

``torch.compile`` compiles the user's code and not ours. It reads a function's bytecode and follows every
call, so a hook around a call would be compiled with it, cut the program into pieces, and have it compiled
anew when the hook goes. So while it reads, what we replaced is as it was, and frames of ours that run between
its pieces are none that it looks at. What runs in a compiled module is so the module's that was compiled.

Source: PyTorch's torch/_dynamo/callback.py and convert_frame.py (2.2 to 2.15).
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from profnb.capture import seams
from profnb.capture.hooks import Library, guarded, put_again, put_aside, watch
from profnb.capture.marking.open_steps import abandon_marker, end_marker
from profnb.capture.marking.step_recorder import StepRecorder
from profnb.capture.models.layer_facts import ModelFacts
from profnb.capture.models.model_watch import (
    ModelWatch,
    compiled_in,
    describe_module,
    is_loss,
    shapes_of,
)
from profnb.capture.profiler.torch_door import StepMark, TorchDoor
from profnb.capture.source.source_records import Shape
from profnb.capture.step_records import USER
from profnb.trace.names import KINETO_SCOPE

_BY_BATCH, _BY_ZERO_GRAD, _BY_END = 1, 2, 3
_METRICS = "metrics"


class TorchLoops:
    """Sees a loop's iterations, on the thread that makes it.

    Args:
        recorder: Told of each step.
        door: Marks them in the trace.
        scopes: Has seen which modules were called.
        use: Called before the first one: from here on PyTorch works.
    """

    def __init__(
        self,
        recorder: StepRecorder,
        door: TorchDoor,
        scopes: "TorchScopes",
        use: Callable[[], object],
    ) -> None:
        """Nothing is watched yet."""
        self._recorder, self._door, self._scopes, self._use = recorder, door, scopes, use
        self._steps = recorder.iterations
        self._calls_at_end = self._calls_at_zero_grad = 0
        self._is_zero_grad_late = False
        self._begun_by = 0
        self._latest: int | None = None  # the optimizer that stepped last
        self._ends: int | None = None  # the one that ends a step, once a batch came behind it

    @contextmanager
    def watch(self, torch: Library) -> Iterator[None]:
        """See the loop inside the block."""
        register = torch.take(seams.TORCH_STEP_HOOK)
        here: Any = {"hook_failed": torch.hook_failed, "thread": torch.thread}
        with (
            torch.watch(seams.TORCH_NEXT_BATCH, before=self._batch_asked, came=self._batch_came),
            torch.watch(seams.TORCH_ZERO_GRAD, before=self._zeroes),
            watch(StepMark, "__enter__", after=self._mark_began, **here),
            watch(StepMark, "__exit__", before=self._mark_ended, **here),
            ExitStack() as stack,
        ):
            if register is not None:  # PyTorch calls it, so no error of ours may leave it
                stack.callback(register(guarded(self._stepped, torch.hook_failed)).remove)
            stack.callback(self._steps.abandon)
            yield

    def _batch_asked(self, _: object) -> None:
        self._use()
        if self._latest is not None and self._ends is None and self._begun_by == _BY_BATCH:
            self._steps.end()
        if self._latest is not None:
            self._ends = self._latest
        self._steps.abandon()
        self._begun_by = 0

    def _batch_came(self, loader: object, batch: object) -> None:
        is_batch = self._recorder.batches.keras_runs.now is not None
        self._door.batches.came(loader, batch, is_batch=is_batch)
        self._begin(_BY_BATCH)

    def _zeroes(self, *_: object, **__: object) -> None:
        self._calls_at_zero_grad = self._scopes.calls
        if not self._begun_by and not self._is_zero_grad_late:
            self._use()
            self._begin(_BY_ZERO_GRAD)

    def _begin(self, by: int) -> None:
        self._begun_by = by
        self._steps.abandon()  # one that has not ended is none
        self._steps.begin(self._door)

    def _stepped(self, optimizer: object, *_: object) -> None:
        if not self._recorder.open.is_here():
            return
        self._use()
        self._latest = id(optimizer)
        self._look_where_zero_grad_stands()
        begun_by = self._begun_by
        if self._ends is None and begun_by == _BY_BATCH:
            return  # another optimizer may follow
        if self._ends in (None, self._latest):
            self._begun_by = 0
            self._steps.end()
            if begun_by in (0, _BY_END):
                self._begun_by = _BY_END
                self._steps.begin(self._door)

    def _look_where_zero_grad_stands(self) -> None:
        calls, calls_before = self._scopes.calls, self._calls_at_end
        self._calls_at_end = calls
        if not self._door.is_running:
            return
        if self._is_zero_grad_late and calls > self._calls_at_zero_grad:  # another loop
            self._is_zero_grad_late, self._begun_by = False, _BY_ZERO_GRAD
        elif self._begun_by == _BY_ZERO_GRAD and calls_before < self._calls_at_zero_grad == calls:
            self._is_zero_grad_late, self._begun_by = True, 0
            self._steps.abandon()

    def _mark_began(self, mark: StepMark) -> None:
        """A step that the user marks begins; inside a step there is none."""
        self._use()
        self._steps.abandon()
        opened = self._recorder.open
        outer = opened.innermost()
        if outer is None or outer.marker is mark.also:
            mark.marker = self._door.mark_step(mark.phase, mark.step_num)
        if outer is None:
            opened.stack.append(opened.begin(mark, USER, mark.phase, mark.step_num))

    def _mark_ended(self, mark: StepMark, kind: object = None, *_: object) -> None:
        """It ends; one that raised is no step."""
        try:
            (end_marker if kind is None else abandon_marker)(mark.marker)
        finally:  # an interrupt there leaves no step open, which all that follow would be part of
            self._recorder.events.marker_ended(mark, failed=kind is not None)


class _Turn(dict[int, int]):
    """One call of an outermost layer: how often each module was called in it, by the module's id.

    Attributes:
        shapes: Of what it was called with.
    """

    shapes: tuple[Shape, ...] = ()


class _Root:
    """A module that was called by no other one.

    Attributes:
        module: The module, if it lives.
        path: Its name, which no other has.
        paths: Of each module inside, by its id.
        facts: What is known of it as a model; None before its first call has ended.
    """

    def __init__(self, module: Any, path: str) -> None:
        self.module, self.path = weakref.ref(module), path
        self.facts: ModelFacts | None = None
        names = ((id(part), name.replace(".", "/")) for name, part in module.named_modules())
        self.paths = {part: f"{path}/{name}" if name else path for part, name in names}


class TorchScopes:
    """Marks calls of layers, on the thread that makes it.

    Args:
        door: Marks them in the trace.
        models: Told which layers ran.

    Attributes:
        calls: How often a module was called by no other one, while a profiler records.
    """

    def __init__(self, door: TorchDoor, models: ModelWatch) -> None:
        """Nothing is watched yet."""
        self._door, self._models = door, models
        self.calls = 0
        self._open: list[tuple[object, str, Any, object]] = []  # owner, path, event, caller
        self._roots: dict[int, _Root] = {}
        self._owner_of: dict[str, int] = {}  # paths to the ids of what has them
        self._turn = _Turn()

    def watch_torch(self, torch: Library) -> AbstractContextManager[None]:
        """Mark calls of modules inside the block."""
        return torch.watch(seams.TORCH_CALL, before=self._module_called, after=self._left)

    @contextmanager
    def watch_keras(self, keras: Library) -> Iterator[None]:
        """Mark the scopes of Keras' layers, losses and optimizers, and its metrics, inside the block."""
        entered = keras.watch(seams.KERAS_SCOPE, after=self._scope_entered)
        left = keras.watch(seams.KERAS_SCOPE_EXIT, before=self._left)
        metrics = keras.watch(seams.KERAS_METRICS, before=self._metrics_begin, after=self._left)
        with entered, left, metrics:
            yield

    def _is_marking(self) -> bool:
        if not self._door.is_running:
            self._open.clear()
        return self._door.is_running

    def _enter(self, owner: object, path: str, caller: object) -> None:
        fast = seams.TORCH_FAST_RECORD.find()  # the cheapest event that there is
        event = self._door.mark(f"{KINETO_SCOPE}{path}", fast) if path else None
        self._open.append((owner, path, event, caller))

    def _left(self, owner: object, *_args: object, **_keywords: object) -> None:
        """Leave what is open, with all inside of it that was not left."""
        if not any(owner is entry[0] for entry in self._open):
            return
        while self._open:
            left_owner, _path, event, caller = self._open.pop()
            if event is not None:
                event.__exit__(None, None, None)
            if left_owner is owner:
                break
        if not self._open and left_owner is caller and id(left_owner) in self._roots:
            self._describe(self._roots[id(left_owner)])

    # Modules.

    def _module_called(self, module: Any, *args: object, **_keywords: object) -> None:
        if not self._is_marking():
            return
        if not self._open:
            self.calls += 1
            self._turn = _Turn()
            self._turn.shapes = shapes_of(args)
        self._turn[id(module)] = self._turn.get(id(module), 0) + 1
        root = self._roots.get(id(self._open[0][0])) if self._open else None
        path = None if root is None else root.paths.get(id(module))
        if path is None and self._open:
            path = f"{self._open[-1][1]}/{type(module).__name__}"
        elif path is None:
            path = self._root_of(module).path
        self._enter(module, path, module)

    def _root_of(self, module: Any) -> _Root:
        root = self._roots.get(id(module))
        if root is None or root.module() is not module:
            name = type(compiled_in(module) or module).__name__
            name = f"loss/{name}" if is_loss(module) else name
            root = self._roots[id(module)] = _Root(module, self._own_path(name, id(module)))
        return root

    def _own_path(self, path: str, owner: int) -> str:
        """The path, or with a number where something else has it."""
        at, given = 0, path
        while self._owner_of.setdefault(given, owner) != owner:
            at += 1
            given = f"{path}_{at}"
        return given

    def _describe(self, root: _Root) -> None:
        """Keep the model as its first call saw it, with the largest batch that it was called with since."""
        module, shapes, facts = root.module(), self._turn.shapes, root.facts
        if module is None or root.path.startswith("loss/"):
            return
        if facts is None:
            nothing = ModelFacts(root.path, (), is_uniquified=False)
            facts = root.facts = describe_module(module, root.path, self._turn) or nothing
        elif shapes <= (facts.layers[0].input_shapes if facts.layers else shapes):
            return
        if facts.layers:
            first = replace(facts.layers[0], input_shapes=shapes)
            root.facts = replace(facts, layers=(first, *facts.layers[1:]))
            self._models.add(root.facts)

    # Keras.

    def _scope_entered(self, scope: Any) -> None:
        if not self._is_marking():
            return
        name, layer = str(scope.name), seams.KERAS_SCOPE_LAYER.of(scope)
        if not self._open:
            self._turn = _Turn()
        above = self._open[-1] if self._open else None
        if above is not None and layer is not None and above[3] is layer:
            self._open.append((scope, above[1], None, layer))  # Keras enters each of them twice
            return
        path = name if above is None else f"{above[1]}/{name}"
        path = path if layer is None else self._own_path(path, id(layer))
        self._enter(scope, path, layer)
        if layer is not None:
            self._models.scope_entered(layer, path, self._turn)

    def _metrics_begin(self, model: object, *_: object, **__: object) -> None:
        if self._is_marking():
            self._enter(model, _METRICS, None)


@contextmanager
def unseen_by_torch_compile() -> Iterator[None]:
    """Put all hooks aside whenever ``torch.compile`` compiles, inside the block."""
    callbacks = [seam.find() for seam in seams.TORCH_COMPILE_CALLBACKS]
    skip = seams.TORCH_SKIPS.find()
    if skip is not None:
        _skip_profnb(skip)
    with ExitStack() as stack:
        if None not in callbacks:
            begin, begin_no_more, end, end_no_more = callbacks
            begin(put_aside)
            stack.callback(begin_no_more, put_aside)
            end(put_again)
            stack.callback(end_no_more, put_again)
        yield


@cache
def _skip_profnb(skip: Callable[[str], object]) -> None:
    skip("profnb")
