"""The kind of a program: who made its steps, on what, by hand-made traces."""

from dataclasses import FrozenInstanceError

import pytest
from traces import event, gpu, host, line, read

from profnb.capture.recording import Recording
from profnb.steps.program_kind import JAX, PYTORCH, SESSIONS, TENSORFLOW, UNKNOWN, ProgramKind
from profnb.subjects.study import Study


def program(stats=None, *, phase="train", device=(), environment=None, names=()):
    """That of four marked steps, or of events of these names."""
    marks = [event(phase, at * 100, 50, step_num=at, _r=1, **(stats or {})) for at in range(4)]
    others = [event(name, at * 100, 50) for at, name in enumerate(names)]
    planes = [host(line("python", *(others or marks)))]
    planes += [gpu(line("Stream #1", *(event(name, 5, 9) for name in device)))] if device else []
    return Study(read(*planes), recording=Recording(environment=environment or {})).program


def test_the_value_is_frozen_and_made_once():
    study = Study(read(host(line("python", event("train", 0, 5, step_num=0, _r=1)))))
    assert study.program is study.program
    with pytest.raises(FrozenInstanceError):
        study.program.framework = JAX


@pytest.mark.parametrize(("maker", "is_own", "is_fit"), [(None, False, False), ("keras", False, True), ("user", True, False)])
def test_markers_tell_a_fit_from_a_loop_of_ones_own(maker, is_own, is_fit):
    found = program({"profnb_marker": maker} if maker else {})
    assert found.is_marked and not found.is_eager and not found.runs_sessions
    assert (found.is_own_loop, found.is_fit) == (is_own, is_fit)


def test_session_runs_are_a_loop_of_ones_own_in_words_of_tensorflow_1():
    found = program(phase="session_run")
    assert (found.framework, found.runs_sessions, found.is_own_loop) == (SESSIONS, True, True)


def test_a_device_that_worked_is_named_and_decides_where_ops_compute():
    assert (program().device, program().computing) == (None, "host compute")
    found = program(device=["kernel"])
    assert (found.device, found.is_nvidia, found.computing) == (1, True, "device compute")
    assert not program(device=["hipLaunchKernel"]).is_nvidia


@pytest.mark.parametrize(
    ("framework", "device", "ahead", "early"),
    [(JAX, None, True, True), (PYTORCH, None, False, True), (PYTORCH, 0, True, True), (TENSORFLOW, 0, False, True), (TENSORFLOW, None, False, False)],
)
def test_calls_that_return_before_their_work_is_done(framework, device, ahead, early):
    found = ProgramKind(framework, device)
    assert (found.runs_ahead, found.may_return_early) == (ahead, early)


def test_a_text_is_the_frameworks_or_the_neutral_one():
    assert ProgramKind(JAX).text_of({UNKNOWN: "any", JAX: "jit"}) == "jit"
    assert ProgramKind(SESSIONS).text_of({UNKNOWN: "any", TENSORFLOW: "compile"}) == "any"
    assert ProgramKind().text_of("for all") == "for all"


@pytest.mark.parametrize(("backend", "names", "said"), [("torch", [], "PyTorch"), ("jax", ["PjitFunction(f)"] * 3, ""), ("tensorflow", [], "")])
def test_a_backend_that_was_not_recorded_is_named(backend, names, said):
    assert program(names=names, environment={"Keras backend": backend}).unrecorded_backend == said
