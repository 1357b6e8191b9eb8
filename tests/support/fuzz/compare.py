"""Two stories of one seed beside each other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.support.fuzz.play import RAISED, Seed, Story, play

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
TRIALS, AMPLIFIED = 8, 4  # of other rounding in PyTorch, and how many times what it does there ours may be off


def difference(seed: Seed) -> tuple[str, Story]:
    """A sentence on the first difference between kernels and PyTorch, empty if there is none; and our story."""
    theirs, ours = play(seed, ours=False), play(seed, ours=True)
    dtype = _coarsest(theirs)
    for number, (expected, found) in enumerate(zip(theirs.chapters, ours.chapters, strict=False)):
        if any(_is_of_memory(error) for error in expected.get(RAISED, ())):
            break
        if RAISED in expected and RAISED in found:  # before which a program may have done more or less
            problem = _unequal(expected[RAISED][0], found[RAISED][0], 0.0)
            return problem and f"chapter {number}, {RAISED}: {problem}", ours
        for label in dict.fromkeys([*expected, *found]):
            values, others = expected.get(label, []), found.get(label, [])
            for index in range(max(len(values), len(others))):
                pair = [each[index] if index < len(each) else "nothing" for each in (values, others)]
                problem = _unequal(*pair, TOLERANCE[dtype])
                if problem and not _uncertain(seed, (number, label, index), pair):
                    return f"chapter {number}, {label}, time {index + 1}: {problem}", ours
    return "", ours


def _coarsest(story: Story) -> torch.dtype:
    values = (value for chapter in story.chapters for seen in chapter.values() for value in seen)
    narrow = any(isinstance(value, Tensor) and value.dtype != torch.float64 for value in values)
    return torch.float32 if narrow else torch.float64


def _is_of_memory(error: Exception) -> bool:
    """Return whether PyTorch forbids to edit, keep or view a tensor, which kernels that need not may permit."""
    return any(word in str(error) for word in ("inplace", "in-place", "Inference tensors", "of 0 elements"))


def _unequal(expected: Any, found: Any, tolerance: float) -> str:
    """How two values differ; empty if they do not."""
    if isinstance(expected, Exception) and isinstance(found, Exception):
        return "" if type(expected) is type(found) else f"{expected!r} by PyTorch, {found!r} by kernels"
    if not isinstance(expected, Tensor) or not isinstance(found, Tensor):
        if expected is found or _plain(expected) == _plain(found):
            return ""
        return f"{_plain(expected)} by PyTorch, {_plain(found)} by kernels"
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return f"{_plain(expected)} by PyTorch, {_plain(found)} by kernels"
    if torch.allclose(found, expected, rtol=0.0, atol=tolerance * _scale(expected), equal_nan=True):
        return ""
    return f"off by {_off(expected, found):.3g} of {_scale(expected):.3g}"


def _plain(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} {[*value.shape]}"
    return repr(value)


def _scale(tensor: Tensor) -> float:
    finite = tensor[tensor.isfinite()]
    return 1.0 + (finite.abs().max().item() if finite.numel() else 0.0)


def _off(expected: Tensor, found: Tensor) -> float:
    """The largest difference; infinite where only one of both is finite."""
    same = (expected == found) | (expected.isnan() & found.isnan())
    return (expected - found).abs().masked_fill(same, 0.0).nan_to_num(torch.inf, torch.inf).max().item()


def _uncertain(seed: Seed, place: tuple[int, str, int], pair: list[Any]) -> bool:
    """Return whether PyTorch's own result moves as much where it rounds otherwise, and more coarsely."""
    expected, found = pair
    if not isinstance(expected, Tensor) or not isinstance(found, Tensor) or expected.shape != found.shape:
        return False
    number, label, index = place
    moved = 0.0
    for trial in range(TRIALS):
        story = play(seed, ours=False, rounding=trial)
        try:
            moved = max(moved, _off(expected, story.chapters[number][label][index]))
        except (LookupError, RuntimeError, TypeError):
            return True
    return _off(expected, found) <= AMPLIFIED * moved
