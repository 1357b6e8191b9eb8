"""Training without a clock: loss, weight decay, early stopping, evaluation."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gnnbench.config import TrainConfig
from gnnbench.datasets import NodeDataset
from gnnbench.errors import RunFailed
from gnnbench.results.schema import Evaluation
from gnnbench.training.batching.full import Full
from gnnbench.training.loop import Trainer

CPU = torch.device("cpu")


class Layers(nn.Module):
    """A model of the shape that `models.build` gives: its layers are `convs`; `adj` is a dense matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Linear(3, 8), nn.Linear(8, 2)])
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return self.convs[1](self.dropout(torch.relu(self.convs[0](adj @ x))))


def dataset(**changes: Any) -> NodeDataset:
    generator = torch.Generator().manual_seed(0)
    nodes = torch.arange(10)
    fields = {
        "name": "ten nodes",
        "edge_index": torch.stack([nodes, nodes.roll(1)]),
        "x": torch.randn(10, 3, generator=generator),
        "y": torch.tensor([0, 1] * 4 + [-1, -1]),
        "train_mask": nodes < 4,
        "val_mask": (nodes >= 4) & (nodes < 6),
        "test_mask": (nodes >= 6) & (nodes < 8),
        "num_classes": 2,
    }
    return NodeDataset(**{**fields, **changes})


def trainer(data: NodeDataset | None = None, **config: Any) -> Trainer:
    torch.manual_seed(0)
    return Trainer(Layers(), Full(data or dataset(), torch.eye(10), CPU), TrainConfig(**config))


def test_the_loss_is_cross_entropy_over_training_nodes_alone() -> None:
    batching = trainer().batching
    logits = torch.randn(10, 2, requires_grad=True)
    loss = batching.loss(logits)
    by_hand = -logits[:4].log_softmax(-1)[torch.arange(4), torch.tensor([0, 1, 0, 1])].mean()
    torch.testing.assert_close(loss, by_hand)
    loss.backward()
    assert bool((logits.grad[:4] != 0).all())
    assert bool((logits.grad[4:] == 0).all())


def test_several_labels_per_node_use_binary_cross_entropy() -> None:
    y = torch.randint(0, 2, (10, 2)).float()
    batching = trainer(dataset(y=y)).batching
    logits = torch.randn(10, 2)
    probability = logits[:4].sigmoid()
    by_hand = -(y[:4] * probability.log() + (1 - y[:4]) * (1 - probability).log()).mean()
    torch.testing.assert_close(batching.loss(logits), by_hand)


def test_metrics_of_each_part_and_none_where_undefined() -> None:
    empty = torch.zeros(10, dtype=torch.bool)

    def metrics(data: NodeDataset) -> dict[str, float | None]:
        return trainer(data).batching.scores(nn.Identity(), torch.tensor([[1.0, 0.0]] * 10))

    assert metrics(dataset(test_mask=empty)) == {"train": 0.5, "val": 0.5, "test": None}
    undefined = dataset()
    undefined.score = lambda logits, y: float("nan")
    assert metrics(undefined) == {"train": None, "val": None, "test": None}


def test_a_full_batch_does_not_keep_the_edges() -> None:
    data = dataset()
    edges = weakref.ref(data.edge_index)
    batching = Full(data, None, CPU)
    del data
    assert batching.batch.x.size(0) == 10
    assert edges() is None


def test_an_epoch_learns_in_three_phases_and_leaves_no_gradients() -> None:
    training = trainer(epochs=5, lr=0.1)
    log = []

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        log.append(f"{name} begins")
        yield
        gradients = sum(parameter.grad is not None for parameter in training.model.parameters())
        log.append(f"{name} ends with {gradients} gradients")

    before = training.model.convs[0].weight.clone()
    training.train(phase)
    assert log == [
        "forward begins",
        "forward ends with 0 gradients",
        "backward begins",
        "backward ends with 4 gradients",
        "optimizer begins",
        "optimizer ends with 0 gradients",
    ]
    assert not torch.equal(before, training.model.convs[0].weight)
    losses = [training.check(training.train()) for _ in range(40)]
    assert losses[-1] < losses[0] / 2


def test_evaluation_is_without_dropout_and_changes_nothing() -> None:
    training = trainer()
    training.train()
    state, rng = copy.deepcopy(training.model.state_dict()), torch.get_rng_state()
    assert training.evaluate() == training.evaluate()
    assert torch.equal(rng, torch.get_rng_state())
    assert all(torch.equal(tensor, training.model.state_dict()[name]) for name, tensor in state.items())
    training.train()
    assert training.model.training


@pytest.mark.parametrize(
    ("name", "kind"),
    [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)],
)
def test_optimizers(name: str, kind: type) -> None:
    optimizer = trainer(optimizer=name, lr=0.3).optimizer
    assert type(optimizer) is kind
    assert optimizer.param_groups[0]["lr"] == 0.3


