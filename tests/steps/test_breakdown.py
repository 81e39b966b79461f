"""Grouping and the breakdown: hand-computed, then against the official converter, step by step."""

import json
from dataclasses import replace

import numpy as np
import pytest
from conftest import DATA
from advised import advised
from test_chrome import kineto as read_chrome
from traces import event, gpu, host, line, plane, read

from profnb.steps import grouping
from profnb.steps.breakdown import break_down_steps
from profnb.steps.activities import CATEGORIES
from profnb.steps.nesting import find_parents
from profnb.report.notes import notes_of
from profnb.subjects.device.idle import IDLE_CAUSES
from profnb.subjects.study import Study
from profnb.trace.files import read_trace
from profnb.profile import Profile

US, MS = 10**6, 10**9


def marker(begin, end, number):
    return event("train", begin, end - begin, _r=1, step_num=number)


def shares(trace, row=0):
    """Milliseconds (or ps in tiny traces) by category, those with no time left out."""
    breakdown = Study(trace).breakdown
    return {c: int(v) for c, v in zip(CATEGORIES, breakdown.picoseconds[row], strict=True) if v}


def test_device_compute_hides_overlapping_host_work():
    """Device busy 0-50, host busy 0-80, step 0-100."""
    trace = read(
        host(line("python", marker(0, 100, 0), event("work", 0, 80))),
        gpu(line("Stream #1", event("kernel", 0, 50))),
    )
    assert shares(trace) == {"device compute": 50, "kernel launch": 30, "all others": 20}


def test_waiting_for_input_wins_over_host_compute():
    trace = read(
        host(line("python", marker(0, 100, 0), event("work", 0, 80), event("IteratorGetNextOp::DoCompute", 20, 30)))
    )
    assert shares(trace) == {"host compute": 50, "input": 30, "all others": 20}


@pytest.mark.parametrize("name", ["QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"])
def test_taking_a_batch_from_a_queue_of_tf1_is_input(name):
    def of(op):
        return shares(read(host(line("python", marker(0, 100, 0), event(f"{op}:{name}", 10, 60), event("a/MatMul:MatMul", 70, 10)))))

    assert of("random_shuffle_queue_Dequeue") == {"input": 60, "host compute": 10, "all others": 30}
    assert of("sync_token_q_Dequeue") == {"host compute": 70, "all others": 30}  # a chief's token, no data


@pytest.mark.parametrize("name", ["queue/Enqueue:QueueEnqueueV2", "queue/Size:QueueSizeV2", "QueueDequeueManyV2/dense:MatMul"])
def test_what_else_is_done_with_a_queue_is_an_op_like_any_other(name):
    assert shares(read(host(line("python", marker(0, 100, 0), event(name, 10, 60))))) == {"host compute": 60, "all others": 40}


def test_wrappers_and_python_frames_are_no_work():
    trace = read(
        host(line("python", marker(0, 100, 0), event("EagerExecute", 0, 90), event("FunctionRun", 0, 90), event("$a.py:3 f", 0, 90), event("op:Op", 10, 5)))
    )  # fmt: skip
    assert shares(trace) == {"host compute": 5, "all others": 95}


def test_compilation_is_shown():
    trace = read(host(line("python", marker(0, 100, 0), event("XlaCompile", 10, 40))))
    assert shares(trace) == {"compilation": 40, "all others": 60}


@pytest.mark.parametrize(("kind", "expected"), [
    ("traced-nonXla", {"compilation": 75, "host compute": 15, "all others": 10}),
    ("notTraced-nonXla", {"compilation": 30, "host compute": 60, "all others": 10}),
])  # fmt: skip
def test_tracing_a_function_is_no_computing_but_what_its_ops_compute(kind, expected):
    """A call of 90: 30 build its graph, 50 run it, of which the kernel takes 15."""
    call = [event("step", 5, 90, tf_function_call=kind), event("tf.function-graph_building", 5, 30), event("TFE_Py_ExecuteCancelable", 40, 50)]
    run = [event("EagerExecute", 42, 40), event("KernelAndDeviceFunc::Run", 60, 15)]
    assert shares(read(host(line("python", marker(0, 100, 0), *call, *run)))) == expected


