"""Scores of heads by vectors: beside plain torch in float64, on any threads, and in GATConv."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GATConv

from gnnbench import convs
from gnnbench.backends import isplib
from gnnbench.ops.dense import head_scores
from gnnbench.ops.kernels import Kernels
from tests.ops import test_grad
from tests.support import graphs
from tests.support.kernels import OURS, leaf, over_dtypes, over_kernels, over_levels

SHAPES = [(0, 2, 3), (1, 1, 1), (7, 3, 8), (90, 8, 41), (300, 2, 32), (129, 5, 24), (63, 4, 0)]


def plain(x: Tensor, att: Tensor) -> Tensor:
    return torch.einsum("nhc,khc->knh", x, att)


@over_kernels
@over_dtypes
@pytest.mark.parametrize("count", [1, 2, 3])
def test_scores_and_gradients(kernels: Kernels, dtype: torch.dtype, count: int) -> None:
    for shape in SHAPES:
        x, att = leaf(*shape, dtype=dtype), leaf(count, *shape[1:], dtype=dtype)
        test_grad.check(lambda x, att: head_scores(kernels, x, att), plain, x, att)
        strided = x.detach().transpose(0, 1).contiguous().transpose(0, 1)
        assert torch.equal(head_scores(kernels, strided, att), head_scores(kernels, x, att))
    x, att = leaf(5, 2, 3), leaf(count, 2, 3)
    assert torch.autograd.gradcheck(lambda *given: head_scores(kernels, *given), (x, att))
    assert torch.autograd.gradgradcheck(lambda *given: head_scores(kernels, *given), (x, att))


@over_levels
def test_scores_do_not_depend_on_threads_and_keep_what_is_not_a_number_to_its_head(level: int) -> None:
    x, att, grad_out = torch.randn(3000, 3, 24), torch.randn(2, 3, 24), torch.randn(2, 3000, 3)
    x[70, 1, 5] = torch.nan
    results = []
    for threads in (1, 2, 5):
        kernels = isplib.IsplibKernels(isa=level, threads=threads)
        results.append([kernels.head_scores(x, att), *kernels.head_scores_backward(grad_out, x, att)])
    for found in zip(*results, strict=True):
        assert all(torch.equal(each.nan_to_num(9.5), found[0].nan_to_num(9.5)) for each in found)
    scores, grad_x, grad_att = results[0]
    assert scores.isnan().nonzero().tolist() == [[0, 70, 1], [1, 70, 1]]
    assert grad_att.isnan().nonzero().tolist() == [[0, 1, 5], [1, 1, 5]]
    assert not grad_x.isnan().any()


@pytest.mark.skipif(bool(isplib.MISSING), reason=isplib.MISSING)
def test_convs_whose_vectors_have_another_shape_or_type_compute_what_pygs_do() -> None:
    graph, x = graphs.graph("hub", OURS), leaf(graphs.graph("hub", OURS).num_cols, 6)
    for att in (torch.randn(1, 1, 8), torch.randn(1, 4, 1), torch.randn(1, 4, 8)):
        conv = GATConv(6, 8, heads=4, add_self_loops=False).double()
        conv.att_src = torch.nn.Parameter(att.double())
        ours = copy.deepcopy(conv)
        convs.bind(ours, OURS, transform_first=False, fold_norm=False)
        edge_index = torch.stack([graph.col.long(), graph.row])
        out, truth = ours(x, graph), conv(x, edge_index)
        torch.testing.assert_close(out, truth)
        for found, expected in zip(
            torch.autograd.grad(out.square().sum(), [x, *ours.parameters()]),
            torch.autograd.grad(truth.square().sum(), [x, *conv.parameters()]),
            strict=True,
        ):
            torch.testing.assert_close(found, expected)
