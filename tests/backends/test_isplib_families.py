"""A family of attention is one file of C: another one, in a copy of the kernels, is as right as the others."""

from __future__ import annotations

import importlib.util
import itertools
import runpy
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import setuptools
import torch

from gnnbench.backends import isplib
from gnnbench.backends.isplib import attention, choices
from gnnbench.ops.dropout import Dropout
from gnnbench.ops.families import FAMILIES, Attention
from gnnbench.ops.kernels import Kernels
from tests.support import distance, graphs
from tests.support.attention import inputs
from tests.support.commands import ROOT

FAMILY = distance.FAMILY
KERNELS = ROOT / "cython_kernels"


def built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """attention.c with that family too; for the baseline only and not optimised, which compiles faster."""
    shutil.copytree(KERNELS, folder / KERNELS.name)
    shutil.copy(ROOT / "tests/support/distance.inc", folder / KERNELS.name / "families")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(setuptools, "setup", lambda **_: None)
    runpy.run_path(str(ROOT / "setup.py"))["list_families"]()
    flags = ["-O0", "-DGNNBENCH_BASELINE_ONLY", "-fopenmp", "-fPIC", "-shared"]
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(["gcc", *flags, include, "-o", "_attention.so", "cython_kernels/attention.c"], check=True)
    spec: Any = importlib.util.spec_from_file_location("_attention", folder / "_attention.so")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not installed")
@pytest.mark.skipif(not (KERNELS / "attention.c").exists(), reason="the kernels are not built")
def test_a_family_needs_its_score_and_gradient_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that differs in kind: of numbers, with a pass over the edges for the gradient of query."""
    monkeypatch.setattr(attention, "native", built(tmp_path, monkeypatch))
    monkeypatch.setattr(isplib.IsplibKernels, "families", (FAMILY.name,))
    monkeypatch.setitem(FAMILIES, FAMILY.name, FAMILY)
    for op in (FAMILY.op, f"{FAMILY.op}_backward"):
        monkeypatch.setitem(choices.WAYS, op, choices.CHUNKS)
    for name, (heads, channels), p in itertools.product(["hub", "wide"], [(1, 1), (2, 7), (9, 33)], [0.0, 0.5]):
        graph = graphs.graph(name)
        tensors = tuple(tensor.detach() for tensor in inputs(FAMILY.name, graph, heads, channels))
        given = Attention(FAMILY, tensors, 0.2, Dropout(p, torch.tensor([1])) if p else None)
        kept = [kernels.attention(graph, given, False) for kernels in (isplib.IsplibKernels(isa=0), Kernels())]
        found, truth = (
            (*each, *kernels.attention_backward(graph, given, each, kept[1][0]))
            for kernels, each in zip((isplib.IsplibKernels(isa=0), Kernels()), kept, strict=True)
        )
        torch.testing.assert_close(found, truth)
