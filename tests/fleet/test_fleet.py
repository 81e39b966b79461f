"""Several hosts of one capture, by hand-made traces whose answer a person can compute."""

import gc
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import profnb
from profnb.capture.recording import Recording
from profnb.capture.source.source_records import GraphLines, SourceRecords
from profnb.core.errors import TraceFormatError
from profnb.many_traces import summaries
from profnb.many_traces.fleets import find_fleet
from profnb.trace.model import Trace
from profnb.fleet.digest import OWN_CATEGORIES
from profnb.fleet.verdict import median_interval
from profnb.fleet.digest import digest_study
from profnb.subjects.study import Study
from profnb.trace.files import read_trace
from profnb.trace.runs import CaptureTime
from profnb.trace.remote_files import fetch_traces
from made_hosts import EVEN, MS, REDUCE, SLOW, STEPS, hosts_of
from traces import event, host, line, xspace


@pytest.fixture
def slow(tmp_path):
    hosts_of(tmp_path, SLOW)
    return profnb.load_fleet(tmp_path)


def test_own_work_waiting_and_exchange_are_what_a_person_computes(slow):
    # A step lasts 40 + 5 + 2 ms. Own work is the op and the 2 ms of Python between steps.
    means = slow.hosts.set_index("host")
    assert means.step_ms.tolist() == [47, 47, 47]
    assert means.own_ms.tolist() == [12, 42, 14]
    assert means.wait_ms.tolist() == [30, 0, 28]
    assert means.exchange_ms.tolist() == [5, 5, 5]
    assert means.caused_ms.tolist() == [0, 28, 0]  # its own work beyond the second longest
    assert means.last_fraction.tolist() == [0, 1, 0]
    assert (means.low_ms.tolist(), means.high_ms.tolist()) == ([-30, 28, -28], [-30, 28, -28])
    assert means.steps.tolist() == [STEPS - 1] * 3  # the first collective only begins what is measured


def test_the_slow_one_is_named_with_its_cause(slow):
    assert slow.stragglers == ("worker-1",)
    assert "worker-1 holds the others up: 28.0 ms a step (28.0 ms), 59.6 %." in slow.verdict
    assert "29.0 ms a step more host compute than the median elsewhere. By op, work is 29.0 ms longer." in slow.verdict
    (advice,) = slow.advice
    assert advice.rule == "straggler" and advice.bound_fraction == pytest.approx(28 / 47)
    assert "a step would take 19.0 ms" in slow.summary()


def test_a_step_adds_up_exactly_and_its_own_work_too(slow):
    assert slow.steps.groupby("step_num").step_ms.nunique().max() == 1
    merged = slow._merged
    assert np.array_equal(merged.own_ps + merged.wait_ps + merged.exchange_ps, merged.step_ps)
    assert np.array_equal(merged.categories_ps.sum(axis=2), merged.own_ps)
    assert np.array_equal(merged.step_ps.sum(axis=1), merged.joints.leave_ps[:, -1] - merged.joints.leave_ps[:, 0])
    assert (merged.wait_ps >= 0).all() and (merged.exchange_ps >= 0).all()
    columns = [f"{name.replace(' ', '_')}_ms" for name in OWN_CATEGORIES]
    assert np.allclose(slow.steps[columns].sum(axis=1), slow.steps.own_ms)


def test_random_hosts_add_up_exactly_too(tmp_path):
    rng = np.random.default_rng(0)
    hosts_of(tmp_path, rng.integers(1, 60, (4, 20)).tolist(), python=(0, 3, 9, 1))
    merged = profnb.load_fleet(tmp_path)._merged
    assert np.array_equal(merged.own_ps + merged.wait_ps + merged.exchange_ps, merged.step_ps)
    assert np.array_equal(merged.categories_ps.sum(axis=2), merged.own_ps)
    assert np.array_equal(merged.step_ps.sum(axis=1), merged.joints.leave_ps[:, -1] - merged.joints.leave_ps[:, 0])


def test_nobody_is_named_where_nobody_is_slow(tmp_path):
    hosts_of(tmp_path, EVEN)
    fleet = profnb.load_fleet(tmp_path)
    assert fleet.stragglers == () and fleet.advice == []
    assert "No host holds the others up" in fleet.verdict


