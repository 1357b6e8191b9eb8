"""Binding: the record of which conv ran on which kernels, shared by the backends and the convs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Binding:
    """Which conv runs on which kernels.

    Attributes:
        module: path of the conv in the model, such as "convs.0".
        conv: its PyG class name.
        kernels: op -> name of the kernels that run it, such as "isplib"; "torch" where plain torch does, and
            "composition" where a fused op is put together from the others.
        rewrites: names of the exact rewrites in force.
        declined: rewrite that was asked for and is not in force -> why.
    """

    module: str
    conv: str
    kernels: dict[str, str] = field(default_factory=dict)
    rewrites: list[str] = field(default_factory=list)
    declined: dict[str, str] = field(default_factory=dict)
