"""Profiles of pprof: bytes are memory by line, time is functions; each number as ``pprof -top`` has it."""

import gzip

import numpy as np
import pytest
from traces import message, varint

import profnb
from profnb.core.errors import CaptureError, TraceFormatError
from profnb.trace.files import read_trace


class Profile:
    """A profile that is written as it grows: ``profile.add(stack, values)``, the innermost frame first."""

    def __init__(self, *types, **fields):
        self.texts, self.functions, self.places, self.samples = [""], {}, {}, []
        self.types, self.fields = [(self.text(a), self.text(b)) for a, b in types], fields

    def text(self, text):
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text)

    def add(self, stack, *values, packed=True, **labels):
        """A frame is (file, line, function), or several that were inlined into one place, the innermost first."""
        places = [self.places.setdefault(tuple(one if isinstance(one, list) else [one]), len(self.places) + 1) for one in stack]
        for place in self.places:
            for file, _, name in place:
                self.functions.setdefault((file, name), len(self.functions) + 1)
        numbers = [(1, b"".join(map(varint, places))), (2, b"".join(map(varint, values)))] if packed else [*((1, p) for p in places), *((2, v) for v in values)]
        self.samples.append(message(*numbers, *((3, message((1, self.text(k)), (2, self.text(v)))) for k, v in labels.items())))

    def raw(self, first=b""):
        places = [(4, message((1, number), *((4, message((1, self.functions[file, name]), (2, line))) for file, line, name in place))) for place, number in self.places.items()]
        functions = [(5, message((1, number), (2, self.text(name)), (4, self.text(file)))) for (file, name), number in self.functions.items()]
        return first + message(*((1, message((1, a), (2, b))) for a, b in self.types), *((2, one) for one in self.samples), *places, *functions,
                               *((6, text) for text in self.texts), *((14, self.text(one)) for one in self.fields.values()))  # fmt: skip


STEP, MAIN, INSIDE = ("/home/u/train.py", 41, "train_step"), ("/home/u/train.py", 90, "main"), ("/v/lib/python3.11/site-packages/jax/core.py", 7, "bind")


def jax_memory():
    profile = Profile(("allocations", "count"), ("space", "bytes"))
    profile.add([INSIDE, STEP, MAIN], 2, 4096, kind="buffer", device="gpu:0")
    profile.add([STEP, MAIN], 1, 1024, kind="buffer", device="gpu:0")
    profile.add([INSIDE, MAIN], 1, 500, kind="buffer", device="gpu:1")
    profile.add([INSIDE, MAIN], 1, 70, kind="executable")
    profile.add([INSIDE], 1, 0, kind="executable")
    return profile


def load(path, raw):
    path.write_bytes(gzip.compress(raw, mtime=0))
    return profnb.load(path)


def test_bytes_belong_to_the_programs_innermost_line_on_their_device(tmp_path):
    p = load(tmp_path / "memory.prof", jax_memory().raw())
    rows = p.memory_peak[["allocator", "op_name", "bytes", "occurrences"]].to_numpy().tolist()
    assert rows == [["executable", "train.py:90 main", 70, 1], ["gpu:0", "train.py:41 train_step", 5120, 3], ["gpu:1", "train.py:90 main", 500, 1]]
    assert p.memory[["allocator", "in_use_bytes"]].to_numpy().tolist() == [["executable", 70.0], ["gpu:0", 5120.0], ["gpu:1", 500.0]]
    assert p.summary().startswith("5.12 kB in use at the peak of gpu:0, 100.0 % of it from train.py:41 train_step")


def test_the_profiles_own_type_is_read_else_the_last(tmp_path):
    types = ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "kilobytes")
    for fields, value, blocks in (({}, 3 * 1024, 2), ({"default": "alloc_space"}, 900, 1)):
        profile = Profile(*types, **fields)
        profile.add([("m.go", 4, "main.hold")], 900, 2, 3)
        peak = load(tmp_path / "heap.pb.gz", profile.raw()).memory_peak
        assert peak[["op_name", "bytes", "occurrences"]].to_numpy().tolist() == [["m.go:4 main.hold", value, blocks]]


