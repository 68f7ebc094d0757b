import subprocess
import sys

import pytest

# Page faults of taking and freeing 64 MB four times: the fewest of several rounds, since a heap that still settles may
# grow once more in any one of them.
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
    """Whether memory can be kept, and the faults; in a process of its own, since the setting cannot be undone."""
    command = [sys.executable, "-c", CHURN.format(keep=keep)]
    possible, faults = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return bool(int(possible)), int(faults)


def test_freed_memory_is_reused_without_page_faults():
    _, usual = churn(keep=False)
    possible, kept = churn(keep=True)
    if not possible or usual < 10_000:
        pytest.skip("this system has another allocator, or pages so large that they hardly fault")
    assert kept < usual / 20
