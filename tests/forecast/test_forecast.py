"""How much memory a batch takes, before it is tried."""

import functools
import random
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from IPython.core.error import UsageError

import profnb
from profnb.capture.machine import memory_limits
from profnb.capture.machine.memory_limits import CONTAINER, MACHINE, MemoryLimit, find_limit
from profnb.core.errors import CaptureError
from profnb.forecast.memory_forecast import make_forecast
from profnb.forecast.kept_state import KeptState
from profnb.forecast.meters import resident_peak
from profnb.forecast.fitting import put_back

HERE = Path(__file__).parent
GB = 10**9


def test_modules_without_a_file_are_nobodys_state():
    """``sys`` holds open files and all modules; a step that prints may be timed all the same."""
    kept = KeptState({"sys": sys, "time": time})
    assert not kept.refusals and len(kept.objects) <= 2


def test_a_line_through_peaks_gives_fixed_and_per_example_bytes():
    forecast = make_forecast([8, 16, 32, 64], [1800, 2600, 4200, 7400], (101_000, "the machine"), ["Measured."])
    assert forecast.fixed_bytes == pytest.approx(1000)
    assert forecast.per_example_bytes == pytest.approx(100)
    assert forecast.peak_bytes(512) == pytest.approx(52_200)
    assert forecast.largest_batch in (999, 1000)
    assert forecast.because == ("Measured.", "Checked with a batch of 64: 0.0 % off the forecast.")
    assert list(forecast.table.is_check) == [False, False, False, True]


def test_what_does_not_grow_evenly_is_said_and_widens_the_interval():
    forecast = make_forecast([8, 16, 32, 64], [800, 1600, 3200, 9600], (100_000, "the machine"), [])
    assert forecast.because[-1] == "Memory is not linear in the batch size here: the forecast is rough."
    assert forecast.largest_batch == forecast.interval[0] < forecast.interval[1]


def test_where_another_moment_of_the_step_takes_most_the_last_batches_tell():
    """The update of the weights takes 400 bytes at any batch; the backward pass 100 and 10 for each example."""
    peaks = [max(400, 100 + 10 * size) for size in (8, 16, 32, 64)]
    forecast = make_forecast([8, 16, 32, 64], peaks, (10_100, "the GPU"), [])
    assert (forecast.peak_bytes(512), forecast.peak_bytes(8)) == (pytest.approx(100 + 10 * 512), 400)
    assert forecast.largest_batch <= 1000 <= forecast.interval[1]


def test_the_peaks_of_a_process_all_tell_together():
    """They lie up to 10 bytes beside 10 bytes for each example. The last two alone tell 10.6, all of them 10.1."""
    forecast = make_forecast([8, 16, 32, 64], [90, 150, 310, 650], (GB, "the machine"), [], 0)
    assert forecast.per_example_bytes == pytest.approx(10.13, abs=0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="the system keeps the peak on Linux only")
@pytest.mark.parametrize("large", [(), (1,), (4,), (1, 2, 3, 5, 6)])
def test_the_most_that_one_of_several_runs_takes_is_the_peak(large):
    """Two convolutions of a program overlap in some runs, and then each has its scratch memory."""
    runs = iter(range(100))
    _, took = resident_peak(lambda: np.ones((1 + (next(runs) in large)) * 4_000_000).sum())
    assert took == pytest.approx(64e6 if large else 32e6, rel=0.1)


@pytest.mark.parametrize(("held", "largest"), [(None, 1000), (0, 800)])
def test_of_a_process_the_largest_batch_leaves_room_for_what_differs_from_run_to_run(held, largest):
    """A thousand of 1 MB fit what an allocator tells; each may take a quarter more of a process."""
    forecast = make_forecast([100, 200, 400], [100e6, 200e6, 400e6], (10**9, "the machine"), [], held)
    assert forecast.largest_batch == pytest.approx(largest, abs=1)
    assert any("varies by up to a quarter" in one for one in forecast.because) is (held == 0)


