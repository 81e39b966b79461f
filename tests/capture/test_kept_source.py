"""What of the user's source, paths and machine is in a result that is shared."""

import gzip
import importlib.util
import os
import re
import socket
import stat
import sys
import textwrap

import numpy as np
import pytest

import profnb
from profnb.capture.source.user_code import keep_near, shorten_files
from profnb.capture.source.user_code import is_user_file

TEXT = textwrap.dedent("""\
    SECRET = 1
    import tensorflow as tf

    def one(x):
        # above
        y = x + 1
        z = y
        return z
    def two():
        return SECRET
    class Model:
        @decorated
        def call(self):
            return 5
        other = 6

    one(3)
    LAST = 2
    """).splitlines()


@pytest.mark.parametrize(("timed", "kept"), [
    ([6], [4, 5, 6, 7, 8]), ([8], [6, 7, 8]), ([10], [9, 10]), ([14], [12, 13, 14]), ([15], [15]), ([17], [16, 17, 18]), ([], []), ([1], [1, 2, 3]),
    ([99, 0, -1], []), ([4], [4, 5, 6]),
])  # fmt: skip
def test_a_line_stays_with_two_around_it_in_its_own_function(timed, kept):
    shown = keep_near(TEXT, timed)
    assert shown == tuple(text if at in kept else "" for at, text in enumerate(TEXT, 1))


def test_a_cell_with_magics_is_python_and_what_is_none_keeps_the_lines_alone():
    cell = ["%%tfprofile", "!pip list", "secret = 1", "", "def f():", "    %time g()", "    return 2", "f()"]
    assert [at for at, text in enumerate(keep_near(cell, [7]), 1) if text] == [5, 6, 7]
    assert [at for at, text in enumerate(keep_near(["secret(", "x = = 1", "token"], [2]), 1) if text] == [2]


def test_files_are_named_from_the_working_folder_or_their_package_on(tmp_path):
    package = tmp_path / "home" / "alice" / "lib" / "models" / "big"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    here = tmp_path / "home" / "alice" / "project"
    files = {
        str(here / "train.py"): "train.py",
        str(here / "data" / "read.py"): "data/read.py",
        str(package / "net.py"): "models/big/net.py",
        str(tmp_path / "home" / "bob" / "tools" / "train.py"): "tools/train.py",
        str(tmp_path / "home" / "carol" / "tools" / "train.py"): "tools/train.py (2)",
        np.__file__: "site-packages/numpy/__init__.py",
        os.__file__: f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/os.py",
        "<ipython-input-3-abc>": "<ipython-input-3-abc>",
        "/tmp/ipykernel_77/123.py": "ipykernel_77/123.py",
    }
    assert shorten_files(files, str(here)) == files
    assert {file: is_user_file(file) for file in files} == {file: is_user_file(name) for file, name in files.items()}


PROGRAM = '''
TOP = "hunter2-top"

def unused():
    return "hunter2-unused"

def work(x):
    y = x @ x
    return y + 1








TAIL = "hunter2-tail"
'''


@pytest.mark.tensorflow
@pytest.mark.parametrize("source", [True, False])
def test_a_result_holds_no_line_that_did_not_run_no_path_and_no_host(tmp_path, monkeypatch, source):
    tf = pytest.importorskip("tensorflow")
    (tmp_path / "alices").mkdir()
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "alices" / "helper.py"
    file.write_text(PROGRAM)
    spec = importlib.util.spec_from_file_location("helper", file)
    helper = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(helper)
    work = tf.function(helper.work)
    with profnb.profile(source=source, python=True, logdir=str(tmp_path / "logs")) as p:
        for _ in range(6):
            work(tf.ones((60, 60)))
    sidecar = next((tmp_path / "logs").rglob("*.profnb.json.gz"))
    html = p.to_html(tmp_path / "report.html").read_text("utf-8")
    forms = {"page": html, "notebook": str(p._repr_mimebundle_()), "sidecar": gzip.decompress(sidecar.read_bytes()).decode(), "text": p.summary()}
    home = re.escape(str(tmp_path))
    for name, text in forms.items():
        assert re.findall(r"hunter2-\w+", text) == [], name
        assert re.findall(rf"{home}|{re.escape(sys.prefix)}/|/home/\w+|/root/", text) == [], name
        assert not re.search(rf">[^<]*\b{re.escape(socket.gethostname())}\.xplane", text), name
    assert ("y = x @ x" in html) == source
    assert ("alices/helper.py" in html) == source
    foot = re.search(r'<div class="profnb-foot"[^>]*>([^<]*)</div>', html).group(1)
    assert ("no source code" in foot) != source
    assert ("--no-source hides your code" in foot) == source
    again = profnb.load(next((tmp_path / "logs").rglob("*.xplane.pb")))
    assert again.source_lines.source.tolist() == p.source_lines.source.tolist()


@pytest.mark.tensorflow
@pytest.mark.parametrize(("umask", "trace", "beside"), [(0o022, 0o644, 0o640), (0o077, 0o600, 0o600)])
def test_files_have_the_users_umask_and_what_holds_source_is_not_for_all(tmp_path, umask, trace, beside):
    tf = pytest.importorskip("tensorflow")
    before = os.umask(umask)
    try:
        with profnb.profile(logdir=str(tmp_path / "logs")) as p:
            for _ in range(3):
                tf.function(lambda: tf.ones(3) + 1)()
        page = p.to_html(tmp_path / "x.html")
    finally:
        os.umask(before)
    mode = lambda path: stat.S_IMODE(path.stat().st_mode)  # noqa: E731
    assert mode(p.recording.path) == mode(page) == trace
    assert mode(next(tmp_path.rglob("*.profnb.json.gz"))) == beside
    assert mode(p.recording.path.parent) == 0o777 & ~umask


def test_where_parts_of_a_cell_stand_is_named_as_its_source_is(tmp_path):
    from profnb.capture.parts.part_records import CellPart, CellRecords, shorten_parts

    cell, module = "/tmp/ipykernel_7/123.py", f"{tmp_path}/work/train.py"
    parts = [CellPart("train steps", "fit", 3, 9, 4, cell, 2), CellPart("callbacks", "Slow.on_epoch_end", 1, 5, 5, module, 8), CellPart("gaps", "", 2, 1, 1)]
    short = shorten_parts(CellRecords(15, parts, cells={cell: 4, "/tmp/ipykernel_7/9.py": 3}), str(tmp_path))
    assert [part.file for part in short.parts] == ["ipykernel_7/123.py", "work/train.py", ""]
    assert short.cells == {"ipykernel_7/123.py": 4}
    assert [part.wall_ns for part in short.parts] == [9, 5, 1]
