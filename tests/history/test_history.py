"""The history of runs: kept by many processes, whatever becomes of them; read as series; changes found at a known rate."""

import math
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, suppress
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from benchmarks import history as bench
from traces import event, host, line, xspace

import profnb
from profnb.compare.estimates import OTHER_CODE, THIS_CODE
from profnb.compare.speedup import Difference
from profnb.compare.trial_table import Trial
from profnb.core.errors import ProfnbError
from profnb.history.change_points import _share_as_far, find_changes
from profnb.history.door import keep as keep_result
from profnb.history.identity import ask_git, await_git, find_commit, identify_block, identify_code
from profnb.history.series import kept_trials
from profnb.history.place import VARIABLE, history_file
from profnb.history.series import list_runs, spread_of_runs
from profnb.history.showing import open_history
from profnb.history import keeping, store
from profnb.history.store import FIRST, HistoryError, Run, read_runs, read_tree, write_run

PARENT = Path(__file__).parents[2]
TREE = [[-1, "cell", "", 0, 1.0], [0, "call", "fit", 1, 0.0], [1, "train steps", "", 100, 200.0], [0, "profnb", "page", 1, 7.0]]


def made(number=0, ms=2.0, **fields):
    return Run(**{"key": str(number), "when": 1e9 + number, "cell": "abcd", "median_ms": ms, "wall_ms": 100 * ms, "cell_steps": 100, "tree": TREE} | fields)


def keep(path, times, **fields):
    for number, ms in enumerate(times):
        write_run(path, made(number, ms, **fields))
    return path


def steady(count, seed=0, noise=0.03):
    return 2 * np.exp(np.random.default_rng(seed).normal(0, noise, count))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "folder" / "history.sqlite"


def test_a_run_comes_back_as_it_was(file):
    run = made(3, commit="c" * 40, is_dirty=True, label="a", advice=[["callback", 1.0, 2.5]], settings='{"batch_size": 8}')
    assert write_run(file, run) == FIRST
    assert write_run(file, run) == ""  # the same run again: what is known of it now
    (back,) = read_runs(file)
    assert (back.commit, back.is_dirty, back.median_ms, back.advice, back.settings) == ("c" * 40, True, 2.0, [["callback", 1.0, 2.5]], '{"batch_size": 8}')
    assert math.isnan(back.peak_bytes)  # missing stays missing
    assert read_tree(file, "3") == TREE
    assert read_tree(file, "4") == ()


@pytest.mark.slow
def test_eight_processes_write_at_once_and_none_is_lost(file):
    assert bench.kept_of_many(file, 100, 8) == 800


def test_a_file_that_another_process_makes_meanwhile_is_ours(file, monkeypatch):
    class Overtaken(sqlite3.Connection):
        def execute(self, query, *given):
            if query.startswith("SELECT count"):  # whose file it is has been asked, not what is in it
                monkeypatch.setattr(store, "_connect", connect)
                with suppress(HistoryError):  # where it has to wait for us
                    write_run(file, made(1))
            return super().execute(query, *given)

    connect = store._connect
    monkeypatch.setattr(store, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(store, "_connect", lambda path: sqlite3.connect(path, isolation_level=None, factory=Overtaken))
    write_run(file, made(2))
    assert "2" in [run.key for run in read_runs(file)]


@pytest.mark.slow
def test_kills_during_writes_leave_a_sound_file(file):
    said, kept, verdict = bench.kept_of_killed(file, 20)
    assert said <= kept  # whatever was written stays
    assert verdict == "ok"


def test_a_locked_file_is_a_sentence(file, monkeypatch):
    monkeypatch.setattr(store, "_PATIENCE_S", 0.0)
    keep(file, [2.0])
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(HistoryError, match=r"not kept in history.sqlite: database is locked"):
        write_run(file, made(1))
    other.execute("ROLLBACK")
    assert len(read_runs(file)) == 1


def test_a_full_disk_is_a_sentence(file):
    keep(file, [2.0])
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    file.unlink()
    file.symlink_to("/dev/full")
    with pytest.raises(HistoryError, match="not kept"):
        write_run(file, made(1))


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4000, None])
def test_a_damaged_file_is_kept_aside_and_a_new_one_begins(file, content):
    keep(file, [2.0] * 3)
    sqlite3.connect(file).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if content is None:
        whole = file.read_bytes()
        content = whole[:4096] + b"\x7f" * (len(whole) - 4096)
    for end in ("-wal", "-shm"):
        file.with_name(file.name + end).unlink(missing_ok=True)
    file.unlink()  # a file of its own, which no connection of this process has open
    file.write_bytes(content)
    assert "damaged" in write_run(file, made(9))
    assert [run.key for run in read_runs(file)] == ["9"]
    (aside,) = file.parent.glob("history-damaged-*.sqlite")
    assert aside.read_bytes() == content


