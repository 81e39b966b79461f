"""What leaves holds no absolute path, host or user, and with ``--no-source`` no file of the user's: markers in every field, searched in every output."""

import base64
import gzip
import json
import platform
import re
import struct
import time
from array import array
from dataclasses import replace

import pytest
from traces import event, host, line, plane, ref, xspace

import profnb
from profnb.capture.parts.part_records import CellPart, CellRecords
from profnb.capture.recording import Recording
from profnb.capture.source.source_records import LineRecords, SourceRecords
from profnb.capture.step_records import StepRecords
from profnb.core import sharing
from profnb.core.options import CaptureOptions
from profnb.core.sharing import Sharing, short_path
from profnb.profile import Profile
from profnb.trace.files import read_trace

from made_hosts import SLOW, hosts_of

HOST, USER = "qhost-7f3.example.org", "qada"
PLACES = [
    f"/home/{USER}/qsecret/of/proj/qtrain.py", f"/Users/{USER}/qtop.py", f"/mnt/qnfs/deep/qdata/qshard.tfrecord-00001-of-00010",
    f"file:///home/{USER}/qsecret/qurl/qfile.csv", rf"C:\Users\{USER}\qwin\qcode\qw.py", "/opt/qroot/lib/python3.11/site-packages/keras/src/layer.py",
]  # fmt: skip
# What no output holds: roots of paths, hosts, users; and what none without source holds.
NEVER = re.compile(rf"{re.escape(HOST)}|qhost-7f3|\b{USER}\b|/home/|/Users/|/mnt/|/opt/|qsecret|qnfs|qroot|deep/|C:\\+Users")
FILES = re.compile(r"qtrain|qtop|qshard|qfile|\bqw\.py|qload|qdata|qbucket")
BARE = "qload.py", "gs://qbucket/qshard-00000-of-00003", "reader/qdata.parquet"


def everything(number):
    """A text with all markers."""
    return f"{number} on {HOST}: " + " ".join([*PLACES, *BARE, f"by {USER}@{HOST}"])


@pytest.fixture
def marked(tmp_path, monkeypatch):
    """A trace with markers in every field that one can carry, and what a capture saw beside it."""
    monkeypatch.setattr(platform, "node", lambda: HOST)
    monkeypatch.setattr(sharing, "_users", lambda: frozenset({USER}))
    names = iter(range(1000))
    text = lambda: everything(next(names))  # noqa: E731
    steps = [event("train_step", at * 100, 80, _r=1, step_num=at, tf_function_call="notTraced-nonXla") for at in range(6)]
    ops = [event(f"{text()}:MatMul", at * 100 + 5, 40, long_name=text(), tf_op=ref(text()), source=text(), by=ref(HOST), **{text(): 1}) for at in range(6)]
    reads = [event("Iterator::TFRecord", at * 100 + 50, 20, file=PLACES[2], element=text()) for at in range(6)]
    planes = [
        host(line("python", *steps, line_id=1), line(f"tf_{text()}", *ops, line_id=2), line(text(), *reads, line_id=3)),
        plane("/device:GPU:0 " + text(), line("Stream #1 " + text(), event(text(), 10, 5, hlo_op=text(), name=ref(text())))),
        plane("Task Environment", stats={"profile_start_time": 10**18, "profile_stop_time": 10**18 + 10**9, "hostname": ref(text()), "command_line": text()}),
    ]  # fmt: skip
    file = tmp_path / f"{HOST}.xplane.pb"
    file.write_bytes(xspace(*planes, hostnames=[HOST], errors=[text()]))

    def make(has_source):
        records = StepRecords()
        parts = [CellPart("callbacks", text(), 3, 9, 4, short_path(PLACES[0]), 2), CellPart("train steps", "fit", 6, 9, 4, "qload.py", 8)]
        source = SourceRecords(places=[(short_path(PLACES[0]), 3)], lines=LineRecords(files=["qload.py"]), texts={short_path(PLACES[0]): ("x = 1",)}) if has_source else None
        recording = Recording(
            steps=records, wall_ns=18, messages=[text()], environment={"Python": "3.11", "Where": text(), HOST: "1"}, cell=CellRecords(18, parts, cells={"qload.py": 3}),
            cardinalities={text(): 3}, file_counts={PLACES[2]: 60}, file_bytes={PLACES[2]: 60}, source=source,
        )  # fmt: skip
        recording.network_files.looks = recording.network_files.found = 3
        recording.network_files.mounts = {"/srv/qnfs/a/b (nfs)": 3}
        return Profile(read_trace(file), recording, CaptureOptions(source=has_source))

    return make


