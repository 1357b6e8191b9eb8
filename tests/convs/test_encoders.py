"""Sums of embeddings: what OGB's encoders compute, and no category that they lack."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gnnbench import convs
from gnnbench.backends import isplib
from gnnbench.errors import DatasetError, UnsupportedOp
from gnnbench.ops.dense import embedding_sum
from gnnbench.ops.kernels import Kernels
from tests.ops import test_grad
from tests.support.kernels import OURS, leaf, over_dtypes, over_kernels, over_levels

SIZES = (3, 1, 40)
Wrap = Callable[[torch.nn.Module], torch.nn.Module]


def categories_of(rows: int, sizes: tuple[int, ...] | Tensor = SIZES) -> Tensor:
    """[rows, K], most of them the first of their table, as carbon is of atoms."""
    skewed = torch.rand(rows, len(sizes), generator=torch.Generator().manual_seed(rows)) ** 4
    return (skewed * torch.as_tensor(sizes)).long()


@over_kernels
@over_dtypes
@pytest.mark.parametrize("rows", [0, 1, 900])
def test_rows_of_every_table_are_summed(kernels: Kernels, dtype: torch.dtype, rows: int) -> None:
    categories = categories_of(rows)

    def plain(*tables: Tensor) -> Tensor:
        looked_up = [table[column] for table, column in zip(tables, categories.unbind(1), strict=True)]
        return torch.stack(looked_up).sum(0)

    for width in (1, 3, 16, 41, 64, 150):
        tables = [leaf(size, width, dtype=dtype) for size in SIZES]
        test_grad.check(lambda *tables: embedding_sum(kernels, tables, categories), plain, *tables)


@over_levels
def test_sums_do_not_depend_on_threads(level: int) -> None:
    categories, starts = categories_of(900), torch.tensor([0, *SIZES]).cumsum(0)
    table, grad_out = torch.randn(44, 70), torch.randn(900, 70)
    first, *others = (isplib.IsplibKernels(isa=level, threads=threads) for threads in (1, 2, 5))
    for kernels in others:
        for op, x in (("embedding_sum", table), ("embedding_sum_backward", grad_out)):
            assert torch.equal(*(getattr(each, op)(x, categories, starts) for each in (first, kernels)))


@over_kernels
def test_sums_have_gradients_of_both_orders(kernels: Kernels) -> None:
    def summed(*tables: Tensor) -> Tensor:
        return embedding_sum(kernels, tables, categories_of(7))

    tables = [leaf(size, 2) for size in SIZES]
    assert torch.autograd.gradcheck(summed, tables)
    assert torch.autograd.gradgradcheck(summed, tables)


@over_kernels
@pytest.mark.parametrize("category", [-1, 40, -(2**62), 2**62])
def test_a_category_that_its_table_lacks_is_refused(kernels: Kernels, category: int) -> None:
    categories = categories_of(50)
    categories[20, 2] = category
    with pytest.raises(
        DatasetError, match=f"category {category} in row 20, column 2 is not one of the 40 that its table"
    ):
        embedding_sum(kernels, [leaf(size, 20) for size in SIZES], categories)


@pytest.mark.parametrize("categories", [torch.zeros(4, 2).long(), torch.zeros(4, 3), torch.zeros(4).long()])
def test_categories_of_another_shape_or_type_are_refused(categories: Tensor) -> None:
    with pytest.raises(UnsupportedOp, match=r"categories have (shape \[4.*\]|type torch.float32), expected"):
        embedding_sum(OURS, [leaf(size, 20) for size in SIZES], categories)


@pytest.mark.parametrize("name", ["AtomEncoder", "BondEncoder"])
@pytest.mark.parametrize("wrap", [lambda model: model, torch.compile], ids=["eager", "compiled"])
def test_embeddings_are_those_of_ogb(name: str, wrap: Wrap) -> None:
    mol_encoder = pytest.importorskip("ogb.graphproppred.mol_encoder", reason="OGB is not installed")
    plain, bound = (getattr(mol_encoder, name)(17).double() for _ in range(2))
    bound.load_state_dict(plain.state_dict())
    (binding,) = convs.bind(torch.nn.ModuleList([bound]), OURS, transform_first=False, fold_norm=False)
    assert (binding.conv, binding.kernels) == (name, {"embedding_sum": "isplib"})
    categories = categories_of(700, torch.tensor([table.num_embeddings for table in next(plain.children())]))
    out, truth = wrap(bound)(categories), plain(categories)
    assert torch.equal(out, truth)
    with torch.inference_mode():
        assert torch.equal(bound(categories), truth)
    gradients = torch.autograd.grad(out.square().sum(), bound.parameters())
    expected = torch.autograd.grad(truth.square().sum(), plain.parameters())
    for gradient, truth in zip(gradients, expected, strict=True):
        assert torch.allclose(gradient, truth, rtol=1e-12, atol=0)


def halve(encoder: Any) -> None:
    encoder.forward = lambda categories: type(encoder).forward(encoder, categories) / 2


@pytest.mark.parametrize(
    "change",
    [
        lambda encoder: encoder.bond_embedding_list[1].double(),  # which is added in the type of the first
        lambda encoder: setattr(encoder.bond_embedding_list[1], "max_norm", 0.1),
        lambda encoder: encoder.bond_embedding_list[1].register_forward_hook(lambda module, given, out: out / 2),
        halve,
    ],
)
def test_what_is_more_than_a_sum_of_rows_is_computed_as_by_ogb(change: Callable[[Any], None]) -> None:
    encoder = pytest.importorskip("ogb.graphproppred.mol_encoder").BondEncoder(4)
    change(encoder)
    twin = copy.deepcopy(encoder)
    convs.bind(encoder, OURS, transform_first=False, fold_norm=False)
    for categories in (torch.ones(3, 3, dtype=torch.long), torch.ones(3, 2, dtype=torch.int32)):
        torch.testing.assert_close(encoder(categories), twin(categories))