def test_a_newer_file_stays_as_it_is(file):
    keep(file, [2.0])
    database = sqlite3.connect(file)
    database.execute("PRAGMA user_version=99")
    database.close()
    assert "newer" in write_run(file, made(5))
    assert write_run(file, made(6)) == ""  # said once
    assert [run.key for run in read_runs(file)] == ["5", "6"]
    assert sqlite3.connect(file).execute("SELECT key FROM runs").fetchall() == [("0",)]


def test_another_programs_database_is_left_alone(file):
    file.parent.mkdir()
    database = sqlite3.connect(file)
    database.execute("CREATE TABLE runs (mine)")
    database.close()
    for use in (lambda: write_run(file, made()), lambda: read_runs(file), lambda: read_tree(file, "0")):
        with pytest.raises(HistoryError, match="another program's"):
            use()


def test_to_read_what_is_no_history_says_so_and_what_to_give(tmp_path):
    (tmp_path / "notes.txt").write_text("no history")
    for use in (read_runs, lambda path: read_tree(path, "0")):
        with pytest.raises(HistoryError, match=r"^notes.txt cannot be read as a history: .*\. Give the file"):
            use(tmp_path / "notes.txt")
        with pytest.raises(ProfnbError, match=r" is a folder\. Give a file\."):
            use(tmp_path)


def test_a_process_that_has_read_keeps_its_log_beside_another_one(file):
    """Who closes the file otherwise than by SQLite gives up its locks: the next process takes the log for left."""
    code = "import sqlite3, sys; file = sqlite3.connect(sys.argv[1]); print(file.execute('SELECT key FROM runs').fetchall()); file.close()"
    keep(file, [2.0])
    assert len(read_runs(file)) == 1
    subprocess.run([sys.executable, "-c", code, str(file)], check=True, capture_output=True)
    assert Path(f"{file}-wal").exists()  # this process writes to it


def test_to_read_an_empty_file_leaves_it_empty(tmp_path):
    (tmp_path / "empty").touch()
    assert read_runs(tmp_path / "empty") == []
    assert (tmp_path / "empty").stat().st_size == 0


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path):
    (tmp_path / "a").write_text("a file")
    with pytest.raises(HistoryError, match="not kept"):
        write_run(tmp_path / "a" / "history.sqlite", made())


def test_the_older_half_is_thinned(file):
    for number in range(24):
        write_run(file, made(number), most_runs=8)
    kept = [int(run.key) for run in read_runs(file)]
    assert len(kept) <= 12
    assert kept[-5:] == [19, 20, 21, 22, 23]
    assert kept[0] < 12  # not simply the oldest, which tell how it was


@pytest.mark.parametrize("wish, name", [("0", None), ("off", None), ("1", "history.sqlite"), ("", "history.sqlite"), ("/x/y.sqlite", "y.sqlite")])
def test_the_variable_says_whether_and_where(monkeypatch, tmp_path, wish, name):
    monkeypatch.setenv(VARIABLE, wish)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.chdir(tmp_path)
    assert getattr(history_file(), "name", None) == name