@pytest.mark.parametrize("seed", range(20))
def test_noise_names_nobody(tmp_path, seed):
    works = 10 + np.random.default_rng(seed).exponential(4, (4, 30)).round().astype(int)
    hosts_of(tmp_path, works.tolist())
    assert profnb.load_fleet(tmp_path).stragglers == ()


@pytest.mark.parametrize("seed", range(5))
def test_a_slow_host_is_named_among_noise(tmp_path, seed):
    works = 10 + np.random.default_rng(seed).exponential(3, (4, 30)).round().astype(int)
    works[2] += 15
    hosts_of(tmp_path, works.tolist())
    assert profnb.load_fleet(tmp_path).stragglers == ("worker-2",)


def test_bounds_of_a_median_are_the_sign_tests_of_few_steps_and_of_many():
    assert [median_interval(np.arange(count)) for count in (6, 8, 20)] == [(0, 5), (0, 7), (5, 14)]  # the tables'
    for count in (1023, 1024, 5000):  # more than a float counts ways of
        low, high = median_interval(np.arange(count))
        assert low == pytest.approx(count / 2 - 0.98 * np.sqrt(count), abs=2) and low + high == count - 1


def test_one_that_is_slow_by_less_than_a_tenth_of_the_step_is_not_named(tmp_path):
    hosts_of(tmp_path, [[50] * STEPS, [54] * STEPS, [50] * STEPS])
    assert profnb.load_fleet(tmp_path).stragglers == ()


def test_one_that_is_slow_in_a_few_steps_only_is_not_named(tmp_path):
    hosts_of(tmp_path, [[10] * 20, [10] * 16 + [100] * 4, [10] * 20])
    assert profnb.load_fleet(tmp_path).stragglers == ()


def test_two_that_are_slow_alike_are_named_together_and_cost_nothing_one_by_one(tmp_path):
    hosts_of(tmp_path, [[10] * STEPS, [40] * STEPS, [10] * STEPS, [40] * STEPS])
    fleet = profnb.load_fleet(tmp_path)
    assert fleet.stragglers == ("worker-1", "worker-3")
    assert fleet.hosts.caused_ms.tolist() == [0, 0, 0, 0]
    assert "worker-1 and worker-3 together hold the others up: 30.0 ms a step" in fleet.verdict


def test_python_between_the_steps_of_one_host_is_its_cause(tmp_path):
    hosts_of(tmp_path, EVEN, python=(0, 0, 30))
    fleet = profnb.load_fleet(tmp_path)
    assert fleet.stragglers == ("worker-2",)
    assert "30.0 ms a step more Python between steps" in fleet.verdict
    assert "Look for Python between the steps" in fleet.advice[0].code


@pytest.mark.parametrize("shifts", [(0, 86400, 0), (0, 0, -86400), (0, 1, -2), (-86400, 3, 86400)])
def test_a_clock_that_is_off_changes_nothing_but_offsets(tmp_path, slow, shifts):
    files = hosts_of(tmp_path / "shifted", SLOW, shifts=shifts)
    fleet = profnb.load_fleet(files)
    clocks = ["offset_ms", "offset_low_ms", "offset_high_ms"]
    assert fleet.hosts.drop(columns=clocks).equals(slow.hosts.drop(columns=clocks))
    assert fleet.steps.equals(slow.steps) and fleet.collectives.equals(slow.collectives)
    assert fleet.verdict == slow.verdict
    for at, row in fleet.hosts.iterrows():  # what lies between the clocks is inside the bounds
        true = (shifts[0] - shifts[at]) * 1000
        assert row.offset_low_ms <= true <= row.offset_high_ms
        assert row.offset_ms == pytest.approx(true, abs=40)


def test_hosts_in_several_folders_are_one_fleet(tmp_path):
    hosts_of(tmp_path / "plugins" / "profile", SLOW, runs=("05", "06", "06_2"))
    assert profnb.load_fleet(tmp_path).stragglers == ("worker-1",)


