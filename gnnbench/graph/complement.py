"""Draws of pairs of nodes that are not among given ones, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

SIGN, WORD = -(2**63), 2**32 - 1
GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # 2^64 over the golden ratio; as are the others, a word with its sign


class Complement:
    """Pairs of nodes that are not among given ones."""

    def draw_pairs(
        self, rowptr: Tensor, col: Tensor, num_cols: int, rows: Tensor | None, count: int, seed: int
    ) -> Tensor:
        """Draw pairs (row, column) that are not in a matrix, each equally likely and independently.

        Nothing is drawn and rejected: of the pairs that are not there, in the order of rows, the one of a random
        rank is found by binary search.

        Args:
            rowptr, col: of the matrix, ascending and distinct in each row.
            rows: [count] int64, the row of each pair, which is not full; None where that is to be drawn too.

        Returns:
            [2, count] int64.
        """
        first = torch.arange(rowptr.numel() - 1, device=col.device) * num_cols
        place = first.repeat_interleave(rowptr.diff(), output_size=col.numel()) + col
        before = place - torch.arange(col.numel(), device=col.device)  # pairs that can be drawn and come first
        stream = _mix(_mix(torch.tensor(signed(seed), device=col.device)) + torch.arange(count, device=col.device))
        if rows is None:
            rank = _draw_below(stream, torch.full_like(stream, (rowptr.numel() - 1) * num_cols - col.numel()))
        else:
            rank = rows * num_cols - rowptr[rows] + _draw_below(stream, num_cols - rowptr[rows + 1] + rowptr[rows])
        place = rank + torch.searchsorted(before, rank, right=True)
        return torch.stack([place // num_cols, place % num_cols])


def _draw_below(stream: Tensor, n: Tensor) -> Tensor:
    """`draw_below` of `cython_kernels/random.h`: one of 0 to n - 1 for each stream, n > 0."""
    least = (((2**63 - 1) % n + 1) % n) * 2 % n  # 2^64 mod n
    drawn, todo = torch.empty_like(n), torch.arange(n.numel(), device=n.device)
    while todo.numel():
        stream[todo] += GOLDEN
        word, below = _mix(stream[todo]), n[todo]
        drawn[todo] = _high(word, below)
        todo = todo[(word * below ^ SIGN) < (least[todo] ^ SIGN)]
    return drawn


def _high(x: Tensor, n: Tensor) -> Tensor:
    """The upper word of the product of two, which have no sign."""
    x_low, x_high, n_low, n_high = x & WORD, _right(x, 32), n & WORD, _right(n, 32)
    middle = x_high * n_low + _right(x_low * n_low, 32)
    return x_high * n_high + _right(middle, 32) + _right(x_low * n_high + (middle & WORD), 32)


def _mix(x: Tensor) -> Tensor:
    """`mix` of `cython_kernels/random.h`."""
    x = (x ^ _right(x, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    x = (x ^ _right(x, 27)) * (0x94D049BB133111EB - 2**64)
    return x ^ _right(x, 31)


def _right(x: Tensor, bits: int) -> Tensor:
    """Shift a word that has no sign."""
    return (x >> bits) & (2 ** (64 - bits) - 1)


def signed(seed: int) -> int:
    """The lower 64 bits of a number, with a sign."""
    return ((seed + 2**63) & (2**64 - 1)) - 2**63