def test_nothing_is_kept_in_ci_unless_a_file_is_named(monkeypatch):
    monkeypatch.setenv("CI", "true")
    monkeypatch.delenv(VARIABLE)
    assert history_file() is None
    monkeypatch.setenv(VARIABLE, "/x/y.sqlite")
    assert history_file() == Path("/x/y.sqlite")


def test_a_project_has_its_own(monkeypatch, tmp_path):
    (tmp_path / ".profnb").mkdir()
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    monkeypatch.setenv(VARIABLE, "1")
    assert history_file() == tmp_path / ".profnb" / "history.sqlite"


def test_configure_switches_it(monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    profnb.configure(history=False)
    assert history_file() is None
    profnb.configure(history="/x/y.sqlite")
    assert history_file() == Path("/x/y.sqlite")


CODE = '"""Doc."""\nmodel = make(64, [1, 2], -3)\nfor epoch in range(10):\n    fit(model, "a", lr=1e-3)  # slow\n'


@pytest.mark.parametrize(
    "other, is_same",
    [
        (CODE, True),
        ('\nmodel = make(128, [1, 2, 3], 3)\n\nfor epoch in range(20):\n    fit(model, "b", lr=1e-2)\n', True),
        (CODE.replace("fit", "train"), False),
        (CODE + "evaluate(model)\n", False),
        (CODE.replace("lr=", "rate="), False),
    ],
)
def test_code_is_the_same_but_for_values_and_comments(other, is_same):
    assert (identify_code(CODE) == identify_code(other)) == is_same


def test_what_is_no_python_has_an_identity_too():
    assert identify_code("!ls  # a\nx = ") == identify_code("!ls\nx =") != identify_code("!ls\ny =")


def test_a_script_and_a_block_are_told_by_their_code(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import a\nwith a.b():\n    c(1)\nwith a.b():\n    d(1)\n")
    assert identify_block(str(script)) == identify_code(script.read_text())
    assert identify_block(str(script), 2) == identify_block(str(script), 3) != identify_block(str(script), 5)
    assert identify_block(str(tmp_path / "none.py")) == identify_block(str(tmp_path / "none.py"), 1) == ""


def git(folder, *words):
    words = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", *words]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init")
    (folder / "a.py").write_text("1")
    git(folder, "add", "a.py")
    git(folder, "commit", "-m", "a")
    return folder


def test_the_commit_and_whether_files_differ(repository):
    assert find_commit(repository.parent) == ""
    commit = git(repository, "rev-parse", "HEAD")
    assert find_commit(repository) == commit
    assert await_git(ask_git(repository), 60) is False
    (repository / "new.py").write_text("which git doesn't follow")
    (repository / "a.py").touch()  # other times, the same content
    assert await_git(ask_git(repository), 60) is False
    (repository / "a.py").write_text("22")
    (repository / "folder").mkdir()
    assert find_commit(repository / "folder") == commit
    assert await_git(ask_git(repository / "folder"), 60) is True


def packed(folder):
    git(folder, "pack-refs", "--all")
    return folder


def detached(folder):
    git(folder, "checkout", "--detach")
    return folder


def worktree(folder):
    git(folder, "worktree", "add", "-b", "side", folder.parent / "side")
    git(folder.parent / "side", "commit", "--allow-empty", "-m", "b")
    return packed(folder) and folder.parent / "side"


def submodule(folder):
    above = folder.parent / "above"
    git(folder.parent, "init", "above")
    git(above, "submodule", "add", folder, "below")
    return above / "below"


def bare(folder):
    git(folder.parent, "clone", "--bare", folder, "bare")
    return folder.parent / "bare" / "refs"


@pytest.mark.parametrize("made_odd", [packed, detached, worktree, submodule, bare])
def test_the_commit_of_odd_repositories(repository, made_odd):
    folder = made_odd(repository)
    assert find_commit(folder) == git(folder, "rev-parse", "HEAD") != ""


def test_of_repositories_without_a_commit_nothing_is_said(tmp_path):
    git(tmp_path, "init")
    assert find_commit(tmp_path) == ""
    head = tmp_path / ".git" / "HEAD"
    for text in ("ref: refs/../../../etc/hostname", "ref: HEAD", "ref: refs/heads/none", "", "x" * 40, "ref: " * 1000):
        head.write_text(text)
        assert find_commit(tmp_path) == ""
    (tmp_path / ".git" / "refs" / "heads" / "a").write_text("ref: refs/heads/a")
    head.write_text("ref: refs/heads/a")  # which points at itself
    assert find_commit(tmp_path) == ""
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / ".git" / "packed-refs")  # which no reading comes to an end of
        assert find_commit(tmp_path) == ""