def test_a_host_that_is_missing_is_said_where_ranks_are_known(tmp_path):
    files = hosts_of(tmp_path, SLOW)
    for rank, file in enumerate(files):
        file.rename(file.with_name(f"vm_{rank}.xplane.pb"))
    (tmp_path / "run" / "vm_0.xplane.pb").unlink()
    fleet = profnb.load_fleet(tmp_path)
    assert fleet.hosts["rank"].tolist() == [1, 2]
    assert any("no trace of rank 0" in note for note in fleet.notes)
    assert fleet.hosts.wait_ms.tolist() == [0, 28]


def test_a_host_with_fewer_steps_leaves_those_that_all_have(tmp_path):
    hosts_of(tmp_path, SLOW, first=(0, 0, 4))
    fleet = profnb.load_fleet(tmp_path)
    assert fleet.hosts.steps.tolist() == [STEPS - 5] * 3
    assert sorted(set(fleet.steps.step_num)) == list(range(5, STEPS))
    assert fleet.hosts.own_ms.tolist() == [12, 42, 14]
    assert any("Only the 8 collectives recorded by all hosts count" in note for note in fleet.notes)


def test_of_two_groups_the_larger_one_is_shown_and_the_other_said(tmp_path):
    files = hosts_of(tmp_path, SLOW)
    others = hosts_of(tmp_path / "others", SLOW[:2], group=2)
    for file in others:
        file = file.rename(files[0].with_name(f"other-{file.name}"))
    fleet = profnb.load_fleet(tmp_path / "run")
    assert len(fleet) == 5 and fleet.hosts.host.tolist() == ["worker-0", "worker-1", "worker-2"]
    assert any("this covers 3 of 5 hosts" in note for note in fleet.notes)
    assert any("exchange among themselves" in note for note in fleet.notes)


def test_a_host_that_restarted_is_a_capture_of_its_own(tmp_path):
    hosts_of(tmp_path, SLOW, runs=("05", "05", "05"))
    restarted = hosts_of(tmp_path / "late", [[10] * 3], start_s=10**9 + 20)
    restarted[0].rename(tmp_path / "05" / "worker-0 again.xplane.pb")
    fleet = profnb.load_fleet(tmp_path)
    assert fleet.hosts.host.tolist() == ["worker-0", "worker-1", "worker-2"]
    assert fleet.stragglers == ("worker-1",)
    assert any("Of 2 runs the newest with several hosts was opened, " in note for note in fleet.notes)


def test_numbers_that_begin_anew_in_the_middle_are_no_other_collectives(tmp_path):
    """What was captured after them still has keys that others have not: it does not count, and is said."""
    files = hosts_of(tmp_path, SLOW)
    again = hosts_of(tmp_path / "again", SLOW, instance=-4)  # numbers of one host lag behind by four
    files[2].write_bytes(again[2].read_bytes())
    fleet = profnb.load_fleet(files)
    assert set(fleet.collectives.key) <= {f"group 1, instance {at}" for at in range(STEPS)}
    assert any("Only the 8 collectives" in note for note in fleet.notes)


