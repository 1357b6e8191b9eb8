"""Plain PyTorch in place of what PyG's layers call of pyg-lib, where that is not installed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.nn.conv import spline_conv

PACKAGE = "pyg-lib"
FLAGS = {"WITH_KNN": True, "WITH_SPLINE": True}


@contextmanager
def supplied() -> Iterator[None]:
    """Let layers find the functions below; those of pyg-lib where it has them."""
    if torch_geometric.typing.WITH_KNN and torch_geometric.typing.WITH_SPLINE:
        yield
        return
    with (
        warnings.catch_warnings(),
        mock.patch.multiple(torch_geometric.typing, **FLAGS),
        mock.patch.object(torch.ops.pyg, "knn", knn, create=True),
        mock.patch.multiple(spline_conv, spline_basis=spline_basis, spline_weighting=spline_weighting),
    ):
        warnings.simplefilter("ignore", UserWarning)  # of SplineConv, that it is slow
        yield


def knn(x: Tensor, y: Tensor, ptr_x: None, ptr_y: None, k: int, cosine: bool, num_workers: int) -> Tensor:
    """[2, N k] of each row of y [N, F] and the k rows of x [M, F] that are nearest to it."""
    with torch.no_grad():
        near = torch.cdist(y, x).topk(min(k, len(x)), largest=False).indices
    return torch.stack([torch.arange(len(y)).repeat_interleave(near.size(1)), near.flatten()])


def spline_basis(
    pseudo: Tensor, kernel_size: Tensor, is_open_spline: Tensor, degree: int
) -> tuple[Tensor, Tensor]:
    """The corners of the cell that each of pseudo [E, D] is in, [E, 2^D], by their weights and their numbers."""
    assert degree == 1
    place = pseudo * (kernel_size - is_open_spline.long())
    corners = torch.cartesian_prod(*[torch.arange(2)] * len(kernel_size)).view(-1, len(kernel_size))
    share = (place - place.floor()).unsqueeze(1)
    basis = torch.where(corners.bool(), share, 1 - share).prod(-1)
    stride = kernel_size.cumprod(0) // kernel_size
    return basis, ((place.floor().long().unsqueeze(1) + corners) % kernel_size * stride).sum(-1)


def spline_weighting(x: Tensor, weight: Tensor, basis: Tensor, index: Tensor) -> Tensor:
    """The mean of x [E, F] times weight [K, F, D] at these corners, by their weights."""
    return torch.einsum("es,ei,esio->eo", basis, x, weight[index])
