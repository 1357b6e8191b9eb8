"""What malloc does with freed memory, in processes of their own."""

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
