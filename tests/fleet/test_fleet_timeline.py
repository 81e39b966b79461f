"""Several hosts on one axis of time: where their events stand, by how much that may be wrong, and what is left out."""

import gzip
import re
from base64 import b64decode

import pytest

import profnb
from traces import event, host, line, xspace
from made_hosts import EVEN, EXCHANGE, MS, SLOW, STEPS, hosts_of
from profnb.fleet.fleet_timeline import build_fleet_timeline
from profnb.fleet.fleet_timeline import EXCHANGE as EXCHANGING
from profnb.fleet.fleet_timeline import OWN_WORK, join_hosts
from profnb.many_traces import fleets


def joined(fleet, has_threads=True):
    studies = [fleet[host].study if has_threads else None for host in fleet]
    return join_hosts(fleet._merged, list(fleet), studies)


def rows_of(study, line, name):
    trace = study.trace
    at = [trace.lines.names[row] for row in range(len(trace.lines))].index(line)
    events = range(trace.lines.offsets[at], trace.lines.offsets[at + 1])
    chosen = [one for one in events if trace.names[trace.events.name[one]] == name]
    return trace.events.begin_ps[chosen], trace.events.end_ps[chosen]


@pytest.mark.parametrize("shifts", [(0, 0, 0), (0, 3, -86400), (86400, -1, 0)])
def test_hosts_stand_where_one_clock_would_put_them(tmp_path, shifts):
    """worker-1 works 42 ms of each step, the others wait for it: all leave together, whatever their clocks say."""
    hosts_of(tmp_path, SLOW, shifts=shifts)
    study = joined(profnb.load_fleet(tmp_path))
    left = {}
    for host, work in (("worker-0", 12), ("worker-1", 42), ("worker-2", 14)):
        begin, end = rows_of(study, host, OWN_WORK)
        assert (end - begin).tolist() == [work * MS] * (STEPS - 1)
        entered, left[host] = rows_of(study, host, EXCHANGING)
        assert (left[host] - entered).tolist() == [EXCHANGE * MS] * (STEPS - 1)
        assert (entered - end).tolist() == [(42 - work) * MS] * (STEPS - 1)  # blank: it waits
    assert left["worker-0"].tolist() == left["worker-1"].tolist() == left["worker-2"].tolist()
    assert study.steps.end_ps.tolist() == left["worker-0"].tolist()
    assert study.steps.step_num.tolist() == list(range(1, STEPS))


def test_threads_stand_behind_the_lines_of_all_hosts_on_the_same_clock(tmp_path):
    hosts_of(tmp_path, SLOW, shifts=(0, 3, -86400))
    fleet = profnb.load_fleet(tmp_path)
    study = joined(fleet)
    trace = study.trace
    planes = [trace.planes[plane].name for plane in trace.lines.plane.tolist()]
    assert planes == ["", "", ""] + ["worker-0"] * 3 + ["worker-1"] * 3 + ["worker-2"] * 3
    ends = {}
    for event in range(len(trace.events)):
        name = trace.names[trace.events.name[event]]
        if name.startswith("CollectiveReduce"):
            ends.setdefault(planes[trace.lines.of_event[event]], []).append(int(trace.events.end_ps[event]))
    assert sorted(ends["worker-0"]) == sorted(ends["worker-1"]) == sorted(ends["worker-2"])
    # Every event keeps its category and its stats.
    own = fleet["worker-1"].study
    assert sum(len(fleet[host].trace.events) for host in fleet) == int((trace.lines.plane[trace.lines.of_event] > 0).sum())
    keys = [study.trace.stats.of_event(event).get("instance_key") for event in range(len(trace.events))]
    assert sorted(key for key in keys if key is not None) == sorted([*range(STEPS)] * 3)
    named = {trace.names[trace.events.name[event]]: int(study.categories[event]) for event in range(len(trace.events))}
    for event in range(len(own.trace.events)):
        assert named[own.trace.names[own.trace.events.name[event]]] == int(own.categories[event])


def test_threads_of_hosts_that_are_alike_stand_in_one_order(tmp_path):
    """Two pools; which of them did more differs from host to host, and the names end in numbers of their own."""
    files = []
    for one, (compute, data) in enumerate(((9, 4), (3, 8), (9, 8))):
        begin = [at * 20 * MS for at in range(8)]
        calls = [event("train_step", b, 18 * MS, step_num=at, _r=1) for at, b in enumerate(begin)]
        work = [event("work:MatMul", b, compute * MS) for b in begin]
        fetch = [event("fetch:Cast", b, data * MS) for b in begin]
        meet = [event("r:CollectiveReduceV2", b + 10 * MS, 5 * MS, instance_key=at, group_key=1) for at, b in enumerate(begin)]
        lines = [line(f"tf_data/{one + 77}", *fetch, line_id=5), line("python", *calls, line_id=1), line(f"tf_Compute/{900 - one}", *work, line_id=2), line(f"ops-{one}", *meet, line_id=3)]
        file = tmp_path / f"worker-{one}.xplane.pb"
        file.write_bytes(xspace(host(*lines), hostnames=[f"worker-{one}"]))
        files.append(file)
    fleet = profnb.load_fleet(files)
    trace = joined(fleet).trace
    names = [trace.lines.names[row].rstrip("0123456789/-") for row in range(3, len(trace.lines))]
    assert names == ["python", "tf_Compute", "tf_data", "ops"] * 3


