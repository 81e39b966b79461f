"""PyTorch's memory timeline: bytes by kind of tensor, as sums or change by change, as PyTorch itself adds them up."""

import gzip
import json

import pytest

import profnb
from profnb.core.errors import TraceFormatError

MIB = 1 << 20
# Kinds by number: 0 parameters, 1 optimizer state, 3 temporaries, 4 activations, 5 gradients. Actions: 1 was there before,
# 2 made, 3 of another kind from now on, 4 gone. In use: 190, 190, 250, 190, 150 MiB.
CHANGES = [
    [-1, 1, 100 * MIB, 0], [-1, 1, 50 * MIB, 1], [1_000_000, 2, 40 * MIB, 4], [2_000_000, 3, -40 * MIB, 4], [2_000_000, 3, 40 * MIB, 5],
    [2_500_000, 2, 60 * MIB, 3], [3_000_000, 4, -60 * MIB, 3], [4_000_000, 4, -40 * MIB, 5],
]  # fmt: skip
ROWS = [(100, 50, 0, 0, 40, 0, 0, 0), (100, 50, 0, 0, 0, 40, 0, 0), (100, 50, 0, 60, 0, 40, 0, 0), (100, 50, 0, 0, 0, 40, 0, 0), (100, 50, 0, 0, 0, 0, 0, 0)]
SUMMED = [[1000, 2000, 2500, 3000, 4000], [[0, *(mib * MIB for mib in row)] for row in ROWS]]


def load(folder, content, name="timeline.json"):
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return profnb.load(folder / name)


@pytest.mark.parametrize(("content", "name", "blocks"), [(CHANGES, "x.raw.json.gz", 1), (SUMMED, "x.json", 0), (SUMMED, "x.json.gz", 0)])
def test_what_filled_the_memory_at_the_peak_and_over_time(tmp_path, content, name, blocks):
    p = load(tmp_path, content, name)
    peak = p.memory_peak
    assert dict(zip(peak.op_name, peak.bytes // MIB, strict=True)) == {"parameters": 100, "temporaries": 60, "optimizer state": 50, "gradients": 40}
    assert set(peak.occurrences) == {blocks}  # sums tell no blocks
    assert peak.time_ms.tolist() == [1.5] * 4
    memory = p.memory.set_index("allocator")
    assert (memory.loc["PyTorch"].in_use_bytes // MIB).tolist() == [190, 190, 250, 190, 150]
    assert memory.loc["PyTorch"].time_ms.tolist() == [0, 1, 1.5, 2, 3]
    for kind, column in (("parameters", 0), ("temporaries", 3), ("activations", 4), ("gradients", 5)):
        assert (memory.loc[kind].in_use_bytes // MIB).tolist() == [row[column] for row in ROWS]
    assert "inputs" not in memory.index  # never held
    assert p.summary().startswith("262 MB in use at the peak of PyTorch, 40.0 % of it from parameters")
    assert p.notes == ["The file holds memory and no times. Record a trace for times of ops and kernels."]
    assert [track.title for track in __import__("profnb.timeline.scene", fromlist=["x"]).find_tracks(p.study)][:2] == ["PyTorch memory in use", "parameters held"]


def test_a_picture_says_what_to_export_instead(tmp_path):
    page = '<html>\n<head><meta charset="utf-8" /><title>GPU Memory Timeline HTML</title></head>\n<body>\n  <img src=\'data:image/png;base64,iVBO\'>\n</body>'
    with pytest.raises(TraceFormatError, match=r"^x.html is a picture of PyTorch's memory timeline\. Export a `.raw.json.gz` instead, and open that file\.$"):
        load(tmp_path, page, "x.html")


@pytest.mark.parametrize(
    ("content", "essence"),
    [
        ([[], []], "No memory timeline of PyTorch"),
        ("[[1, 2, 3", "An empty or cut-off"),
        ([[1, 2], [[0] * 9]], "other times than sizes"),
        ([[1 << 60], [[0] * 9]], "other times than sizes"),
        ([[1], [[0] * 8]], "No memory timeline of PyTorch"),
        ([[1], [[0] * 9]], "without an allocation"),
        ([[1], [[0, 1 << 60, *[0] * 7]]], "more bytes than any device"),
        ([[1, 2, 3.5, 0]], "No memory timeline of PyTorch"),
        ([[1, 2, True, 0]], "No memory timeline of PyTorch"),
        ([[1, 2, 1 << 70, 0]], "No memory timeline of PyTorch"),
        ([[1, 2, 5, 8]], "a kind or size that no tensor has"),
        ([[1, 2, 1 << 54, 0]] * 3, "a kind or size that no tensor has"),
    ],
)
def test_what_is_none_is_refused_in_a_sentence(tmp_path, content, essence):
    with pytest.raises(TraceFormatError, match=f"timeline.json: .*{essence}"):
        load(tmp_path, content)


def test_a_kind_below_zero_holds_nothing_and_times_may_come_in_any_order(tmp_path):
    """Another process freed more than was seen; the peak is of what is there."""
    p = load(tmp_path, [CHANGES[5], *CHANGES[:5], *CHANGES[6:], [5_000_000, 4, -9 * MIB, 7]])
    assert (p.memory[p.memory.allocator == "PyTorch"].in_use_bytes // MIB).tolist() == [190, 190, 250, 190, 150]


def test_pytorchs_own_files_have_the_numbers_that_pytorch_adds_up(tmp_path):
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile

    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
    optimizer = torch.optim.Adam(model.parameters())
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_stack=True) as profiler:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.rand(256, 64)).square().mean().backward()
            optimizer.step()
    for name in ("x.json", "x.json.gz", "x.raw.json.gz"):
        profiler.export_memory_timeline(str(tmp_path / name), device="cpu")
    times, sizes = json.loads((tmp_path / "x.json").read_text())
    assert len(times) > 20
    summed, packed, changes = (profnb.load(tmp_path / name) for name in ("x.json", "x.json.gz", "x.raw.json.gz"))
    assert packed.memory.equals(summed.memory)
    assert summed.memory_summary.peak_bytes.tolist() == [max(sum(row) for row in sizes)]
    assert changes.memory_summary.peak_bytes[0] >= summed.memory_summary.peak_bytes[0]  # inside of a microsecond, too
    last = changes.memory.groupby("allocator").in_use_bytes.last()
    assert last["PyTorch"] == sum(sizes[-1])
    assert last["parameters"] == sizes[-1][1] == sum(one.numel() * 4 for one in model.parameters())
    assert last["optimizer state"] == sizes[-1][2] >= 2 * last["parameters"]
