"""Look at what malloc does with freed memory, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gnnbench.measure import memory

FAULTS = """
import resource, torch
from gnnbench.measure import memory
kept = memory.keep_freed()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(30):  # of which glibc may leave the first seven idle
    before = faults()
    torch.ones(8_000_000)
print(kept, faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
@pytest.mark.parametrize("chosen", [{}, {"MALLOC_TRIM_THRESHOLD_": "131072"}])
def test_freed_memory_is_not_faulted_in_again_unless_the_user_has_chosen(chosen: dict[str, str]) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in memory.CHOSEN}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], env={**environment, **chosen}, check=True, capture_output=True, text=True
    )
    kept, faults = done.stdout.split()
    assert kept == str(not chosen)
    assert (int(faults) < 100) == (not chosen)  # of 7,800 pages


HOLES = """
import torch
from gnnbench.benchmarks.peers import taken
from gnnbench.measure import memory

def work():
    for size in range(1, 9):  # no tensor fits where the one before was, as another lies behind it
        tensor = torch.ones(size << 20)
        kept.append(torch.ones(1 << 19))

kept = []
with memory.freed_at_once():
    print(taken(work, memory.meter(torch.device("cpu")))[0])
"""


@pytest.mark.skipif(not memory.HighWaterMark.available(), reason="of Linux")
def test_a_peak_is_what_is_in_use() -> None:
    environment = {key: value for key, value in os.environ.items() if key not in memory.CHOSEN}
    done = subprocess.run(
        [sys.executable, "-c", HOLES], env=environment, check=True, capture_output=True, text=True
    )
    assert 73 << 20 < int(done.stdout) < 76 << 20  # the last two, of 28 and 32 MiB, and seven of 2 MiB beside them
