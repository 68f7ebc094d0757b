"""Nothing in a folder can make scfs write elsewhere, and a folder has one writer at a time."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from scfs.errors import UserError
from scfs.runs import files
from scfs.runs.files import append_text, held, locked, write_text

HOLD = """
import sys, time
from pathlib import Path
from scfs.runs.files import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""
FORK = """
import os, sys, time
from pathlib import Path
from scfs.runs.files import held
with held(Path(sys.argv[1])):
    child = os.fork()
    if child == 0:
        os.close(1)
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "elsewhere" / "start-up"
    path.parent.mkdir()
    path.write_text("mine\n")
    return path


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    return path


def test_a_link_is_replaced_and_not_written_through(folder, victim):
    (folder / "a.json").symlink_to(victim)
    for name in ("a.json.part", ".a.json.part", f".a.json.{os.getpid()}.part"):
        (folder / name).symlink_to(victim)
    write_text(folder / "a.json", "new\n")
    assert victim.read_text() == "mine\n"
    assert (folder / "a.json").read_text() == "new\n"
    assert not (folder / "a.json").is_symlink()


def test_nothing_is_appended_through_a_link(folder, victim):
    append_text(folder / "log", "one\n")
    append_text(folder / "log", "two\n")
    assert (folder / "log").read_text() == "one\ntwo\n"
    (folder / "linked").symlink_to(victim)
    with pytest.raises(UserError, match="is a symbolic link"):
        append_text(folder / "linked", "evil\n")
    assert victim.read_text() == "mine\n"


@pytest.mark.parametrize("lock", [held, lambda folder: locked(folder / "results.json")])
def test_locks_do_not_empty_what_a_link_points_to(folder, victim, lock):
    (folder / ".lock").symlink_to(victim)
    (folder / ".results.json.lock").symlink_to(victim)
    with pytest.raises(UserError, match="is a symbolic link"), lock(folder):
        pass
    assert victim.read_text() == "mine\n"


def test_a_folder_has_one_writer(folder):
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        try:
            with pytest.raises(UserError, match=rf"in use by process {other.pid} on "), held(folder):
                pass
        finally:
            other.send_signal(signal.SIGKILL)
    with held(folder):  # a killed process holds nothing
        pass


def test_temporary_files_of_killed_processes_are_swept(folder, victim):
    """Not what another command may be writing now, such as results."""
    kept = [folder / name for name in ("a.json", ".hidden", "b.part", ".results.json.4567cdef.part")]
    swept = (".last.pt.0123abcd.part", ".state.pt.0123abcd.part", ".part-00001.parquet.01ab.part")
    for path in [*kept, *(folder / name for name in swept), folder / ".metrics.jsonl.77.part"]:
        path.write_text("x")
    hours_ago = time.time() - 2 * 3600
    os.utime(folder / ".metrics.jsonl.77.part", (hours_ago, hours_ago))
    (folder / ".evil.part").symlink_to(victim)
    with held(folder):
        assert {*folder.iterdir()} == {*kept, folder / ".lock"}
    assert victim.read_text() == "mine\n"


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_file_systems_without_locks_are_warned_of(folder, monkeypatch, caplog, error):
    def fail(_):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(files, "try_lock", fail)
    monkeypatch.setattr(files, "wait_for_lock", fail)
    files._warn_without_locks.cache_clear()
    for _ in range(2):
        with held(folder), locked(folder / "results.json"):
            pass
    warning = f"{folder} is on a file system without locks: let no two commands write there at the same time."
    assert caplog.messages == [warning]


def opening_as_colleague(really_open):
    """`os.open` of somebody who may read the files in a folder, and not write them."""

    def open_file(path, flags, *mode):
        if flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return really_open(path, flags, *mode)

    return open_file


def test_a_lock_of_a_colleague_is_waited_for(folder, monkeypatch):
    """In a folder that both may write to, whose lock file only its owner may write."""
    with locked(folder / "results.json"):
        pass
    monkeypatch.setattr(os, "open", opening_as_colleague(os.open))
    with locked(folder / "results.json"):
        pass
    with pytest.raises(PermissionError), locked(folder / "other.json"):  # there is no lock file to read
        pass


def test_a_folder_of_a_colleague_is_not_held(folder, monkeypatch):
    with held(folder):
        pass

    monkeypatch.setattr(os, "open", opening_as_colleague(os.open))
    with pytest.raises(PermissionError, match="Permission denied"), held(folder):
        pass


def test_a_forked_child_does_not_hold_the_folder_of_its_parent(folder):
    """As loader workers, which may outlive a killed run by seconds."""
    done = subprocess.run([sys.executable, "-c", FORK, str(folder)], stdout=subprocess.PIPE, text=True)
    child = int(done.stdout)
    try:
        os.kill(child, 0)  # it lives
        with held(folder):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
