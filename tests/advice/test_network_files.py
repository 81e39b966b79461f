"""``network-files``: which mounts are of a network, which files are seen on them, and when that is said."""

import time

import pytest
from recorded import program
from advised import advised
from traces import tell_beside, told_beside

from profnb.capture.machine import waits
from profnb.capture.machine.waits import NetworkFiles, network_mounts, watch_network_files
from profnb.capture.recording import Recording
from profnb.capture.saved.sidecar import read_recordings, write_recordings
from profnb.core.errors import TraceFormatError
from profnb.core.options import CaptureOptions
from profnb.subjects.study import Study

TABLE = r"""
overlay / overlay rw,relatime,lowerdir=/nfs 0 0
proc /proc proc rw 0 0
drive /content/drive fuse rw,nosuid,nodev,user_id=0 0 0
bucket /mnt/gcs fuse.gcsfuse ro 0 0
10.0.0.2:/vol/my\040data /mnt/my\040data nfs4 rw,vers=4.2 0 0
//server/share /mnt/share cifs rw 0 0
lxcfs /var/lib/lxcfs fuse.lxcfs rw 0 0
portal /run/user/1000/doc fuse.portal rw 0 0
squashfuse /snap/nfs fuse ro 0 0
none / 9p rw 0 0
/dev/sda1 /mnt/nfs ext4 rw 0 0
short
"""


def test_network_mounts_are_told_from_local_ones():
    assert network_mounts(TABLE) == {
        "/content/drive": "fuse.drive", "/mnt/gcs": "fuse.gcsfuse", "/mnt/my data": "nfs4", "/mnt/share": "cifs",
    }  # fmt: skip


@pytest.fixture
def mounted(tmp_path, monkeypatch):
    """A folder that the table of mounts says is Google Drive."""
    folder, table = tmp_path / "drive", tmp_path / "mounts"
    folder.mkdir()
    table.write_text(f"proc /proc proc rw 0 0\ndrive {folder} fuse rw 0 0\n")
    monkeypatch.setattr(waits, "MOUNTS", table)
    monkeypatch.setattr(waits, "_PERIOD_S", 0.001)
    return folder


def looked(paths, mode="rb", is_wanted=lambda: True):
    """What is seen while files are open, until thirty looks are counted."""
    seen = NetworkFiles()
    with watch_network_files(seen, is_wanted):
        files = [path.open(mode) for path in paths]
        begin = seen.looks
        give_up = time.monotonic() + 300
        while seen.looks < begin + 3 and is_wanted() and time.monotonic() < give_up:
            time.sleep(0.001)
        for file in files:
            file.close()
    return seen


def made(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    return [folder / name for name in names]


def test_files_that_are_read_there_are_counted(mounted):
    seen = looked(made(mounted, "a.tfrecord", "b.tfrecord"))
    assert seen.looks >= seen.found >= 2
    assert seen.files == 2
    assert seen.mounts == {f"{mounted} (fuse.drive)": seen.found}


@pytest.mark.parametrize("what", ["elsewhere", "written", "code", "not wanted"])
def test_files_that_do_not_count(mounted, tmp_path, what):
    paths = made(tmp_path / "drive2" if what == "elsewhere" else mounted, "module.py" if what == "code" else "a.bin")
    seen = looked(paths, "r+b" if what == "written" else "rb", lambda: what != "not wanted")
    assert (seen.found, seen.files, seen.mounts) == (0, 0, {})


def test_nothing_runs_where_nothing_is_mounted_over_a_network(mounted, monkeypatch):
    waits.MOUNTS.write_text("proc /proc proc rw 0 0\n")
    monkeypatch.setattr(waits.threading, "Thread", None)
    seen = NetworkFiles()
    with watch_network_files(seen, lambda: True):
        pass
    assert seen == NetworkFiles()
    monkeypatch.setattr(waits, "MOUNTS", mounted / "not there")
    with watch_network_files(seen, lambda: True):
        pass
    assert seen == NetworkFiles()


def test_looking_ends_where_the_code_fails(mounted):
    seen = NetworkFiles()
    with pytest.raises(ValueError, match="the user's"), watch_network_files(seen, lambda: True):
        raise ValueError("the user's")
    looks = seen.looks
    time.sleep(0.02)
    assert seen.looks == looks


def test_a_home_is_not_told(tmp_path, monkeypatch):
    seen = NetworkFiles()
    made(tmp_path, "3")
    monkeypatch.setattr(waits, "OPEN_FILES", tmp_path)
    monkeypatch.setattr(waits, "_is_read", lambda number: True)
    monkeypatch.setattr(waits.Path, "readlink", lambda path: "/home/alice/data/a.bin")
    waits._look(seen, {"/home/alice": "nfs4", "/home/alice/data": "nfs"}, set())
    assert seen.mounts == {"~/data (nfs)": 1}


# When it is said. The recorded pipelines: one that starves, one that is ahead.


def advice(name, **seen):
    profile = program(name)
    recording = Recording(network_files=NetworkFiles(**seen))
    return advised(Study(profile.trace, 0, recording))


DRIVE, NFS = {"/content/drive (fuse.drive)": 40}, {"/mnt/data (nfs4)": 40}


def test_a_starved_training_that_reads_on_a_drive():
    found = advice("pipeline-small-files", looks=50, found=40, files=1200, mounts=DRIVE)
    assert next(iter(found)) == "network-files"
    said = found["network-files"]
    assert "In 40 of 50 samples of the open files the program was reading from /content/drive (fuse.drive), a network mount: 1,200 different files." in said.evidence
    assert "!cp -r /content/drive/..." in said.code
    assert said.bound_fraction == advice("pipeline-small-files")["input-bound"].bound_fraction
    other = advice("pipeline-small-files", looks=50, found=40, files=1, mounts=NFS)["network-files"]
    assert "/mnt/data" in other.code
    assert "/content" not in other.code
    assert ": 1 file." in other.evidence


@pytest.mark.parametrize(("name", "seen"), [
    ("pipeline-small-files", {}),
    ("pipeline-small-files", {"looks": 50}),
    ("pipeline-small-files", {"looks": 6, "found": 4, "files": 4, "mounts": DRIVE}),
    ("pipeline-small-files", {"looks": 500, "found": 5, "files": 1, "mounts": DRIVE}),
    ("healthy", {"looks": 50, "found": 40, "files": 40, "mounts": DRIVE}),
    ("healthy-cache", {"looks": 50, "found": 40, "files": 40, "mounts": NFS}),
    ("healthy-training", {"looks": 50, "found": 40, "files": 40, "mounts": NFS}),
    ("eager-ops-slow", {"looks": 50, "found": 40, "files": 40, "mounts": NFS}),
], ids=["no mounts", "nothing read", "too few looks", "a vocabulary", "a pipeline ahead", "a cache", "arrays", "no input"])  # fmt: skip
def test_where_nothing_is_said(name, seen):
    assert "network-files" not in advice(name, **seen)


def test_it_is_kept_beside_a_trace_and_lies_are_refused(tmp_path):
    trace = tmp_path / "host.xplane.pb"
    trace.write_bytes(b"")
    seen = NetworkFiles(50, 40, 1200, DRIVE)
    write_recordings(trace, CaptureOptions(), [Recording(network_files=seen)])
    assert read_recordings(trace)[1][0].network_files == seen
    told = told_beside(trace)
    told["runs"][0]["network_files"]["found"] = 51
    tell_beside(trace, told)
    with pytest.raises(TraceFormatError, match="more often than was looked"):
        read_recordings(trace)
