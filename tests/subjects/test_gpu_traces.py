"""What is said of traces of an NVIDIA H200, against the wall clock, the frameworks' own counts and what the programs did.

`tests/device/backends.py` recorded them on 2026-11-26 (JAX 0.11.2, PyTorch 2.11, CUDA 13.0); `data/gpu/facts.json` has what was
measured beside: steps without a capture, CUDA events, torch.profiler's own table, the bytes that the program copied.
"""

import functools
import json
import lzma
from pathlib import Path

import pytest
from recorded import load
from profnb.report.notes import notes_of

FOLDER = Path(__file__).parents[1] / "data" / "gpu"
FACTS = json.loads((FOLDER / "facts.json").read_text())


@functools.cache
def gpu_profile(name):
    return load(FOLDER, name)


def raw_work(name, *categories):
    """Kineto's own events of device work."""
    events = json.loads(lzma.decompress((FOLDER / f"{name}.pt.trace.json.xz").read_bytes()))["traceEvents"]
    return [e for e in events if e.get("cat") in categories]


@pytest.mark.parametrize("name", FACTS)
def test_steps_are_as_many_and_no_step_is_taken_for_warm_up(name):
    p = gpu_profile(name)
    assert len(p.step_times) == FACTS[name]["counted"]
    assert not p.steps.is_warmup.any()


@pytest.mark.parametrize("name", ["torch-loop32", "torch-looptf32"])
def test_where_the_host_runs_ahead_a_step_is_what_cuda_events_say(name):
    p = gpu_profile(name)
    assert (p.steps.duration_ms + p.steps.gap_ms.fillna(0)).median() == pytest.approx(FACTS[name]["cuda_events_step_ms"], rel=0.05)


@pytest.mark.parametrize("name", ["torch-loop32", "torch-looptf32", "torch-sync", "torch-copies"])
def test_the_work_of_each_step_is_what_torch_profiler_counts(name):
    """Of a step without the capture. The backward pass is launched by a thread of its own and runs steps later."""
    p = gpu_profile(name)
    assert p.steps.launched_work_ms.tolist() == pytest.approx([FACTS[name]["own_busy_step_ms"]] * len(p.steps), rel=0.12)
    raw_ms = sum(e["dur"] for e in raw_work(name, "kernel", "gpu_memcpy", "gpu_memset")) / 1000
    assert p.steps.launched_work_ms.sum() == pytest.approx(raw_ms, rel=0.01)
    assert p.devices.busy_us.sum() / 1000 == pytest.approx(raw_ms, rel=0.01)


@pytest.mark.parametrize("name", ["torch-sync", "jax-sync"])
def test_where_the_host_waits_the_headline_has_the_step_without_tracing_or_says_nothing(name):
    cost = gpu_profile(name).study.tracing_cost
    usual = sorted(FACTS[name]["step_ms"])[1]
    assert cost is None or cost.untraced_ps / 1e9 == pytest.approx(usual, rel=0.15)
    assert gpu_profile("torch-loop32").study.tracing_cost is None  # the untraced host is through in a tenth of a step


def test_copies_are_those_of_the_program():
    """In each of 10 steps 64 MiB from pinned and 64 from pageable memory, twice as much back, and one on the device."""
    p = gpu_profile("torch-copies")
    told = FACTS["torch-copies"]["known"]
    for direction, key in (("host to device", "h2d_bytes"), ("device to host", "d2h_bytes"), ("device to device", "d2d_bytes")):
        assert p.copies[p.copies.direction == direction].bytes.sum() == 10 * told[key]
    kinds = p.copies[p.copies.direction != "set"].groupby(["direction", "source_kind", "destination_kind"]).occurrences.sum().to_dict()
    assert kinds == {
        ("device to device", "device", "device"): 10, ("device to host", "device", "pageable"): 10, ("device to host", "device", "pinned"): 10,
        ("host to device", "pageable", "device"): 10, ("host to device", "pinned", "device"): 10,
    }  # fmt: skip
    speed = p.copies.set_index(["direction", "source_kind", "destination_kind"]).gigabytes_per_second
    assert speed["host to device", "pinned", "device"] > 3 * speed["host to device", "pageable", "device"]


def test_launch_shapes_are_kinetos():
    p = gpu_profile("torch-loop32")
    raw = {
        (e["name"], ",".join(map(str, e["args"]["grid"])), ",".join(map(str, e["args"]["block"])), e["args"]["registers per thread"], e["args"]["shared memory"])
        for e in raw_work("torch-loop32", "kernel")
    }
    assert set(p.kernels[["kernel_name", "grid", "block", "registers_per_thread", "shared_bytes"]].itertuples(index=False, name=None)) == raw