def outputs(p, folder):
    """Every form in which something of a profile leaves, with what is packed in it unpacked."""
    other = Profile(p.trace, p.recording, p.options)
    comparison = profnb.compare(p, other)
    pair = __import__("profnb.timeline.element", fromlist=["build_pair"]).build_pair(p.study, other.study, (PLACES[0], HOST))
    saved = p.save(folder / "logs")
    forms = {
        "page": p.to_html(folder / "page.html").read_text("utf-8"), "summary": p.summary(), "json": p.to_json(),
        "chrome": p.to_chrome_trace(folder / "t.json").read_text("utf-8"), "packed chrome": gzip.decompress(p.to_chrome_trace(folder / "t.json.gz").read_bytes()).decode(),
        "sidecar": gzip.decompress(saved.with_name(saved.name.removesuffix(".xplane.pb") + ".profnb.json.gz").read_bytes()).decode(),
        "saved name": saved.name, "saved": saved.read_bytes().decode("latin-1"), "comparison text": comparison.summary(), "pair": str(pair.html()) + pair.text, **dict(p._repr_mimebundle_()),
        **{f"comparison {form}": text for form, text in comparison._repr_mimebundle_().items()},
    }  # fmt: skip
    built = __import__("profnb.timeline.element", fromlist=["build_timeline"]).build_timeline(p.study)
    forms |= {"timeline": str(built.html()), "timeline text": built.text}
    for name, form in list(forms.items()):
        for at, packed in enumerate(re.findall(r'data-(?:timeline|marks)="([^"]+)"', form)):
            raw = gzip.decompress(base64.b64decode(packed))
            forms[f"{name} packed {at}"] = raw[4 : 4 + struct.unpack("<I", raw[:4])[0]].decode()
    return forms


@pytest.mark.parametrize("has_source", [True, False])
def test_no_output_holds_a_path_a_host_or_a_user_nor_without_source_a_file(marked, tmp_path, has_source):
    forms = outputs(marked(has_source), tmp_path)
    assert any("packed" in name for name in forms)
    pattern = NEVER if has_source else re.compile(f"{NEVER.pattern}|{FILES.pattern}")
    found = {name: sorted(set(pattern.findall(form))) for name, form in forms.items() if pattern.search(form)}
    assert not found, "\n".join(f"{name} {words} {forms[name][max(0, pattern.search(forms[name]).start() - 60) :][:200]!r}" for name, words in found.items())
    assert ("qtrain.py" in forms["page"]) == ("qload.py" in forms["chrome"]) == has_source
    assert "keras/src/layer.py" in forms["chrome"]  # whose code it is not


def test_a_fleet_names_its_hosts_and_no_path(tmp_path, monkeypatch):
    monkeypatch.setattr(sharing, "_users", lambda: frozenset({USER}))
    hosts_of(tmp_path, SLOW, slow_op=f"{PLACES[0]}:MatMul")
    fleet = profnb.load_fleet(tmp_path)
    fleet.first_notes.append(everything(1).replace(HOST, "worker-1"))
    forms = {"page": fleet.to_html(tmp_path / "f.html").read_text("utf-8"), "text": fleet.summary(), "json": fleet.to_json(), **fleet._repr_mimebundle_()}
    raw = gzip.decompress(base64.b64decode(re.search(r'data-timeline="([^"]+)"', forms["page"])[1]))
    forms["packed"] = raw[4 : 4 + struct.unpack("<I", raw[:4])[0]].decode()
    assert {name: sorted(set(NEVER.findall(form))) for name, form in forms.items() if NEVER.search(form)} == {}
    assert all("worker-1" in form for form in forms.values())