def test_a_git_that_says_nothing_is_not_waited_for():
    asked = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert await_git(asked, 0.0) is None
    assert asked.returncode is not None


def test_whether_files_differ_is_added_when_git_has_answered(repository, file, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(file))
    monkeypatch.chdir(repository)
    monkeypatch.setattr(keeping, "_LATER_S", 0)
    monkeypatch.setattr(keeping, "_GIT_PATIENCE_S", 60)
    with profnb.profile():
        pass
    for thread in threading.enumerate():
        if thread.name == "profnb git":
            thread.join()
    (run,) = read_runs(file)
    assert (run.commit, run.is_dirty) == (git(repository, "rev-parse", "HEAD"), False)
    code = f"import profnb\nfrom profnb.history import keeping\nkeeping._AT_EXIT_S = 60\nwith profnb.profile(label='ends at once'):\n    pass\n"
    (repository / "a.py").write_text(code)
    subprocess.run([sys.executable, "a.py"], cwd=repository, env={**os.environ, "PYTHONPATH": str(PARENT)}, check=True)
    assert [one.is_dirty for one in read_runs(file)] == [False, True]
    write_run(file, Run(key=run.key))  # what comes later leaves what is known
    assert read_runs(file)[0].is_dirty is False


def test_a_slow_down_is_found_with_its_third_or_fourth_run():
    (change,) = find_changes([*steady(40), *(1.2 * steady(4, seed=1))])
    assert change.ratio == pytest.approx(1.2, rel=0.05)
    assert change.at == 40
    assert change.found_at - 40 <= 3


def test_a_speed_up_is_found_and_what_follows_is_held_against_it():
    times = [*steady(20), *(0.7 * steady(20, seed=1)), *steady(20, seed=2)]
    assert [change.at for change in find_changes(times)] == pytest.approx([20, 40], abs=1)


def test_steady_series_raise_no_alarm():
    assert sum(bool(find_changes(steady(50, seed))) for seed in range(100)) <= 2


def test_the_share_of_choices_as_far_out_is_exact():
    """Of 1 2 3 9 8, ten choices of two, one has the mean of 9 and 8, and two of 9 and 3."""
    assert _share_as_far(np.array([9.0, 8, 1, 2, 3]), 2) == 0.1
    assert _share_as_far(np.array([9.0, 3, 1, 2, 8]), 2) == 0.2
    assert _share_as_far(np.zeros(12), 3) == 1
    runs = np.round(steady(14), 2)
    runs[0], runs[1] = runs.min(), runs.min() + 400 * 0.01  # a grain is 0.01, so that nothing is rounded
    sums = [sum(choice) for choice in combinations(np.round(100 * runs).astype(int).tolist(), 4)]
    expected = np.mean([one >= sums[0] for one in sums])  # the first choice is of the first four
    assert _share_as_far(runs, 4) == pytest.approx(expected)


def test_far_out_runs_raise_no_more_alarms_than_others():
    random = np.random.default_rng(0)
    for kind in bench.KINDS[:3]:
        assert bench.false_alarms(kind, 300, random) <= 0.02  # 0.5 % in the long run


def test_a_clear_slow_down_behind_few_runs_is_found():
    (change,) = find_changes([*steady(11), *(1.5 * steady(3, seed=1))])
    assert (change.at, change.found_at) == (11, 13)


def test_two_slow_runs_and_few_runs_are_no_change():
    assert find_changes([*steady(30), 3.0, 3.0, *steady(5, seed=3)]) == []
    assert find_changes([*steady(9), *(2 * steady(3, seed=1))]) == []