@pytest.mark.parametrize(("name", "in_cores"), [("torch-loop32", 0), ("torch-looptf32", 0.9), ("jax-keras32", 0.6), ("jax-sync", 0)])
def test_float32_runs_in_tensor_cores_as_tf32_only(name, in_cores):
    """With `allow_tf32` off, and `precision="highest"`, all products are FFMA kernels on the ordinary cores."""
    kernels = gpu_profile(name).kernels
    share = kernels.total_us[kernels.uses_tensor_core].sum() / kernels.total_us.sum()
    assert share == pytest.approx(in_cores, abs=0.08) and (share == 0) == (in_cores == 0)


def test_products_in_float32_are_offered_tf32_which_saved_what_is_promised():
    """The same loop with `torch.set_float32_matmul_precision("high")` took 2.56 of 13.8 ms."""
    p = gpu_profile("torch-loop32")
    assert [advice.rule for advice in p.advice] == ["mixed-precision"]
    advice = p.advice[0]
    assert "set_float32_matmul_precision" in advice.code and "8 times as fast" in advice.evidence
    saved = 1 - FACTS["torch-looptf32"]["cuda_events_step_ms"] / FACTS["torch-loop32"]["cuda_events_step_ms"]
    assert advice.saves_ms[0] / advice.wall_ms < saved < advice.bound_fraction
    assert set(p.kernels[p.kernels.is_tensor_core_eligible].op_name) == {"aten::addmm", "aten::mm"}
    assert not any(advice.rule == "mixed-precision" for advice in gpu_profile("torch-looptf32").advice)


@pytest.mark.parametrize(("name", "setting", "is_said"), [("torch-sync", "", True), ("torch-sync", "1", False), ("torch-copies", "", False), ("torch-loop32", "", False), ("jax-sync", "", False)])
def test_what_pytorchs_profiler_leaves_behind_is_said_where_launches_set_the_pace(name, setting, is_said):
    """Measured there by `tests/device/after_window.py`: 11.7 ms a step before PyTorch's own profiler, 17.5 behind it."""
    study = gpu_profile(name).study
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(study.recording.environment, "TEARDOWN_CUPTI", setting)
        assert any("TEARDOWN_CUPTI=1" in note for note in notes_of(study)) is is_said


def test_layers_of_a_program_that_xla_runs_as_one_graph_are_told():
    """Every kernel of JAX' train step names `command_buffer_1`; the schedule of the program tells whose it is."""
    p = gpu_profile("jax-keras32")
    assert not p.kernels.op_name.str.startswith("command_buffer").any()
    layers = p.layers.assign(layer=p.layers.layer.str.split("/").str[-1]).set_index("layer")
    hidden = layers.loc[["hidden1", "hidden2"]]  # 1,024 examples by 4,096 by 4,096 numbers
    assert (hidden.backward_us / hidden.forward_us).tolist() == pytest.approx([2.2, 2.2], abs=0.7)
    assert (layers.total_us["hidden1"] / layers.total_us["hidden0"]) == pytest.approx(4, abs=1)
    assert layers.update_us["optimizer"] / layers.total_us.sum() > 0.15
    assert layers.fraction["outside the model"] < 0.02


def test_a_products_operations_are_what_its_sizes_say():
    kernels = gpu_profile("jax-feed").roofline
    products = kernels[kernels.hlo_op.str.contains("custom-call|gemm")]
    done = products.gigaflops_per_second * 1e9
    assert done.max() == pytest.approx(4.2e14, rel=0.1)  # of 5.35e14 that TF32 could do
    assert kernels.attained_fraction.max() < 1


def test_copying_into_pinned_memory_is_input_and_no_launch():
    """JAX moves 64 MiB a step into its staging buffer, for 9 of 12 ms; "launch fewer, larger kernels" was the advice."""
    p = gpu_profile("jax-feed")
    rules = [advice.rule for advice in p.advice]
    assert rules[0] == "copying-input" and not {"idle-device", "launch-bound"} & set(rules)
    assert p.idle.set_index("cause").idle_fraction["copying input"] > 0.9
    assert p.copies[p.copies.direction == "host to device"].bytes.sum() == 10 * FACTS["jax-feed"]["known"]["h2d_bytes"]


def test_the_peak_of_memory_is_the_allocators():
    peaks = gpu_profile("jax-feed").memory_summary.set_index("allocator").lifetime_peak_bytes
    assert peaks["GPU_0_bfc"] == FACTS["jax-feed"]["peak_bytes"]


def test_lines_of_a_saved_program_are_in_the_file_that_the_watch_saw():
    files = set(gpu_profile("jax-sync").source_lines.file) - {""}
    assert not any(file.startswith("/") for file in files)
    assert "tests/device/backends.py" in files


@pytest.mark.parametrize("name", FACTS)
def test_the_page_of_a_gpu_is_written(name, tmp_path):
    p = gpu_profile(name)
    p.to_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "Kernels" in text and "H200" not in p.summary().splitlines()[0]


