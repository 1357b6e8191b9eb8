"""The CUDA kernels where users meet them: differentiable ops, convs, backend, drop-in, plan and choices."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

import gnnbench
from gnnbench import config, patch
from gnnbench.backends import isplib
from gnnbench.backends.cuda import CudaKernels, _base, _triton
from gnnbench.errors import ConfigError, UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.measure import clock
from gnnbench.ops.edge import edge_softmax, sddmm
from gnnbench.ops.kernels import Kernels, choice_key
from gnnbench.ops.spmm import spmm
from gnnbench.tuning import search, store
from tests.backends.test_backends import dataset
from tests.backends.test_cuda import check, normal
from tests.support import graphs
from tests.support.gpu import DEVICE, KERNELS, graph, needs_triton

pytestmark = needs_triton
CALLS = {
    "sum": lambda kernels, on, x, value: spmm(kernels, on, x, value),
    "mean": lambda kernels, on, x, value: spmm(kernels, on, x, value, "mean"),
    "max": lambda kernels, on, x, value: spmm(kernels, on, x, value, "max"),
    "sddmm": lambda kernels, on, x, value: sddmm(kernels, on, x[: on.num_rows], x) * value,
    "softmax": lambda kernels, on, x, value: edge_softmax(kernels, on, value.unsqueeze(1) * x[on.col.long()]),
}


@pytest.mark.parametrize(
    ("op", "name"), [*((op, "hub") for op in CALLS), ("sum", "symmetric"), ("max", "isolated nodes")]
)
def test_gradients(op: str, name: str) -> None:
    on = graph(name)

    def gradients(kernels: Kernels, dtype: torch.dtype) -> list[Tensor]:
        x = normal(on.num_cols, 6, dtype=dtype).requires_grad_()
        value = normal(on.num_edges, dtype=dtype).requires_grad_()
        out = CALLS[op](kernels, on, x, value)
        return [out.detach(), *torch.autograd.grad(out, [x, value], normal(*out.shape, dtype=dtype))]

    for found, truth in zip(gradients(KERNELS, torch.float64), gradients(Kernels(), torch.float64), strict=True):
        check(found, truth)


@pytest.mark.skipif(bool(isplib.MISSING), reason=isplib.MISSING)
def test_gradients_on_a_sampled_batch() -> None:
    """Whose rows and transpose are counted in main memory, beside those of a sort."""
    rows = graphs.graph("power law")
    hop, _ = isplib.Neighbors(rows.rowptr, rows.col).sample(torch.arange(3), [3, 3], key=1).hops()
    on = hop.graph(DEVICE, KERNELS)
    truth = Graph.from_edge_index(hop.edge_index.to(DEVICE), hop.num_rows, hop.num_cols)
    x = normal(on.num_cols, 6).requires_grad_()
    outs = spmm(KERNELS, on, x, None, "mean"), spmm(Kernels(), truth, x, None, "mean")
    check(*(out.detach() for out in outs))
    check(*(torch.autograd.grad(out, x, normal(*out.shape))[0] for out in outs))


def test_slices_cover_the_edges_of_long_rows() -> None:
    on = graph("power law")
    hubs = _base.hubs(on, 24)
    assert hubs is not None
    assert hubs is _base.hubs(on, 24)
    long = (on.degree > 24).nonzero().flatten()
    assert torch.equal(hubs.rows.row, long)
    covered = [
        edge for begin, end in zip(hubs.slices.begin, hubs.slices.end, strict=True) for edge in range(begin, end)
    ]
    assert covered == [edge for row in long for edge in range(on.rowptr[row], on.rowptr[row + 1])]
    assert int((hubs.slices.end - hubs.slices.begin).max()) == 24
    for s, row in enumerate(hubs.slices.row):
        assert hubs.slices.row[hubs.begin[s] : hubs.end[s]].unique().tolist() == [int(row)]
    assert torch.equal(hubs.slices.row[hubs.rows.begin], long)
    assert _base.hubs(on, 1 << 20) is None


@pytest.mark.parametrize("op", ["spmm", "spmm_max", "sddmm"])
def test_every_choice_computes_the_same(op: str) -> None:
    on, x = graph("duplicates"), normal(4, 70)  # of 22 edges a row
    value = normal(on.num_edges)
    choices = KERNELS.choices(op, on, 70, x.dtype)
    assert KERNELS.chosen(op, on, 70, x.dtype) == choices[0]
    assert len(choices) == len({tuple(choice.items()) for choice in choices}) <= 12
    assert ({"algorithm": "cusparse"} in choices) == (op == "spmm")
    for choice in choices:
        on.cache[choice_key(op, 70, x.dtype)] = choice
        assert KERNELS.chosen(op, on, 70, x.dtype) == choice
        if op == "sddmm":
            check(KERNELS.sddmm(on, x, x), Kernels().sddmm(on, x.double(), x.double()))
            continue
        for weights in (None, value):
            if op == "spmm":
                truth = Kernels().spmm(on, x.double(), None if weights is None else weights.double(), "mean")
                check(KERNELS.spmm(on, x, weights, "mean"), truth)
            else:
                found, truths = (each.spmm_max(on, x, weights, "max") for each in (KERNELS, Kernels()))
                assert all(torch.equal(*pair) for pair in zip(found, truths, strict=True))


@pytest.mark.parametrize(
    "choice", [None, {}, {"algorithm": "row"}, {"algorithm": "row", "channels": 7, "elements": 512, "warps": 1}]
)
def test_a_choice_that_cannot_run_is_ignored(choice: object) -> None:
    on = graph("hub")
    on.cache[choice_key("spmm", 4, torch.float32)] = choice
    assert KERNELS.chosen("spmm", on, 4, torch.float32) == KERNELS.choices("spmm", on, 4, torch.float32)[0]


@pytest.mark.usefixtures("brief")
def test_the_tuner_tries_them() -> None:
    on = graph("duplicates")
    wanted = [
        search.Request("graph", "sddmm", 6, heads=2),
        search.Request("transpose", "dot_attention_backward", 6, heads=2),
    ]
    found = search.tune(on, "zoo", wanted, now=clock.of(DEVICE), kernels=KERNELS).choices
    for request, record in zip(wanted, found, strict=True):
        side = on.transpose if request.adjacency == "transpose" else on
        choices = KERNELS.choices(request.op, side, request.width, torch.float32, request.heads)
        assert record.choice in choices
        assert len(choices) > 4


def test_a_run_on_this_backend_asks_for_the_widths_of_its_model() -> None:
    raw = {"dataset": {"source": "synthetic", "preset": "cora"}, "model": {"name": "gcn", "hidden": 8}}
    found = search.requests_of(config.validate(raw, "test"), dataset(), *search.kernels_of("cuda"))
    assert set(found) == {
        search.Request(side, "spmm", width) for side in ("graph", "transpose") for width in (8, 3)
    }


def test_a_backend_without_choices_cannot_be_tuned() -> None:
    with pytest.raises(ConfigError, match="'pyg' cannot be tuned; allowed: cuda, isplib"):
        search.kernels_of("pyg")


def test_what_was_tuned_on_a_gpu_is_for_that_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA X")
    assert store.machine(torch.device("cuda", 0))["gpu"] == "NVIDIA X"
    assert "gpu" not in store.machine(torch.device("cpu"))


def test_cusparse_is_no_choice_where_sums_must_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert {"algorithm": "cusparse"} not in KERNELS.choices("spmm", graph("hub"), 4, torch.float32)


def test_other_types_and_devices_are_refused() -> None:
    on = graph("hub")
    with pytest.raises(UnsupportedOp, match=r"type torch\.int8; cuda computes in float32, "):
        edge_softmax(KERNELS, on, torch.ones(300, 1, dtype=torch.int8, device=DEVICE))
    (reason,) = KERNELS.unsupported("spmm", on, torch.ones(30, 4, device="meta"), None)
    assert reason.startswith("a tensor is on meta; ")


def test_the_drop_in_runs_on_these_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch, "_engines", {})  # this one is not for other tests
    edge_index = graphs.zoo()["power law"][0].to(DEVICE)
    layer, x = pyg.SAGEConv(64, 64).to(DEVICE), normal(60, 64)
    expected = layer(x, edge_index)
    with gnnbench.patched("cuda", strict=True):
        torch.testing.assert_close(layer(x, edge_index), expected)
    [engine] = patch._engines.values()
    assert engine.by_device.keys() == {CudaKernels.device_type}


def test_a_graph_is_sorted_on_its_device() -> None:
    on, truth = graph("power law"), graphs.graph("power law")
    for name in ("rowptr", "col", "edge_id", "perm", "gcn_scale"):
        assert getattr(on, name).device.type == DEVICE.type
        torch.testing.assert_close(getattr(on, name).cpu(), getattr(truth, name))
    assert torch.equal(on.with_self_loops.col.cpu(), truth.with_self_loops.col)
    assert Graph.from_csr(on.rowptr, on.col).device == on.device


@pytest.mark.parametrize(
    ("triton", "numpy", "fails"), [("3.6.0", "2.4.6", True), ("3.6.0", "2.3.5", False), ("3.10.1", "2.4.6", False)]
)
def test_versions_whose_interpreter_fails(triton: str, numpy: str, fails: bool) -> None:
    found = _triton.uninterpretable(triton, numpy)
    assert found.endswith("install numpy<2.4 or triton>=3.7") if fails else found == ""