@pytest.mark.parametrize("packed", [True, False])
def test_time_is_flat_and_cum_of_functions_as_pprof_has_it(tmp_path, packed):
    profile = Profile(("samples", "count"), ("cpu", "nanoseconds"))
    sort, less, work = ("s.go", 1, "sort"), ("s.go", 2, "less"), ("m.go", 3, "work")
    profile.add([[less, sort], work], 2, 20_000_000, packed=packed)  # less was inlined into sort
    profile.add([work, work], 3, 30_000_000, packed=packed)  # calls itself, which counts once
    profile.add([sort, work], 1, 10_000_000, packed=packed)
    p = load(tmp_path / "cpu.prof", profile.raw(first=message((9, 1 << 60), (10, 5))))  # Go's times come first
    columns = ["function", "samples", "self_ms", "total_ms"]
    assert p.python[columns].to_numpy().tolist() == [["work", 3 + 2 + 1, 30.0, 60.0], ["less", 2, 20.0, 20.0], ["sort", 3, 10.0, 30.0]]
    assert "60.0 ms of `cpu` samples in 3 functions" in p.summary()
    assert "work" in p.to_html(tmp_path / "page.html").read_text()
    with pytest.raises(CaptureError, match="no trace"):
        p.trace  # noqa: B018
    with pytest.raises(TraceFormatError, match=r"Open it with `profnb\.load`"):
        read_trace(tmp_path / "cpu.prof")


def test_counts_become_time_by_the_profiles_period(tmp_path):
    profile = Profile(("samples", "count"))
    profile.add([STEP], 4)
    period = message((11, message((1, profile.text("cpu")), (2, profile.text("microseconds")))), (12, 250))
    assert load(tmp_path / "x.pb.gz", profile.raw() + period).python.self_ms.tolist() == [1.0]


def test_places_without_symbols_are_their_library_as_in_pprof(tmp_path):
    profile = Profile(("cpu", "ms"))
    mapping, place = message((1, 1), (5, profile.text("/usr/lib/libm.so"))), message((1, 9), (2, 1), (3, 0xBEEF))
    profile.samples.append(message((1, 9), (2, 7)))
    python = load(tmp_path / "x.pb.gz", profile.raw() + message((3, mapping), (4, place))).python
    assert python[["function", "file", "self_ms"]].to_numpy().tolist() == [["[libm.so]", "/usr/lib/libm.so", 7.0]]


def only(*types, values=(1,), more=b""):
    profile = Profile(*types)
    profile.add([STEP], *values)
    return profile.raw() + more


@pytest.mark.parametrize(
    ("raw", "essence"),
    [
        (only(("goroutine", "count")), "only counts (goroutine)"),
        (only(("cpu", "ns"), values=((1 << 64) - 5,)), "values below 0"),
        (only(("cpu", "s"), values=(1 << 62,)), "more s than any program has"),
        (only(("a", "count"), ("cpu", "ns")), "another number of values"),
        (message((1, message((1, 1), (2, 2)))), "without a sample"),
        (only(("cpu", "ns")) + b"\x12\xff\xff\xff\x7f", "Malformed profile of pprof"),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_said(tmp_path, raw, essence):
    with pytest.raises(TraceFormatError) as error:
        load(tmp_path / "x.prof", raw)
    assert essence in str(error.value)
    assert str(error.value).startswith("x.prof: ")


def test_a_place_that_many_stacks_share_cannot_make_them_endless(tmp_path):
    lines = message(*((4, message((1, 1), (2, n))) for n in range(20_000)))
    bomb = message((1, message((1, 0), (2, 1))), (4, message((1, 1)) + lines), (5, message((1, 1))), (6, ""), (6, "ns"),
                   *((2, message((1, 1), (2, 1))) for _ in range(1000)))  # fmt: skip
    with pytest.raises(TraceFormatError, match="more than 10,000,000 frames"):
        load(tmp_path / "x.prof", bomb)


def test_a_mutated_profile_is_read_or_refused_and_nothing_else(tmp_path):
    rng, raw = np.random.default_rng(5), jax_memory().raw()
    outcomes = set()
    for number in range(150):
        damaged = bytearray(raw)
        for at in rng.integers(8, len(raw), 1 + number % 5).tolist():
            damaged[at] = int(rng.integers(256))
        (tmp_path / "x.prof").write_bytes(damaged)
        try:
            p = profnb.load(tmp_path / "x.prof")
            outcomes.add(len(p.memory_peak) > 0 if p.has_trace else True)
        except TraceFormatError as error:
            assert "x.prof" in str(error)
            outcomes.add("refused")
    assert {True, "refused"} <= outcomes


def test_the_shared_memory_profile_is_as_its_readme_says(shared_traces):
    path = shared_traces / "other-tools" / "jax-memory.prof"
    if not path.exists():
        pytest.skip("needs ../shared/traces/other-tools")
    peak = profnb.load(path).memory_peak
    assert peak[["op_name", "bytes", "occurrences"]].to_numpy().tolist() == [["train.py:41 train_step", 5 << 20, 3]]
