"""Advice in the words of JAX and PyTorch, by traces made by hand: when it speaks, what it names, and when it is silent."""

import json

import numpy as np
import pytest
from advised import alone
from traces import event, host, line, plane, read

from profnb.advice.advise import advise, proposals_of
from profnb.advice.cell_model import Model
from profnb.capture.parts import part_records as parts
from profnb.capture.parts.part_records import CellRecords, TreeNode
from profnb.capture.recording import Recording
from profnb.causes.cell_tree import grow_tree
from profnb.causes.pieces import find_torch_ops
from profnb.causes.python_work import python_alone_share, shares_without_programs
from profnb.profile import Profile
from profnb.causes.slowing import find_rise, find_slowing
from profnb.subjects.ops.op_execution import LONG_OP_PS
from profnb.subjects.study import Study
from profnb.trace.chrome.reader import read_chrome

US = 1_000_000
STEPS = 20


def said(p):
    return {advice.rule: advice for advice in p.advice}


# JAX on a CPU: calls on Python's thread, programs on another.


def jax_loop(*calls, period=1000, waits=0, steps=STEPS):
    """A loop of calls of (function, begin, its program's begin, and time) in us; ``waits``: from where on it reads a result."""
    python, programs = [], []
    for at in range(steps):
        base = at * period * US
        for name, begin, runs, took in calls:
            call = event(f"PjitFunction({name})", base + begin * US, 30 * US)
            python += [call, call]  # each is recorded twice, nested
            programs.append(event(f"fusion.{name}", base + runs * US, took * US, hlo_op=f"fusion.{name}", hlo_module=f"jit_{name}", program_id=hash(name) % 1000))
        if waits:
            python.append(event("np.asarray(jax.Array)", base + waits[0] * US, waits[1] * US))
    python.sort(key=lambda one: (one[1], -one[2]))
    programs.sort(key=lambda one: one[1])
    return Profile(read(plane("/host:metadata"), host(line("python", *python), line("tf_XLAPjRtCpuClient/1", *programs, line_id=2))))


SMALL = [(name, 300 + 100 * at, 340 + 100 * at, 50) for at, name in enumerate(("multiply", "add", "sqrt", "where", "clip", "abs"))]


def test_programs_beside_the_step_are_work_outside_of_jit():
    p = jax_loop(("update", 0, 10, 280), *SMALL)
    advice = said(p)["work-outside-jit"]
    # In each 1,000 us: six calls every 100 us, of which the last, of 30 us, has none behind it, and a program of 50 us each,
    # 10 us later; update runs at other times. What they compute remains at most, and a call of 20 us.
    assert advice.bound_fraction == pytest.approx((5 * 100 + 30 + 50 - 20) / 1000, abs=0.02)
    assert "Besides `update`, Python starts 6 programs a step" in advice.evidence
    assert "`abs` 20" in advice.evidence or "`multiply` 20" in advice.evidence
    assert "jax.jit" in advice.code


@pytest.mark.parametrize(
    "calls",
    [
        [("update", 0, 10, 900)],  # one program a step
        [("update", 0, 10, 280), *SMALL[:3]],  # few beside it: a key is split, the rate is worked out
        [("update", 0, 10, 5000)] + [(name, begin, runs + 4000, 5) for name, begin, runs, _ in SMALL],  # hidden behind a long step
    ],
    ids=["one program", "three more", "hidden"],
)
def test_a_jitted_loop_is_not_told_to_use_jit(calls):
    period = 6000 if calls[0][3] == 5000 else 1000
    assert "work-outside-jit" not in said(jax_loop(*calls, period=period))


