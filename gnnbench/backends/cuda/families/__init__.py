"""Attention families on the device: a file for each that has kernels, named as in `ops.families`.

Such a file has its `DeviceFamily` as FAMILY.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from gnnbench import registry

Completed = Callable[[tuple[Tensor, ...], Tensor, Tensor, Tensor], tuple[Tensor, ...]]


class DeviceFamily(NamedTuple):
    """A score function on the device; the inputs of `ops.families.Family` tell kernels the rest.

    query and key, of both ends of E edges each of U nodes and heads, are [E, U, C], or [E, U] if they are numbers,
    and so is `att`, if there is one; E is 1 for what edges share. Triton's interpreter wants `tl` in their file.

    Attributes:
        score: `score(query, key, att, SLOPE)`, of every edge, [E, U].
        gradient: `gradient(grad_score, query, key, other, SLOPE)`, of one end, from that of the score, [E, U];
            `other` is the other end. Short of what `completed` adds.
        completed: does what `ops.families.Family.completed` does, where that is worth a kernel.
    """

    score: Any
    gradient: Any
    completed: Completed | None = None


ON_DEVICE: dict[str, DeviceFamily] = {
    name: registry.find("backends.cuda.families", name).FAMILY for name in registry.names("backends.cuda.families")
}
