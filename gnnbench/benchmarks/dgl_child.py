"""DGL's side of a benchmark: run by the interpreter that has DGL, it knows nothing of this package.

One request per line on standard input, one answer per line on standard output, both JSON. Tensors travel in
`given.npz` and `found.npz` in the folder given as argument.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import os
import sys
import time
import types
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

# DGL 2.1 checks the version of torch for this part only, which nothing here needs.
sys.modules["dgl.graphbolt"] = types.ModuleType("dgl.graphbolt")
os.environ.setdefault("DGLBACKEND", "pytorch")
try:
    import dgl
    from dgl import ops
    from dgl.nn import functional

    MISSING = ""
except ImportError as error:
    MISSING = str(error)

FOLDER = Path(sys.argv[1])


def edge_softmax(g: Any, score: Tensor) -> Any:
    return functional.edge_softmax(g, score)


def softmaxed(g: Any, score: Tensor, x: Tensor) -> Any:
    return ops.u_mul_e_sum(g, x, edge_softmax(g, score))


def spmm(g: Any, x: Tensor, value: Tensor | None = None) -> Any:
    return ops.copy_u_sum(g, x) if value is None else ops.u_mul_e_sum(g, x, value)


def spmm_max(g: Any, x: Tensor, value: Tensor | None = None) -> Any:
    return ops.copy_u_max(g, x) if value is None else ops.u_mul_e_max(g, x, value)


def sddmm(g: Any, a: Tensor, b: Tensor) -> Any:
    return ops.v_dot_u(g, a, b).squeeze(-1)


def pair_dot(g: Any, x_src: Tensor, x_dst: Tensor) -> Any:
    return ops.u_dot_v(g, x_src, x_dst).squeeze(-1)


def fusedmm(g: Any, x: Tensor, y: Tensor) -> Any:
    return ops.u_mul_e_sum(g, y, ops.v_dot_u(g, x, y))


def gat_attention(g: Any, query: Tensor, key: Tensor, value: Tensor) -> Any:
    score = ops.u_add_v(g, key.unsqueeze(-1), query.unsqueeze(-1))
    return softmaxed(g, torch.nn.functional.leaky_relu(score, 0.2), value)


def gatv2_attention(g: Any, query: Tensor, key: Tensor, att: Tensor) -> Any:
    both = torch.nn.functional.leaky_relu(ops.u_add_v(g, key, query), 0.2)
    return softmaxed(g, (both * att).sum(-1, keepdim=True), key)


def dot_attention(g: Any, query: Tensor, key: Tensor, value: Tensor) -> Any:
    return softmaxed(g, ops.v_dot_u(g, query, key), value)


class Bench:
    """Answers requests; each method is one."""

    def start(self, threads: int, memory_bytes: int) -> dict[str, Any]:
        if MISSING:
            raise ImportError(MISSING)
        if memory_bytes and sys.platform == "linux":
            import resource

            resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
        torch.set_num_threads(threads)
        return {"version": dgl.__version__}

    def graph(self, nodes: dict[str, int], relations: list[list[str]], **given: Tensor) -> dict[str, Any]:
        """Take edges by relation, between numbers of nodes by type."""
        ends = [(given[f"col_{place}"], given[f"row_{place}"]) for place in range(len(relations))]
        if len(nodes) == len(relations) == 1:  # a graph without types is another to some of DGL's calls
            self.g = dgl.graph(ends[0], num_nodes=next(iter(nodes.values())))
        else:
            self.g = dgl.heterograph(dict(zip(map(tuple, relations), ends, strict=True)), nodes)
        self.g.create_formats_()
        return {}

    def case(self, op: str, grads: list[str], grad_out: Tensor, **inputs: Tensor) -> dict[str, Any]:
        self.leaves, self.grad_out = [inputs[name].requires_grad_() for name in grads], grad_out
        self.call: Callable[[], Any] = partial(globals()[op], self.g, **inputs)  # the function above
        return {}

    def features(self, types: list[str], **given: Tensor) -> dict[str, Any]:
        self.x = {kind: given[f"x_{place}"] for place, kind in enumerate(types)}
        return {}

    def sampling(self, fanouts: list[int], stage: str, target: str, seeds: Tensor) -> dict[str, Any]:
        """Have batches of seeds of a type sampled, their features gathered, or both; the mean number of edges."""
        from dgl.dataloading import NeighborSampler

        typed = len(self.g.ntypes) > 1
        batches = [{target: each} if typed else each for each in seeds]
        sampler = NeighborSampler(fanouts[::-1])
        drawn = [sampler.sample_blocks(self.g, batch) for batch in batches]
        edges = sum(block.num_edges() for _, _, blocks in drawn for block in blocks) / len(drawn)

        def gather(node: Any) -> list[Tensor]:
            return [own.index_select(0, node[kind] if typed else node) for kind, own in self.x.items()]

        batch, nodes = itertools.cycle(batches), itertools.cycle([found for found, _, _ in drawn])
        self.call = {
            "sample": lambda: sampler.sample_blocks(self.g, next(batch)),
            "gather": lambda: gather(next(nodes)),
            "both": lambda: gather(sampler.sample_blocks(self.g, next(batch))[0]),
        }[stage]
        return {"edges": edges}

    def negatives(self, count: int) -> dict[str, Any]:
        """Have pairs without edges and self-loops drawn, as many of `count` as DGL finds."""
        self.call = partial(dgl.sampling.global_uniform_negative_sampling, self.g, count, replace=True)
        return {"found": [torch.stack(self.call())]}

    def outputs(self, direction: str, grad_out: Tensor) -> dict[str, Any]:
        return {"found": self._found(direction, grad_out)}

    def memory(self, direction: str) -> dict[str, Any]:
        """Measure as `gnnbench.measure.memory.HighWaterMark`; nothing where there is none."""
        if sys.platform != "linux":
            return {}
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        resting = peak_memory()
        _ = self._found(direction, self.grad_out)
        peak = peak_memory()
        return {"increase": max(0, peak - resting), "peak": peak}

    def time(self, direction: str, samples: int, calls: int) -> dict[str, Any]:
        if direction == "forward":
            with torch.no_grad():
                return {"seconds": timed(self.call, samples, calls)}
        out, leaves, grad_out = self.call(), self.leaves, self.grad_out
        work = partial(torch.autograd.grad, out, leaves, grad_out, retain_graph=True)
        return {"seconds": timed(work, samples, calls)}

    def _found(self, direction: str, grad_out: Tensor) -> Sequence[Tensor]:
        if direction == "forward":
            with torch.no_grad():
                return [self.call()]
        return torch.autograd.grad(self.call(), self.leaves, grad_out)


def peak_memory() -> int:
    """Highest resident memory in bytes since the last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) * 1024


def timed(work: Callable[[], Any], samples: int, calls: int) -> list[float]:
    result = []
    for _ in range(samples):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        result.append((time.perf_counter() - start) / calls)
    return result


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like an answer
    bench = Bench()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            with np.load(FOLDER / "given.npz") as arrays:
                given = {name: torch.from_numpy(array) for name, array in arrays.items()}
            answer = getattr(bench, request.pop("do"))(**request, **given)
            np.savez(FOLDER / "found.npz", *[each.numpy() for each in answer.pop("found", ())])
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
