"""Which thread runs on which core."""

import os
import subprocess
import sys

import pytest

from scfs import cores, distributed

# In a new process, whose threads torch has not started yet.
BOUND = """
import os, torch
from torch.utils.data import DataLoader
from scfs.cores import THREADS, allowed_cores
from scfs.data.loader import _options
from scfs.distributed import num_cores
from scfs.process import own_process
from scfs.training.cpu import cpu_setup

def bound():
    # The threads that may run on one core only, and that core.
    masks = {int(thread.name): os.sched_getaffinity(int(thread.name)) for thread in THREADS.iterdir()}
    return {thread: min(mask) for thread, mask in masks.items() if len(mask) == 1}

class Cores:
    def __len__(self):
        return 1
    def __getitem__(self, _):
        return sorted(os.sched_getaffinity(0)), os.nice(0)

if __name__ == "__main__":
    cores = [*range(num_cores())]
    with own_process(), cpu_setup(torch.device("cpu"), keep_memory=False):
        threads = bound()
        print(len(threads), len({*threads.values()}))
        print(os.sched_getaffinity(0) < {*allowed_cores()}, num_cores() == len(cores))
        [[loaded]] = DataLoader(Cores(), collate_fn=lambda batch: batch, **_options(1, pin=False))
        print(loaded == (allowed_cores(), os.nice(0) + 10))
    print(all(len(os.sched_getaffinity(thread)) == num_cores() for thread in [0, *threads]))
"""
needs_cores = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2 or cores.core_quota() < 2**31,
    reason="needs Linux and two cores, without a quota",
)


def bound(**environment):
    """What the code above prints."""
    clean = {name: value for name, value in os.environ.items() if name not in (*cores.BY_USER, "OMP_NUM_THREADS")}
    command = [sys.executable, "-c", BOUND]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**clean, **environment})
    return [line.split() for line in done.stdout.splitlines()]


@needs_cores
def test_each_thread_of_a_job_has_a_core_and_loader_workers_have_all():
    threads = str(len(os.sched_getaffinity(0)))
    assert bound() == [[threads, threads], ["True", "True"], ["True"], ["True"]]


@needs_cores
@pytest.mark.parametrize("environment", [{"OMP_PROC_BIND": "false"}, {"OMP_NUM_THREADS": "1"}])
def test_threads_are_not_bound_if_the_user_chose_or_they_leave_cores_free(environment):
    assert bound(**environment) == [["0", "0"], ["False", "True"], ["True"], ["True"]]


@pytest.mark.parametrize(
    ("processes", "rank", "quota", "expected"),
    [(1, 0, 99, [2, 3, 5, 8]), (2, 0, 99, [2, 3]), (2, 1, 99, [5, 8]), (8, 3, 99, [8]), (1, 0, 2, [])],
)
def test_processes_of_a_machine_have_cores_of_their_own(processes, rank, quota, expected, monkeypatch):
    monkeypatch.setattr(distributed, "allowed_cores", lambda: [2, 3, 5, 8])
    monkeypatch.setattr(distributed, "core_quota", lambda: quota)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    assert distributed.own_cores() == expected