def test_beside_a_device_tracing_a_function_is_no_launching():
    call = [event("step", 0, 80, tf_function_call="traced-nonXla"), event("TFE_Py_ExecuteCancelable", 40, 40), event("cuLaunchKernel", 60, 5, correlation_id=1)]
    trace = read(host(line("python", marker(0, 100, 0), *call)), gpu(line("Stream #1", event("k", 90, 10, correlation_id=1))))
    assert shares(trace) == {"compilation": 75, "kernel launch": 5, "device compute": 10, "all others": 10}
    causes = dict(zip(IDLE_CAUSES, Study(trace).device.idle.total_ps.tolist(), strict=True))
    assert (causes["compiling"], causes["kernel launch"], causes["Python in the step"]) == (75, 5, 10)


def test_copies_are_recognised_by_the_names_that_cupti_writes():
    trace = read(
        host(line("python", marker(0, 100, 0))),
        gpu(
            line(
                "Stream #1",
                event("MemcpyH2D", 0, 10), event("MemcpyD2H", 10, 7), event("MemcpyD2D", 20, 5),
                event("ncclKernel_AllReduce", 30, 3), event("MemcpyP2P", 40, 1),
            )
        ),
    )  # fmt: skip
    assert shares(trace) == {
        "input": 10, "output": 7, "device to device": 6, "device collectives": 3, "all others": 74,
    }  # fmt: skip


def test_the_worked_example_of_the_reference():
    """Per 20 ms period: compute 4, visible copy 2, its call 0.5, collective 2, input wait 2, launch 6.5, rest.

    reference/peers.md 2.5, but that the call which copies (5.5 to 6) is input as the copy is, and that what the
    function's run covers alone is the host preparing the device's work.
    """

    def step(number):
        at = number * 20 * MS

        def ms(begin, end, name, **stats):
            return event(name, at + int(begin * MS), int((end - begin) * MS), **stats)

        return (
            (
                marker(at, at + 18 * MS, number),
                ms(0.5, 17.5, "FunctionRun", _r=1),
                ms(1, 3, "IteratorGetNext"),
                ms(3.5, 4.5, "cuLaunchKernel", correlation_id=10 * number + 1),
                ms(5.5, 6, "cuMemcpyAsync", correlation_id=10 * number + 2),
            ),
            (
                ms(6, 10, "gemm", correlation_id=10 * number + 1),
                ms(9, 12, "MemcpyH2D", correlation_id=10 * number + 2),
                ms(13, 15, "ncclAllReduce", correlation_id=10 * number + 2),
            ),
        )

    built = [step(number) for number in range(3)]
    trace = read(
        host(line("python", *(e for host_events, _ in built for e in host_events))),
        gpu(line("Stream #1", *(e for _, device in built for e in device))),
    )
    study = Study(trace)
    assert study.steps.gap_ps.tolist() == [2 * MS, 2 * MS, -1]
    for row in range(3):
        assert shares(trace, row) == {
            "device compute": 4 * MS, "input": (2 + 2) * MS + MS // 2, "device collectives": 2 * MS,
            "kernel launch": 6_500_000_000, "all others": 1_000_000_000,
        }  # fmt: skip


def test_work_handed_to_another_thread_belongs_to_the_step_that_sent_it():
    trace = read(
        host(
            line("python", marker(0, 100, 0), event("send", 10, 1, _pt=2, _p=77), marker(200, 300, 1)),
            line(
                "worker",
                event("run", 20, 30, _ct=2, _c=77),
                event("inside:Op", 25, 5),
                event("somebody else's", 60, 30),
            ),
        )
    )
    study = Study(trace)
    by_name = {
        trace.names[n]: int(s) for n, s in zip(trace.events.name, study.groups.step, strict=True)
    }
    assert by_name["run"] == 0
    assert by_name["inside:Op"] == 0
    assert by_name["somebody else's"] == -1
    assert shares(trace) == {"host compute": 31, "all others": 69}


