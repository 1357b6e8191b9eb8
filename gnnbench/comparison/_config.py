"""The configuration that all backends of a comparison share, and what each makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gnnbench import backends
from gnnbench.backends.base import Backend
from gnnbench.config import Run, backend_sections, validate
from gnnbench.errors import BackendUnavailable, ConfigError, did_you_mean


@dataclass(frozen=True)
class ResolvedRun:
    """A run that several backends train alike, validated; made by `resolve`."""

    backends: list[str]  # `"NAME[:key=value]..."`, a row of the table each
    config: dict[str, Any]  # what all share, as it is stored, without options of backends that were left alone

    def of(self, backend: str) -> dict[str, Any]:
        """Return what a backend runs: its own options before those that all share."""
        section, own = backend_sections(backend)
        kind = _type(section["name"])
        shared = self.config["backend"] if kind and kind.takes_rewrites else {}
        others = {name: {**self.config[name], **content} for name, content in own.items()}
        return {**self.config, **others, "backend": {**shared, **section}}

    def of_reference(self, backend: str) -> dict[str, Any]:
        """Return what the reference runs: in bfloat16 if any backend does, so that it shows how far that moves."""
        config = self.of(backend)
        in_bf16 = any(backend_sections(each)[1]["train"].get("precision") == "bf16" for each in self.backends)
        return {**config, "train": config["train"] | {"precision": "bf16"}} if in_bf16 else config


def resolve(run: Run, specs: Sequence[str]) -> ResolvedRun:
    """Work out what every backend runs.

    Rounds take the place of repeats, and all backends run the same epochs. Steps are recorded, and products are in
    bfloat16, only where a backend's own options say so; where `run` does, every backend runs without and with it.
    PyG runs on the GPU if it is compared with what runs there.

    Raises:
        ConfigError: there is no backend, or one is unknown or has a bad option.
    """
    known, named = backends.names(), [backend_sections(spec)[0]["name"] for spec in specs]
    if unknown := [name for name in named if name not in known]:
        raise ConfigError(*(f"unknown backend {name!r}{did_you_mean(name, known)}" for name in unknown))
    if not specs:
        raise ConfigError("a comparison needs a backend; give one or more, such as pyg,isplib")
    rows = _rows(run, specs)
    changes: dict[str, Any] = {"repeats": 1, "patience": 0, "checkpoint_every": 0, "workers": 1}
    changes |= {"cuda_graph": False, "precision": "float32"}
    if run.train.device == "auto" and torch.cuda.is_available() and any(map(_needs_gpu, rows)):
        changes["device"] = "cuda"
    run = run.changed(train=changes)
    config = run.model_dump(mode="json", serialize_as_any=True)
    config["backend"] = run.backend.model_dump(mode="json", exclude_unset=True)
    resolved = ResolvedRun(rows, config)
    for row in rows:
        if ":" in row:  # a name alone asks for nothing that was not validated with `run`
            validate(resolved.of(row), f"backend {row!r}")
    return resolved


def difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    """The first key in which two resolved configurations differ, the backends' names aside."""
    for section in new:
        ours, theirs = new[section], old.get(section, {})
        for key in sorted({*ours, *theirs}):
            if (section, key) != ("backend", "name") and ours.get(key) != theirs.get(key):
                return f"{section}.{key}"
    return ""


def _rows(run: Run, specs: Sequence[str]) -> list[str]:
    """Every backend as it is, and beside it what `run` asks for: recorded steps, products in bfloat16, both."""
    asked = ["cuda_graph=true"] * run.train.cuda_graph + ["precision=bf16"] * (run.train.precision == "bf16")
    result = [*specs]
    for option in asked:
        key = option.partition("=")[0]
        decided = {spec: key in backend_sections(spec)[1]["train"] for spec in result}  # by its own options
        result = [row for spec in result for row in [spec, *[f"{spec}:{option}"] * (not decided[spec])]]
    return list(dict.fromkeys(result))


def _needs_gpu(spec: str) -> bool:
    section, own = backend_sections(spec)
    kind = _type(section["name"])
    if kind is None:
        return False
    on_gpu = kind.kernels is not None and kind.kernels.device_type == "cuda"
    return on_gpu or bool(own["train"].get("cuda_graph"))


def _type(name: str) -> type[Backend] | None:
    """None if what another package brought cannot be loaded."""
    try:
        return backends.backend_type(name)
    except BackendUnavailable:
        return None