def test_a_change_behind_a_thousand_steady_runs_is_found():
    (change,) = find_changes([*steady(1100, seed=8, noise=0.01), *(1.2 * steady(5, seed=9, noise=0.01))])
    assert change.at == pytest.approx(1100, abs=1)


@pytest.mark.parametrize("other", [{"machine": "b"}, {"versions": '{"TensorFlow": "9"}'}, {"settings": '{"batch_size": 9}'}, {"cell": "else"}])
def test_another_machine_version_setting_or_code_is_a_new_series_and_no_alarm(other):
    runs = [made(number, ms) for number, ms in enumerate(steady(20))]
    runs += [made(100 + number, ms, **other) for number, ms in enumerate(2 * steady(6, seed=1))]
    rows = list_runs(runs)
    assert {row.series for row in rows} == {1, 2}
    assert not any(row.change for row in rows)


def test_a_label_goes_on_through_edits_of_the_code():
    runs = [made(number, ms, label="a", cell=str(number)) for number, ms in enumerate([*steady(20), *(2 * steady(4, seed=1))])]
    assert [at for at, row in enumerate(list_runs(runs)) if row.is_alarm] == [20]


def test_runs_beside_other_programs_are_left_aside():
    runs = [made(number, ms, others=0.1) for number, ms in enumerate(steady(20))]
    runs += [made(100 + number, ms, others=0.8) for number, ms in enumerate(2 * steady(6, seed=1))]
    rows = list_runs(runs)
    assert not any(row.change for row in rows)
    assert [row.is_aside for row in rows] == [False] * 20 + [True] * 6


def test_what_grows_outside_of_steps_is_found_in_the_whole_cell():
    runs = [made(number, 2.0, wall_ms=ms) for number, ms in enumerate([*steady(20), *(2 * steady(4, seed=1))])]
    (row,) = [row for row in list_runs(runs) if row.is_alarm]
    assert (row.of, row.run.key) == ("cell", "20")


def test_a_slow_down_that_ended_or_is_old_is_no_news():
    times = [*steady(20), *(2 * steady(20, seed=1))]
    runs = [made(number, ms) for number, ms in enumerate(times)]
    rows = list_runs(runs)
    assert [row.run.key for row in rows if row.change] == ["20"]
    assert not any(row.is_alarm for row in rows)


def test_the_alarm_names_the_run_the_commit_and_the_part(file, capsys):
    slow = [*TREE[:3], [1, "callbacks", "Score.on_epoch_end", 3, 500.0], TREE[3]]
    keep(file, steady(20), label="cnn", commit="a" * 40)
    for number, ms in enumerate(1.5 * steady(4, seed=1)):
        write_run(file, made(100 + number, ms, label="cnn", commit="b" * 40, tree=slow))
    history = open_history(path=file)
    (sentence,) = history.sentences()
    assert sentence.startswith("cnn is 1.5")
    assert "commit bbbbbbb" in sentence
    assert "In all it takes 500 ms longer: Score.on_epoch_end +500 ms." in sentence
    assert main("history", "--history", file, "--alarm") == 1
    assert "bbbbbbb" in capsys.readouterr().out
    assert main("history", "--history", file, "--label", "none", "--alarm") == 0
    assert main("history", "--history", file, "--csv") == 0
    assert capsys.readouterr().out.count("\n") > 24


def main(*words):
    from profnb.__main__ import main as command

    return command([str(word) for word in words])


def test_a_dataframe_has_a_row_per_run(file):
    keep(file, steady(3), label="cnn")
    write_run(file, made(9, label="other"))
    frame = profnb.history(path=file)
    assert list(frame["label"]) == ["cnn", "cnn", "cnn", "other"]
    assert str(frame["when"].dtype).startswith("datetime64[ns, UTC")
    assert len(profnb.history(label="cnn", path=file)) == 3
    assert len(profnb.history(cell="ab", path=file)) == 4
    assert len(profnb.history(path=file.with_name("none.sqlite"))) == 0
    with pytest.raises(ProfnbError):
        profnb.history(path=PARENT / "README.md")


