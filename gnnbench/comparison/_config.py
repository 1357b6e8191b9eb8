"""The configuration that all backends of a comparison share, and what each makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gnnbench import backends
from gnnbench.backends.base import Backend
from gnnbench.config import Run, backend_sections, validate
from gnnbench.errors import BackendUnavailable


def rows(config: Run, backends: Sequence[str]) -> list[str]:
    """Every backend as it is, and beside it what `config` asks for: recorded steps, products in bfloat16, both."""
    asked = {"cuda_graph=true": config.train.cuda_graph, "precision=bf16": config.train.precision == "bf16"}
    result = [*backends]
    for option in (option for option, is_asked in asked.items() if is_asked):
        result = [row for spec in result for row in _without_and_with(option, spec)]
    return list(dict.fromkeys(result))


def _without_and_with(option: str, spec: str) -> list[str]:
    """The backend twice, unless its own options decide."""
    decided = option.partition("=")[0] in backend_sections(spec)[1]["train"]
    return [spec] if decided else [spec, f"{spec}:{option}"]


def resolved(config: Run, epochs: int | None, specs: Sequence[str]) -> dict[str, Any]:
    """The configuration that every backend runs, whole but for the options that the user left alone.

    Steps are recorded, and products are in bfloat16, only where a backend's own options say so. PyG runs on the
    GPU if it is compared with what runs there.
    """
    raw = config.model_dump(mode="json", serialize_as_any=True)
    raw["backend"] = config.backend.model_dump(mode="json", exclude_unset=True)
    raw["train"] |= {"repeats": 1, "patience": 0, "checkpoint_every": 0}
    raw["train"] |= {"cuda_graph": False, "workers": 1, "precision": "float32"}
    if raw["train"]["device"] == "auto" and torch.cuda.is_available() and any(map(_needs_gpu, specs)):
        raw["train"]["device"] = "cuda"
    if epochs is not None:
        raw["train"]["epochs"] = epochs
    validate(raw, "comparison")
    return raw


def of_backend(config: dict[str, Any], spec: str) -> dict[str, Any]:
    """The configuration that a backend runs: its own options before those that all share."""
    section, own = backend_sections(spec)
    shared = config["backend"] if takes_rewrites(section["name"]) else {}
    others = {name: {**config[name], **content} for name, content in own.items()}
    return {**config, **others, "backend": {**shared, **section}}


def in_bfloat16(spec: str) -> bool:
    """Return whether a backend's own options ask for products in bfloat16."""
    return backend_sections(spec)[1]["train"].get("precision") == "bf16"


def _needs_gpu(spec: str) -> bool:
    section, own = backend_sections(spec)
    kind = _type(section["name"])
    if kind is None:
        return False
    on_gpu = kind.kernels is not None and kind.kernels.device_type == "cuda"
    return on_gpu or bool(own["train"].get("cuda_graph"))


def takes_rewrites(name: str) -> bool:
    kind = _type(name)
    return kind is not None and kind.takes_rewrites


def _type(name: str) -> type[Backend] | None:
    """None if what another package brought cannot be loaded."""
    try:
        return backends.backend_type(name)
    except BackendUnavailable:
        return None


def difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    """The first key in which two resolved configurations differ, the backends' names aside."""
    for section in new:
        ours, theirs = new[section], old.get(section, {})
        for key in sorted({*ours, *theirs}):
            if (section, key) != ("backend", "name") and ours.get(key) != theirs.get(key):
                return f"{section}.{key}"
    return ""