def test_programs_that_lost_their_core_in_a_few_steps_are_no_work_outside_of_jit():
    """Starting them and they take 2 % of 10 ms; in five steps of 20 a program stands still for 4 ms, 10 % of all time."""

    def loop(*, late):
        small = [(name, begin, runs + 5000, 5) for name, begin, runs, _ in SMALL]
        p = jax_loop(("update", 0, 10, 5000), *small, period=10_000)
        begin, took = p.trace.events.begin_ps, p.trace.events.duration_ps
        took[p.trace.select_named("fusion.abs") & np.isin(begin // (10_000 * US), late)] = 4_000 * US
        return p

    assert "work-outside-jit" not in said(loop(late=()))
    assert "work-outside-jit" not in said(loop(late=(3, 6, 9, 12, 15)))


def test_calls_that_nobody_timed_are_not_told_to_slow_down():
    """Sixty calls that take 1 ms each at first, and 2 ms later, by a trace that may cost more and more itself."""
    python, begin = [], 0
    for at in range(60):
        took = (1 + at // 30) * 1000 * US
        python.append(event("PjitFunction(update)", begin, took - 10 * US))
        begin += took
    study = Profile(read(plane("/host:metadata"), host(line("python", *python)))).study
    assert find_rise(study.steps.duration_ps.astype(float)) is not None
    assert find_slowing(study) is None


def test_a_copy_of_a_program_of_one_op_computes_nothing():
    """Of each 1,000 us 300 copy an array and 100 change it; two ops of 20 us are mostly being started."""
    programs = []
    for at in range(STEPS):
        for name, begin, took in (("copy.1", 100, 300), ("scatter", 400, 100), ("add", 600, 20), ("multiply", 700, 20)):
            stats = {"hlo_op": name, "hlo_module": f"jit_{name}", "program_id": 7}
            programs.append(event(name, (1000 * at + begin) * US, took * US, **stats))
    calls = [event("PjitFunction(scatter)", 1000 * at * US, 1000 * US) for at in range(STEPS)]
    study = Profile(read(plane("/host:metadata"), host(line("python", *calls), line("tf_XLAPjRtCpuClient/1", *programs, line_id=2)))).study
    assert shares_without_programs(study) == pytest.approx((0.9, 0.86), abs=0.01)


def test_reading_a_result_in_each_step_costs_what_python_could_do_meanwhile():
    p = jax_loop(("update", 0, 20, 400), waits=(30, 400))
    advice = said(p)["synchronising-reads"]
    assert alone(p.study)["synchronising-reads"][1] == pytest.approx(min(0.4, 0.6), abs=0.02)
    assert "20 times in 20 steps" in advice.evidence or "19 times in 19 steps" in advice.evidence
    assert "float(loss)" in advice.code


def test_reading_costs_nothing_where_the_program_is_all_there_is():
    assert "synchronising-reads" not in said(jax_loop(("update", 0, 10, 960), waits=(30, 940)))
    assert "synchronising-reads" not in said(jax_loop(("update", 0, 20, 400)))


def jit_calls(calls_us, *pieces, waits=None, numbered=True, squeezes=None, first=100):
    """Calls of one function of jit; each one's program is pieces (begin, time), of one run by its number, and may be waited for.

    A second program, of one instruction at ``squeezes``, has a number for each of its runs too, and they may be the same.
    """
    python, programs = [], []
    for at, call_us in enumerate(calls_us):
        call = event("PjitFunction(update)", call_us * US, 30 * US)
        python += [call, call]
        if waits:
            python.append(event("np.asarray(jax.Array)", (1000 * at + waits[0]) * US, waits[1] * US))
        for number, (begin, took) in enumerate(pieces):
            stats = {"hlo_op": f"while.{number}", "hlo_module": "jit_update", "program_id": 7} | ({"run_id": first + at} if numbered else {})
            programs.append(event(f"while.{number}", (1000 * at + begin) * US, took * US, **stats))
        if squeezes is not None:
            programs.append(event("copy", (1000 * at + squeezes) * US, 5 * US, hlo_op="copy", hlo_module="jit_squeeze", program_id=8, run_id=99 + at))
    return Profile(read(plane("/host:metadata"), host(line("python", *python), line("tf_XLAPjRtCpuClient/1", *programs, line_id=2))))


def test_a_program_runs_also_between_its_instructions():
    once_a_step = [1000 * at for at in range(STEPS)]
    pieces = (10, 100), (860, 100)  # lax.scan: what passes between the two is the loop's own
    assert "synchronising-reads" not in said(jit_calls(once_a_step, *pieces, waits=(30, 940)))
    assert "synchronising-reads" not in said(jit_calls(once_a_step, *pieces, waits=(30, 940), numbered=False))
    assert "synchronising-reads" not in said(jit_calls(once_a_step, *pieces, waits=(30, 940), first=-2000000000))
    assert "synchronising-reads" not in said(jit_calls(once_a_step, *pieces, waits=(30, 940), squeezes=970))


@pytest.mark.parametrize("settings", [{}, {"numbered": False}, {"squeezes": 440}, {"first": -7}], ids=str)
def test_time_in_which_no_program_runs_is_what_reading_can_cost(settings):
    """From 10 to 430 us of each 1,000 the program runs, its loop between its instructions too; the squeeze takes 5 us more."""
    calls = jit_calls([1000 * at for at in range(STEPS)], (10, 100), (330, 100), waits=(30, 940), **settings)
    advice = said(calls)["synchronising-reads"]
    assert advice.bound_fraction == pytest.approx(0.58 * 0.99, abs=0.02)  # of a hundred reads one remains
    assert advice.saves_ms[0] == pytest.approx(advice.saves_ms[1] * 0.6, rel=0.02)


def test_python_is_not_waited_for_where_calls_run_ahead_of_their_programs():
    pieces = (10, 600), (620, 80)
    ahead, in_step = [40 * at for at in range(STEPS)], [1000 * at for at in range(STEPS)]
    assert jit_calls(ahead, *pieces).study.steps.steps_ahead > 0
    assert "python-between-steps" not in said(jit_calls(ahead, *pieces))
    assert "python-between-steps" in said(jit_calls(in_step, *pieces))


# PyTorch


def kineto(*events):
    parts = [{"ph": "X", "cat": c, "name": n, "pid": p, "tid": t, "ts": ts, "dur": d, "args": a} for c, n, p, t, ts, d, a in events]
    properties = [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "computeMajor": 8, "computeMinor": 0, "numSms": 108}]
    text = json.dumps({"schemaVersion": 1, "deviceProperties": properties, "traceEvents": parts}).encode()
    return Profile(read_chrome(np.frombuffer(text, np.uint8), "built.json"))


def loop(step, steps=STEPS, period=1000, took=None):
    """Steps of ``ProfilerStep#n``, each with what ``step(number, begin)`` gives; that take less than from one to the next."""
    events = []
    for at in range(steps):
        base = at * period
        events.append(("user_annotation", f"ProfilerStep#{at}", 9, 9, base, took or period, {}))
        events += step(at, base)
    return kineto(*events)


def op(name, begin, took):
    return "cpu_op", name, 9, 9, begin, took, {}


def call(name, begin, took, correlation):
    return "cuda_runtime", name, 9, 9, begin, took, {"correlation": correlation}


def kernel(begin, took, correlation):
    return "kernel", "sgemm", 0, 7, begin, took, {"correlation": correlation, "stream": 7, "device": 0}


def copy(name, begin, took, correlation):
    return "gpu_memcpy", name, 0, 7, begin, took, {"correlation": correlation, "stream": 7, "device": 0, "bytes": 4000}


def waits_in(*frames, copies="Memcpy DtoH (Device -> Pageable)"):
    """A step on a GPU: a kernel of 200 us, then the host waits in an op for 500 us, 300 of them for nothing but the answer."""

    def step(at, base):
        number = 10 * at
        yield op("aten::mm", base, 40)
        yield call("cudaLaunchKernel", base + 10, 10, number + 1)
        yield kernel(base + 20, 200, number + 1)
        for depth, frame in enumerate(frames):
            yield op(frame, base + 50 + depth, 800 - 2 * depth)
        yield call("cudaMemcpyAsync", base + 60, 10, number + 2)
        yield copy(copies, base + 230, 5, number + 2)
        yield call("cudaStreamSynchronize", base + 75, 760, number + 3)

    return loop(step)


@pytest.mark.parametrize(
    ("frames", "copies", "named", "code", "never"),
    [
        (("aten::item", "aten::_local_scalar_dense"), "Memcpy DtoH (Device -> Pageable)", "aten::item, 1 a step", ".item()", "pin_memory"),
        (("aten::index", "aten::nonzero"), "Memcpy DtoH (Device -> Pageable)", "aten::nonzero", "torch.where", ".item()"),
        (("aten::to", "aten::_to_copy", "aten::copy_"), "Memcpy DtoH (Device -> Pageable)", "copies to the host", "x.cpu()", "pin_memory"),
        (("aten::to", "aten::_to_copy", "aten::copy_"), "Memcpy HtoD (Pageable -> Device)", "copies to the device", "pin_memory=True", ".item()"),
    ],
    ids=["item", "nonzero", "cpu", "to cuda"],
)  # fmt: skip
def test_the_op_that_waits_for_the_gpu_is_named_with_its_own_remedy(frames, copies, named, code, never):
    advice = said(waits_in(*frames, copies=copies))["synchronising-reads"]
    assert named in advice.evidence
    assert code in advice.code
    assert never not in advice.code


def test_item_on_a_cpu_is_no_cost():
    p = loop(lambda at, base: [op("aten::mm", base + 10, 900), op("aten::item", base + 920, 5), op("aten::_local_scalar_dense", base + 921, 3)])
    assert not {"synchronising-reads", "idle-device", "small-ops"} & said(p).keys()


def keeping(*frames, took=500):
    """A step on a CPU that copies what the last of some ops, inside of each other, gives, and frees what it had before for 100 us."""

    def step(at, base):
        yield op("aten::mm", base + 10, 200)
        for depth, frame in enumerate(frames):
            yield op(frame, base + 220 + depth, took - 2 * depth)
        yield op("aten::mm", base + 320 + took, 100)

    return loop(step)


def test_a_loop_that_copies_large_tensors_is_told_and_to_be_copied_less_often():
    p = keeping("aten::copy_")
    advice, saves = said(p)["copied-again"], alone(p.study)["copied-again"]
    assert advice.evidence.startswith("The loop makes large copies, 1 a step")
    assert "50.0 % of the time from step to step" in advice.evidence
    assert saves == pytest.approx((0.4, 0.6 + 0.4 / 4), abs=0.03)


@pytest.mark.parametrize("innocent", [
    keeping("aten::to", "aten::_to_copy", "aten::copy_"), keeping("aten::contiguous", "aten::clone", "aten::copy_"),
    keeping("nn.Module: Net_0", "aten::clone"), keeping("aten::copy_", took=40), keeping("aten::mm"),
], ids=["to", "contiguous", "in a module", "short", "no copy"])  # fmt: skip
def test_copies_inside_of_others_and_short_ones_are_left_alone(innocent):
    assert "copied-again" not in said(innocent)


def test_copies_on_a_device_are_started_and_not_made_by_the_loop():
    launch = lambda at, base: (call("cudaLaunchKernel", base + 10, 10, at), kernel(base + 20, 800, at), op("aten::copy_", base, 500))
    assert "copied-again" not in said(loop(launch))


def copies_in(kind):
    """A step on a GPU that begins with a copy of 300 us, in which nothing is computed."""

    def step(at, base):
        number = 10 * at
        yield op("aten::copy_", base, 320)
        yield call("cudaMemcpyAsync", base + 5, 310, number + 1)
        yield copy(f"Memcpy HtoD ({kind} -> Device)", base + 10, 300, number + 1)
        yield op("aten::mm", base + 330, 40)
        yield call("cudaLaunchKernel", base + 340, 10, number + 2)
        yield kernel(base + 350, 640, number + 2)

    return said(loop(step))["copying-input"].code


def test_memory_that_is_pinned_is_not_told_to_be():
    assert "pin_memory=True" in copies_in("Pageable")
    assert "pin_memory" not in copies_in("Pinned")
    assert "non_blocking=True" in copies_in("Pinned")


def many_ops(pause, took, count=24, other=0):
    """After every sixth op the code's own Python takes ``other`` us."""

    def step(at, base):
        return [op("aten::add", base + 5 + number * (pause + took) + number // 6 * other, took) for number in range(count)]

    return loop(step, period=10 + count * (pause + took) + count // 6 * other)


def test_small_ops_that_python_starts_one_by_one_are_told_so():
    advice = said(many_ops(pause=20, took=10))["small-ops"]
    # 24 ops of 10 us and 23 pauses of 20 us: of a batch many times as large hardly any remain, of one 2.5 times as large 40 %.
    assert advice.bound_fraction == pytest.approx((240 + 460) / 730)
    assert advice.saves_ms[0] == pytest.approx(0.6 * advice.wall_ms * (240 + 460) / 730)
    assert "24 short ops" in advice.evidence and "of 10.0 µs on average" in advice.evidence
    assert "larger batch" in advice.code and "torch.compile" in advice.code


@pytest.mark.parametrize(
    "settings",
    [{"pause": 20, "took": 200}, {"pause": 20, "took": 10, "count": 4}, {"pause": 900, "took": 100}, {"pause": 2, "took": 10, "other": 3000}],
    ids=["ops that compute", "few ops", "long pauses are no dispatch", "Python of the code's own between them"],
)
def test_ops_that_compute_are_not_small(settings):
    assert "small-ops" not in said(many_ops(**settings))


@pytest.mark.parametrize("pause", [1, 20, 90, 190])
def test_no_range_of_small_ops_is_wider_than_40_points(pause):
    """A busy machine makes pauses longer."""
    advice = said(many_ops(pause=pause, took=10))["small-ops"]
    low, high = (ms / advice.wall_ms for ms in advice.saves_ms)
    assert 0 < high - low <= 0.4


@pytest.mark.parametrize(("runs", "took", "is_said"), [(150, 5, True), (150, 25, False), (10, 5, True)], ids=["ahead", "ops take longer", "one by one"])
def test_short_programs_that_wait_for_each_other_are_told_to_be_one(runs, took, is_said):
    """A call each 40 us; its program runs three steps later, or at once, for 5 or 25 us."""
    p = jax_loop(("update", 0, runs, took), period=40, steps=200)
    advice = said(p).get("work-outside-jit")
    assert (advice is not None) == is_said
    if is_said:
        # All of JAX's time goes at most, a call of 30 us and its op of 5; what that took stays otherwise, and a quarter of the rest.
        least, most = (30, 35) if runs == 150 else (25, 30)  # where it runs beside the call
        assert advice.title == "Run many steps in one program" and f"{least / 40.6:.0%}"[0] in advice.evidence.rpartition("took ")[2]
        assert advice.saves_ms == pytest.approx((0.75 * least / 40.6 * advice.wall_ms, most / 40.6 * advice.wall_ms), rel=0.05)


@pytest.mark.parametrize(
    ("cells", "inside", "each", "is_said"),
    [(12, 10, 24, True), (2, 60, 24, False), (12, 1, 24, False), (12, 10, 2, False)],
    ids=["a cell each turn", "a whole layer", "one inner op computes", "it computes itself, and inner ones make its result"],
)
def test_a_cell_that_each_turn_starts_is_short_ops(cells, inside, each, is_said):
    """Ops of 240 us or more, 20 us apart, of so many inner ones each: one behind the other, or one of nearly all its time."""
    took = max(24 * inside, 240)

    def step(at, base):
        begins = [base + 5 + cell * (took + 20) for cell in range(cells)]
        return [one for begin in begins for one in (op("aten::lstm_cell", begin, took), *(op("aten::addmm", begin + 1 + each * n, 230 if inside == 1 else each // 2) for n in range(inside)))]

    assert ("small-ops" in said(loop(step, period=20 + cells * (took + 20)))) == is_said


def between_marks(*, into=20, seen=True):
    """Steps of 12 ops of 10 us each 20 us, behind Python of the step's own, 500 us apart, of which profnb's marks are most."""

    def step(at, base):
        return [op("aten::add", base + into + 20 * number, 10) for number in range(12)]

    p = loop(step, period=1000, took=into + 20 * 12)
    return Study(p.trace, 0, Recording(cell=CellRecords()) if seen else None)


@pytest.mark.parametrize(("settings", "share"), [({}, 0.99), ({"seen": False}, 0.23), ({"into": 400}, 0.23)], ids=["begins a step", "somebody else's", "runs in it"])
def test_python_between_the_ops_of_two_steps_is_theirs_where_it_only_begins_a_step(settings, share):
    study = between_marks(**settings)
    assert find_torch_ops(study).shares(study, LONG_OP_PS)[0] == pytest.approx(share, abs=0.02)


def test_an_own_function_between_steps_is_told_by_what_runs_there():
    """Steps of 600 us of short ops; behind each a validation of one long op, 380 of 400 us."""

    def step(at, base):
        return [*(op("aten::add", base + 20 * number, 10) for number in range(30)), op("aten::mm", base + 610, 380)]

    study = loop(step, took=600).study
    assert python_alone_share(study, between=True) == pytest.approx(20 / 400, abs=0.01)
    assert python_alone_share(study, between=False) > 0.3


@pytest.mark.parametrize(("took", "of_python"), [(10, 1.0), (200, 490 / 5290)], ids=["an op is being started", "it computes"])
def test_of_an_own_function_pytorchs_short_ops_are_python_too(took, of_python):
    """24 ops in 10 + 24 x (20 + took) us: whether of one row or of 64, an op of 10 us takes as long."""
    assert python_alone_share(many_ops(pause=20, took=took).study, between=False) == pytest.approx(of_python, abs=0.005)


def there_and_back(ops):
    """24 nodes of autograd of 10 us each, 20 us apart, that so many ops of the way forward made."""

    def step(at, base):
        def numbered(name, begin, took, number, forward=0):
            return (*op(name, base + begin, took)[:-1], {"Sequence number": 100 * at + number, "Fwd thread id": forward})

        every = 24 // ops
        made = [numbered("aten::gru", 5 + 10 * row, 8, row * every) for row in range(ops)]
        inside = [numbered("aten::mm", 6 + 10 * (n // every) + n % every * 0.2, 0.1, n) for n in range(24)]
        node = "autograd::engine::evaluate_function: MmBackward0"
        return [*made, *inside, *(numbered(node, 300 + 30 * n, 10, n, 1) for n in range(24))]

    return loop(step, period=1100)


def test_the_way_back_of_one_op_is_one_op_however_many_nodes_it_has():
    assert "small-ops" not in said(there_and_back(ops=1))
    assert "48 short ops" in said(there_and_back(ops=24))["small-ops"].evidence


def walks(times, *, ended=False, threads=False, adds=True):
    """A step with four ops and 24 nodes of theirs, which as many calls of backward() run again; each then adds to a gradient."""

    def step(at, base):
        def numbered(name, begin, number, forward):
            return (*op(name, base + begin, 10)[:-1], {"Fwd thread id": forward * (1 + threads * (10 * at + begin // 480))} | ({} if number is None else {"Sequence number": 100 * at + number}))

        node, add = (f"autograd::engine::evaluate_function: {name}" for name in ("MmBackward0", "torch::autograd::AccumulateGrad"))
        forward = [numbered("aten::mm", 5 + 20 * n, n, 0) for n in range(4)]
        rows = [(walk, n) for walk in range(times) for n in range(24)]
        last = 23 if adds else 24
        back = [numbered(add if n == last else node, 100 + 20 * (24 * walk + n), None if n == last else n + ended * walk * 24, 1) for walk, n in rows]
        return [*forward, *back]

    return loop(step, period=200 + 480 * times)


def test_nodes_of_autograd_that_run_again_are_told_and_small_ops_are_the_others():
    advice = said(walks(4))["backward-again"]
    assert "72 gradient ops a step had run before" in advice.evidence and "retain_graph" in advice.code
    assert advice.saves_ms == pytest.approx((72 * 20 / 2120 * advice.wall_ms,) * 2, rel=0.03)
    assert "28 short ops" in said(walks(4))["small-ops"].evidence


@pytest.mark.parametrize("settings", [{"times": 2}, {"times": 1}, {"times": 4, "ended": True}, {"times": 4, "threads": True}, {"times": 4, "adds": False}],
                         ids=["two losses", "once", "graphs of their own", "threads that number their own", "rows of a Jacobian"])
def test_a_second_loss_and_graphs_of_their_own_are_no_backward_again(settings):
    assert "backward-again" not in said(walks(**settings))


def test_short_ops_beside_ops_that_take_more_are_left_alone():
    """A layer of 15 ms, and 100 ops of 5 us each 10 us of an optimizer: what a larger batch does, the layer decides."""

    def step(at, base):
        return [op("aten::lstm", base + 5, 15_000), *(op("aten::add_", base + 15_010 + 10 * n, 5) for n in range(100))]

    assert "small-ops" not in said(loop(step, period=16_100, took=16_050))


def region(function, version, begin, took):
    return op(f"Torch-Compiled Region: {function}/{version}", begin, took)


def test_regions_inside_of_regions_are_graph_breaks():
    def broken(at, base):
        yield region(0, 0, base + 10, 800)
        yield op("aten::mm", base + 20, 100)
        yield region(1, 0, base + 300, 500)
        yield op("aten::mm", base + 310, 100)
        yield region(2, 0, base + 600, 190)
        yield op("aten::mm", base + 610, 100)

    study = loop(broken).study
    (advice,) = (one for one in proposals_of(Model(grow_tree(None, study), study)) if one.rule == "graph-breaks")
    assert "2 graph breaks a step" in advice.evidence
    assert alone(study)["graph-breaks"][1] == pytest.approx((800 - 300 - 7) / 1000)  # what the ops compute remains, and a call


def test_functions_compiled_one_by_one_and_a_busy_gpu_are_no_graph_breaks():
    def side_by_side(at, base):
        for number in range(3):
            yield region(number, 0, base + 300 * number, 250)
            yield op("aten::mm", base + 300 * number + 100, 100)

    assert "graph-breaks" not in said(loop(side_by_side))

    def busy(at, base):
        yield region(0, 0, base + 10, 800)
        yield region(1, 0, base + 300, 500)
        yield op("aten::mm", base + 310, 100)
        yield call("cudaLaunchKernel", base + 320, 10, at + 1)
        yield kernel(base + 330, 980, at + 1)

    assert "graph-breaks" not in said(loop(busy))


def compiles(versions, took=3000):
    """Steps of one compiled function, of 1 ms; where a version is new, compiling it comes first."""

    events, base = [], 0
    for at, version in enumerate(versions):
        compiling = took * (version not in versions[:at])
        events.append(("user_annotation", f"ProfilerStep#{at}", 9, 9, base, compiling + 1000, {}))
        if compiling:
            events.append(("user_annotation", "_compile.compile_inner (dynamo_timed)", 9, 9, base + 5, took, {}))
        events += [region(0, version, base + compiling + 10, 800), op("aten::mm", base + compiling + 20, 700)]
        base += compiling + 1000
    return kineto(*events)


def test_versions_of_a_function_compiled_again_and_again_are_recompiling():
    p = compiles([0, 1, 2, 3, 0, 1, 2, 3, 0, 1])
    advice = said(p)["recompiling"]
    assert advice.evidence.startswith("torch.compile compiled functions again 3 times: ")
    assert advice.evidence.endswith("All compilations but the first took 9.00 ms.")
    assert "4 versions" in advice.evidence
    assert "dynamic=True" in advice.code
    assert advice.saves_ms == (pytest.approx(3 * 3), pytest.approx(4 * 3))  # all but the first, or that too
    assert p.steps.is_warmup.tolist() == [True] * 4 + [False] * 6


@pytest.mark.parametrize("versions", [[0] * 10, [0, 1] + [1] * 8], ids=["once", "once more, for any shape"])
def test_the_first_version_and_the_one_for_any_shape_are_their_due(versions):
    assert "recompiling" not in said(compiles(versions))


def fetches(kind, took=400, period=1000, examples=0):
    def step(at, base):
        yield op(f"enumerate(DataLoader)#{kind}.__next__", base + 5, took)
        yield from (op("aten::select", base + 6 + number * took / examples, 2) for number in range(examples))
        yield op("aten::mm", base + took + 10, period - 100 - took)

    return said(loop(step, period=period)).get("waiting-for-input")


def test_workers_are_asked_for_where_there_are_none_and_more_where_they_are_slow():
    without, slow = fetches("_SingleProcessDataLoaderIter", took=1400, period=3000), fetches("_MultiProcessingDataLoaderIter")
    assert "has no workers" in without.evidence and "num_workers=4" in without.code
    assert "workers did not have the batch ready" in slow.evidence
    assert "num_workers=4" not in slow.code and "persistent_workers=True" in slow.code
    assert fetches("_MultiProcessingDataLoaderIter", took=8) is None


def test_what_a_loader_makes_faster_than_a_worker_hands_it_over_needs_no_workers():
    found = fetches("_SingleProcessDataLoaderIter")  # 0.4 ms a batch
    assert "num_workers" not in found.code and "torch.randperm" in found.code
    assert 0.15 < found.saves_ms[0] / found.wall_ms < 0.25 and found.bound_fraction == pytest.approx(0.4, abs=0.01)


@pytest.mark.parametrize(("examples", "by_index"), [(64, True), (8, False)], ids=["22 us each", "175 us each"])
def test_a_loader_that_only_takes_examples_from_tensors_needs_no_workers(examples, by_index):
    found = fetches("_SingleProcessDataLoaderIter", took=1400, period=3000, examples=examples)
    assert ("torch.randperm" in found.code) is by_index and ("num_workers" in found.code) is not by_index


@pytest.mark.parametrize(("other", "of_steps"), [(3000, 0.9), (3000, 0.4), (0, 0.9)], ids=["nearly all of the steps", "a part of them", "it starts ops"])
def test_an_own_function_inside_of_the_steps_is_named_where_it_is_python(other, of_steps):
    """24 ops of 10 us each 12 us, behind every sixth so much Python of a function in which looks saw such a share of the steps."""
    study = many_ops(pause=2, took=10, other=other).study
    whole_ns = int(study.steps.duration_ps.sum()) // 1000
    inside = round(whole_ns * of_steps)
    cell = CellRecords(whole_ns, tree=[
        TreeNode(-1, parts.CELL, "block"),
        TreeNode(0, parts.MARKED, study.summary.phase, occurrences=len(study.steps), self_ns=whole_ns - inside),
        TreeNode(1, parts.LINES, "augment", file="/home/me/net.py", line=40, self_ns=inside, looks=500),
    ])  # fmt: skip
    tree = grow_tree(cell, study)
    computing = int(tree.wall_ps[tree.rows("host compute")].sum()) / tree.whole_ps
    assert computing == pytest.approx(min(24 * 10 / (10 + 24 * 12 + 4 * other), 1 - of_steps) if other else 1 - of_steps, abs=0.02)
    told = {one.rule: one for one in advise(Model(tree, study, cell=cell))}
    assert ("own-python" in told) == bool(other)
    if other:
        advice = told["own-python"]
        assert advice.title == "Do less in `augment`" and advice.where.endswith("net.py:40")
        assert advice.saves_ms == pytest.approx((0.6 * of_steps * advice.wall_ms, of_steps * advice.wall_ms), rel=0.03)
