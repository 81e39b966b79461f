"""How much memory a batch takes, before it is tried."""

import functools
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from IPython.core.error import UsageError

import profnb
from profnb.capture.machine import memory_limits
from profnb.capture.machine.memory_limits import CONTAINER, MACHINE, MemoryLimit, find_limit
from profnb.core.errors import CaptureError
from profnb.forecast.memory_forecast import make_forecast
from profnb.forecast.standing import put_back, reached_objects

HERE = Path(__file__).parent
GB = 10**9


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
    assert forecast.because[-1] == "So memory does not grow evenly with the batch; take the forecast as rough."
    assert forecast.largest_batch == forecast.interval[0] < forecast.interval[1]


def test_a_limit_that_no_batch_fits_in_is_said():
    forecast = make_forecast([1, 2, 4], [2000, 2100, 2300], (1500, "the container"), [])
    assert forecast.largest_batch == 0
    assert "No batch fits in the 1.50 kB of the container." in forecast.summary()


def test_what_a_process_holds_already_is_fixed():
    forecast = make_forecast([8, 16, 32], [8e6, 16e6, 32e6], (GB, "the machine"), [], [100_000_000, 50_000_000])
    assert forecast.fixed_bytes == pytest.approx(150e6)
    assert forecast.table.peak_bytes.tolist() == [158e6, 166e6, 182e6]


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
    assert {"seen", "inner", "total"} <= set(reached_objects(step))
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

    with pytest.raises(CaptureError, match="The step takes elements of `batches`, which cannot be put back"):
        profnb.fits(step, np.zeros((4, 2)))


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


def test_a_model_that_is_not_compiled_is_refused():
    class Model:
        optimizer = None

        def train_on_batch(self):
            pass

    with pytest.raises(CaptureError, match="The model is not compiled"):
        profnb.fits(Model(), np.zeros((4, 2)), np.zeros(4))


def run_elsewhere(python, program):
    """Run a program by the Python of another environment; its last lines say what it found."""
    if not Path(python).exists():
        pytest.skip(f"needs {python}")
    ran = subprocess.run([python, HERE / program], capture_output=True, text=True, cwd=HERE.parents[1], env={"PYTHONPATH": str(HERE.parents[1]), "PATH": "/usr/bin:/bin", "HOME": "/tmp"})
    assert ran.returncode == 0, ran.stderr[-2000:]
    return [line.split() for line in ran.stdout.splitlines() if line.startswith("forecast ")]


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_allocators_are_forecast_within_a_tenth_at_eight_times_the_largest_batch(framework):
    """Dense, convolution, recurrent and attention with embeddings; PyTorch's weights are as before, which the program asserts."""
    forecasts = run_elsewhere(f"/work/venv-{framework}/bin/python", f"forecast_{framework}.py")
    assert len(forecasts) == 4
    for _, name, forecast, measured in forecasts:
        assert float(forecast) == pytest.approx(float(measured), rel=0.1), name


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
