"""What stands around a trace: pipes, links to nothing, files without end, servers that are hostile, folders of processes that died."""

import asyncio
import contextlib
import gzip
import http.server
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import pytest

import profnb
from profnb.__main__ import main
from profnb.core.printable import for_terminal
from profnb.core.units import longer_text, range_text
from profnb.core.safe_files import folder_prefix, remove_leftovers
from profnb.trace import files as trace_files
from profnb.trace import remote_files
from profnb.trace.remote_files import fetch_traces

from made_hosts import SLOW, hosts_of

NAMES = ("a.xplane.pb", "a.trace.json.gz", "timeline.json", "a.prof", "a.lite.json.gz", "a.run_metadata.pb")


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        here = os.getcwd()
        os.chdir(path.parent)  # the path of a socket may have 108 bytes
        try:
            one.bind(path.name)
        finally:
            os.chdir(here)


def make_device(path):
    path.symlink_to("/dev/zero")


def make_folder(path):
    path.mkdir()


KINDS = {"a pipe": make_pipe, "a socket": make_socket, "a device": make_device}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_file_is_named_and_not_waited_for(tmp_path, kind, name):
    KINDS[kind](tmp_path / name)
    with pytest.raises(profnb.TraceFormatError, match=f"{name} is {kind}"):
        profnb.load(tmp_path / name)
    with pytest.raises(profnb.ProfnbError):
        profnb.load(tmp_path)


@pytest.mark.parametrize("name", ["m.tflite", "m.keras"])
def test_a_model_that_is_no_file_is_named_too(tmp_path, name):
    make_pipe(tmp_path / name)
    with pytest.raises(profnb.TraceFormatError, match=f"{name} is a pipe"):
        profnb.lite(tmp_path / name)


@pytest.mark.parametrize("kind", [*KINDS, "a link to nothing"])
def test_a_good_trace_opens_beside_what_is_no_file(tmp_path, cpu_trace_path, kind):
    shutil.copy(cpu_trace_path, tmp_path / "good.xplane.pb")
    for name in NAMES:
        KINDS.get(kind, lambda path: path.symlink_to("nowhere"))(tmp_path / name)
    assert len(profnb.load(tmp_path).steps) == 8
    (tmp_path / "good.profnb.json.gz").symlink_to("nowhere")
    assert profnb.load(tmp_path).recording is None


def test_a_link_to_nothing_is_said_to_be_one(tmp_path):
    (tmp_path / "a.xplane.pb").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match="a link to nothing"):
        profnb.load(tmp_path / "a.xplane.pb")
    with pytest.raises(profnb.TraceFormatError, match="No .*xplane.pb"):
        profnb.load(tmp_path)


def test_a_link_to_a_trace_is_one(tmp_path, cpu_trace_path):
    (tmp_path / "a.xplane.pb").symlink_to(cpu_trace_path)
    assert len(profnb.load(tmp_path).steps) == len(profnb.load(tmp_path / "a.xplane.pb").steps) == 8


@pytest.mark.parametrize("name", NAMES[:4])
def test_a_file_that_is_larger_than_what_is_read_is_refused_with_the_bound(tmp_path, name):
    with (tmp_path / name).open("wb") as file:
        try:
            file.truncate(200_000_000_000)
        except OSError:
            pytest.skip("needs a file system with sparse files")
    with pytest.raises(profnb.TraceFormatError, match=r"has 200\.0 GB; at most (2\.1|0\.3) GB"):
        profnb.load(tmp_path / name)


