"""gnnbench: train, compare and accelerate graph neural networks. Nothing heavy is imported before it is used.

cli          the command line; __main__ starts it
api          the same from Python
config       one run as a YAML file; documents: YAML
datasets  models   what is trained
graph  ops  convs  graphs, what convs are put together from, and PyG's convs by those ops
backends     what executes the convs: PyG, or kernels for CPUs and GPUs
sample       sampled neighbourhoods for PyG's loaders
patch        the two-line drop-in for other programs
training  measure  results   one run, its clocks and its JSON
launch       jobs in fresh processes; stopping: the signals that end them early
trackers     epochs told to TensorBoard, MLflow and others
profiling    where the time of an epoch goes
comparison  inference    backends side by side: training, trained weights
benchmarks  tuning  papers  sweeps   many runs: ops, choices, papers, grids; cells: kept
kinds  report  results of every kind read back and shown: tables, pictures and pages; history: over time
doctor  errors  registry  stats  units
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gnnbench import registry

if TYPE_CHECKING:
    from gnnbench.api import load_result as load_result
    from gnnbench.api.bench import bench as bench
    from gnnbench.api.compare import compare as compare
    from gnnbench.api.infer import infer as infer
    from gnnbench.api.profile import profile as profile
    from gnnbench.api.reproduce import reproduce as reproduce
    from gnnbench.api.suite import suite as suite
    from gnnbench.api.sweep import sweep as sweep
    from gnnbench.api.train import train as train
    from gnnbench.api.tune import tune as tune
    from gnnbench.graph import Graph as Graph
    from gnnbench.patch import accelerate as accelerate
    from gnnbench.patch import accelerated as accelerated
    from gnnbench.patch import patch_pyg as patch_pyg
    from gnnbench.patch import patch_status as patch_status
    from gnnbench.patch import patched as patched
    from gnnbench.patch import unpatch_pyg as unpatch_pyg
    from gnnbench.patch import unpatched as unpatched
    from gnnbench.sample import NeighborSampler as NeighborSampler

__version__ = "0.2.0"

_LAZY = {"Graph": "graph", "NeighborSampler": "sample", "load_result": "api"}
_LAZY |= dict.fromkeys(
    ("accelerate", "accelerated", "patch_pyg", "patch_status", "patched", "unpatch_pyg", "unpatched"), "patch"
)


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name) or (f"api.{name}" if name in registry.names("api") else "")
    if module:
        return getattr(importlib.import_module(f"gnnbench.{module}"), name)
    raise AttributeError(f"module 'gnnbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *registry.names("api")})  # for completion in notebooks
