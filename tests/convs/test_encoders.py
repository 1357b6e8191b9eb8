"""Sums of embeddings as products with a graph: what OGB's encoders compute, and no category that they lack."""

from __future__ import annotations

import pytest
import torch

from gnnbench import convs
from gnnbench.errors import DatasetError
from tests.support.kernels import OURS

mol_encoder = pytest.importorskip("ogb.graphproppred.mol_encoder", reason="OGB is not installed")


@pytest.mark.parametrize("name", ["AtomEncoder", "BondEncoder"])
@pytest.mark.parametrize("rows", [0, 1, 700])
def test_embeddings_are_those_of_ogb(name: str, rows: int) -> None:
    plain, bound = (getattr(mol_encoder, name)(17).double() for _ in range(2))
    bound.load_state_dict(plain.state_dict())
    (binding,) = convs.bind(torch.nn.ModuleList([bound]), OURS, transform_first=False, fold_norm=False)
    assert (binding.conv, binding.kernels) == (name, {"spmm": "isplib"})
    sizes = torch.tensor([table.num_embeddings for table in next(plain.children())])
    categories = (torch.rand(rows, len(sizes)) * sizes).long()
    out, truth = bound(categories), plain(categories)
    assert torch.equal(out, truth)
    with torch.inference_mode():
        assert torch.equal(bound(categories), truth)
    pairs = zip(
        torch.autograd.grad(out.square().sum(), bound.parameters()),
        torch.autograd.grad(truth.square().sum(), plain.parameters()),
        strict=True,
    )
    assert all(torch.allclose(found, gradient, rtol=1e-12, atol=0) for found, gradient in pairs)


@pytest.mark.parametrize("category", [-1, 5])
def test_a_category_that_its_table_lacks_is_refused(category: int) -> None:
    encoder = mol_encoder.BondEncoder(8)
    convs.bind(torch.nn.ModuleList([encoder]), OURS, transform_first=False, fold_norm=False)
    categories = torch.zeros(4, 3, dtype=torch.int64)
    categories[2, 0] = category
    with pytest.raises(
        DatasetError, match=f"category {category} in row 2, column 0 is not one of the 5 that BondEnc"
    ):
        encoder(categories)