def test_a_limit_that_no_batch_fits_in_is_said():
    forecast = make_forecast([1, 2, 4], [2000, 2100, 2300], (1500, "the container"), [])
    assert forecast.largest_batch == 0
    assert "No batch fits in the 1.50 kB of the container." in forecast.summary()


def test_what_a_process_holds_already_is_fixed():
    forecast = make_forecast([8, 16, 32], [8e6, 16e6, 32e6], (GB, "the machine"), [], 150_000_000)
    assert forecast.fixed_bytes == pytest.approx(150e6)
    assert forecast.table.peak_bytes.tolist() == [158e6, 166e6, 182e6]


def test_what_recomputation_and_16_bits_would_change():
    """100 bytes per example, 20 of them inputs: 80 may be recomputed, 40 are spared by 16 bits; 100,000 bytes are left for the batch."""
    forecast = make_forecast([8, 16, 32], [1800, 2600, 4200], (101_000, "the machine"), [], input_bytes=20)
    assert forecast.because[1:] == (
        "Recomputing activations frees at most 80 B per example, 16 bits instead of 32 about 40 B.",
        "In 16 bits, batches of about 1,666 fit.",
    )


def test_the_chart_has_the_limit_as_a_line():
    figure = make_forecast([8, 16, 32], [8e8, 16e8, 32e8], (8 * GB, "the GPU"), []).figure
    assert [line["name"] for line in figure["data"]] == ["forecast", "measured", "limit: the GPU"]
    assert figure["data"][2]["y"] == [8, 8]


@pytest.fixture
def system(tmp_path):
    """A machine of 4 GB free, whose process has 1 GB, in cgroups as each test writes them."""
    page = memory_limits.os.sysconf("SC_PAGE_SIZE")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\n")
    (tmp_path / "proc" / "self" / "statm").write_text(f"{3 * GB // page} {GB // page} 0 0 0 0 0\n")
    return tmp_path / "proc", tmp_path / "cgroup"


def test_the_machine_bounds_where_nothing_else_does(system):
    proc, groups = system
    limit = find_limit(proc, groups)
    assert (limit.of, round(limit.limit_bytes, -6)) == (MACHINE, 4_096_000_000 + GB)