ZEROS_WITHIN = """
import gzip, resource, sys
import profnb, numpy, profnb.trace.files
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    profnb.load(sys.argv[1])
except profnb.TraceFormatError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("begin", [b"[", b"\0"])
def test_a_gzip_of_gigabytes_is_refused_in_less_than_one(tmp_path, begin):
    bomb = tmp_path / "a.trace.json.gz"
    member = gzip.compress(b" " * (1 << 26), 1)
    bomb.write_bytes(gzip.compress(begin) + member * 48)
    done = subprocess.run([sys.executable, "-c", ZEROS_WITHIN, str(bomb)], capture_output=True, text=True, check=True)
    said, peak = done.stdout.splitlines()
    assert "more than 2.1 GB when decompressed" in said
    assert int(peak) < 1 << 30


def test_a_gzip_that_is_much_and_not_too_much_is_read_whole(tmp_path, cpu_trace_path, monkeypatch):
    monkeypatch.setattr(trace_files, "_SURE_BYTES", 1000)
    monkeypatch.setattr(trace_files, "_BYTES_AT_ONCE", 5000)
    raw = cpu_trace_path.read_bytes()
    third = len(raw) // 3
    members = raw[:third], raw[third : 2 * third], raw[2 * third :]
    for parts in ([raw], members):
        (tmp_path / "a.xplane.pb").write_bytes(b"".join(map(gzip.compress, parts)))
        assert trace_files.read_trace(tmp_path / "a.xplane.pb").recorded.tobytes() == raw
        assert len(profnb.load(tmp_path / "a.xplane.pb").steps) == 8


# A listing of somebody else's.


def listing(fsspec, names, body=b"{}", error=None):
    """A file system of fsspec's that says what a test has it say."""

    class Hostile(fsspec.AbstractFileSystem):
        protocol = "hostile"
        cachable = False

        def ls(self, path, detail=True, **_):
            return list(names(path))

        def info(self, path, **_):
            return {"name": path, "type": "directory" if not path.endswith(".pb") else "file", "size": len(body)}

        def exists(self, path, **_):
            return True

        def isfile(self, path):
            return path.endswith(".pb")

        def get_file(self, name, target, callback=None, **_):
            if error is not None:
                raise error
            callback.set_size(len(body))
            Path(target).write_bytes(body)

    fsspec.register_implementation("hostile", Hostile, clobber=True)


@pytest.fixture
def fsspec():
    return pytest.importorskip("fsspec")


@pytest.mark.parametrize("folder", ["logs/..", "logs/../..", "..", ".", "logs/..\\..", "logs/a:b", ""])
def test_no_name_of_a_listing_leads_out_of_the_temporary_folder(fsspec, tmp_path, monkeypatch, folder):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names = [f"{folder}/{name}".lstrip("/") for name in ("a.xplane.pb", "..xplane.pb", "b\n.xplane.pb")]
    listing(fsspec, lambda _: [{"name": name, "type": "file"} for name in names])
    with fetch_traces("hostile://logs") as folder:
        (inside,) = tmp_path.iterdir()
        assert inside == Path(folder)
        (place,) = inside.iterdir()
        assert len(list(place.iterdir())) == 3 and place.name not in (".", "..")
    assert list(tmp_path.iterdir()) == []


def test_two_folders_called_alike_stay_two(fsspec):
    run = "2026_01_01_00_00_00"

    def listed(path):
        if path == "logs":
            return [{"name": f"logs/{one}", "type": "directory"} for one in "xy"]
        if path.endswith(run):
            return [{"name": f"{path}/a.xplane.pb", "type": "file"}]
        return [{"name": f"{path}/{run}", "type": "directory"}]

    listing(fsspec, listed)
    with fetch_traces("hostile://logs") as folder:
        assert len(list(Path(folder).rglob("*.pb"))) == 2


def test_a_listing_without_end_is_refused_with_the_bound(fsspec, monkeypatch):
    monkeypatch.setattr(remote_files, "_MOST_LISTED", 100)
    deeper = lambda path: [{"name": f"{path}/{name}", "type": "directory"} for name in "ab"]  # noqa: E731
    listing(fsspec, deeper)
    for ask in (profnb.load, profnb.summarize, profnb.load_fleet):
        with pytest.raises(profnb.TraceFormatError, match="More than 100 files and folders at hostile://logs"):
            ask("hostile://logs")


