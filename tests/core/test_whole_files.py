"""Files that are there whole or not at all."""

import os
import threading

import pytest

from profnb.core.safe_files import claim_folder, whole_file


def test_a_file_appears_when_it_is_whole_and_nothing_else_stays(tmp_path):
    target = tmp_path / "report.html"
    with whole_file(target) as partial:
        partial.write_text("half")
        assert not target.exists()
        assert partial.parent == tmp_path
        assert partial.suffix == ".html"
    assert target.read_text() == "half"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_what_was_there_before(tmp_path, error):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("as before")
    for target in (old, new):
        with pytest.raises(type(error)), whole_file(target) as partial:
            partial.write_text("half")
            raise error
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert old.read_text() == "as before"


def test_an_error_names_the_file_that_was_asked_for(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, whole_file(tmp_path / "none" / "report.html") as partial:
        partial.write_text("text")
    assert caught.value.filename == str(tmp_path / "none" / "report.html")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_new_file_has_the_users_umask_and_an_old_one_its_permissions(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        (tmp_path / "old").write_text("secret")
        (tmp_path / "old").chmod(0o640)
        for name in ("old", "new"):
            with whole_file(tmp_path / name) as partial:
                partial.write_text("text")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == mode
    assert (tmp_path / "old").stat().st_mode & 0o777 == 0o640


def test_a_link_is_followed_and_what_is_no_file_is_written_to(tmp_path):
    (tmp_path / "real").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with whole_file(tmp_path / "link") as partial:
        partial.write_text("text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "text"
    with whole_file(type(tmp_path)("/dev/null")) as partial:
        assert str(partial) == "/dev/null"


def test_a_folder_is_given_to_one_only(tmp_path):
    start, claimed = threading.Barrier(8), []

    def claim():
        start.wait()
        for _ in range(10):
            claimed.append(claim_folder(tmp_path / "plugins" / "profile", "run"))

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(claimed)) == 80
    assert {path.name for path in claimed} == {"run"} | {f"run_{number}" for number in range(2, 81)}
