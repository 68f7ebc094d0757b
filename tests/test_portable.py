"""What differs on macOS and Windows, as far as it can be tried on Linux."""

import json
import subprocess
import sys

import pytest

from scfs import portable

SPAWNED = """
import multiprocessing, sys
multiprocessing.set_start_method("spawn")
"""
# Windows' locks by those of Linux; without the modules, flags and signals that Windows does not have.
WINDOWS = """
import fcntl, importlib.util, os, signal, sys, time, types
def locking(descriptor, mode, count):
    assert os.lseek(descriptor, 0, os.SEEK_CUR) == 2**30 and (mode, count) == (2, 1)
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, count, 0, os.SEEK_CUR)
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
    delattr(os, name)
for name in ("SIGHUP", "SIGUSR1"):
    delattr(signal, name)
spec = importlib.util.spec_from_file_location("scfs.portable", "{path}")
portable = sys.modules["scfs.portable"] = importlib.util.module_from_spec(spec)
real, sys.platform = sys.platform, "win32"
spec.loader.exec_module(portable)  # by itself: to others, this is still Linux
sys.platform = real
del sys.modules["msvcrt"]  # Python looks for it to tell Windows from others
assert portable.peak_resident_bytes() == 0
"""
WINDOWS = WINDOWS.replace("{path}", portable.__file__)
RUN = """
from scfs.cli import main
sys.exit(main(sys.argv[1:]))
"""


def losses(folder):
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [row["loss"] for row in rows]


@pytest.mark.parametrize(("system", "workers"), [(SPAWNED, 2), (WINDOWS, 0)], ids=["spawned workers", "Windows"])
def test_a_run_elsewhere_equals_one_here(tiny_recipe, trained, tmp_path, system, workers):
    folder = tmp_path / "elsewhere"
    words = ["pretrain", str(tiny_recipe), "--run.folder", str(folder), "--data.workers", str(workers)]
    done = subprocess.run([sys.executable, "-c", system + RUN, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert losses(folder) == losses(trained)


def test_locks_on_windows(tmp_path):
    """One process holds a folder, and another is refused; both as on Windows."""
    hold = "from pathlib import Path; from scfs.runs.files import held, locked\nwith held(Path(sys.argv[1])): "
    with_other = hold + "\n    sys.stdout.write('held'); sys.stdout.flush(); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", WINDOWS + with_other, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.read(4) == "held"
    second = subprocess.run([sys.executable, "-c", WINDOWS + hold + "pass", str(tmp_path)], stderr=subprocess.PIPE)
    holder.communicate("")
    assert f"is in use by process {holder.pid} on".encode() in second.stderr
    assert holder.returncode == 0