def test_what_the_clocks_may_be_wrong_by_is_said_first(tmp_path):
    hosts_of(tmp_path, SLOW, shifts=(0, 3, 0))
    fleet = profnb.load_fleet(tmp_path)
    built = build_fleet_timeline(fleet._merged, list(fleet), [None] * 3, ["mine"])
    # Nobody leaves before all have entered: worker-1 comes last, 35 ms after worker-0, and leaves 5 ms later.
    assert "worker-1 up to 35.0 ms earlier or 5.00 ms later" in built.text
    assert "mine" in built.text and "mine" in built.html()
    assert "fleet['worker-0'].timeline() shows the threads of one" in built.text


def test_a_picture_of_text_shows_who_the_others_wait_for(tmp_path, capsys):
    hosts_of(tmp_path, SLOW)
    profnb.load_fleet(tmp_path).timeline()
    told = capsys.readouterr().out
    busy = {row.split()[0]: float(re.search(r"([\d.]+) %", row)[1]) for row in told.splitlines() if re.match(r"worker-\d +\|", row)}
    assert busy["worker-1"] > 90 > 40 > busy["worker-2"] > busy["worker-0"]
    assert "worker-1 tf_Compute" in told


def test_many_hosts_are_a_line_each(tmp_path, capsys):
    hosts_of(tmp_path, [[10] * STEPS] * 9 + [[40] * STEPS])
    fleet = profnb.load_fleet(tmp_path)
    fleet.timeline()
    told = capsys.readouterr().out
    assert "tf_Compute" not in told and "are left out" in told and "; 1 more by less" in told
    study = joined(fleet, has_threads=False)
    assert len(study.trace.lines) == 10


def test_large_traces_are_a_line_each(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fleets, "_LARGEST_OPENED", 1000)
    hosts_of(tmp_path, EVEN)
    profnb.load_fleet(tmp_path).timeline()
    assert "tf_Compute" not in capsys.readouterr().out


def test_hosts_that_did_not_meet_have_no_common_timeline(tmp_path, capsys):
    files = hosts_of(tmp_path, EVEN)
    other = hosts_of(tmp_path / "other", EVEN, instance=500)
    files[1].write_bytes(other[1].read_bytes())
    profnb.load_fleet(files[:2]).timeline()
    assert "nothing to join the clocks by" in capsys.readouterr().out


def test_names_of_hosts_are_data_there_too(tmp_path):
    for at, file in enumerate(hosts_of(tmp_path, SLOW)):
        file.rename(file.with_name(f"<b>{at}\x1b[2J.xplane.pb"))
    fleet = profnb.load_fleet(tmp_path)
    built = build_fleet_timeline(fleet._merged, list(fleet), [fleet[host].study for host in fleet], fleet.notes)
    html = str(built.html())
    assert not re.search(r"<b>\d", html) and "&lt;b&gt;" in html and "\x1b" not in html + built.text
    packed = re.search(r'data-timeline="([^"]+)"', html)[1]
    assert OWN_WORK.encode() in gzip.decompress(b64decode(packed))


def test_the_magic_shows_the_timeline_of_all_hosts_and_of_one(tmp_path, capsys):
    from IPython.core.interactiveshell import InteractiveShell

    from profnb.magics import ProfnbMagics

    hosts_of(tmp_path, SLOW)
    shell = InteractiveShell.instance()
    try:
        magics = ProfnbMagics(shell)
        magics.tftimeline_line(str(tmp_path))
        assert "worker-2 tf_Compute" in capsys.readouterr().out
        magics.tftimeline_line(f"{tmp_path} --host worker-2")
        assert "worker-2 tf_Compute" not in capsys.readouterr().out
    finally:
        type(shell).clear_instance()


def test_a_page_has_the_timeline_unless_it_is_not_wanted_or_not_possible(tmp_path):
    files = hosts_of(tmp_path / "run", SLOW)
    fleet = profnb.load_fleet(tmp_path / "run")
    page = fleet.to_html(tmp_path / "page.html").read_text("utf-8")
    assert "Events may lie off the drawn place" in page  # said above the picture
    programs = re.findall(r"<script>", page)
    assert len(programs) == 2 == len(re.findall(r"sha256-", page))  # each by its own sum
    alone = fleet.to_html(tmp_path / "alone.html", timeline=False).read_text("utf-8")
    assert "Events may lie off" not in alone and len(re.findall(r"<script>", alone)) == 1
    for file in files:  # the hosts' parts are known, their traces gone
        file.unlink()
    gone = fleet.to_html(tmp_path / "gone.html").read_text("utf-8")
    assert "missing traces" in gone and "worker-1 holds the others up" in gone
