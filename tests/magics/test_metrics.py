"""The flat numbers of a capture, and the trackers of experiments that take them, run for real where they are installed."""

import json
import math

import pytest
from conftest import every_shared_trace
from traces import event, gpu, host, line, read

import profnb
from profnb.profile import Profile

MS = 10**9


def made():
    """Six steps of 8 ms, one every 10 ms; the device computes 4 ms of each."""
    markers = [event("train", at * 10 * MS, 8 * MS, step_num=at, _r=1) for at in range(6)]
    launches = [event("cuLaunchKernel", at * 10 * MS + MS, MS, correlation_id=at) for at in range(6)]
    kernels = [event("gemm", (at * 10 + 2) * MS, 4 * MS, correlation_id=at) for at in range(6)]
    return Profile(read(host(line("python", *(e for pair in zip(markers, launches, strict=True) for e in pair))), gpu(line("Stream #1", *kernels))))


def test_names_end_in_their_unit_and_numbers_are_those_of_the_tables():
    numbers = made().metrics()
    assert numbers["step_median_ms"] == 8.0
    assert numbers["device_compute_ms"] == 4.0
    assert numbers["steps_counted"] == 6
    assert numbers["device_gpu_0_busy_fraction"] == pytest.approx(24 / 58)
    assert "examples_per_second" not in numbers  # nobody knows the batch
    assert all(name.rpartition("_")[2] in ("ms", "fraction", "counted", "bytes", "second") for name in numbers)


@pytest.mark.parametrize("path", every_shared_trace())
def test_every_number_of_every_trace_is_finite_and_its_name_is_one_that_trackers_take(path):
    numbers = profnb.load(path).metrics()
    assert all(isinstance(value, float) and math.isfinite(value) for value in numbers.values())
    assert all(name.replace("_", "").isalnum() and name.isascii() for name in numbers)
    assert json.loads(json.dumps(numbers)) == numbers


def test_mlflow_keeps_them_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())  # a folder that MLflow makes
    numbers = made().metrics()
    with mlflow.start_run() as run:
        mlflow.log_metrics(numbers)
    assert mlflow.get_run(run.info.run_id).data.metrics == numbers


def test_weights_and_biases_keeps_them_without_a_network(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    numbers = made().metrics()
    with wandb.init(mode="offline", dir=tmp_path, project="p") as run:
        run.summary.update(numbers)
        assert {name: run.summary[name] for name in numbers} == numbers
    wandb.teardown()  # which waits until the file is written
    kept = [path for path in tmp_path.rglob("*.wandb") if path.stat().st_size]
    assert kept and any(b"step_median_ms" in path.read_bytes() for path in kept)