def test_ten_thousand_runs_are_read_and_judged(file):
    file.parent.mkdir()
    bench.fill(file, 10_000)
    assert len(profnb.history(path=file)) == 10_001


@pytest.mark.parametrize("count", [0, 1, 40])
def test_the_picture_and_the_list_render(file, count):
    keep(file, [*steady(count), *(2 * steady(count // 8, seed=1))])
    history = open_history(path=file)
    bundle = history.bundle()
    assert ("profnb-figure" in bundle["text/html"]) == (count > 1)
    assert bundle["text/plain"] == history.summary()
    assert len(history.figures()) == (count > 1)


def test_a_file_of_an_earlier_profnb_gets_what_it_has_not(file):
    keep(file, [2.0])
    with closing(sqlite3.connect(file)) as database:
        database.execute("ALTER TABLE runs DROP COLUMN trace")
        database.execute("PRAGMA user_version=1")
    write_run(file, made(1, trace="/a/b"))
    assert [run.trace for run in read_runs(file)] == ["", "/a/b"]


def test_a_run_whose_trace_was_kept_opens(file, tmp_path):
    steps = [event("train", at * 10**10, 8 * 10**9, step_num=at, _r=1) for at in range(6)]
    trace = tmp_path / "a.xplane.pb"
    trace.write_bytes(xspace(host(line("python", *steps))))
    write_run(file, made(0, trace=str(trace)))
    write_run(file, made(1))
    write_run(file, made(2, trace=str(tmp_path / "<gone>.xplane.pb")))
    history = open_history(path=file)
    (figure,) = history.figures().values()
    marks = [mark for one in figure["data"] for mark in one.get("customdata", [])]
    assert [mark[1:] for mark in marks] == [["0", "run"], [], ["2", "run"]]
    assert all(("click" in mark[0]) == (len(mark) > 1) for mark in marks)
    assert "8.00 ms" in history.open_run("0")
    assert history.open_run("1") == history.open_run("none") == ""
    assert "&lt;gone&gt;" in history.open_run("2") and str(tmp_path) not in open_history(path=file).bundle()["text/html"]


def test_trials_are_kept_by_rule_with_what_was_promised(file, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(file))
    with profnb.profile(label="first") as result:
        pass
    assert len(kept_trials()) == 0
    trials = [
        Trial("cache-input", "cache()", "nothing", "-secret", {}, Difference(0.5, 0.4, 0.625, math.nan, (9, 9), (0, 0)), (0.55, 0.66)),
        Trial("cache-input, callback", "both", "nothing", "-secret", {}, Difference(0.45, 0.4, 0.5, math.nan, (9, 9), (0, 0))),
        Trial("callback", "fails", "nothing", "-secret", error="It failed."),
    ]
    keeping.keep_trials(result, trials)
    frame = kept_trials(file)
    assert list(frame) == ["rule", "ratio", "interval_low", "interval_high", "promised_low", "promised_high", "when"]
    assert frame.loc[0].tolist()[:6] == ["cache-input", 0.5, 0.4, 0.625, 0.55, 0.66]
    assert frame.rule.tolist() == ["cache-input", "cache-input, callback"]  # what has no result is none
    assert math.isnan(frame.promised_low[1])  # together nothing was promised
    assert frame.when[0] == profnb.history().when[0]
    assert profnb.history().trials.tolist() == ["cache-input 0.50; cache-input, callback 0.45"]
    assert b"secret" not in file.read_bytes()
    write_run(file, made(9))
    write_run(file, Run(key=result.run_key))  # what comes later leaves what is known
    assert len(kept_trials(file)) == 2
    result.tried = trials  # tried before the run is kept, as under --try
    assert keeping.run_of(result).trials == read_runs(file)[0].trials
    assert len(kept_trials(file.with_name("none.sqlite"))) == 0


def test_how_runs_of_a_cell_vary():
    runs = [made(number, ms) for number, ms in enumerate(steady(200, seed=3))]
    spread = spread_of_runs(runs, "abcd", "")
    assert spread.of == THIS_CODE
    assert spread.variance == pytest.approx(0.03**2, rel=0.2)
    assert spread_of_runs(runs, "none", "") is None  # one other code tells nothing of this one
    others = [made(number, ms, cell=str(code)) for code in range(4) for number, ms in enumerate(steady(20, seed=code))]
    other = spread_of_runs(others, "none", "")
    assert (other.of, other.variance) == (OTHER_CODE, pytest.approx(0.03**2, rel=0.4))


@pytest.mark.parametrize("commits, is_edit", [("aa", False), ("ab", True)])
def test_a_shift_is_how_runs_vary_unless_something_was_edited(commits, is_edit):
    """Twice the time is a logarithm of 0.69: half of the runs there and half here vary by 0.35."""
    runs = [made(at, ms, commit=commits[at >= 20]) for at, ms in enumerate([*steady(20), *(2 * steady(20, seed=1))])]
    variance = spread_of_runs(runs, "abcd", "").variance
    assert variance == pytest.approx(0.03**2, rel=0.5) if is_edit else variance > 0.3**2


@pytest.mark.tensorflow
def test_a_block_is_kept_with_its_numbers_and_nothing_else(file, monkeypatch):
    import tensorflow as tf

    monkeypatch.setenv(VARIABLE, str(file))
    secret = tf.function(lambda x: x * 2)
    for _ in range(2):
        with profnb.profile(label="doubling") as result:
            for step in range(30):
                with profnb.step(step):
                    secret(tf.ones(8))
    first, second = read_runs(file)
    assert (first.label, first.cell) == ("doubling", second.cell)
    assert first.cell_steps == 30
    assert first.low_ms <= first.median_ms <= first.high_ms
    assert 0 < first.wall_ms < 60_000
    assert "TensorFlow" in first.versions
    assert any("profnb keeps" in note for note in result.notes) is False  # said at the first run
    for text in (str(PARENT), os.path.expanduser("~"), os.uname().nodename, "test_history"):
        assert text.encode() not in file.read_bytes() + str(read_tree(file, first.key)).encode()


def test_a_block_that_fails_is_not_kept(file, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(file))
    with pytest.raises(ZeroDivisionError), profnb.profile():
        1 / 0  # noqa: B018
    assert not file.exists()


def test_trouble_of_the_history_is_no_trouble_of_the_block(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))  # a folder
    with profnb.profile() as result:
        pass
    assert any("not kept" in note for note in result.notes)
    monkeypatch.setattr(keeping, "run_of", lambda profile: 1 / 0)
    assert "ZeroDivisionError" in keep_result(result, file=__file__, line=1)


@pytest.mark.kernel
def test_a_cell_is_kept_once_and_shown(shell, file, monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, str(file))
    for cell in ("%%tfprofile -q\nsum(range(100))", "%%tfprofile -q\nsum(range(200))  # more", "%%tfprofile -q\n1 / 0"):
        shell.run_cell(cell)
    one, two = read_runs(file)
    assert one.cell == two.cell
    capsys.readouterr()
    shell.run_line_magic("tfhistory", "-o kept")
    assert "2 runs in 1 series" in capsys.readouterr().out
    assert len(shell.user_ns["kept"]) == 2


def test_a_callback_that_predicts_leaves_the_count_of_steps_as_it_is():
    from profnb.capture.recording import Recording
    from profnb.capture.step_records import StepRecords

    records = StepRecords(names=["train", "predict"])
    for number, phase in enumerate([0, 0, 1, 1, 1, 0]):
        records.begin_ns.append(number * 10)
        records.end_ns.append(number * 10 + 8)
        records.name.append(phase)
        for column in ("kind", "was_traced", "retraced", "iterations", "step_num", "run"):
            getattr(records, column).append(0)
    assert keeping._count_steps(Recording(steps=records)) == 3
