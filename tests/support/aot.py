"""Compiles the CUDA kernels for GPUs that are not there: run as a program, without Triton's interpreter.

Ops are called on small CPU graphs with widths of production; where they would start a kernel, it is compiled.
Prints a line of JSON for each: `kernel`, `how` it was called, `registers` and `stack_bytes` of a thread, the stack
being where registers spill to, `wide_loads` of 16 bytes from global memory, and `tile_bytes` of a thread.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from gnnbench.backends.cuda import CudaKernels, _base
from gnnbench.graph import Graph
from gnnbench.ops.dropout import Dropout
from gnnbench.ops.families import FAMILIES, Attention
from gnnbench.ops.kernels import choice_key

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
SHAPES = (1, 64), (2, 256)  # heads and channels, the last of which takes most registers
SIZE = re.compile(r"(BLOCK_)?[CDES]$")
TYPES = {torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16", torch.float16: "fp16"}
TYPES |= {torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8"}


def compiler(target: GPUTarget) -> Callable[..., None]:
    """Take the place of starting a kernel."""
    done = set()

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **constants: Any) -> None:
        options = {name: constants.pop(name) for name in ("num_warps", "enable_fp_fusion")}
        given = dict(zip(kernel.arg_names, args, strict=False)) | constants
        signature, fixed, aligned = {}, {}, {}
        for place, name in enumerate(kernel.arg_names):
            value = given[name]
            if isinstance(value, torch.Tensor):
                signature[name] = "*" + TYPES[value.dtype]
                if value.data_ptr() % 16 == 0:
                    aligned[(place,)] = [["tt.divisibility", 16]]
            elif name in constants or value is None:
                signature[name], fixed[(place,)] = "constexpr", value
            else:
                assert isinstance(value, int), f"{name} is {value}; a float would be rounded to float32"
                signature[name] = "i32" if value < 2**31 else "i64"
        branches = fixed
        if target.backend == "hip":  # of which only is asked whether it compiles, so one width will do
            branches = {at: value for at, value in fixed.items() if not SIZE.match(kernel.arg_names[at[0]])}
        key = kernel.__name__, repr(signature), repr(branches), repr(aligned)
        if key in done:
            return
        done.add(key)
        found = triton.compile(ASTSource(kernel, signature, fixed, aligned), target=target, options=options)
        how = {name: value for name, value in given.items() if not isinstance(value, torch.Tensor)}
        sizes = [size for name, size in constants.items() if name.startswith("BLOCK_")]
        itemsize = min(value.itemsize for value in given.values() if isinstance(value, torch.Tensor))
        lanes = target.warp_size * options["num_warps"]
        tile = {"tile_bytes": prod(sizes) * itemsize // lanes}
        print(json.dumps({"kernel": kernel.__name__, "how": str(how), **tile, **measured(found)}), flush=True)

    return run


def measured(found: Any) -> dict[str, int]:
    """Read that of a kernel for NVIDIA."""
    if "cubin" not in found.asm:
        return {}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(found.asm["cubin"])
        file.flush()
        text = subprocess.check_output([CUOBJDUMP, "--dump-resource-usage", file.name], text=True)
    usage = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}
    wide_loads = len(re.findall(r"ld\.global\S*\.v(?:4\.b32|2\.b64)", found.asm["ptx"]))
    return {"registers": usage["REG"], "stack_bytes": usage["STACK"] + usage["LOCAL"], "wide_loads": wide_loads}


def graph(nodes: int, degree: int) -> Graph:
    generator = torch.Generator().manual_seed(0)
    return Graph.from_edge_index(torch.randint(nodes, (2, nodes * degree), generator=generator), nodes)


def with_hub(nodes: int, edges: int) -> Graph:
    """Every edge runs into node 0."""
    node = torch.arange(edges) % nodes
    return Graph.from_edge_index(torch.stack([node, node * 0]), nodes)


def aggregations(kernels: CudaKernels, on: Graph, width: int, dtype: torch.dtype) -> None:
    """All that GCN, SAGE and GIN run, and streamed messages, forward and backward."""
    x, value = torch.ones(on.num_rows, width, dtype=dtype), torch.ones(on.num_edges, dtype=dtype)
    kernels.spmm(on, x, None, "mean")
    kernels.spmm(on, x, value, "sum")
    out, arg_out = kernels.spmm_max(on, x, None, "max")
    kernels.spmm_max_backward(on, arg_out, out, None)
    kernels.sddmm(on, x, x)
    edges = torch.ones(on.num_edges, width, dtype=dtype)
    kernels.segment_backward(on.rowptr, out, "max", edges, kernels.segment(on.rowptr, edges, "max"))


def over_heads(kernels: CudaKernels, on: Graph, heads: int, channels: int, dtype: torch.dtype) -> None:
    """Run unfused attention."""
    x, score = torch.ones(on.num_rows, heads, channels, dtype=dtype), torch.ones(on.num_edges, heads, dtype=dtype)
    kernels.spmm(on, x, score, "sum")
    kernels.sddmm(on, x, x)
    kernels.edge_softmax_backward(on, kernels.edge_softmax(on, score), score)


def fused(kernels: CudaKernels, on: Graph, heads: int, channels: int, dtype: torch.dtype) -> None:
    """Run attention with dropout, forward and backward."""
    sizes = {"N": on.num_rows, "M": on.num_cols, "H": heads, "C": channels, "D": channels}
    drop = Dropout(0.5, torch.zeros(1, dtype=torch.int64))
    for family in FAMILIES.values():
        shapes = ([sizes[dim] for dim in dims] for dims in family.inputs.values())
        inputs = tuple(torch.ones(shape, dtype=dtype) for shape in shapes)
        kept = kernels.attention(on, given := Attention(family, inputs, 0.2, drop), family.keeps_positive)
        kernels.attention_backward(on, given, kept, torch.ones_like(kept[0], dtype=dtype))


def by_edge(kernels: CudaKernels, on: Graph, heads: int, channels: int, dtype: torch.dtype) -> None:
    """Run attention by the strategy "edge"; GAT's forward is sliced."""
    for family in FAMILIES.values():
        for op, lane in ((family.op, 16), (f"{family.op}_backward", 8)):
            for side in (on, on.transpose):
                choice = {"strategy": "edge", "lane": lane, "warps": 1}
                side.cache[choice_key(op, heads * channels, dtype, heads)] = choice
    fused(kernels, on, heads, channels, dtype)


def main(arch: str, name: str) -> None:
    target = GPUTarget("hip", arch, 64) if arch.startswith("gfx") else GPUTarget("cuda", int(arch), 32)
    JITFunction.run = compiler(target)
    kernels, _base.PROGRAMS = CudaKernels(slice_edges=40), 8  # as for many nodes
    sparse, dense = graph(64, 4), graph(64, 50)  # the dense one is cut into slices
    dtype = getattr(torch, name)
    aggregations(kernels, dense, 128, dtype)
    over_heads(kernels, dense, 8, 32, dtype)
    for heads, channels in SHAPES if arch == "90" else SHAPES[-1:]:
        fused(CudaKernels(), dense, heads, channels, dtype)
    if dtype == torch.float32:
        aggregations(kernels, sparse, 16, dtype)
        by_edge(kernels, with_hub(64, 2000), 8, 8, dtype)


if __name__ == "__main__":
    os.environ.pop("TRITON_INTERPRET", None)
    main(*sys.argv[1:])