def test_a_thread_pool_region_runs_from_its_start_to_its_stop():
    trace = read(
        host(
            line("python", marker(0, 100, 0), event("Record", 10, 0, _pt=15, _p=5)),
            line(
                "pool",
                event("ThreadpoolListener::StartRegion", 20, 0, _ct=15, _c=5),
                event("ThreadpoolListener::StopRegion", 60, 0),
            ),
        )
    )
    assert shares(trace) == {"host compute": 40, "all others": 60}


def test_an_executor_leads_to_the_iterator_it_waits_for():
    trace = read(
        host(
            line("python", marker(0, 100, 0), event("ExecutorState::Process", 1, 5, id=9, iter_num=0)),
            line("iterator", event("IteratorGetNextOp::DoCompute", 10, 40, id=9, iter_num=0)),
        )
    )
    assert shares(trace) == {"input": 40, "host compute": 5, "all others": 55}


def test_a_loop_op_does_not_switch_grouping_off():
    """The official tool groups nothing at all when such a name is in the trace."""
    trace = read(host(line("python", marker(0, 100, 0), event("WhileOp-EvalCond", 5, 10))))
    assert shares(trace) == {"host compute": 10, "all others": 90}


def test_a_context_that_everybody_shares_says_nothing():
    many = [event("p", 200 + i, 1, _pt=1, _p=0) for i in range(64)]
    consumers = [event("c", 400 + i, 1, _ct=1, _c=0) for i in range(64)]
    trace = read(
        host(
            line("python", marker(0, 100, 0), event("p", 5, 1, _pt=1, _p=0), *many),
            line("worker", *consumers),
        )
    )
    assert (Study(trace).groups.step[-64:] == -1).all()


def test_a_small_trace_cannot_ask_for_very_many_links():
    producers = [event("p", i, 1, _pt=1, _p=0) for i in range(63)]
    consumers = [event("c", 100 + i, 1, _ct=1, _c=0) for i in range(5000)]
    trace = read(host(line("python", marker(0, 100, 0), *producers), line("worker", *consumers)))
    assert links_of(trace) == 0
    fan_out = read(host(line("python", marker(0, 100, 0), producers[0]), line("worker", *consumers)))
    assert links_of(fan_out) == 5000  # one producer may have many


def links_of(trace):
    return sum(int((kind.last - kind.first).sum()) for kind in grouping._find_links(trace))


def steps_by_name(trace):
    """The step of each event, by name; -1 for none."""
    return {trace.names[n]: int(s) for n, s in zip(trace.events.name, Study(trace).groups.step, strict=True)}


def test_where_a_trace_tells_no_cause_other_threads_belong_to_the_step_they_begin_in():
    """TF1's timelines, PyTorch's and generic ones: no consumer, no recorded group anywhere."""
    trace = read(
        host(
            line("python", marker(0, 100, 0), marker(200, 300, 1)),
            line("worker", event("early", 10, 20), event("between", 110, 20), event("at the begin", 200, 5), event("late", 299, 50), event("after", 300, 5)),
        )
    )  # fmt: skip
    found = steps_by_name(trace)
    del found["train"]
    assert found == {"early": 0, "between": -1, "at the begin": 1, "late": 1, "after": -1}


def test_device_work_whose_launch_was_not_recorded_belongs_to_the_step_it_begins_in():
    trace = read(
        host(line("python", marker(100, 200, 0), event("run", 110, 1, _ct=2, _c=77)), line("worker", event("host work", 120, 5))),
        gpu(line("Stream #1", event("before", 50, 9), event("inside", 150, 9), event("after", 250, 9))),
    )
    found = steps_by_name(trace)
    assert (found["before"], found["inside"], found["after"]) == (-1, 0, -1)
    assert found["host work"] == -1  # somewhere a consumer is told: what has none is nobody's


def test_device_work_belongs_to_the_step_that_launched_it_wherever_it_runs():
    """Launched at 10 in step 0, run at 220 in step 1; a launch that nothing answers changes nothing."""
    trace = read(
        host(line("python", marker(0, 100, 0), event("launch", 10, 5, correlation_id=1), marker(200, 300, 1), event("lost", 210, 5, correlation_id=2))),
        gpu(line("Stream #1", event("launched", 220, 5, correlation_id=1), event("of nobody", 230, 5))),
    )
    found = steps_by_name(trace)
    assert (found["launched"], found["of nobody"], found["lost"]) == (0, 1, 1)