def test_a_copy_without_end_is_refused_with_the_bound(fsspec, monkeypatch):
    monkeypatch.setattr(remote_files, "_LARGEST_FILE", 1_000_000)
    listing(fsspec, lambda path: [{"name": "logs/a.xplane.pb", "type": "file"}], bytes(1_000_001))
    with pytest.raises(profnb.TraceFormatError, match=r"More than 0\.0 GB at hostile://logs"):
        profnb.load("hostile://logs")


class DroppedError(Exception):
    """As aiohttp's ClientPayloadError, no OSError."""


@pytest.mark.parametrize("error", [DroppedError("Response payload is not completed"), asyncio.TimeoutError(), OSError(24, "Too many open files"), RuntimeError("loop is closed")])
def test_what_a_package_of_others_raises_is_a_sentence(fsspec, error, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    listing(fsspec, lambda path: [{"name": "logs/a.xplane.pb", "type": "file"}], error=error)
    with pytest.raises(profnb.ProfnbError, match=f"Reading hostile://logs failed \\({type(error).__name__}: .*\\). Try again"):
        profnb.load("hostile://logs")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_of_a_copy_is_one(fsspec):
    listing(fsspec, lambda path: [{"name": "logs/a.xplane.pb", "type": "file"}], error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        profnb.load("hostile://logs")


@pytest.mark.parametrize("url", ["reference://", "reference://nowhere", "dir://a", "zip://a.pb", "nosuch://a", "http://[", "http://localhost:1/logs", "://"])
def test_any_protocol_that_cannot_be_opened_is_a_sentence(fsspec, url):
    with pytest.raises((profnb.ProfnbError, FileNotFoundError)) as caught:
        profnb.load(url)
    assert "\n" not in str(caught.value)


def serve(answer):
    """A web server on this machine that gives each request the same bytes, without end if that is so."""

    class Answering(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(200)
            self.end_headers()

        def do_GET(self):
            with contextlib.suppress(OSError):  # they have heard enough
                for piece in answer():
                    self.wfile.write(piece)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return closing_server(server), f"http://127.0.0.1:{server.server_port}/logs/"


@contextlib.contextmanager
def closing_server(server):
    yield
    server.shutdown()
    server.server_close()


def test_a_page_of_names_without_end_is_refused_with_the_bound(fsspec, monkeypatch):
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(remote_files, "_LARGEST_PAGE", 1 << 20)

    def endless():
        yield b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n"
        while True:
            yield b'<a href="run/">run</a>' * 1000

    server, url = serve(endless)
    with server, pytest.raises(profnb.TraceFormatError, match="More than 1 MB of names on a page"):
        profnb.load(url)


def test_a_connection_that_drops_is_a_sentence(fsspec):
    pytest.importorskip("aiohttp")
    server, url = serve(lambda: [b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n<a"])
    with server, pytest.raises(profnb.ProfnbError, match="failed"):
        profnb.load(url)


# What a process that died left.


def test_the_temporary_folders_of_processes_that_died_are_removed_and_no_others(tmp_path):
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True).stdout.strip()
    machine = folder_prefix().split("-")[1]
    left = [f"profnb-{machine}-{gone}-abc", f".profnb-{machine}-{gone}-abc"]
    stay = [f"{folder_prefix()}abc", f"profnb-{machine}-1-abc", f"profnb-00000000-{gone}-abc", "profnb-abcdefgh", f"profnb-{machine}-x-abc", f"my-profnb-{machine}-{gone}-abc", f"profnb-{machine}-{'9' * 30}-abc"]
    for name in (*left, *stay[:-1]):
        (tmp_path / name / "plugins").mkdir(parents=True)
    (tmp_path / f"profnb-{machine}-{gone}-link").symlink_to(tmp_path / stay[0])
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*stay[:-1], f"profnb-{machine}-{gone}-link"}
    remove_leftovers(tmp_path / "nowhere")


def test_loading_removes_what_a_killed_kernel_left(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = "import os, tempfile\nfrom profnb.core.options import CaptureOptions\nfrom profnb.capture.profiler.doors import Doors\nprint(Doors(CaptureOptions(), []).make_folder())\nos.kill(os.getpid(), 9)"
    died = subprocess.run([sys.executable, "-u", "-c", code], capture_output=True, text=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    folder = Path(died.stdout.strip())
    assert died.returncode == -9 and folder.parent == tmp_path and folder.is_dir()
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    profnb.load_ipython_extension(shell)
    profnb.unload_ipython_extension(shell)
    assert not folder.exists()


# Where what is said goes.


@pytest.fixture
def evil_hosts(tmp_path):
    """Three hosts, a run and files with a newline in their names."""
    evil = "x\nINJECTED\x1b[31m"
    run = f"run{evil}"
    for file in hosts_of(tmp_path, SLOW, runs=(run,) * 3, hostname=f"{{}}{evil}"):
        file.rename(file.with_name(f"{evil}{file.name}"))
    return tmp_path


def test_a_newline_in_the_name_of_a_host_a_run_or_a_file_breaks_no_line(evil_hosts, capsys):
    p, fleet = profnb.load(evil_hosts), profnb.load_fleet(evil_hosts)
    forms = [p.summary(), fleet.summary(), *p.notes, *fleet.notes, repr(p), repr(fleet), p.to_json(), fleet.to_json()]
    for arguments in (["report", "--list"], ["report"], ["report", "--host", "nobody"], ["timeline"], ["table", "steps"]):
        main([arguments[0], str(evil_hosts), *arguments[1:]])
        forms += capsys.readouterr()
    for name in ("nobody", "x\ny"):
        for keyword in ("run", "host"):
            with pytest.raises(ValueError) as caught:
                profnb.load(evil_hosts, **{keyword: name})
            forms.append(str(caught.value))
    assert all("INJECTED" in form for form in (p.summary(), fleet.summary()))
    assert [form for form in forms if "\nINJECTED" in form or "\x1b" in form] == []
    assert "\n" not in p.save(evil_hosts / "out").name


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "utf-8"])
def test_all_that_is_said_is_shown_in_a_terminal_of_any_encoding(cpu_trace_path, tmp_path, monkeypatch, encoding):
    hosts_of(tmp_path, SLOW)
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    p = profnb.load(cpu_trace_path)
    p.report()
    p.timeline()
    print(p, p.summary(), profnb.compare(p, p).summary(), profnb.load_fleet(tmp_path).summary(), p._repr_mimebundle_()["text/plain"])
    assert main(["report", str(cpu_trace_path)]) == main(["timeline", str(cpu_trace_path)]) == 0
    out.flush()
    said = out.buffer.getvalue().decode(encoding)
    assert ("█" if encoding in ("utf-8", "cp437") else "####") in said and "?" not in said
    assert ("—" in said) == (encoding == "utf-8")


def test_nothing_is_simplified_where_nothing_need_be(monkeypatch):
    text = "µs · 12 % — █▏ käse 日本"
    assert for_terminal(text) == text
    monkeypatch.setattr(sys, "stdout", None)
    assert for_terminal(text) == text


@pytest.mark.parametrize("arguments", [["report"], ["report", "--json"], ["table", "events", "--json"], ["timeline"]])
def test_output_piped_to_head_ends_without_a_word(cpu_trace_path, monkeypatch, capsys, arguments):
    reading, writing = os.pipe()
    os.close(reading)  # who read it has ended already
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert main([arguments[0], str(cpu_trace_path), *arguments[1:]]) == 141
        print("more that nobody reads")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("closed", ["sys.stdout = open('/dev/null', 'w'); sys.stdout.close()", "sys.stdout.close(); sys.__stdout__ = None"])
def test_a_cell_that_closes_the_output_ends_as_without_us(monkeypatch, closed):
    """IPython would tell of the error that showing the report raises, on the same output, and fail itself."""
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "__stdout__", own := io.StringIO())
    profnb.load_ipython_extension(shell)
    try:
        assert shell.run_cell(f"%%tfprofile\nimport sys\n{closed}").success
    finally:
        profnb.unload_ipython_extension(shell)
    assert len(shell.user_ns["_tfprofile"].notes) == 1
    assert ("profnb" in own.getvalue()) == ("__" not in closed)


# What of the process is the user's.


CHILDREN = {"subprocess.Popen", "os.system", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "pty.spawn"}


@pytest.fixture
def children():
    """What is started meanwhile, in any thread, and how many SIGCHLD come to a handler of the user's."""
    pytest.importorskip("tensorflow")  # which starts one itself when it is imported
    started, signals, is_on = [], [], [True]
    sys.addaudithook(lambda event, arguments: is_on[0] and event in CHILDREN and started.append([event, repr(arguments), *traceback.format_stack()]))
    before = signal.signal(signal.SIGCHLD, lambda *_: signals.append(1))
    yield started, signals
    signal.signal(signal.SIGCHLD, before)
    is_on[0] = False


@pytest.mark.tensorflow
@pytest.mark.parametrize("line", ["", "--python", "--repeat 2", "-d {}"])
def test_a_capture_starts_no_child_process(children, tmp_path, line):
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell.instance()
    profnb.load_ipython_extension(shell)
    try:
        cell = "import tensorflow as tf\nf = tf.function(lambda x: tf.linalg.matmul(x, x))\nfor _ in range(4): f(tf.ones((8, 8)))"
        assert shell.run_cell(f"%%tfprofile {line.format(tmp_path)}\n{cell}").success
        p = shell.user_ns["_tfprofile"]
        assert len(p.steps) == 4
        p.to_html(tmp_path / "page.html")
    finally:
        profnb.unload_ipython_extension(shell)
        type(shell).clear_instance()
    started, signals = children
    assert not started, "".join(started[0])
    assert not signals


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.08, None, "8.0 % longer"), (0.08, 0.12, "8.0 % to 12.0 % longer"), (0.08, 0.0801, "8.0 % longer"), (32.0, 32.1, "33 times as long"), (32.0, 40.4, "33 to 41 times as long"), (3.0, None, "4 times as long"), (0.0, 0.0, "0.0 % longer")],
)
def test_how_much_longer_something_takes_is_said_once_and_as_people_say_it(low, high, said):
    assert longer_text(low, high) == said
    assert longer_text(low, high, "that") == said + (" than that" if said.endswith("longer") else " as that")
    assert range_text("1.02", "1.02") == "1.02" and range_text("1.02", "1.03") == "1.02 to 1.03"