def test_collectives_that_cannot_be_the_same_get_no_verdict(tmp_path):
    files = hosts_of(tmp_path, [[10] * STEPS, [10 + 7 * (at % 3) for at in range(STEPS)]])
    other = hosts_of(tmp_path / "other", [[300, 5] * (STEPS // 2), [10] * STEPS])
    files[1].write_bytes(other[1].read_bytes())
    fleet = profnb.load_fleet(files)
    assert fleet.stragglers == () and "Collectives ended before every host" in fleet.verdict
    assert not fleet.has_met and fleet.hosts.empty and fleet.collectives.empty  # whose waiting would be nobody's
    assert "waits" not in fleet.summary() and json.loads(fleet.to_json())["hosts"] == []


def without_keys(folder, counts, name="all-reduce.1", marked=True):
    files = []
    for one, count in enumerate(counts):
        begin = [at * 50 * MS for at in range(count)]
        marks = {"_r": 1} if marked else {}
        calls = [event("train", b, 40 * MS, step_num=at, **marks) for at, b in enumerate(begin)]
        runs = [event(name, b + (10 + 5 * one) * MS, (30 - 5 * one) * MS) for b in begin]
        folder.mkdir(exist_ok=True)
        file = folder / f"worker-{one}.xplane.pb"
        file.write_bytes(xspace(host(line("python", *calls, line_id=1), line("xla", *runs, line_id=2)), hostnames=[f"worker-{one}"]))
        files.append(file)
    return files


def test_collectives_without_numbers_are_matched_by_the_steps_numbers(tmp_path):
    without_keys(tmp_path, (12, 9))
    fleet = profnb.load_fleet(tmp_path)
    assert fleet.hosts.steps.tolist() == [8, 8]
    assert fleet.hosts.own_ms.tolist() == [20, 25]


def test_unnumbered_steps_with_different_counts_are_refused(tmp_path):
    files = hosts_of(tmp_path, EVEN, first=(0, 0, 2))
    for file in files:  # as if the collectives had no numbers, nor the steps
        file.write_bytes(file.read_bytes().replace(b"instance_key", b"instance_kez").replace(b"step_num", b"step_nun"))
    fleet = profnb.load_fleet(files)
    assert not fleet.has_met and fleet.stragglers == ()
    assert any("have no numbers, and hosts recorded different counts" in note for note in fleet.notes)


def test_hosts_that_meet_by_twos_only_get_no_verdict(tmp_path):
    for one in range(2):
        calls = [event("train_step", at * 20 * MS, 15 * MS, step_num=at, _r=1) for at in range(8)]
        receives = [event("w/read_S1:_Recv", at * 20 * MS + MS, 9 * MS) for at in range(8)]
        (tmp_path / f"worker-{one}.xplane.pb").write_bytes(xspace(host(line("python", *calls, *receives)), hostnames=[f"worker-{one}"]))
    fleet = profnb.load_fleet(tmp_path)
    assert not fleet.has_met and "the straggler is not known" in fleet.verdict
    assert any("in pairs (parameter servers" in note for note in fleet.notes)
    assert fleet.hosts.empty and fleet.steps.empty and "the straggler is not known" in fleet.summary()
    assert find_fleet(tmp_path) is None  # one of them says more


def test_one_host_alone_is_no_fleet_and_nothing_is_said_of_parameter_servers(tmp_path):
    fleet = profnb.load_fleet(hosts_of(tmp_path, SLOW)[1])
    assert "1 host: the straggler is not known" in fleet.verdict and repr(fleet) == "<Fleet of 1 host>"
    assert any("trace of one host" in note for note in fleet.notes)
    assert not any("parameter servers" in note for note in fleet.notes)


def test_replicas_on_the_cpus_of_one_process_cannot_tell_and_it_is_said(tmp_path):
    """MirroredStrategy on logical devices: each collective has its number once per replica, on anybody's thread."""
    calls = [event("train_step", at * 20 * MS, 18 * MS, step_num=at, _r=1) for at in range(8)]
    runs = [
        line("collective_ops", *(event(f"Reduce_{one}:CollectiveReduceV2", (at * 20 + 2 * one + 1) * MS, (12 - 2 * one) * MS, instance_key=7, group_key=1) for at in range(8)), line_id=9 + one)
        for one in range(3)
    ]
    file = tmp_path / "worker-0.xplane.pb"
    file.write_bytes(xspace(host(line("python", *calls), *runs), hostnames=["worker-0"]))
    fleet = profnb.load_fleet(file)
    assert fleet.stragglers == () and any("Replicas of this process share CPUs" in note for note in fleet.notes)


def test_runs_of_one_host_each_are_not_said_to_have_several(tmp_path):
    for at in range(2):
        hosts_of(tmp_path / "plugins" / "profile", EVEN[:1], runs=(f"0{at}",), start_s=10**9 + 100 * at)
    (note, *_) = profnb.load_fleet(tmp_path).notes
    assert note == "Of 2 runs the newest was opened, 01. run= opens a different run. None has several hosts."


def test_a_broken_file_is_left_out_and_said(tmp_path):
    files = hosts_of(tmp_path, SLOW)
    files[0].write_bytes(files[0].read_bytes()[:-7])
    fleet = profnb.load_fleet(tmp_path)
    assert fleet.hosts.host.tolist() == ["worker-1", "worker-2"]
    assert any(note.startswith("worker-0 is left out: ") for note in fleet.notes)
    for file in files:
        file.write_bytes(b"nothing")
    with pytest.raises(TraceFormatError):
        profnb.load_fleet(tmp_path)


def test_any_executor_gives_the_same(tmp_path, slow):
    with ThreadPoolExecutor(2) as executor:
        fleet = profnb.load_fleet(tmp_path, executor=executor)
    assert fleet.hosts.equals(slow.hosts) and fleet.verdict == slow.verdict


def test_traces_that_were_read_are_let_go(tmp_path, monkeypatch):
    """What is worked out from a trace refers to itself, and arrays do not make Python collect."""
    files = hosts_of(tmp_path, SLOW)

    def kept():
        return sum(isinstance(one, Trace) for one in gc.get_objects())

    gc.collect()
    before = kept()
    gc.disable()
    try:
        monkeypatch.setattr(summaries, "_EACH_BYTES", 10**12)
        fleet = profnb.load_fleet(tmp_path)
        assert kept() == before + len(files)  # else this test shows nothing
        monkeypatch.setattr(summaries, "_EACH_BYTES", 1)
        fleet = profnb.load_fleet(tmp_path)
        profnb.summarize(tmp_path)
        assert kept() == before and len(fleet) == len(files)
    finally:
        gc.enable()


def test_one_host_is_a_profile_opened_when_asked_for(slow):
    assert list(slow) == ["worker-0", "worker-1", "worker-2"]
    assert len(slow["worker-2"].steps) == STEPS
    with pytest.raises(KeyError, match="there are: worker-0, worker-1, worker-2"):
        slow["worker-9"]


def test_the_report_says_it_as_text_as_html_and_for_programs(slow, tmp_path):
    text = slow.summary()
    assert "worker-1  47.0 ms   42.0 ms" in text and "Who was late in which step" in text
    assert "███████████  worker-1" in text
    page = slow.to_html(tmp_path / "fleet.html").read_text("utf-8")
    assert "worker-1 holds the others up" in page and "Content-Security-Policy" in page and "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    alone = slow.to_html(tmp_path / "alone.html", timeline=False).read_text("utf-8")
    assert "worker-1 holds the others up" in alone and len(alone) < len(page) / 2
    told = json.loads(slow.to_json())
    assert told["stragglers"] == ["worker-1"] and len(told["hosts"]) == 3
    assert set(slow._repr_mimebundle_()) == {"text/html", "text/plain"}


def test_marks_of_late_steps_have_the_texts_own_colour_and_are_not_read_out(slow):
    html = slow._repr_mimebundle_()["text/html"]
    for marks in ("▁" * 11, "·" * 11, "█" * 11):
        (style,) = re.findall(rf'<td style="([^"]*)"><span aria-hidden="true">{marks}</span>', html)
        assert "color:currentColor" in style


def test_many_hosts_and_steps_are_drawn_together_and_the_slow_one_stays_in_sight(tmp_path):
    works = [[10] * 8 for _ in range(130)]
    works[100] = [40] * 8
    hosts_of(tmp_path, works)
    fleet = profnb.load_fleet(tmp_path)
    text = fleet.summary()
    assert "worker-100 holds the others up" in text
    assert "Listed are the 64 with the longest own work; fleet.hosts has all 130 hosts." in " ".join(text.split())
    rows = re.findall(r"^([·▁▂▃▄▅▆▇█]{7})  (\S.*)$", text, re.MULTILINE)
    assert len(rows) == 44 and rows[0][1] == "worker-0 to worker-2" and rows[-1][1] == "worker-129"
    assert [name for marks, name in rows if marks == "█" * 7] == ["worker-99 to worker-101"]
    assert sum(line.startswith("worker-100 ") for line in text.splitlines()) == 2  # both tables have it
    html = fleet._repr_mimebundle_()["text/html"]
    assert "Each row is the latest of 3 hosts." in html and len(html) < 300_000


def test_a_long_capture_has_at_most_two_hundred_marks(tmp_path):
    hosts_of(tmp_path, [[10] * 1001, [10] * 500 + [40] * 501])
    html = profnb.load_fleet(tmp_path)._repr_mimebundle_()["text/html"]
    assert "Each mark is the mean of 5 steps." in html
    marks = re.findall(r"[·▁▂▃▄▅▆▇█]{100,}", html)
    assert [len(row) for row in marks] == [200, 200] and set(marks[1][101:]) == {"█"}


def test_names_of_hosts_are_data(tmp_path):
    for at, file in enumerate(hosts_of(tmp_path, SLOW)):
        file.rename(file.with_name(f"<b>{at}\x1b[2J.xplane.pb"))
    fleet = profnb.load_fleet(tmp_path)
    html = fleet._repr_mimebundle_()["text/html"]
    assert "<b>1" not in html and "&lt;b&gt;" in html
    assert "\x1b" not in fleet.summary() + html


def test_a_fleet_is_compared_by_its_own_steps(tmp_path, slow):
    hosts_of(tmp_path / "even", EVEN)
    result = profnb.compare(slow, profnb.load_fleet(tmp_path / "even"), labels=("slow", "even"))
    assert result.ratio == pytest.approx(17 / 47)
    assert any("Steps are of all hosts" in guard for guard in result.guards)


def test_the_magic_shows_the_fleet_and_one_host_where_asked(tmp_path):
    from IPython.core.interactiveshell import InteractiveShell

    from profnb.magics import ProfnbMagics

    hosts_of(tmp_path, SLOW)
    shell = InteractiveShell.instance()
    try:
        magics = ProfnbMagics(shell)
        magics.tfprofile_line(f"{tmp_path} -o f")
        magics.tfprofile_line(f"{tmp_path} --host worker-2 -o p")
        magics.tfprofile_line("f")
        assert isinstance(shell.user_ns["f"], profnb.Fleet) and isinstance(shell.user_ns["p"], profnb.Profile)
    finally:
        type(shell).clear_instance()


def test_the_command_line_reports_on_the_fleet(tmp_path, capsys):
    from profnb.__main__ import main

    hosts_of(tmp_path, SLOW)
    assert main(["report", str(tmp_path)]) == 0
    assert "worker-1 holds the others up" in capsys.readouterr().out
    assert main(["report", str(tmp_path), "--host", "worker-2"]) == 0
    assert "holds the others up" not in capsys.readouterr().out


@pytest.fixture
def bucket(tmp_path):
    """A logdir in fsspec's memory, with two runs."""
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    for second, works in (("2026_01_01_00_00_00", EVEN), ("2026_01_02_00_00_00", SLOW)):
        runs = (second, second[:-1] + "3", second)
        for file in hosts_of(tmp_path / second, works, runs=runs):
            files.pipe_file(f"/bucket/logs/plugins/profile/{file.parent.name}/{file.name}", file.read_bytes())
    yield "memory://bucket/logs"
    files.rm("/bucket", recursive=True)


def test_a_url_is_opened_as_a_path_is(bucket):
    fleet = profnb.load_fleet(bucket)
    assert fleet.stragglers == ("worker-1",)  # of the newest run, whose hosts lie in two folders
    assert len(fleet) == 3 and len(fleet["worker-0"].steps) == STEPS
    assert profnb.load_fleet(bucket, run="2026_01_01_00_00_00").stragglers == ()
    assert len(profnb.load(bucket, host="worker-1").steps) == STEPS
    file = f"{bucket}/plugins/profile/2026_01_02_00_00_00/worker-2.xplane.pb"
    assert len(profnb.load(file).steps) == STEPS
    assert find_fleet(bucket).stragglers == ("worker-1",)


@pytest.mark.parametrize(("names", "left"), [
    (("a.xplane.pb", "a.profnb.json.gz"), ("d.txt", "e.trace.json")),  # beside XPlane no other trace is read
    (("b.run_metadata.pb.gz", "b.run_metadata.pb.gz.profnb.json.gz", "c.pt.trace.json", "c.pt.trace.json.profnb.json.gz"), ("d.txt",)),
], ids=["XPlane", "others"])  # fmt: skip
def test_what_stands_beside_a_trace_comes_with_it_whatever_its_format(bucket, tmp_path, names, left):
    files = pytest.importorskip("fsspec").filesystem("memory")
    for name in names + left:
        files.pipe_file(f"/bucket/{tmp_path.name}/{name}", b"{}")
    with fetch_traces(f"memory://bucket/{tmp_path.name}") as folder:
        assert sorted(file.name for file in Path(folder).rglob("*.*")) == sorted(names)


def test_traces_under_a_url_are_summarized(bucket):
    rows = profnb.summarize(bucket)
    assert len(rows) == 6 and rows.path.str.startswith("memory://").all() and (rows.error == "").all()
    assert rows.steps.tolist() == profnb.summarize(list(rows.path)).steps.tolist()
    with pytest.raises(FileNotFoundError, match="memory://bucket/nowhere"):
        profnb.summarize("memory://bucket/nowhere")


def test_what_is_wrong_with_a_url_is_said(bucket, monkeypatch):
    with pytest.raises(FileNotFoundError, match="memory://bucket/nowhere"):
        profnb.load("memory://bucket/nowhere")
    with pytest.raises(ValueError, match="No run 'x'; found: 2026_01_01_00_00_00"):
        profnb.load(bucket, run="x")
    with pytest.raises((profnb.ProfnbError, ValueError)):
        profnb.load("nosuchprotocol://bucket/logs")
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
    with pytest.raises(profnb.ProfnbError, match="pip install fsspec gcsfs"):
        profnb.load("gs://bucket/logs")


def test_fsspec_is_imported_for_urls_only(tmp_path):
    import subprocess
    import sys

    hosts_of(tmp_path, SLOW)
    code = f"import sys, profnb; profnb.load_fleet({str(tmp_path)!r}).summary(); print('fsspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_a_pause_of_one_host_is_in_no_average_but_said(tmp_path):
    """A checkpoint of the chief's: its steps are no usual ones, and the others wait for it all the same."""
    chief = [10] * 24
    chief[7] = chief[17] = 400
    hosts_of(tmp_path, [chief, [11] * 24])
    fleet = profnb.load_fleet(tmp_path)
    assert "No host holds the others up" in fleet.verdict
    assert "Besides, worker-0 causes 2 pauses of 389 ms each. Averages leave the pauses out." in fleet.verdict
    assert set(fleet.hosts.step_ms) == {18.0}
    hosts_of(tmp_path / "alike", [chief, chief])  # nobody is waited for
    assert "pause" not in profnb.load_fleet(tmp_path / "alike").verdict


def test_lines_are_compared_without_what_all_exchange_in_them(tmp_path):
    """A line whose graph exchanges is longest on those who wait for the others."""
    source = SourceRecords(places=[("train.py", 8)], graphs=(GraphLines("train_step", ("work", REDUCE.partition(":")[0]), ("MatMul", "CollectiveReduceV2"), (0, 0), (False, False), {}),))
    found = []
    for file in hosts_of(tmp_path, SLOW):
        study = Study(read_trace(file), recording=Recording(path=None, source=source))
        assert study.source.lines.host_ps.max() > 400 * MS
        found.append(digest_study(study, "a", "", CaptureTime()).line_ps)
    assert [list(one.values()) for one in found] == [[10 * MS], [40 * MS], [12 * MS]]


def test_a_port_in_a_files_name_is_no_rank(tmp_path):
    """What TensorFlow's service wrote: ranks that nobody has are not missed."""
    for port, file in zip((6009, 27010, 6011), hosts_of(tmp_path, SLOW), strict=True):
        file.rename(file.with_name(f"localhost_{port}.xplane.pb"))
    fleet = profnb.load_fleet(tmp_path)
    assert list(fleet) == ["localhost_6009", "localhost_6011", "localhost_27010"] and fleet.stragglers == ("localhost_27010",)
    assert fleet.hosts["rank"].tolist() == [-1] * 3 and not any("no trace of rank" in note for note in fleet.notes)
    for one, file in enumerate(sorted(tmp_path.rglob("*.pb"))):
        file.rename(file.with_name(f"node_{2 * one}.xplane.pb"))
    assert any("no trace of rank 1, 3" in note for note in profnb.load_fleet(tmp_path).notes)
