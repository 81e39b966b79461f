"""``profnb run``: a program runs as without profnb, byte by byte, and its answer goes to standard error."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from profnb.__main__ import main
from profnb.capture.step_records import Standing
from profnb.core.options import CAPTURE_ARGUMENTS
from profnb.report.progress import BottomLine, bottom_line_of, shown_at_bottom

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
TRACE = str(ROOT / "tests" / "data" / "cpu-cnn.xplane.pb")
RUN = (sys.executable, "-m", "profnb", "run")


def run(*command, cwd, **settings):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, check=False)


# A script of each kind, by name; each line that it prints is one that profnb could change.
SCRIPTS = {
    "names": """
        import os, sys
        print(sys.argv, __file__, __name__, __package__, __spec__, type(__loader__), type(__builtins__))
        print(list(globals()), sys.modules["__main__"].__dict__ is globals(), sys.path[0], sys.stdout.errors)
        print(sorted({"numpy", "pandas", "IPython", "tensorflow"} & set(sys.modules)))
    """,
    "raises": """
        def divide(number):
            return 1 / number
        try:
            int("a")
        except ValueError:
            print("before")
            divide(0)
    """,
    "does not compile": "print('a'\nx = = 1",
    "exits": "import sys; print('a', end=''); sys.exit(3)",
    "exits with words": "print('a'); raise SystemExit('words')",
    "has a hook of its own": """
        import sys
        sys.excepthook = lambda kind, error, trace: print(kind, trace.tb_frame.f_code.co_name, file=sys.stderr)
        1 / 0
    """,
    "guarded": "if __name__ == '__main__':\n    print('main')\nelse:\n    print('imported')",
    "spawns": """
        import multiprocessing, os
        def square(x):
            return x * x
        if __name__ == "__main__":
            for kind in ("spawn", "fork"):
                with multiprocessing.get_context(kind).Pool(1) as pool:
                    print(pool.map(square, [1, 2, 3]), flush=True)
            if not os.fork():
                print("child", flush=True)
                raise SystemExit(5)
            print(os.waitstatus_to_exitcode(os.wait()[1]))
    """,
    "leaves threads": """
        import threading
        from concurrent.futures import ThreadPoolExecutor
        ended = threading.Event()
        def work():
            ended.wait()
            print("thread", flush=True)
        def watch():
            threading.main_thread().join()
            print("main is over", flush=True)
        pool = ThreadPoolExecutor(1)
        print(pool.submit(int, "3").result(), flush=True)
        for function in (work, watch):
            thread = threading.Thread(target=function)
            thread.start()
            if function is work:
                ended.set()
                thread.join()
    """,
    "forks and looks at SIGTERM": """
        import os, signal
        if not os.fork():
            print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
            os._exit(0)
        os.wait()
    """,
    "prints much": "for i in range(50_000): print(i, 'x' * 20)",
    "prints what cannot be encoded": "print('\\udcff')",
    "is interrupted": "import os, signal, time\nprint('a', flush=True)\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)",
    "is ended": """
        import os, signal, time
        try:
            print("a", flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        finally:
            print("unwound", flush=True)
    """,
    "handles its end": """
        import os, signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    """,
    "works at its exit": "import atexit, __main__\natexit.register(lambda: print(__main__.late))\nlate = 'late'",
    "closes its outputs": "import sys; print('a'); sys.stdout.flush(); sys.stdout = None; sys.stderr.close()",
}


@pytest.fixture
def script(request, tmp_path):
    from textwrap import dedent

    path = tmp_path / "script.py"
    path.write_text(dedent(SCRIPTS[request.param]))
    return path


def every_script(*names):
    return pytest.mark.parametrize("script", names or SCRIPTS, indirect=True)


@every_script()
def test_a_script_runs_as_without_profnb(script, tmp_path):
    words = ("script.py", "--steps", "-n", "3", "--", "-q")
    settings = {"PYTHONIOENCODING": "utf-8:strict"}
    plain, profiled = (run(*way, *words, cwd=tmp_path, **settings) for way in ((sys.executable,), (*RUN, "-q", "-n", "5")))
    assert profiled.stdout == plain.stdout
    assert profiled.stderr == plain.stderr
    assert profiled.returncode == plain.returncode


def test_the_codes_that_scripts_end_with_are_not_all_alike(tmp_path):
    """So that the test above compares something."""
    (tmp_path / "a.py").write_text("import os, sys; sys.exit(3) if len(sys.argv) == 1 else os.kill(os.getpid(), int(sys.argv[1]))")
    assert run(*RUN, "-q", "a.py", cwd=tmp_path).returncode == 3
    assert run(*RUN, "-q", "a.py", str(int(signal.SIGTERM)), cwd=tmp_path).returncode == -signal.SIGTERM
    assert run(*RUN, "-q", "a.py", str(int(signal.SIGINT)), cwd=tmp_path).returncode == -signal.SIGINT


@pytest.fixture
def package(tmp_path):
    inner = tmp_path / "package" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "package" / "__init__.py").write_text("import sys\nVALUE = 5\nprint('package', sys.argv)")
    (inner / "__init__.py").write_text("")
    (inner / "other.py").write_text("NAME = 'other'")
    (inner / "tool.py").write_text(
        "import sys\nfrom .. import VALUE\nfrom . import other\n"
        "print(VALUE, other.NAME, sys.argv, __name__, __package__, __spec__.name, __file__, __cached__, sys.path[0])"
    )
    (inner / "__main__.py").write_text("from .other import NAME\nprint(NAME, __package__)\nraise KeyError(NAME)")
    (tmp_path / "package" / "fails.py").write_text("import package.missing")
    return tmp_path


@pytest.mark.parametrize("name", ["package.inner.tool", "package.inner", "package.fails", "json.tool"])
def test_a_module_runs_as_with_python_m(name, package):
    words = ("-m", name, "--help", "-m", "-q")
    plain, profiled = run(sys.executable, *words, cwd=package), run(*RUN, "-q", *words, cwd=package)
    assert profiled.stdout == plain.stdout and plain.stdout
    assert profiled.returncode == plain.returncode
    # Python shows two frames of runpy above those of the module.
    assert profiled.stderr.splitlines() == [line for line in plain.stderr.splitlines() if b"<frozen runpy>" not in line]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "it takes a Python file to run"),
        (["-m"], "it takes a module to run"),
        (["nothing.py"], "there is no Python file 'nothing.py'"),
        (["."], "there is no Python file '.'"),
        (["-m", "no_such.module"], "there is no module 'no_such.module'"),
        (["-m", "profnb.magic"], "there is no module 'profnb.magic'"),
        (["-m", "sys"], "there is no module 'sys'"),
        (["-o", "/no/such/page.html", "a.py"], "argument -o/--out: there is no folder '/no/such'"),
        (["-n", "0", "a.py"], "argument -n: takes a whole number from 1, got '0'"),
        (["-n", "many", "a.py"], "argument -n: takes a whole number from 1, got 'many'"),
        (["-t", "soon", "a.py"], "argument -t/--seconds: takes a number such as 2.5, got 'soon'"),
        (["--label", "a\x1b[31m"], "it takes a Python file to run"),
    ],
)
def test_a_wrong_line_is_one_sentence_and_two(words, sentence, tmp_path):
    done = run(*RUN, *words, cwd=tmp_path)
    assert done.stderr.decode() == f"profnb run: {sentence}; `profnb run --help` has all.\n"
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("words", [[], ["rnu"], ["table"], ["report", TRACE, "--nothing"], ["compare", TRACE]])
def test_a_wrong_line_of_any_command_is_one_sentence_and_two(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    said = capsys.readouterr()
    assert (ended.value.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.endswith("--help` has all.\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["demo", "-o", "/no/such/page.html"], "argument -o/--out: there is no folder '/no/such'"),
        (["demo", "-o", "/"], "argument -o/--out: '/' is a folder; name a file in it"),
        (["demo", "--steps", "0"], "argument --steps: takes a whole number from 1, got '0'"),
        (["timeline", TRACE, "-o", "/no/such/t.json"], "argument -o/--out: there is no folder '/no/such'"),
        (["clean", "a.ipynb", "-o", "/no/such/b.ipynb"], "argument -o/--out: there is no folder '/no/such'"),
        (["lite", "a.tflite", "--save", "/"], "argument --save: '/' is a folder; name a file in it"),
        (["lite", "a.tflite", "--threads", "1,x"], "argument --threads: takes a whole number from 1, got 'x'"),
        (["compare", TRACE, TRACE, "--fail-if-slower", "5 ms"], "argument --fail-if-slower: takes a percentage such as 5, got '5 ms'"),
        (["compare", TRACE, TRACE, "--fail-if-slower", "-5"], "argument --fail-if-slower: takes a percentage such as 5, got '-5'"),
        (["report", TRACE, "--nothing", "x"], "there is no option or argument --nothing x"),
        (["run", "--nothing", "a.py"], "there is no option or argument --nothing"),
    ],
)
def test_a_wrong_line_is_refused_before_anything_runs(words, sentence, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert capsys.readouterr().err == f"profnb {words[0]}: {sentence}; `profnb {words[0]} --help` has all.\n"


@pytest.mark.parametrize(("limit", "status"), [("0", 0), ("2.5%", 0), ("5", 0)])
def test_a_percentage_is_read_with_and_without_its_sign(limit, status, capsys):
    assert main(["compare", TRACE, TRACE, "--fail-if-slower", limit]) == status


def test_what_is_no_notebook_is_said_without_a_parsers_words(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("hello")
    for file in (str(tmp_path / "a.txt"), TRACE):
        assert main(["clean", file]) == 1
        assert capsys.readouterr().err == f"profnb: {file} is not a notebook: no JSON. Give an .ipynb file.\n"


@pytest.mark.parametrize("words", [("clean", "no.ipynb"), ("table", "no.ipynb")])
def test_a_file_that_is_not_there_is_one_sentence_and_one(words, capsys):
    assert main(words) == 1
    assert capsys.readouterr().err == "profnb: There is no no.ipynb. Check the path.\n"


def test_the_options_of_a_capture_are_those_of_the_magic(capsys):
    from profnb.magics import ProfnbMagics

    flags = {flag for names, settings in CAPTURE_ARGUMENTS for flag in names}
    magic = ProfnbMagics.tfprofile_cell.parser.format_help()
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    command = capsys.readouterr().out
    assert {flag for flag in flags - {"--source"} if flag not in magic or flag not in command} == set()


@every_script("raises", "is ended", "is interrupted", "spawns")
def test_the_answer_comes_once_however_the_program_ends(script, tmp_path):
    done = run(*RUN, "-o", "page.html", "--save", "logs", "script.py", cwd=tmp_path)
    said = done.stderr.decode()
    assert b"of wall time" not in done.stdout
    assert said.count("none of it in TensorFlow") == said.count("Report: ") == 1
    assert "There is no trace to keep." in said and not (tmp_path / "logs").exists()
    assert "<title>script.py - profnb</title>" in (tmp_path / "page.html").read_text()


def test_a_page_that_cannot_be_written_changes_nothing_about_the_programs_end(tmp_path):
    (tmp_path / "a.py").write_text("import os, sys; print('a'); os.mkdir('page.html'); sys.exit(4)")
    done = run(*RUN, "-q", "-o", "page.html", "a.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, b"a\n")
    assert done.stderr.startswith(b"profnb: the answer is not complete (IsADirectoryError: ") and done.stderr.count(b"\n") == 1


def test_a_program_that_goes_elsewhere_leaves_its_page_here(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "a.py").write_text("import os; os.chdir('other'); print('a')")
    done = run(*RUN, "-q", "-o", "page.html", "a.py", cwd=tmp_path)
    assert done.stderr.decode() == f"Report: {tmp_path / 'page.html'}\n"
    assert (tmp_path / "page.html").stat().st_size > 1000


def test_outputs_that_nobody_reads_end_quietly(tmp_path):
    (tmp_path / "a.py").write_text("for i in range(100_000): print(i)")
    shown = [
        run("bash", "-c", f"{way} | head -n 1; echo ${{PIPESTATUS[0]}}", cwd=tmp_path)
        for way in (f"{sys.executable} a.py", f"{sys.executable} -m profnb run -q a.py")
    ]
    assert shown[0].stdout == shown[1].stdout
    assert shown[0].stderr == shown[1].stderr
    closed = run("bash", "-c", f"{sys.executable} -m profnb run a.py 2> >(true) | tail -n 1", cwd=tmp_path)
    assert (closed.stdout, closed.stderr) == (b"99999\n", b"")


def in_terminal(columns, *command, **settings):
    """What a command shows in a terminal of so many columns."""
    process, terminal = pty.fork()
    if not process:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        ours = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
        os.execve(sys.executable, command, {**ours, "TERM": "xterm", "PYTHONPATH": str(ROOT), **settings})
    shown = b""
    try:
        while part := os.read(terminal, 1 << 16):
            shown += part
    except OSError:  # it is over
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    return shown.decode().replace("\r\n", "\n")


def test_lines_end_where_the_terminal_ends_and_nothing_is_lost(capsys):
    main(["report", TRACE])
    plain = capsys.readouterr().out
    assert "\x1b" not in plain and max(map(len, plain.splitlines())) > 130
    for columns in (100, 60):
        shown = in_terminal(columns, sys.executable, "-m", "profnb", "report", TRACE)
        assert shown.startswith("\x1b[1m8 train steps")
        assert shown.partition("\x1b[0m")[2].startswith("\n\nWhat to change\n") and "\x1b[32msaves 3.37 to" in shown
        text = re.sub(r"\x1b\[\d*m", "", shown)
        assert max(map(len, text.splitlines())) <= columns
        assert sorted("".join(text.split())) == sorted("".join(plain.split()))


def test_a_table_keeps_an_op_and_its_numbers_on_a_line_where_the_terminal_has_room_for_them():
    command = (sys.executable, "-m", "profnb", "table", TRACE, "ops")
    lines = in_terminal(100, *command).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[1] == "side: host"  # all are: so it stands once
    assert lines[2].split() == ["op_type", "op_name", "occurrences", "total_us", "self_us", "self_fraction", "layer"]
    assert lines[3].split()[2:4] == ["8", "927.860"] and lines[3].split()[1].endswith("conv2d_1/Relu")
    plain = run(*command, cwd=ROOT).stdout.decode()
    assert "_MklNativeConv2DBackpropFilterWithBias" in plain and "…" not in plain
    told_apart, rows = (len({tuple(line.split()[:names]) for line in some}) for some, names in ((lines[3:63], 2), (plain.splitlines()[2:62], 3)))
    assert told_apart > 0.9 * rows  # by the ends of their names
    assert "…" not in in_terminal(250, *command)


def test_columns_says_how_wide_a_terminal_is():
    shown = in_terminal(200, sys.executable, "-m", "profnb", "report", TRACE, COLUMNS="70")
    assert 60 < max(map(len, re.sub(r"\x1b\[\d*m", "", shown).splitlines())) <= 70


def test_a_timeline_is_as_wide_as_the_terminal():
    for columns in (60, 100):
        lines = in_terminal(columns, sys.executable, "-m", "profnb", "timeline", TRACE).splitlines()
        assert max(map(len, lines)) <= columns
        assert [line.count("|") for line in lines[2:]] == [2] * len(lines[2:])


@pytest.mark.parametrize("settings", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colours_gets_none(settings):
    shown = in_terminal(80, sys.executable, "-m", "profnb", "report", TRACE, **settings)
    assert shown.startswith("8 train steps") and "\x1b" not in shown


def test_the_answer_of_a_program_is_as_wide_as_the_terminal_that_shows_it(tmp_path):
    """Though its own output goes elsewhere."""
    (tmp_path / "a.py").write_text("print('output')")
    command = f"cd {tmp_path} && {sys.executable} -m profnb run a.py > out"
    shown = in_terminal(50, sys.executable, "-c", f"import os; os.execvp('bash', ['bash', '-c', {command!r}])")
    assert (tmp_path / "out").read_text() == "output\n"
    assert max(map(len, re.sub(r"\x1b\[\d*m", "", shown).splitlines())) <= 50


def test_threads_that_a_program_leaves_belong_to_it(tmp_path):
    """The main one is over before the other's twelve steps begin."""
    (tmp_path / "a.py").write_text(
        "import os, threading, profnb\nread, write = os.pipe()\ndef work():\n    os.read(read, 1)\n"
        "    for i in range(12):\n        with profnb.step(i): sum(range(100_000))\n"
        "threading.Thread(target=work).start()\nos.write(write, b'.')\n"
    )
    (tmp_path / "b.py").write_text("import tensorflow\n" + (tmp_path / "a.py").read_text())
    done = run(*RUN, "b.py", cwd=tmp_path)
    assert done.returncode == 0 and b"12 of 12" in done.stderr  # one that waits for a core is aside from the others


@pytest.fixture
def terminal():
    """Both ends of a terminal of 24 rows and 60 columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    yield master, slave
    for one in (master, slave):
        os.close(one)


def test_a_line_at_the_bottom_says_how_far_a_run_is_and_is_erased(terminal, monkeypatch):
    master, slave = terminal
    monkeypatch.setenv("TERM", "xterm")
    standing = Standing(is_tracing=True, was_tracing=True, traced_steps=37, max_steps=100, elapsed_ns=int(3e9), step_ns=12.1e6, run=None)
    shown = ""
    with os.fdopen(os.dup(slave), "w") as stream, shown_at_bottom(stream, lambda: standing):
        while "a step" not in shown:  # the line's thread writes it
            shown += os.read(master, 1 << 12).decode()
    assert "\x1b[1;23r" in shown and "\x1b[24;1H\x1b[2Kprofnb: tracing 37 of 100 steps · 12.1 ms a step" in shown
    assert os.read(master, 1 << 12).decode().endswith("\x1b[24;1H\x1b[2K\x1b[r\x1b8")


def test_a_line_at_the_bottom_fits_and_follows_the_terminal(terminal):
    master, slave = terminal
    line = BottomLine(slave)
    line.show("", "x" * 200)
    assert "x" * 58 + "…\x1b8" in os.read(master, 1 << 12).decode()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 60, 0, 0))
    line.show("", "y")
    assert "\x1b[1;9r" in (shown := os.read(master, 1 << 12).decode()) and "\x1b[10;1H\x1b[2Ky" in shown
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 2, 60, 0, 0))
    line.show("", "z")
    assert "z" not in os.read(master, 1 << 12).decode()


def test_no_line_where_standard_error_is_no_terminal_or_a_dumb_one(terminal, monkeypatch, tmp_path):
    monkeypatch.setenv("TERM", "xterm")
    with (tmp_path / "file").open("w") as file:
        assert bottom_line_of(file) is None
    assert bottom_line_of(None) is None
    with os.fdopen(os.dup(terminal[1]), "w") as stream:
        assert bottom_line_of(stream) is not None
        monkeypatch.setenv("TERM", "dumb")
        assert bottom_line_of(stream) is None


def test_the_command_is_installed_under_its_name():
    import configparser

    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    name, _, target = setup["options.entry_points"]["console_scripts"].strip().partition(" = ")
    module, _, function = target.partition(":")
    assert name == "profnb"
    assert getattr(__import__(module, fromlist=[function]), function) is main


def test_tab_completes_the_commands_that_there_are(capsys, tmp_path):
    lines = re.search(r"```bash\n(.*?)```", (ROOT / "docs" / "using.md").read_text(), re.DOTALL)[1]
    asked = 'COMP_CWORD=%s; _profnb profnb "%s"; echo "${COMPREPLY[@]}"'
    shown = [run("bash", "-c", f"{lines}\n{asked % case}", cwd=tmp_path).stdout.decode().split() for case in ((1, ""), (1, "r"), (2, "r"))]
    with pytest.raises(SystemExit):
        main(["--help"])
    commands = re.findall(r"^    (\w+) ", capsys.readouterr().out, re.MULTILINE)
    assert shown == [commands, ["run", "report"], []]


TRAINING = """
import os, signal, sys
from tensorflow import keras
import numpy as np

class Slow(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 2 and len(sys.argv) > 1:
            os.kill(os.getpid(), int(sys.argv[1]))

if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    x = np.linspace(0, 1, 512, dtype="float32").reshape(64, 8)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(x, x[:, :1], batch_size=8, epochs=4, verbose=0, callbacks=[Slow()])
    print(history.history)
"""


@pytest.mark.tensorflow
@pytest.mark.parametrize("number", [0, pytest.param(int(signal.SIGTERM), marks=pytest.mark.long)])
def test_a_training_has_its_steps_and_layers_and_is_kept(number, tmp_path):
    pytest.importorskip("tensorflow")
    (tmp_path / "train.py").write_text(TRAINING)
    words = ("train.py", *([str(number)] if number else []))
    plain, profiled = run(sys.executable, *words, cwd=tmp_path), run(*RUN, "--save", "logs", *words, cwd=tmp_path)
    assert (profiled.stdout, profiled.returncode) == (plain.stdout, plain.returncode)
    said = profiled.stderr.decode()
    assert plain.returncode == -number and "train steps, median" in said and f"Trace: {tmp_path / 'logs'}" in said
    assert " of the script. A node includes" in said
    assert re.findall(r"[^.\n]*\bcells?\b[^.\n]*", said) == []  # no sentence speaks of a notebook
    kept = run(sys.executable, "-m", "profnb", "table", "logs", "layers", cwd=tmp_path)
    assert b"dense" in kept.stdout


def test_a_scripts_own_words_are_none_of_ours_cut_short(tmp_path):
    """Each begins as several options of ours do."""
    (tmp_path / "a.py").write_text("import sys; print(sys.argv[1:])")
    words = ["--p", "1", "--s", "--l", "--h", "--no", "-q"]
    done = run(*RUN, "a.py", *words, cwd=tmp_path)
    assert done.stdout.decode() == f"{words}\n", done.stderr