def test_recorded_groups_are_followed_where_ours_is_silent():
    """Ours knows the markers: group 5 is step 0, group 9 step 1. Nobody knows group 2, 7 or 11."""
    trace = read(
        host(
            line("python", event("train", 0, 100, _r=1, step_num=0, group_id=5), event("train", 200, 100, _r=1, step_num=1, group_id=9)),
            line("worker", *(event(f"of {group}", 10 * group, 5, group_id=group) for group in (2, 5, 7, 9, 11)), event("of none", 250, 5)),
        )
    )  # fmt: skip
    found = steps_by_name(trace)
    del found["train"]
    assert found == {"of 2": -1, "of 5": 0, "of 7": -1, "of 9": 1, "of 11": -1, "of none": -1}


def test_a_recorded_group_of_several_steps_moves_none_of_their_events():
    """Group 5 has an event in each of two steps: the one that nobody knows goes with the first, theirs stay."""
    steps = [event("train", at, 100, _r=1, step_num=number) for number, at in enumerate((0, 200))]
    inside = [event(f"in {number}", at, 5, group_id=5) for number, at in enumerate((10, 210))]
    found = steps_by_name(read(host(line("python", *steps, *inside), line("worker", event("nobody's", 250, 5, group_id=5)))))
    assert (found["in 0"], found["in 1"], found["nobody's"]) == (0, 1, 0)


def test_an_event_belongs_to_the_first_step_that_reaches_it():
    """Step 0 set going what step 1 begins with: that event and what is in it stay with step 0."""
    trace = read(
        host(line("python", marker(0, 100, 0), event("send", 10, 1, _pt=2, _p=77),
                  event("train", 200, 100, _r=1, step_num=1, _ct=2, _c=77), event("inside", 210, 5)))
    )  # fmt: skip
    study = Study(trace)
    assert study.steps.begin_ps.tolist() == [0, 200]
    assert study.groups.step.tolist() == [0, 0, 0, 0]


def test_what_no_event_contains_is_not_inside_the_last_event():
    """Nobody's parent is -1, which is the last row for an index that wraps around."""
    trace = read(
        host(
            line("python", marker(0, 100, 0), event("send", 10, 1, _pt=2, _p=77)),
            line("worker", event("somebody else's", 5, 10), event("run", 20, 30, _ct=2, _c=77)),
        )
    )
    assert steps_by_name(trace) == {"train": 0, "send": 0, "somebody else's": -1, "run": 0}


def test_a_step_ends_with_the_device_work_that_the_host_waits_for():
    def trace(kernel_end):
        return read(
            host(
                line(
                    "python",
                    marker(0, 50, 0), event("launch", 10, 5, correlation_id=1), marker(100, 150, 1),
                )
            ),
            gpu(line("Stream #1", event("k", 20, kernel_end - 20, correlation_id=1))),
        )  # fmt: skip

    assert Study(trace(80)).steps.end_ps.tolist() == [80, 150]
    ahead = Study(trace(120)).steps  # asynchronous: the second step begins when the device is free
    assert (ahead.begin_ps.tolist(), ahead.end_ps.tolist()) == ([0, 120], [120, 150])


def test_two_steps_that_touch_do_not_charge_each_other():
    trace = read(
        host(line("python", marker(0, 50, 0), event("a", 10, 40), marker(50, 100, 1), event("b", 50, 20)))
    )
    assert shares(trace, 0) == {"host compute": 40, "all others": 10}
    assert shares(trace, 1) == {"host compute": 20, "all others": 30}


def test_categories_sum_to_the_step_exactly_on_every_trace(shared_study):
    study = shared_study
    picoseconds = study.breakdown.picoseconds
    assert (picoseconds >= 0).all()
    assert (picoseconds.sum(axis=1) == study.steps.duration_ps).all()
    assert (study.steps.gap_ps[:-1] >= 0).all()
    window = study.steps.end_ps[-1] - study.steps.begin_ps[0]
    assert study.steps.duration_ps.sum() + study.steps.gap_ps[:-1].sum() == window