@pytest.mark.tensorflow
def test_a_cell_that_uses_up_all_files_still_has_its_report():
    """In a process of its own, in which nothing that a report needs is imported yet."""
    pytest.importorskip("tensorflow")
    done = subprocess.run([sys.executable, "-c", NO_MORE_FILES], capture_output=True, text=True)
    assert "Too many open files" in done.stdout and "Error in callback" not in done.stdout
    assert "4 of 4" in done.stdout and done.stdout.rstrip().endswith("0 left")


NO_MORE_FILES = """
import os, resource, threading, time
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
import tensorflow as tf
import profnb
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
history = Config(HistoryManager={"enabled": False})  # whose thread opens a journal now and then
shell = InteractiveShell.instance(config=history)
shell.colors = "NoColor"
profnb.load_ipython_extension(shell)
tf.function(lambda x: x)(1)  # TensorFlow 2.15 leaves one open for itself
def settled():  # what compiles in the background has files open now and then
    [thread.join(60) for thread in threading.enumerate() if thread.name.startswith("profnb")]
    counts = []
    for _ in range(20):
        counts.append(len(os.listdir("/proc/self/fd")))
        time.sleep(0.05)
    return min(counts)
before = settled()
shell.run_cell('''%%tfprofile
import os, tensorflow as tf
f, files = tf.function(lambda x: tf.linalg.matmul(x, x)), []
for _ in range(4): f(tf.ones((8, 8)))
try:
    while True: files.append(os.open(os.devnull, 0))
except OSError as error:
    print(error)
''')
for file in shell.user_ns["files"]: os.close(file)
print(settled() - before, "left")
"""
