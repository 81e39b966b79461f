"""A cell whose process dies leaves an answer."""

import os
import random
import re
import resource
import subprocess
import sys
import time
from array import array
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import profnb
from profnb.capture.journal import journal_file
from profnb.capture.journal.dead_cell import read_dead_cell
from profnb.capture.journal.journal import _packed
from profnb.capture.journal.journal_file import JournalFile, Newest, journals_left, read_journal
from profnb.capture.session import Capture
from profnb.capture.step_records import StepLog
from profnb.core.errors import CaptureError, TraceFormatError
from profnb.core.options import CaptureOptions
from profnb.loading import say_last_death
from profnb.magics import load_magics, unload_magics

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def journals(tmp_path, monkeypatch):
    """A folder for journals that no other test has."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("PROFNB_JOURNALS")
    monkeypatch.setenv("PYTHONPATH", str(HERE.parents[1]))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("profnb.loading._read", [])
    return tmp_path / "cache" / "profnb" / "journals"


class Dying:
    """A process that takes steps; ``tests/capture/dying.py``."""

    def __init__(self, *words, **settings):
        self.process = subprocess.Popen([sys.executable, HERE / "dying.py", *words], stdout=subprocess.PIPE, **settings)
        self.steps = [self._step(self.process.stdout.readline())]  # it has begun

    @staticmethod
    def _step(line):
        return tuple(map(int, line.split()))

    def run_until(self, count):
        while self.steps[-1][0] < count:
            self.steps.append(self._step(self.process.stdout.readline()))
        return self

    def run_until_written(self, count=300, *, with_place=True):
        """Until its journal has so many steps, and where the process is, whenever these are written."""
        (path,) = (path for folder in journal_file.folders() for path in folder.glob(f"{self.process.pid}-*"))
        while True:
            with suppress(TraceFormatError):  # nothing was written yet
                dead = read_dead_cell(path)
                if dead.newest.steps >= count and (dead.function or not with_place):
                    return self
            self.run_until(self.steps[-1][0] + 20)

    def kill(self):
        self.process.kill()
        rest = self.process.stdout.read().splitlines(keepends=True)
        self.steps += [self._step(line) for line in rest if line.endswith(b"\n")]
        self.process.wait()
        return self

    def steps_at(self, time_ns):
        """How many had ended by then."""
        return max((count for count, at in self.steps if at <= time_ns), default=0)


def check_kills(count, seed):
    moments = random.Random(seed)
    for _ in range(count):
        dying = Dying().run_until(moments.randrange(1, 2500)).kill()
        (path,) = journals_left()
        dead = read_dead_cell(path)
        assert dying.steps_at(dead.newest.time_ns) <= dead.newest.steps <= dying.steps[-1][0] + 1  # it may be killed before it says so
        assert len(dead.recording.steps) == dead.newest.steps
        assert sum(part.wall_ns for part in dead.recording.cell.parts) == dead.recording.wall_ns
        assert f"{path.name}".startswith(f"{dying.process.pid}-")
        path.unlink()


def test_it_rests_less_than_a_second_however_long_it_wrote(monkeypatch):
    took, now, rests = iter([0.0001, 0.001, 0.1, 0.0]), [0.0], []
    journal = Capture(CaptureOptions(), traces=False).journal
    monkeypatch.setattr("profnb.capture.journal.journal.time", SimpleNamespace(thread_time=lambda: now[0]))
    monkeypatch.setattr(journal, "_write", lambda _: now.__setitem__(0, now[0] + next(took)))
    journal._file, journal._ended = "a file", SimpleNamespace(wait=lambda rest: rests.append(rest) or len(rests) == 4)
    journal._write_on()
    assert max(rests) < 1
    assert journal.took_s == pytest.approx(0.1011)


def test_ten_kills_at_random_moments_each_leave_an_answer():
    check_kills(10, 1)


@pytest.mark.long
def test_two_hundred_kills_at_random_moments_each_leave_an_answer():
    check_kills(200, 2)


def test_a_kill_before_anything_was_written_leaves_an_answer_too():
    Dying().kill()
    assert re.match(r"The last profiled cell died at \d\d:\d\d after 0 steps with [\d.]+ MB in use", say_last_death())
    assert profnb.last().notes[0].startswith("This cell died at ")


def test_what_died_is_said_once_shown_and_removed(journals):
    Dying().run_until_written().kill()
    sentence = say_last_death()
    assert re.fullmatch(
        r"The last profiled cell died at \d\d:\d\d after [\d,]+ steps with [\d.]+ MB in use, in \w[\w ]+ \(`take_steps`, line \d+\); `%tfprofile --last` shows it.", sentence
    )
    p = profnb.last()
    assert p.step_times.wall_ms.median() > 1
    assert p.notes[0].startswith("This cell died at ")
    assert "take_steps" in set(p.cell_tree["name"])
    assert not list(journals.iterdir())
    assert say_last_death() == ""
    assert profnb.last() is p  # in this process


def test_without_a_dead_cell_there_is_nothing_to_show():
    with pytest.raises(CaptureError, match="No profiled cell has died"):
        profnb.last()


def test_a_cell_that_ended_leaves_nothing(journals):
    with profnb.profile():
        assert len(list(journals.iterdir())) == 1
        assert journals_left() == []  # this process lives
    assert not list(journals.iterdir())


def test_nothing_is_kept_where_the_environment_says_so(journals, monkeypatch):
    monkeypatch.setenv("PROFNB_JOURNALS", "0")
    with profnb.profile():
        assert not journals.exists()


def test_a_cell_that_raises_leaves_nothing(journals):
    with pytest.raises(ZeroDivisionError), profnb.profile():
        1 / 0
    assert not list(journals.iterdir())


def test_kernels_do_not_mix():
    lives, dies = Dying(), Dying()
    dies.kill()
    assert [path.name.partition("-")[0] for path in journals_left()] == [str(dies.process.pid)]
    lives.run_until(lives.steps[-1][0] + 1).kill()
    assert {path.name.partition("-")[0] for path in journals_left()} == {str(dies.process.pid), str(lives.process.pid)}


def test_a_process_of_the_same_number_is_another_one(journals):
    """As in a container, whose processes get the same numbers each time."""
    Dying().kill()
    (path,) = journals.iterdir()
    path.rename(path.with_name(re.sub(r"^\d+", str(os.getpid()), path.name)))
    assert len(journals_left()) == 1


def test_a_fork_leaves_the_journal_to_its_parent():
    dying = Dying("fork").run_until_written()
    assert journals_left() == []  # it still writes
    dying.kill()
    (path,) = journals_left()
    assert read_dead_cell(path).newest.steps >= 300


def test_a_child_that_is_killed_is_no_cell_that_died():
    dying = Dying("child").run_until_written()
    assert journals_left() == []
    assert say_last_death() == ""
    dying.kill()
    assert read_dead_cell(journals_left()[0]).newest.steps >= 300


def test_steps_inside_of_steps_are_taken_back():
    Dying("nested").run_until_written().kill()
    dead = read_dead_cell(journals_left()[0])
    steps = dead.recording.steps
    inner = [at for at, name in enumerate(steps.name) if steps.names[name] == "inner"]
    assert inner in ([], [len(steps) - 1])  # the last one may have had its inner step only


def test_a_full_disk_ends_the_records_and_not_the_cell(journals):
    """A bound on the size of files stands for it: writes then fail likewise."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))

    Dying(preexec_fn=limit).run_until_written(2500, with_place=False).kill()
    (path,) = journals_left()
    assert path.stat().st_size <= 4_000
    dead = read_dead_cell(path)
    assert len(dead.recording.steps) < dead.newest.steps  # they are counted still
    assert re.search(r"Times of the first [\d,]+ steps were kept; the later ones were counted.", " ".join(profnb.last().notes))


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_home_that_cannot_be_written_to_uses_what_is_temporary(journals, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o500)
    with profnb.profile():
        assert len(list(tmp_path.glob("profnb-journals-*/*"))) == 1