def test_a_saved_run_opens_as_what_was_saved(marked, tmp_path):
    for has_source in (True, False):
        p = marked(has_source)
        again = profnb.load(p.save(tmp_path / f"{has_source}"))
        assert again.options.source == has_source
        assert len(again.steps) == len(p.steps) and again.cell_breakdown.wall_ms.tolist() == p.cell_breakdown.wall_ms.tolist()


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/home/ada/train.py", "train.py"), ("/home/ada/proj/train.py", "proj/train.py"), ("/home/ada/a/b/train.py", "b/train.py"), ("/home/ada", "home"),
        ("/Users/ada/x/train.py", "x/train.py"), ("/root/train.py", "train.py"), ("/content/data/x.csv", "data/x.csv"), (r"C:\Users\ada\train.py", "train.py"),
        ("/usr/lib/python3.11/site-packages/numpy/core.py", "site-packages/numpy/core.py"), ("/usr/lib/python3.12/os.py", "lib/python3.12/os.py"), ("file:///data/x.csv", "data/x.csv"),
    ],
)  # fmt: skip
def test_a_path_is_told_by_its_end(path, short):
    assert short_path(path) == short
    assert Sharing().text(f"at {path}") == f"at {short}"


def test_of_a_path_or_file_that_was_cut_nothing_is_left():
    assert Sharing().text("at /mnt/disk/deep/qd… and /usr/lib/python3.11/os…") == "at … and lib/python3.11/os…"
    assert Sharing(has_files=False).text("deep/qd… of deep/qdata.csv, conv…") == "file1 of file1, conv…"


@pytest.mark.parametrize(
    "text",
    [
        "model/dense/MatMul", "!cp -r /content/drive/... data", "/content/drive (fuse.drive)", "/job:localhost/replica:0/task:0/device:CPU:0", "/host:CPU", "/device:GPU:0", "/device:GPU:0/stream:1", "and/or", "a / b / c", "1/2/3",
        "https://www.tensorflow.org/guide/data#x", '<a href="https://keras.io/api/x/">x</a></b></i>', "jit(step)/jvp(a)/b", "ops/s", "</div></div>", "gs://bucket/logs", "Iterator::Root::Map",
        "AB/CD/EF+/GH/IJ==", "tf.data", "p.to_html(path)", "train step of the model on the host", "0.5 ms/step", "keras/src/layers/core/dense.py", "\N{NO-BREAK SPACE}12 %",
    ],
)  # fmt: skip
def test_what_names_nobody_stays(text, monkeypatch):
    monkeypatch.setattr(sharing, "_users", lambda: frozenset())
    assert Sharing(("host", "train", "model", "localhost")).text(text) == text
    assert Sharing().encoded(text.encode()) == text.encode()


@pytest.mark.parametrize("text", ["p.ops.to_json()", "tf.data.Dataset", "loss.numpy()", "`--no-source`", "site-packages/keras/src/layer.py:3", "lib/python3.11/threading.py", "ms/step", "x.csv_writer", "2.21.0", "https://www.tensorflow.org/guide/data.json", "e.g. 3 of 4"])
def test_what_is_no_file_of_the_users_stays_without_source(text):
    assert Sharing(has_files=False).text(text) == text


def test_what_is_no_text_passes_as_it_is():
    piece = b'{"a":"/home/ada/x/y/\xff\xfe.py"}'
    assert Sharing().encoded(piece) == b'{"a":"y/\xff\xfe.py"}'


def test_files_without_source_are_told_apart():
    one = Sharing(has_files=False)
    assert one.text("train.py:3 reads data/a.csv, b.csv and data/a.csv") == "file1:3 reads file2, file3 and file2"
    assert one.text("/x/y/train.py") == "file4" and one.text("/x/lib/python3.11/site-packages/a.py") == "site-packages/a.py"


@pytest.mark.parametrize("number", [0, 1])
def test_whoever_asks_in_the_kernel_sees_what_was_recorded(marked, number):
    p = marked(bool(number))
    assert p.events.name.str.contains(HOST, regex=False).any() and p.events.name.str.contains(PLACES[0], regex=False).any()
