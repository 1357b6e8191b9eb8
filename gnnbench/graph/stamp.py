"""Stamps: whether a tensor still holds what it held, though some edits pass its version counter by."""

from __future__ import annotations

import functools
import weakref
from typing import NamedTuple

import torch
from torch import Tensor

MIN_SAMPLED = 4096  # numbers, of which all are compared
SAMPLES = 64  # of each dimension of a larger tensor, about


class Stamp(NamedTuple):
    """Equal as long as nothing was edited in place, by torch, nor other memory given to the tensor by `.data`.

    An edit that torch does not count (of `.data`, or of the array that `.numpy()` shares) shows on the CPU if it
    changes one of the numbers that are compared. A GPU would have to be waited for.
    """

    version: int
    memory: weakref.ref[torch.UntypedStorage]  # an address alone could be another tensor's by now
    address: int
    sample: bytes

    def holds(self, tensor: Tensor) -> bool:
        """Return whether the tensor that this stamp is of was left as it was then."""
        return (
            tensor._version == self.version
            and tensor.data_ptr() == self.address
            and tensor.untyped_storage() is self.memory()
            and (not self.sample or sample(tensor) == self.sample)
        )


def stamp(tensor: Tensor) -> Stamp | None:
    """A stamp of the contents of `tensor`; None for an inference tensor, where no edit by torch would show."""
    if tensor.is_inference():
        return None
    memory = weakref.ref(tensor.untyped_storage())
    return Stamp(tensor._version, memory, tensor.data_ptr(), sample(tensor) if tensor.is_cpu else b"")


def sample(tensor: Tensor) -> bytes:
    """Bytes of all numbers of a tensor in main memory, of about 64 in each dimension where there are many."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    numbers = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return numbers[_sampled(numbers.shape)].tobytes() if numbers.size > MIN_SAMPLED else numbers.tobytes()


@functools.lru_cache
def _sampled(shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(None, None, length // SAMPLES + 1) for length in shape)