def test_a_home_that_nobody_can_write_to_uses_what_is_temporary(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    with profnb.profile():
        assert len(list(tmp_path.glob("profnb-journals-*/*"))) == 1


def test_no_place_for_a_journal_changes_nothing(monkeypatch):
    monkeypatch.setattr(journal_file, "folders", lambda: [Path("/proc/none"), Path("/dev/null/none")])
    with profnb.profile() as p:
        pass
    assert not [note for note in p.notes if "journal" in note]
    assert p.recording.cell is not None


def made(**settings):
    """A journal as a capture leaves it, with what was said of it."""
    Dying().run_until_written().kill()
    (path,) = journals_left()
    return path


def test_a_journal_that_is_cut_anywhere_is_read_as_far_as_it_goes():
    path = made()
    whole = path.read_bytes()
    last = 0
    for length in [*range(0, 700), *range(700, len(whole), 97), len(whole)]:
        path.write_bytes(whole[:length])
        try:
            steps = len(read_dead_cell(path).recording.steps)
        except TraceFormatError:
            assert not last
            continue
        assert steps >= last
        last = steps
    assert last >= read_journal(path)[0].steps > 0


def test_a_journal_with_other_bytes_is_refused_or_read_in_part():
    path = made()
    whole = path.read_bytes()
    changes = random.Random(3)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[changes.randrange(len(whole))] ^= 1 << changes.randrange(8)
        path.write_bytes(damaged)
        try:
            read_dead_cell(path)
        except TraceFormatError:
            pass


@pytest.mark.parametrize(
    ("kind", "content"),
    [(b"S", b"\x00" * 8), (b"S", b"\x01" * 24), (b"S", array("q", (0, 5, 1)).tobytes() + b"\x00" * 72), (b"S", array("q", (0, 1 << 40, 0)).tobytes() + b"\x00" * 72),
     (b"R", b"[]"), (b"R", b"{"), (b"R", b'{"codes": [[7]]}'), (b"R", b'{"versions": [3]}'), (b"R", b'{"trace": [{"path": 1}]}'), (b"R", b'{"begin": [null]}'), (b"F", array("q", (0, 1, 7)).tobytes()), (b"M", b"x" * 16), (b"L", b"abc")],
)  # fmt: skip
def test_records_that_profnb_does_not_write_are_refused(kind, content):
    file = JournalFile()
    begin = {"began_ns": 0, "base": 0, "warmup_steps": 0, "limit_bytes": -1, "limit_of": ""}
    file.append_json(b"R", {"begin": [begin]})
    file.append(kind, content)
    file.commit(Newest(1, 2, 3))
    with pytest.raises(TraceFormatError, match="is not what profnb writes while a cell runs"):
        read_dead_cell(file.path)
    file.remove()


def test_steps_are_read_as_they_were_whatever_they_are_called_and_however_far_apart():
    log, at = StepLog(), 0
    for number in range(700):
        at += 1 << 40 if number % 100 == 0 else 1_000_000 + number % 7
        log.end_step(len(log), at, at + number, f"phase {number // 300}", number % 4, 0, number % 2, 1, number, 2)
    log.names.insert(0, "not of these")
    log.cells[2::9] = array("q", [code + 1 for code in log.cells[2::9]])
    for first, cells in ((0, log.since(0)[:9]), (1, log.since(1)[: 9 * 600]), (401, log.since(401))):  # the last 200 again
        file = JournalFile() if not first else file
        file.append(b"S", _packed(first, cells))
    begin = {"began_ns": 0, "base": 0, "warmup_steps": 0, "limit_bytes": -1, "limit_of": ""}
    file.append_json(b"R", {"begin": [begin], "names": log.names})
    file.commit(Newest(1, 1 << 44, 3))
    steps = read_dead_cell(file.path).recording.steps
    assert [steps.names[name] for name in steps.name] == [log.names[name] for name in log.column("name")]
    for column in ("begin_ns", "end_ns", "kind", "retraced", "step_num", "run"):
        assert list(getattr(steps, column)) == list(log.column(column))
    file.remove()


def test_a_journal_of_another_version_is_left_out():
    path = made()
    whole = bytearray(path.read_bytes())
    whole[7] = 99
    path.write_bytes(whole)
    assert say_last_death() == ""
    with pytest.raises(CaptureError):
        profnb.last()


def test_a_journal_of_two_days_ago_is_removed(journals):
    path = made()
    os.utime(path, (0, 0))
    assert journals_left() == []
    assert not path.exists()


def test_a_journal_holds_no_path_and_no_text_of_the_users():
    path = made()
    contents = b"\n".join(content for _, content in read_journal(path)[1])
    assert b"take_steps" in contents
    for private in (str(HERE).encode(), b"dying.py", b"time.sleep", str(Path.home()).encode() + b"/"):
        assert private not in contents


def test_a_journal_is_bounded_and_goes_on_counting():
    capture = Capture(CaptureOptions(), traces=False)
    capture.sampler.start()
    file = capture.journal._file = JournalFile()
    log, random_ns, at = capture.recorder.log, random.Random(5), 0
    for _ in range(40):  # 1.2 million steps
        for _ in range(30_000):
            begin, at = at, at + random_ns.randrange(1 << 50)
            log.end_step(len(log), begin, at, "train", 2, 0, 0, 1, 0, 0)
            at = at if at < 1 << 59 else 0
        capture.journal._write(file)
    capture.sampler.end()
    assert file.path.stat().st_size <= journal_file.MOST_BYTES
    newest, _ = read_journal(file.path)
    assert newest.steps == 1_200_000
    file.remove()


def test_the_sentence_says_what_memory_there_was(monkeypatch):
    path = made()
    dead = read_dead_cell(path)
    monkeypatch.setattr("profnb.capture.journal.dead_cell.read_dead_cell", lambda _: replace(dead, limit_bytes=dead.newest.resident_bytes + 1, limit_of="the container"))
    assert re.search(r"with ([\d.]+ MB) of \1 in use", say_last_death())
    assert "the container: the system probably ended it for lack of memory." in " ".join(profnb.last().notes)


def test_the_extension_says_so_and_the_magic_shows_it(shell, capsys):
    made()
    unload_magics(shell)
    load_magics(shell)
    assert "The last profiled cell died at" in capsys.readouterr().out
    shell.run_cell("%tfprofile --last -o died")
    assert shell.user_ns["died"].notes[0].startswith("This cell died at ")


def test_the_command_reports_it(capsys):
    from profnb.__main__ import main

    made()
    assert main(["report", "--last"]) == 0
    assert "This cell died at " in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["report"])