def official_steps():
    rows = json.loads((DATA / "cpu-cnn.xprof.json").read_text())["steps"]
    return {int(str(row["stepnum"]).split()[-1]): row for row in rows}


# Our category, the official column.
PAIRS = (
    ("host compute", "hostComputeTimeMs"),
    ("input", "infeedTimeMs"),
    ("all others", "otherTimeMs"),
    ("device compute", "deviceComputeTimeMs"),
    ("compilation", "compileTimeMs"),
)


def as_the_official_tool_groups(study):
    """The one rule in which we differ on a CPU: there a thread-pool region owns no events.

    The official tool appends a region to the end of its line, out of time order, so what ran inside
    it finds no parent there.
    """
    trace, steps = study.trace, study.steps
    parent = find_parents(trace.events.end_ps, trace.lines.offsets)
    step = np.full(len(trace.events), -1, np.int32)
    grouping.claim(trace, steps.roots, steps.first_root, parent, step)
    groups = replace(study.groups, step=step, parent=parent)
    return break_down_steps(trace, steps, groups)


def test_cpu_steps_equal_the_official_tool_step_by_step_to_the_picosecond(cpu_trace_path):
    study = Study(read_trace(cpu_trace_path))
    ours, theirs = study.breakdown, as_the_official_tool_groups(study)
    official = official_steps()
    assert len(official) == len(study.steps) - 2  # xprof 2.24.2 drops the first and the last step
    for row, number in enumerate(study.steps.step_num.tolist()):
        if number not in official:
            continue
        assert study.steps.duration_ps[row] / 1e9 == pytest.approx(official[number]["stepTimeMs"], abs=1e-9)
        for category, column in PAIRS:
            assert theirs.of(category)[row] / 1e9 == pytest.approx(official[number][column], abs=1e-9)
        # Ours can only find more host compute: work inside a region of the step.
        assert ours.of("host compute")[row] >= theirs.of("host compute")[row]
        assert ours.of("input")[row] == theirs.of("input")[row]


def test_where_a_region_holds_work_we_count_it_and_the_official_rule_does_not():
    trace = read(
        host(
            line("python", marker(0, 100, 0), event("Record", 1, 0, _pt=15, _p=5)),
            line(
                "pool",
                event("ThreadpoolListener::StartRegion", 10, 0, _ct=15, _c=5),
                event("send on", 12, 2, _pt=2, _p=8),
                event("ThreadpoolListener::StopRegion", 20, 0),
            ),
            line("other", event("work", 30, 40, _ct=2, _c=8)),
        )
    )
    study = Study(trace)
    assert study.breakdown.of("host compute").tolist() == [50]
    assert as_the_official_tool_groups(study).of("host compute").tolist() == [10]