@pytest.mark.parametrize(
    ("listed", "folder", "files"),
    [
        ("0::/a/b\n", "a", {"memory.max": "3000000000", "memory.stat": "anon 1500000000\nfile 9\n"}),
        ("5:cpu:/\n4:memory:/x\n", "memory/x", {"memory.limit_in_bytes": "3000000000", "memory.stat": "total_rss 1500000000\n"}),
        ("0::/elsewhere\n", "", {"memory.max": "3000000000", "memory.stat": "anon 1500000000\n"}),
    ],
)
def test_a_container_bounds_with_what_others_in_it_hold(system, listed, folder, files):
    proc, groups = system
    (proc / "self" / "cgroup").write_text(listed)
    (groups / folder).mkdir(parents=True)
    for name, text in files.items():
        (groups / folder / name).write_text(text)
    page = memory_limits.os.sysconf("SC_PAGE_SIZE")
    assert find_limit(proc, groups) == MemoryLimit(2_500_000_000 - (GB - GB // page * page), CONTAINER)


def test_a_container_without_bound_is_none(system):
    proc, groups = system
    groups.mkdir()
    (groups / "memory.max").write_text("max\n")
    assert find_limit(proc, groups).of == MACHINE


def test_ulimit_bounds():
    code = "import resource; resource.setrlimit(resource.RLIMIT_AS, (10**9, 10**9))\nfrom profnb.capture.machine.memory_limits import find_limit; print(find_limit().of)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=HERE.parents[1]).stdout == "`ulimit -v`\n"


def test_what_a_step_reaches_is_put_back():
    seen, total = [1], {"a": 1}

    def inner():
        total["a"] += 1

    def step(batch):
        seen.append(batch)
        inner()

    before = random.getstate()
    assert all(any(one is kept for kept in KeptState({"step": step}).objects) for one in (seen, inner, total))
    with put_back(step):
        step(3)
        random.random()
        np.random.rand()
    assert (seen, total) == ([1], {"a": 1})
    assert random.getstate() == before


def test_what_a_step_has_as_defaults_or_is_bound_to_is_put_back():
    ran, by_keyword, bound, own = [1], {2}, [3], [4]

    def inner(own=[5]):  # noqa: B006 - of the same name as the step's
        own.append(0)
        return own

    def step(held, batch, ran=ran, *, by_keyword=by_keyword):
        own.append(inner())
        ran.append(batch)
        by_keyword.add(batch)
        held.append(batch)

    bound_step = functools.partial(step, bound)
    with put_back(bound_step):
        bound_step(3)
    assert (ran, by_keyword, bound, own, inner.__defaults__) == ([1], {2}, [3], [4], ([5],))


def test_a_step_that_takes_from_an_iterator_is_declined():
    batches = iter([1, 2])

    def step(batch):
        return next(batches)

    with pytest.raises(CaptureError, match="cannot restore `batches` .an iterator, which may be half used"):
        profnb.fits(step, np.zeros((4, 2)))


class Reader:
    """An object of the user's that holds what cannot be put back."""

    def __init__(self, held):
        self.held = held

    def step(self, batch):
        return self.held


@pytest.mark.parametrize(
    ("make", "what"), [(lambda: open("/dev/null", "w"), "an open file"), (threading.Lock, "a lock"), (socket.socket, "a socket"), (lambda: ThreadPoolExecutor(1), "work of its own beside the cell")]
)
def test_a_step_with_side_effects_is_declined_with_the_reason(make, what):
    held = make()
    with pytest.raises(CaptureError, match=f"{what}.. Give a step without it"):
        profnb.fits(Reader(held).step, np.zeros((4, 2)))
    getattr(held, "close", lambda: None)()


def test_a_step_that_cannot_run_with_one_example_says_so_and_runs_with_more():
    def step(batch):
        if len(batch) == 1:
            raise ValueError("more than one value per channel")
        return np.ones((len(batch), 1_000_000), np.uint8).sum()

    with pytest.raises(CaptureError, match=r"cannot run with 1 example \(ValueError: more than one value per channel\). Give other batch_sizes"):
        profnb.fits(step, np.zeros((4, 2)), batch_sizes=[1, 2, 4])
    assert profnb.fits(step, np.zeros((4, 2)), batch_sizes=[50, 100, 200], limit_bytes=100 * GB).per_example_bytes > 0


def test_sequences_of_several_lengths_are_to_be_padded():
    with pytest.raises(CaptureError, match="The arrays have 5 and 7 examples. Give arrays of one length: .* sequences padded"):
        profnb.fits(print, [np.zeros(5), np.zeros(7), np.zeros(5)])


def test_sequences_in_a_ragged_array_are_to_be_padded():
    """Its shape leaves the length open, as TensorFlow's ragged tensors' do."""
    with pytest.raises(CaptureError, match="The batch has sequences of several lengths. Pad all to the same length"):
        profnb.fits(print, SimpleNamespace(shape=(4, None)))


@pytest.mark.parametrize("batch", [[], 3, None, np.zeros((0, 4))])
def test_a_batch_without_examples_is_refused(batch):
    with pytest.raises(CaptureError, match="The arrays have 0 examples"):
        profnb.fits(print, batch)


def test_a_step_that_fails_says_so():
    def step(batch):
        raise ValueError("shapes")

    with pytest.raises(CaptureError, match=r"The step cannot run with 8 examples \(ValueError: shapes\)"):
        profnb.fits(step, np.zeros((4, 2)))


@pytest.mark.parametrize("sizes", [[4], [4, 4, 8], [0, 1, 2]])
def test_batch_sizes_that_tell_nothing_are_refused(sizes):
    with pytest.raises(ValueError, match="batch_sizes takes three positive sizes or more"):
        profnb.fits(print, np.zeros((4, 2)), batch_sizes=sizes)


def test_what_is_no_step_is_refused():
    with pytest.raises(CaptureError, match="got int"):
        profnb.fits(3, np.zeros((4, 2)))


def test_nothing_runs_that_takes_more_than_a_tenth_of_the_limit(capsys):
    def step(batch):
        print(len(batch))  # whatever else it keeps is put back
        return np.ones((len(batch), 4_000_000), np.uint8).sum()

    with pytest.raises(CaptureError, match="would take more than a tenth of the 1.00 GB"):
        profnb.fits(step, np.zeros((4, 2)), limit_bytes=GB)
    assert max(map(int, capsys.readouterr().out.split())) == 16  # 32 would take 128 MB


def test_a_step_of_numpy_is_forecast_by_the_memory_of_the_process():
    def step(batch):
        return np.ones((len(batch), 1_000_000), np.uint8).sum()

    forecast = profnb.fits(step, np.zeros((4, 2)), limit_bytes=100 * GB, batch_sizes=[100, 200, 400])
    assert forecast.per_example_bytes == pytest.approx(1e6, rel=0.15)
    assert "Measured in this process" in forecast.because[0]


SMALL_DEVICE = """
import os, resource
import numpy as np, pandas, profnb
import profnb.forecast.memory_forecast
def step(batch):
    made = np.ones((len(batch), 1 << 18))
    return float((made * 2).sum())  # 4 MiB for each example
space = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (space + (2 << 30), resource.getrlimit(resource.RLIMIT_AS)[1]))
forecast = profnb.fits(step, np.zeros((4, 2)))
print(forecast.limit_of, forecast.table.batch_size.max(), forecast.largest_batch)
step(np.zeros((forecast.largest_batch, 2)))
try:
    step(np.zeros((forecast.interval[1] * 5 // 4, 2)))
except MemoryError:
    print("no more fits")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_AS")
def test_the_largest_batch_fits_a_small_device_and_a_quarter_more_does_not():
    """Of 2 GiB, of which 512 examples of 4 MiB are all: none is tried that takes more than a tenth."""
    run = subprocess.run([sys.executable, "-c", SMALL_DEVICE], capture_output=True, text=True, cwd=HERE.parents[1])
    assert run.returncode == 0, run.stderr[-2000:]
    first, last = run.stdout.splitlines()
    *limit_of, tried, largest = first.split()
    assert (" ".join(limit_of), last) == ("`ulimit -v`", "no more fits")
    assert int(tried) <= 64
    assert 380 <= int(largest) <= 520


def test_a_small_container_is_the_limit(system, monkeypatch):
    proc, groups = system
    groups.mkdir()
    (groups / "memory.max").write_text("2000000000\n")
    (groups / "memory.stat").write_text("anon 1000000000\n")
    monkeypatch.setattr("profnb.forecast.fitting.find_limit", lambda: find_limit(proc, groups))
    forecast = profnb.fits(lambda batch: np.ones((len(batch), 1_000_000), np.uint8).sum(), np.zeros((4, 2)))
    assert (forecast.limit_of, forecast.limit_bytes) == (CONTAINER, pytest.approx(2 * GB, rel=0.01))
    assert forecast.table.batch_size.max() <= 200  # of a megabyte each: a tenth


@pytest.mark.tensorflow
def test_a_keras_model_whose_inputs_have_names_is_forecast_and_stays_as_it_was():
    keras = pytest.importorskip("keras")
    a, b = keras.Input((1000,), name="a"), keras.Input((8,), name="b")
    wide = keras.layers.Dense(4000)(keras.layers.Concatenate()([a, b]))
    model = keras.Model({"a": a, "b": b}, keras.layers.Dense(1)(wide))
    model.compile("adam", "mse")
    before = [np.array(one) for one in model.get_weights()]
    x = {"a": np.zeros((20, 1000), "f"), "b": np.zeros((20, 8), "f")}
    forecast = profnb.fits(model, x, np.zeros((20, 1), "f"), batch_sizes=[500, 1000, 2000, 4000])
    assert all(map(np.array_equal, before, model.get_weights()))
    assert model.optimizer.iterations == 0
    assert forecast.per_example_bytes > 4000 * 4  # what the layer gives to each example
    assert forecast.fixed_bytes > 3 * 1008 * 4000 * 4  # weights and Adam's two


def test_what_a_step_keeps_until_the_next_one_counts():
    """Each makes a megabyte for an example while the last step's still lives, as TensorFlow's recurrent layers do."""
    kept = []

    def step(batch):
        kept[:] = [np.ones((len(batch), 1_000_000), np.uint8)]

    forecast = profnb.fits(step, np.zeros((4, 2)), batch_sizes=[20, 40, 80, 160], limit_bytes=20 * GB)
    assert forecast.per_example_bytes == pytest.approx(2_000_000, rel=0.1)


@pytest.mark.tensorflow
def test_a_step_of_a_session_is_forecast_by_its_run_metadata_and_its_variables_are_put_back():
    """Adam of one layer of 256 by 1024: variables alone are 3 MB and more. Of each example at least its inputs and outputs."""
    tf = pytest.importorskip("tensorflow")
    from profnb.forecast.meters import session_peak

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, (None, 256))
        weight = v1.get_variable("weight", (256, 1024))
        loss = tf.reduce_mean(tf.nn.relu(tf.matmul(x, weight)) ** 2)
        train = v1.train.AdamOptimizer().minimize(loss)
        never = v1.get_variable("never_initialized", (3,), collections=["local_variables"])  # has no value to put back
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())

            def step(batch):
                session.run([train, loss], {x: batch})

            before, ops = session.run(v1.global_variables()), len(session.graph.get_operations())
            forecast = profnb.fits(step, np.ones((4, 256), "f"))
            largest = 8 * int(forecast.table.batch_size.max())
            assert all(map(np.array_equal, before, session.run(v1.global_variables())))
            assert len(session.graph.get_operations()) == ops
            _, measured = session_peak(lambda: step(np.ones((largest, 256), "f")))
    assert never is not None
    assert forecast.peak_bytes(largest) == pytest.approx(measured, rel=0.1)
    assert forecast.per_example_bytes >= (256 + 1024) * 4
    assert forecast.fixed_bytes >= 3 * 256 * 1024 * 4
    assert "RunMetadata" in forecast.because[0]


def test_a_model_that_is_not_compiled_is_refused():
    class Model:
        optimizer = None

        def train_on_batch(self):
            pass

    with pytest.raises(CaptureError, match="The model is not compiled"):
        profnb.fits(Model(), np.zeros((4, 2)), np.zeros(4))


def test_the_magic_shows_a_forecast_and_keeps_it(shell, capsys):
    shell.user_ns.update(step=lambda batch: np.ones((len(batch), 1_000_000), np.uint8).sum(), batch=np.zeros((4, 2)))
    shell.run_line_magic("tfmemory", "step batch --batch-sizes 50,100,200 --limit-gb 90 -o mine")
    assert shell.user_ns["mine"] is shell.user_ns["_tfmemory"]
    assert shell.user_ns["mine"].limit_bytes == 90 * GB
    assert "fits in the 90.0 GB of the given limit." in capsys.readouterr().out


@pytest.mark.parametrize(("line", "said"), [("step nothing", "There is no 'nothing' in this notebook"), ("step batch --batch-sizes 4", "batch_sizes takes three")])
def test_a_line_that_cannot_be_meant_is_one_sentence(shell, line, said):
    shell.user_ns.update(step=len, batch=np.zeros((4, 2)))
    with pytest.raises(UsageError, match=said):
        shell.run_line_magic("tfmemory", line)