KERAS = """
import time
import keras, numpy as np, profnb
model = keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile("adam", "mse")
x, y = np.zeros((512, 4), "f"), np.zeros((512, 1), "f")
class Kill(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 2:
            time.sleep(900)  # until it is killed
with profnb.profile(max_steps=20):
    model.fit(x, y, batch_size=32, epochs=9, verbose=0, callbacks=[Kill()])
"""


def is_in_callback(journals, process):
    """Whether its journal says that it sleeps there, and has all else that is asked for."""
    with suppress(TraceFormatError):
        dead = [read_dead_cell(path) for path in journals.glob(f"{process}-*")]
        return any((one.newest.steps, one.line) == (48, 10) and one.trace for one in dead)
    return False


@pytest.mark.tensorflow
def test_a_fit_that_is_killed_in_a_callback_has_its_steps_its_tree_and_its_trace(journals, tmp_path):
    program = tmp_path / "fit.py"
    program.write_text(KERAS)
    process = subprocess.Popen([sys.executable, program])
    try:
        while not is_in_callback(journals, process.pid):
            assert process.poll() is None
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    sentence = say_last_death()
    assert "after 48 steps" in sentence
    assert re.search(r"\(`(Kill\.)?on_epoch_end`, line 10\)", sentence)  # Python 3.10 knows no class
    p = profnb.last()
    assert len(p.step_times) == 48
    assert p.has_trace
    assert len(p.ops)
    assert not [path for path in tmp_path.glob("profnb-*") if path.is_dir()]