@pytest.mark.parametrize(("layers", "decayed"), [("all", [0, 1]), ("first", [0])])
def test_where_weight_decay_applies(layers: str, decayed: list[int]) -> None:
    training = trainer(decayed_layers=layers, weight_decay=0.1, optimizer="sgd", lr=1.0)
    before = [conv.weight.detach().clone() for conv in training.model.convs]
    for parameter in training.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    training.optimizer.step()
    for layer, conv in enumerate(training.model.convs):
        factor = 0.9 if layer in decayed else 1.0
        torch.testing.assert_close(conv.weight.detach(), factor * before[layer])


@pytest.mark.parametrize("lr", [1e30, 1e38])
def test_a_loss_that_is_no_number_stops_with_epoch_and_remedy(lr: float) -> None:
    training = trainer(optimizer="sgd", lr=lr, epochs=20)
    losses = [training.train() for _ in range(20)]
    sentence = r"the loss became (nan|inf) in epoch 20; lower train.lr \(now 1e\+3"
    with pytest.raises(RunFailed, match=sentence):
        training.check(losses[-1])


def test_evaluations_come_every_few_epochs_and_at_the_last() -> None:
    training = trainer(epochs=7, eval_every=3)
    evaluated = []
    while not training.finished([]):
        training.train()
        if training.evaluates:
            evaluated.append(training.epoch)
    assert evaluated == [3, 6, 7]


def evaluation(epoch: int, val: float | None) -> Evaluation:
    return Evaluation(repeat=0, epoch=epoch, train=1.0, val=val, test=1.0)


@pytest.mark.parametrize(
    ("patience", "epoch", "validation", "expected"),
    [
        (2, 3, [(1, 0.5), (2, 0.4), (3, 0.5)], True),
        (3, 3, [(1, 0.5), (2, 0.4), (3, 0.5)], False),
        (2, 3, [(1, 0.5), (2, 0.6), (3, 0.5)], False),
        (0, 3, [(1, 0.5), (2, 0.4), (3, 0.3)], False),
        (2, 5, [(1, 0.5), (4, 0.4)], False),
        (2, 3, [(1, None), (2, None), (3, None)], False),
        (2, 3, [], False),
        (0, 10, [], True),
    ],
    ids=["no better", "patient", "better", "never", "not evaluated", "no validation", "none yet", "all done"],
)
def test_early_stopping(
    patience: int, epoch: int, validation: list[tuple[int, float | None]], expected: bool
) -> None:
    training = trainer(patience=patience, epochs=10)
    training.epoch = epoch
    assert training.finished([evaluation(*entry) for entry in validation]) is expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, [1.0, 1.0, 1.0, 1.0, 1.0]),
        ({"warmup_epochs": 3}, [0.25, 0.5, 0.75, 1.0, 1.0]),
        ({"schedule": "cosine"}, [1.0, 0.75, 0.25, 0.0]),
        ({"schedule": "cosine", "warmup_epochs": 1}, [0.5, 1.0, 0.5, 0.0]),
        ({"schedule": "plateau", "stalled": 1}, [1.0, 1.0, 1.0, 0.5, 0.5]),
    ],
    ids=str,
)
def test_schedules_change_the_rate_after_every_epoch(config: dict[str, Any], expected: list[float]) -> None:
    training = trainer(optimizer="sgd", lr=1.0, epochs=3 if "schedule" in config else 5, **config)
    rates = [training.optimizer.param_groups[0]["lr"]]
    for epoch in range(1, len(expected)):
        training.train()
        training.adapt(evaluation(epoch, 0.5))
        rates.append(training.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx(expected)


def test_gradients_are_clipped_together() -> None:
    before, after = (trainer(optimizer="sgd", lr=1.0, clip_norm=norm) for norm in (0.0, 1e-3))
    initial = [parameter.detach().clone() for parameter in before.model.parameters()]
    steps = []
    for training in (before, after):
        torch.manual_seed(0)
        training.train()
        moved = zip(training.model.parameters(), initial, strict=True)
        steps.append(torch.cat([(new.detach() - old).flatten() for new, old in moved]))
    assert float(steps[0].norm()) > 2e-3
    torch.testing.assert_close(steps[1], steps[0] * 1e-3 / steps[0].norm())


def test_smoothing_spreads_a_share_of_each_class_over_all() -> None:
    batching = trainer().batching
    batching.smoothing = 0.2
    logits = torch.randn(10, 2)
    target = torch.tensor([[0.9, 0.1], [0.1, 0.9]] * 2)
    torch.testing.assert_close(batching.loss(logits), -(target * logits[:4].log_softmax(-1)).sum(-1).mean())


@pytest.mark.parametrize("schedule", ["none", "cosine", "plateau"])
def test_state_continues_to_the_same_losses(schedule: str) -> None:
    config: dict[str, Any] = {"epochs": 8, "schedule": schedule, "stalled": 1}

    def epochs(training: Trainer, count: int) -> list[float]:
        losses = []
        for _ in range(count):
            losses.append(training.check(training.train()))
            training.adapt(evaluation(training.epoch, 0.5))
        return losses

    losses = epochs(trainer(**config), 8)
    first = trainer(**config)
    epochs(first, 4)
    state, rng = first.state_dict(), torch.get_rng_state()
    second = trainer(**config)
    second.load_state_dict(state)
    torch.set_rng_state(rng)
    assert second.epoch == 4
    assert epochs(second, 4) == losses[4:]
