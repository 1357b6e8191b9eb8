"""Choices that `gnnbench tune` found, on disk by machine, version and graph, and their way to the kernels."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, ValidationError
from torch.nn import Module

import gnnbench
from gnnbench.errors import GnnbenchError
from gnnbench.graph import Graph
from gnnbench.measure import code, environment
from gnnbench.ops.kernels import Kernels, choice_key
from gnnbench.results.schema import ChoiceRecord, Record

CPU = torch.device("cpu")
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Tuned(Record):
    """The tuned choices of one graph."""

    schema_version: Literal[1] = 1
    machine: dict[str, Any] = Field(description="as `machine()`; elsewhere the file counts for nothing")
    kernels: str = Field("isplib", description="whose choices, by the name of these kernels")
    graph: str = Field(description="the dataset's label")
    fingerprint: str
    tuning_s: float = Field(description="what the search cost, over all calls that added to this file")
    choices: list[ChoiceRecord]


def machine(device: torch.device = CPU) -> dict[str, Any]:
    """The facts beside the graph that a choice for kernels on `device` depends on."""
    version = {"gnnbench": gnnbench.__version__, "kernels": code.kernels()}
    if device.type == "cuda":
        return {"gpu": torch.cuda.get_device_name(device), **version}
    isa = os.environ.get("GNNBENCH_ISA", "")
    return {"cpu": environment.cpu(), "threads": torch.get_num_threads(), "isa": isa, **version}


def _machines() -> list[dict[str, Any]]:
    """Name that of the CPU and, where there is one, that of the current GPU."""
    return [machine(), *([machine(torch.device("cuda"))] if torch.cuda.is_available() else [])]


def fingerprint(graph: Graph) -> str:
    """Hash of the rows of a graph; the time is that of reading them."""
    content = hashlib.sha256(f"{graph.num_rows} {graph.num_cols}".encode())
    for tensor in (graph.rowptr, graph.col):
        content.update(tensor.cpu().numpy().data)
    return content.hexdigest()[:16]


def folder(cache: Path) -> Path:
    """Where choices of all machines are."""
    return cache / "tuned"


def path(cache: Path, graph: Graph, kernels: str) -> Path:
    """The file of one graph on this machine, for kernels of this name."""
    return _folder_of(machine(graph.device), cache, kernels) / f"{fingerprint(graph)}.json"


def read(file: Path) -> tuple[Tuned | None, list[str]]:
    """The contents of a file, or None and a warning that it is broken or of another machine; none if missing."""
    try:
        tuned = Tuned.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None, []
    except (OSError, ValidationError) as error:
        problem = getattr(error, "strerror", None) or "it is not a file of tuned choices"
        return None, [f"{file} is ignored ({problem}): run `gnnbench tune` again, or `gnnbench tune --clear`"]
    if tuned.machine not in _machines() or tuned.fingerprint != file.stem:
        return None, [f"{file} is ignored (it is of another machine, version or graph): run `gnnbench tune` again"]
    return tuned, []


def known(cache: Path) -> Iterator[Tuned]:
    """Everything that was tuned on this machine with this version and number of threads."""
    for machine in _machines():
        for file in sorted(_folder_of(machine, cache).glob("*/*.json")):
            if (tuned := read(file)[0]) is not None:
                yield tuned


def clear(cache: Path) -> int:
    """Forget what was tuned, for all machines and versions; how many files there were.

    Raises:
        GnnbenchError: the cache cannot be written.
    """
    files = list(folder(cache).rglob("*.json"))
    try:
        if folder(cache).is_dir():
            shutil.rmtree(folder(cache))
    except OSError as error:
        raise GnnbenchError(f"{folder(cache)}: cannot be removed: {error.strerror}") from None
    return len(files)


def apply(graph: Graph, kernels: Kernels, model: Module, cache: Path) -> tuple[Tuned | None, list[str]]:
    """Let `kernels` run `model` on `graph` as was found best, and plan for it; what is in force, and warnings.

    The graph with self-loops takes the choices of the one without, where it was made. Only widths that the model's
    layers have count, for a plan costs time and memory.
    """
    has_choices = type(kernels).choices is not Kernels.choices
    if not has_choices or not _folder_of(machine(graph.device), cache, kernels.name).is_dir():  # never tuned
        return None, []
    file = path(cache, graph, kernels.name)
    result, warnings = read(file)
    if result is None:
        return None, warnings
    widths = _widths(model)
    in_force: list[ChoiceRecord] = []
    impossible: list[ChoiceRecord] = []
    for record in (record for record in result.choices if record.width in widths):
        dtype = DTYPES[record.dtype]
        for target in _adjacencies(graph, record.adjacency):
            key = choice_key(record.op, record.width, dtype, record.heads)
            target.cache[key] = record.choice
            taken = kernels.chosen(record.op, target, record.width, dtype, record.heads) == record.choice
            if taken:
                target.layout.plan(target)
            else:
                del target.cache[key]
            records = in_force if taken else impossible
            if record not in records:
                records.append(record)
    warnings += [
        f"{file}: {record.op} of width {record.width} cannot run as {record.choice}, which is ignored: "
        "run `gnnbench tune` again"
        for record in impossible
    ]
    return result.model_copy(update={"choices": in_force}), warnings


def _adjacencies(graph: Graph, adjacency: str) -> list[Graph]:
    """`graph` and the same with self-loops, or their transposes, as far as they were made."""
    result = [graph, *([graph.with_self_loops] if "with_self_loops" in vars(graph) else [])]
    if adjacency == "graph":
        return result
    return [made.transpose for made in result if "_reversed" in vars(made)]


def _widths(model: Module) -> set[Any]:
    """Inputs and outputs of every layer, those of all heads together too."""
    names = ("in_channels", "out_channels", "in_features", "out_features")
    result = {getattr(layer, name, None) for layer in model.modules() for name in names}
    attention: list[Any] = [layer for layer in model.modules() if hasattr(layer, "heads")]
    return result | {layer.heads * layer.out_channels for layer in attention}


def _folder_of(machine: dict[str, Any], cache: Path, kernels: str = "") -> Path:
    key = hashlib.sha256(json.dumps(machine, sort_keys=True).encode()).hexdigest()
    return folder(cache) / key[:16] / kernels