def own_tree(name):
    """The tree without profnb's own part, and what is left of the cell's wall time."""
    tree = gpu_profile(name).cell_tree
    return tree, tree.wall_ms[0] - tree[tree.kind == "profnb"].self_ms.sum()


@pytest.mark.parametrize(
    ("name", "kind", "least"),
    [("torch-loop32", "steps", 0.98), ("torch-looptf32", "steps", 0.8), ("jax-looptf32", "steps", 0.95), ("jax-unmarked", "function calls", 0.88)],
)  # fmt: skip
def test_what_the_thread_waits_for_is_the_steps_whose_work_it_is(name, kind, least):
    """A loop of products, each step's dispatched in a tenth of its time, and one wait behind the last.

    No look met a step of ``jax-looptf32``, and nothing marks those of ``jax-unmarked``.
    """
    tree, whole = own_tree(name)
    steps = tree[tree.kind == kind]
    assert least * whole < steps.wall_ms.sum() <= whole * (1 + 1e-9)
    assert tree[tree.kind == "device compute"].wall_ms.sum() > 0.7 * whole
    assert tree.self_ms.sum() == pytest.approx(tree.wall_ms[0])


# What a step took there without a capture, by how many ran.
@pytest.mark.parametrize(("name", "kind", "ran_ms"), [("torch-loop32", "steps", 150 * 13.81), ("jax-looptf32", "steps", 40 * 2.37), ("jax-unmarked", "function calls", 20 * 2.35)])
def test_what_a_window_that_closes_waits_for_is_the_steps_and_no_more(name, kind, ran_ms):
    tree, _ = own_tree(name)
    assert tree[tree.kind == kind].wall_ms.sum() == pytest.approx(ran_ms, rel=0.04)


def test_the_stop_of_a_window_behind_steps_that_were_waited_for_is_profnbs():
    """Its steps end 0.4 ms behind the thread's last one: what is written then is no wait."""
    tree, _ = own_tree("torch-made-on-host")
    profile = gpu_profile("torch-made-on-host")
    parts = profile.recording.cell.parts
    counted = sum(part.wall_ns for part in parts if (part.part, part.name) == ("profnb", "stop")) / 1e6
    assert tree[(tree.kind == "profnb") & (tree.name == "stop")].wall_ms.sum() == pytest.approx(counted, rel=1e-6)


def test_copies_between_the_steps_of_an_own_loop_are_below_its_gaps():
    """``x.cuda()`` of pageable memory in a generator: 14 ms of device work of the step before, 14 ms of copying."""
    tree, whole = own_tree("torch-pageable")
    gaps = tree[tree.kind == "between steps"].node.iloc[0]
    below = tree[tree.parent == gaps].set_index("kind").wall_ms / whole
    assert below["input"] == pytest.approx(0.48, abs=0.04)
    steps = tree[tree.kind == "steps"].node.iloc[0]
    assert tree[(tree.parent == steps) & (tree.kind == "device compute")].wall_ms.sum() == pytest.approx(0.5 * whole, rel=0.1)


# Run both ways on that machine (tests/device/gains.py): what the change saved of the cell; here what is promised first.
BOTH_WAYS = {
    "torch-many-small": ("launch-bound", 1 - 3.653 / 11.456),
    "torch-pageable": ("copying-input", 0.42),
    "torch-made-on-host": ("own-python", 0.96),
    "torch-loop32": ("mixed-precision", 1 - 2.496 / 13.836),
}


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_the_first_advice_promises_what_the_change_saved(name):
    rule, saved = BOTH_WAYS[name]
    first = gpu_profile(name).advice[0]
    low, high = first.saves_ms[0] / first.wall_ms, first.bound_fraction
    assert first.rule == rule
    assert low - 0.05 < saved < high + 0.08
    assert high - low < 0.4


def test_who_makes_batches_on_the_host_is_named():
    first = gpu_profile("torch-made-on-host").advice[0]
    assert "made`" in first.title
    assert "while the device idled" in first.evidence


def test_ops_that_jax_runs_one_by_one_in_marked_steps_are_to_be_put_into_one_program():
    """60 kernels a step, of which each takes Python longer to start than the device to run."""
    first = gpu_profile("jax-eager").advice[0]
    assert (first.rule, "jax.jit" in first.code) == ("launch-bound", True)
    assert first.saves_ms[0] / first.wall_ms > 0.4


def test_kernels_that_one_op_of_cudnns_starts_are_not_promised_to_a_compiler():
    """`nn.LSTM` over 200 steps: 1,800 launches a step of two ops, which `torch.compile` leaves as they are."""
    p = gpu_profile("torch-lstm")
    assert p.study.device.launches.sets_the_pace
    assert "launch-bound" not in [advice.rule for advice in p.advice]


@pytest.mark.parametrize("name", ["jax-looptf32", "jax-unmarked", "torch-looptf32"])
def test_nothing_is_said_of_products_that_are_as_fast_as_they_can_be(name):
    assert not gpu_profile(name).advice