def asynchronous_loop(steps=10, host_ms=2, kernel_ms=10):
    """A loop that does not wait: 2 ms of host a step, one kernel of 10 ms each, one after the other."""
    begins = [row * host_ms * MS for row in range(steps)]
    events = [
        part
        for row, at in enumerate(begins)
        for part in (
            event("train", at, host_ms * MS - MS // 10, _r=1, step_num=row),
            event("cuLaunchKernel", at + MS, MS // 10, correlation_id=row + 1),
        )
    ]
    kernels = [event("gemm", MS + MS // 10 + row * kernel_ms * MS, kernel_ms * MS, correlation_id=row + 1) for row in range(steps)]
    return read(host(line("python", *events)), gpu(line("Stream #1", *kernels)))


def test_where_the_host_runs_ahead_a_step_is_the_period_of_the_devices_work():
    study = Study(asynchronous_loop())
    assert (study.steps.duration_ps[1:] == 10 * MS).all()
    assert study.steps.duration_ps[0] == 11 * MS + MS // 10  # until the first kernel's end
    assert study.steps.steps_ahead == 5  # 5 have begun when the first is done; then 8, 7, 6, ... 1 are left
    assert study.breakdown.of("device compute").tolist() == [10 * MS] * 10
    assert study.launched_ps.tolist() == [10 * MS] * 10
    assert [s.category for s in study.summary.shares][0] == "device compute"
    assert study.summary.shares[0].fraction > 0.98
    assert any("The host runs 5 steps ahead" in note for note in notes_of(study))


def test_a_pause_of_the_host_is_a_gap_also_where_it_runs_ahead():
    trace = read(
        host(line("python", *(
            part for row, at in enumerate((0, 2, 4, 90, 92))
            for part in (event("train", at * MS, MS, _r=1, step_num=row), event("launch", at * MS, 1, correlation_id=row + 1))
        ))),
        gpu(line("Stream #1", *(event("k", at * MS, 10 * MS, correlation_id=row + 1) for row, at in enumerate((1, 11, 21, 91, 101))))),
    )  # fmt: skip
    study = Study(trace)
    assert study.steps.end_ps.tolist() == [11 * MS, 21 * MS, 31 * MS, 101 * MS, 111 * MS]
    assert study.steps.gap_ps.tolist() == [0, 0, 59 * MS, 0, -1]
    assert study.breakdown.gap_picoseconds.sum(axis=1).tolist() == [0, 0, 59 * MS, 0, 0]


def test_what_the_device_does_between_steps_is_charged_to_the_gap():
    trace = read(
        host(line("python", marker(0, 50, 0), event("IteratorGetNext", 60, 20), marker(100, 150, 1))),
        gpu(line("Stream #1", event("k", 52, 4), event("MemcpyH2D", 70, 25))),
    )
    gap = Study(trace).breakdown.gap_picoseconds[0]
    by_name = {name: int(value) for name, value in zip(CATEGORIES, gap, strict=True) if value}
    assert by_name == {"device compute": 4, "input": 35, "all others": 11}


def test_the_devices_share_of_the_steps_is_the_busy_time_of_each_device(shared_study):
    study = shared_study
    use = study.device.use
    for device, breakdown in study.device_breakdowns.items():
        busy = int(breakdown.busy_ps.sum() + breakdown.gap_busy_ps.sum())
        assert busy == use.busy_ps[use.device.index(device)]


def test_an_op_that_computes_on_the_cpu_beside_a_device_is_host_compute():
    """A long op without a launch computes; one with a launch prepares it, and a short one is bookkeeping."""
    trace = read(
        host(line(
            "python", marker(0, 1000 * MS, 0),
            event("ExecutorState::Process", 0, 400 * MS),
            event("tokenize/Split:StringSplit", 0, 100 * MS),
            event("dense/MatMul:MatMul", 100 * MS, 50 * MS), event("cuLaunchKernel", 120 * MS, MS, correlation_id=1),
            event("shape:Reshape", 200 * MS, 1000),
        )),
        gpu(line("Stream #1", event("gemm", 500 * MS, 10 * MS, correlation_id=1))),
    )  # fmt: skip
    assert shares(trace) == {"host compute": 100 * MS, "kernel launch": 300 * MS, "device compute": 10 * MS, "all others": 590 * MS}


@pytest.mark.parametrize(
    ("copy", "category"),
    [("MemcpyH2D", "input"), ("MemcpyD2H", "output"), ("MemcpyD2D", "device to device"), ("gemm", "kernel launch")],
)
def test_a_call_counts_by_what_it_sets_going(copy, category):
    trace = read(
        host(line("python", marker(0, 100, 0), event("cuMemcpyAsync", 10, 30, correlation_id=1))),
        gpu(line("Stream #1", event(copy, 200, 5, correlation_id=1))),
    )
    assert shares(trace)[category] >= 30


@pytest.mark.parametrize(
    ("kernel", "call", "category"),
    [
        ("__amd_rocclr_copyBuffer.kd", "hipMemcpyHtoDAsync", "input"),
        ("__amd_rocclr_copyBuffer.kd", "hipMemcpyDtoHAsync", "output"),
        ("__amd_rocclr_copyBuffer.kd", "hipMemcpyDtoDAsync", "device to device"),
        ("__amd_rocclr_copyBuffer.kd", "hipMemcpyWithStream", "device to device"),  # unknown, but no compute
        ("copyBufferKernel", "hipModuleLaunchKernel", "device compute"),
    ],
)
def test_a_kernel_of_rocm_that_copies_is_a_copy_as_its_call_says(kernel, call, category):
    trace = read(
        host(line("python", marker(0, 100, 0), event(call, 5, 5, correlation_id=1))),
        gpu(line("Stream #1", event(kernel, 20, 40, correlation_id=1))),
    )
    assert shares(trace)[category] >= 40
    assert (len(Study(trace).device.copies) == 1) == (category != "device compute")


@pytest.mark.parametrize("name", ["_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"])
def test_pytorchs_loader_is_input_and_what_launches_beside_it_is_not(name):
    trace = read_chrome(
        ("cpu_op", "ProfilerStep#1", 9, 9, 0, 100, {}), ("cpu_op", f"enumerate(DataLoader)#{name}.__next__", 9, 9, 10, 40, {}),
        ("cpu_op", "aten::stack", 9, 9, 12, 30, {}), ("cpu_op", "aten::relu", 9, 9, 60, 20, {}),
        ("cuda_runtime", "cudaLaunchKernel", 9, 9, 65, 5, {"correlation": 1}), ("kernel", "relu", 0, 7, 90, 10, {"correlation": 1, "stream": 7}),
    )  # fmt: skip
    assert shares(trace) == {"input": 40 * US, "kernel launch": 20 * US, "device compute": 10 * US, "all others": 30 * US}
    assert "ProfilerStep#1" not in Profile(trace).ops.op_name.tolist()  # a marker is no op


def test_what_xla_computes_on_the_cpu_after_the_call_returned_is_host_compute_and_no_python_between_steps():
    """JAX on a CPU: calls of 1 ms, their programs of 5 ms on another thread, every 10 ms."""
    calls = [event("PjitFunction(f)", at * 10 * MS, MS) for at in range(6)]
    programs = [event("dot.1", at * 10 * MS + MS, 5 * MS, hlo_module="jit_f") for at in range(6)]
    study = Study(read(host(line("python", *calls), line("tf_XLAPjRtCpuClient", *programs))))
    shares_of = {share.category: share.fraction for share in study.summary.shares}
    assert study.steps.duration_ps.tolist() == [6 * MS] * 6  # each to the end of its program
    assert shares_of["host compute"] == pytest.approx(6 * 5 / 56)
    advice = advised(study)["python-between-steps"]
    assert advice.bound_fraction == pytest.approx((5 * 4 + 6 * 1) / 56)


def test_jax_on_a_cpu_that_runs_ahead_has_steps_as_long_as_its_programs():
    """Twelve calls of 1 ms; their programs of 8 ms run one after the other, and XLA's own threads compute half of each unseen."""
    calls = [event("PjitFunction(f)", at * MS, MS) for at in range(12)]
    programs = [one for at in range(12) for one in (
        event("add.1", (1 + 8 * at) * MS, MS, hlo_module="jit_f"), event("dot.1", (2 + 8 * at) * MS, 3 * MS, hlo_module="jit_f"),
        event("ThunkExecutor::Execute (wait for completion)", (5 + 8 * at) * MS, 3 * MS), event("tanh.1", (8 + 8 * at) * MS, MS, hlo_module="jit_f"))]  # fmt: skip
    other = event("add.9", 0, MS, hlo_module="jit_g")
    study = Study(read(host(line("python", *calls), line("tf_XLAPjRtCpuClient", *programs), line("t", other, line_id=3))))
    assert study.steps.duration_ps.tolist() == [9 * MS] + [8 * MS] * 11
    assert study.steps.steps_ahead == 6  # 8, 10, 9, ... 1 of the twelve have begun when one is done
    assert any("Python runs 6 steps ahead of the compiled programs" in note for note in notes_of(study))
    assert study.summary.shares[0].category == "host compute"
    assert study.summary.shares[0].fraction == 1  # another program runs in the first millisecond
    # Where calls and runs cannot be paired, the calls are all that is known.
    fewer = Study(read(host(line("python", *calls), line("tf_XLAPjRtCpuClient", *programs[:-4]))))
    assert fewer.steps.duration_ps.tolist() == [MS] * 12


def ran_ahead(*more, overlap=0, numbered=0):
    """Four steps that call for programs of 10 ms, which a thread runs in one piece of work that the first step began."""
    begin = [event("ThreadpoolListener::Record", MS, 1, _pt=15, _p=57)]
    steps = [one for at in range(4) for one in (marker(2 * at * MS, (2 * at + 2) * MS, at), event("PjitFunction(f)", (2 * at + 1) * MS, MS // 2))]
    region = [event("ThreadpoolListener::StartRegion", 9 * MS, 1, _ct=15, _c=57), event("ThreadpoolListener::StopRegion", 60 * MS, 1)]
    programs = [event(name, (10 + 10 * at + begins) * MS, 5 * MS, hlo_module="jit_f", **({"run_id": numbered + at} if numbered else {}))
                for at in range(4) for name, begins in (("dot.1", -overlap), ("tanh.1", 5))]  # fmt: skip
    own = line("pool", *region, *(() if overlap else programs))
    return Study(read(host(line("python", *steps, *begin, *more), own, *([line("other", *programs)] if overlap else []))))


def test_what_a_thread_goes_on_to_run_belongs_to_the_step_that_called_it():
    study = ran_ahead()
    trace = study.trace
    of_step = {}
    for at in np.flatnonzero(trace.select_named("dot.1", "tanh.1")).tolist():
        of_step.setdefault(int(study.groups.step[at]), []).append(int(trace.events.begin_ps[at]) // MS)
    assert of_step == {0: [10, 15], 1: [20, 25], 2: [30, 35], 3: [40, 45]}
    late = ran_ahead(event("late.1", 55 * MS, MS, hlo_module="jit_f"))  # after the last run
    assert late.groups.step[late.trace.select_named("late.1", "dot.1")].tolist() == [-1, 0, 1, 2, 3]
    # Runs that overlap cannot be told apart, unless each instruction says of which run it is.
    assert set(ran_ahead(overlap=7).groups.step[ran_ahead(overlap=7).trace.select_named("dot.1")].tolist()) == {-1}
    for number in (7, -9):  # JAX's numbers are of 32 bits, and as often negative
        numbered = ran_ahead(overlap=7, numbered=number)
        assert numbered.groups.step[np.sort(numbered.trace.select_named("dot.1", "tanh.1").nonzero()[0])].tolist() == [0, 1, 0, 2, 1, 3, 2, 3]


def test_a_program_of_a_tpu_belongs_to_the_step_that_enqueued_it_wherever_it_runs():
    """Two steps of 10 ms that each enqueue a program; the first one's runs while the second step goes on."""
    steps = [one for at in range(2) for one in (marker(at * 10 * MS, (at + 1) * 10 * MS, at), event("DoEnqueueProgram", (at * 10 + 5) * MS, MS, run_id=at + 1, device_ordinal=0))]
    programs = [event("jit_f(7)", (at * 10 + 12) * MS, 6 * MS, run_id=at + 1) for at in range(2)]
    study = Study(read(host(line("python", *steps)), plane("/device:TPU:0", line("XLA Modules", *programs))))
    assert study.groups.step[study.trace.select_named("jit_f(7)")].tolist() == [0, 1]


def test_a_program_that_runs_is_computing_whatever_python_compiles_meanwhile():
    study = ran_ahead(event("backend_compile", 15 * MS, 60 * MS))
    assert study.steps.duration_ps.tolist() == [20 * MS, *[10 * MS] * 3]
    assert study.breakdown.of("host compute")[1:].tolist() == [10 * MS] * 3
    assert study.breakdown.of("compilation").sum() == 0


def test_sending_a_batch_is_no_waiting_for_it():
    trace = read(
        host(line("python", marker(0, 100, 0)), line("executor", event("IteratorGetNext/_1:_Send", 10, 40))),
        gpu(line("Stream #1", event("k", 60, 5))),
    )
    causes = dict(zip(IDLE_CAUSES, Study(trace).device.idle.total_ps.tolist(), strict=True))
    assert (causes["copying input"], causes["waiting for input"]) == (40, 0)
