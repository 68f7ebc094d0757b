import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from scfs import cores, distributed
from scfs.process import own_process
from scfs.training import cpu
from scfs.training.cpu import cpu_setup, peak_memory, usable_threads

# Page faults of allocating and freeing 64 MB four times: the fewest of several rounds, since a heap may still grow in
# any one of them.
CHURN = """
import resource, torch
from scfs.training.cpu import keep_freed_memory
possible = keep_freed_memory() if {keep} else True
faults = []
for _ in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.zeros(16_000_000)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(int(possible), min(faults))
"""


def churn(*, keep):
    """Whether memory can be reused, and the faults; in a new process, since the setting cannot be undone."""
    command = [sys.executable, "-c", CHURN.format(keep=keep)]
    possible, faults = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return bool(int(possible)), int(faults)


def test_freed_memory_is_reused_without_page_faults():
    _, usual = churn(keep=False)
    possible, reused = churn(keep=True)
    if not possible or usual < 10_000:
        pytest.skip("this system has another allocator, or pages so large that they hardly fault")
    assert reused < usual / 20


def test_threads_are_set_for_a_job_and_restored(monkeypatch):
    """torchrun leaves torch with one thread; a job uses the cores of its process, or as many as set."""
    monkeypatch.setattr(cpu, "num_cores", lambda: 3)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for setting, expected in (("auto", 3), (2, 2)):
        with own_process(), cpu_setup(torch.device("cpu"), setting, keep_memory=False):
            assert torch.get_num_threads() == expected
        assert torch.get_num_threads() == 1


def test_a_number_of_threads_that_the_user_gave_is_kept(monkeypatch):
    """As torch has read it; but torchrun's own 1 is nobody's choice."""
    monkeypatch.setattr(cpu, "num_cores", lambda: 3)
    for given, processes, expected in (("1", "1", 1), ("1", "2", 3), ("2", "2", 1)):
        monkeypatch.setenv("OMP_NUM_THREADS", given)
        monkeypatch.setenv("WORLD_SIZE", processes)
        with own_process(), cpu_setup(torch.device("cpu"), keep_memory=False):
            assert torch.get_num_threads() == expected


@pytest.mark.parametrize(("quota", "count"), [("max 100000", 8), ("250000 100000", 3), ("50000 100000", 1), (None, 8)])
def test_cores_are_those_of_the_container(quota, count, tmp_path, monkeypatch):
    monkeypatch.setattr(cores, "CPU_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    if quota:
        (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert distributed.num_cores() == count


def test_thousands_of_threads(monkeypatch, caplog):
    monkeypatch.setattr(cpu, "num_cores", lambda: 3)
    assert [usable_threads(count) for count in (1, 32, 100_000)] == [1, 32, 32]
    assert caplog.messages == ["100000 threads are too many for 3 cores; using 32."]
    monkeypatch.setattr(cpu, "num_cores", lambda: 64)
    assert usable_threads(100_000) == 256


@pytest.mark.parametrize(("platform", "expected"), [("linux", 5 * 1024), ("darwin", 5)])
def test_peak_memory_is_in_bytes(monkeypatch, platform, expected):
    monkeypatch.setattr(cpu.sys, "platform", platform)
    monkeypatch.setattr(cpu, "STATUS", Path("/nowhere"))  # as on a system without it
    monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(ru_maxrss=5))
    assert peak_memory(torch.device("cpu")) == expected


def test_peak_memory_is_not_that_of_the_parent():
    block = torch.ones(300 * 2**18)  # 300 MB
    code = "import torch; from scfs.training.cpu import peak_memory; print(peak_memory(torch.device('cpu')))"
    own = peak_memory(torch.device("cpu"))
    child = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert child < own - block.nbytes / 2
