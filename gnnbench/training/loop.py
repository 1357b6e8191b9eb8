"""Training: one epoch, evaluation, early stopping, steps in a CUDA graph; without a clock, a file or a screen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, ReduceLROnPlateau, SequentialLR

from gnnbench.config import RECORDED_EPOCH, TrainConfig
from gnnbench.errors import RunFailed, UnsupportedOp
from gnnbench.measure import memory
from gnnbench.results import schema
from gnnbench.training.batching._batch import Batch, Batching

Phase = Callable[[str], AbstractContextManager[None]]
Work = Callable[[], Tensor]
OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


class Trainer:
    """A model, its optimizer and the number of epochs done.

    Args:
        seed: of the order of batches.
    """

    odd_epochs = 0  # how many steps run otherwise than those after them
    held_bytes = 0  # memory of the latest step that its device's allocator does not call allocated

    def __init__(self, model: torch.nn.Module, batching: Batching, config: TrainConfig, seed: int = 0) -> None:
        self.model = model
        self.batching = batching
        self.config = config
        self.seed = seed
        self.epoch = 0
        # By default torch updates one parameter after another on CPUs, which takes three to seven times as long.
        fused = True if next(model.parameters()).device.type == "cpu" and not config.cuda_graph else None
        kind = OPTIMIZERS[config.optimizer]
        self.optimizer = kind(_parameter_groups(model, config), lr=config.lr, fused=fused)
        self.schedules = _schedules(self.optimizer, config)
        self.plateau = None
        if config.schedule == "plateau":
            self.plateau = ReduceLROnPlateau(self.optimizer, "max", 0.5, config.stalled)

    def train(
        self, phase: Phase = lambda _: nullcontext(), tell: Callable[[int], None] = lambda _: None
    ) -> Tensor:
        """Train one epoch; returns the mean loss [] over its targets, detached.

        Args:
            phase: `phase(name)` surrounds each part of every step.
            tell: hears how many steps of the epoch are done.
        """
        self.model.train()
        self.batching.watch(phase)
        self.epoch += 1
        batches = self.batching.epoch(self.seed, self.epoch)
        losses, targets = [], []
        while True:
            with phase("load") if self.batching.loads else nullcontext():
                batch = next(batches, None)
            if batch is None:
                break
            losses.append(self.step(batch, phase))
            targets.append(batch.targets)
            tell(len(losses))
        for schedule in self.schedules:
            schedule.step()
        if len(losses) == 1:
            return losses[0]
        shares = torch.tensor(targets, dtype=torch.float64) / max(sum(targets), 1)
        return (torch.stack(losses).double() @ shares.to(losses[0].device)).float()

    def step(self, batch: Batch, phase: Phase) -> Tensor:
        """One update; returns the loss [], detached.

        Raises:
            RunFailed: the batch is too small for a batch norm.
        """
        with phase("forward"):
            try:
                loss = batch.loss(batch.outputs(self.model))
            except ValueError as error:  # of a batch norm, as PyTorch words it
                if "more than 1 value per channel" not in str(error):
                    raise
                raise RunFailed(
                    f"a batch of epoch {self.epoch} has a single row, which batch norm cannot normalise; "
                    "choose a batch.size that leaves more graphs to the last batch, or another norm"
                ) from None
        with phase("backward"):
            loss.backward()
        loss = self.batching.added(self.model, loss.detach())
        with phase("optimizer"):
            if self.config.clip_norm:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss

    def check(self, loss: Tensor) -> float:
        """The loss as a number.

        Raises:
            RunFailed: it is infinite or not a number.
        """
        value = loss.item()
        if not math.isfinite(value):
            raise RunFailed(
                f"the loss became {value} in epoch {self.epoch}; "
                f"lower train.lr (now {self.config.lr:g}), or check the features for extreme values"
            )
        return value

    @property
    def evaluates(self) -> bool:
        """Return whether the epoch just done is one to evaluate after; the last one always is."""
        return self.epoch % self.config.eval_every == 0 or self.epoch == self.config.epochs

    @torch.no_grad()
    def evaluate(self) -> dict[str, float | None]:
        """Train, validation and test metric of the model as it is, without dropout."""
        self.model.eval()
        return self.batching.metrics(self.model)

    def adapt(self, evaluation: schema.Evaluation) -> None:
        """Lower the rate where `train.schedule` follows the validation metric, and that has stalled."""
        if self.plateau is not None and evaluation.val is not None:
            self.plateau.step(evaluation.val)

    def finished(self, evaluations: Sequence[schema.Evaluation]) -> bool:
        """Return whether all epochs are done or `patience` is used up, given this repeat's evaluations.

        Patience can end training only right after an evaluation, so that the last epoch is evaluated.
        """
        if self.epoch >= self.config.epochs:
            return True
        if not self.config.patience or not evaluations or evaluations[-1].epoch < self.epoch:
            return False
        return self.epoch - schema.best(evaluations).epoch >= self.config.patience

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch} | {name: each.state_dict() for name, each in self._stateful.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch = state["epoch"]
        for name, each in self._stateful.items():
            each.load_state_dict(state[name])

    @property
    def _stateful(self) -> dict[str, Any]:
        """By name in a checkpoint, all that has a state."""
        stateful = {"model": self.model, "optimizer": self.optimizer, "plateau": self.plateau}
        stateful |= {f"schedule {number}": schedule for number, schedule in enumerate(self.schedules)}
        return {name: each for name, each in stateful.items() if each is not None}


class CudaGraph:
    """Work on the current GPU that is recorded and repeated, by the recipe of PyTorch's notes on CUDA graphs.

    What the work allocates comes from a pool of the recording, and so is at the same place in every replay.
    Random numbers of torch's generator are drawn anew in each.
    """

    held_bytes = 0  # what a replay needs beside what the allocator calls allocated

    def __init__(self, device: torch.device) -> None:
        if device.type != "cuda":
            reason = f"the run is on the {device.type}, and CUDA graphs are of a GPU; take backend cuda or "
            raise UnsupportedOp(
                "train.cuda_graph", [reason + "train.device=cuda on a machine with one, or leave it out"]
            )
        self._stream = torch.cuda.Stream(device)
        self._graph = torch.cuda.CUDAGraph()

    def rehearse(self, work: Work, *, strict: bool) -> Tensor:
        """Do the work as ever, on the stream of the recording; `strict` forbids what cannot be recorded.

        An error while recording could leave the generator of the device unusable, this one does no harm.
        """
        before = torch.cuda.get_sync_debug_mode()
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        torch.cuda.set_sync_debug_mode("error" if strict else before)
        try:
            with torch.cuda.stream(self._stream):
                done = work()
        finally:
            torch.cuda.set_sync_debug_mode(before)
        current.wait_stream(self._stream)
        return done

    def record(self, work: Work) -> Tensor:
        """Record the work and do it; what it returns is written again by every replay."""
        torch.cuda.reset_peak_memory_stats()
        with torch.cuda.graph(self._graph, stream=self._stream):
            done = work()
        self.held_bytes = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
        self.replay()
        return done

    def replay(self) -> None:
        """Do the work again."""
        self._graph.replay()


class RecordingTrainer(Trainer):
    """A Trainer that rehearses the first steps, records the next one and replays it ever after.

    The phases of a step are not told apart. The loss that `step` returns is that of the latest step.

    Raises:
        UnsupportedOp: steps that differ are to be recorded, or there is no GPU.
    """

    odd_epochs = RECORDED_EPOCH

    def __init__(self, model: torch.nn.Module, batching: Batching, config: TrainConfig, seed: int = 0) -> None:
        super().__init__(model, batching, config, seed)
        if batching.loads:
            reason = "steps on different batches cannot be one recording; leave it out, or train on the full batch"
            raise UnsupportedOp("train.cuda_graph", [reason])
        self._graph = CudaGraph(next(model.parameters()).device)
        self._steps = 0
        self._loss: Tensor | None = None
        for group in self.optimizer.param_groups:
            if "capturable" in group:  # its count of steps is then a tensor of the device
                group["capturable"] = True

    def step(self, batch: Batch, phase: Phase) -> Tensor:
        if self._loss is not None:
            self.held_bytes = self._graph.held_bytes
            self._graph.replay()
            return self._loss

        def work() -> Tensor:
            return super(RecordingTrainer, self).step(batch, lambda _: nullcontext())

        self._steps += 1
        if self._steps < RECORDED_EPOCH - 1:
            return self._graph.rehearse(work, strict=False)
        try:
            if self._steps < RECORDED_EPOCH:
                return self._graph.rehearse(work, strict=True)
            self._loss = self._graph.record(work)
        except RuntimeError as error:
            if memory.is_exhaustion(error):
                raise
            why = str(error).partition("\n")[0]
            reason = f"this step cannot be recorded ({why}); leave it out, or take another backend"
            raise UnsupportedOp("train.cuda_graph", [reason]) from error
        return self._loss


def trainer(model: torch.nn.Module, batching: Batching, config: TrainConfig, seed: int = 0) -> Trainer:
    """A Trainer as `config` asks for it."""
    return (RecordingTrainer if config.cuda_graph else Trainer)(model, batching, config, seed)


def _schedules(optimizer: torch.optim.Optimizer, config: TrainConfig) -> list[LRScheduler]:
    """Return the schedulers of the learning rate, to step after every epoch."""
    warm, rest = config.warmup_epochs, config.epochs - config.warmup_epochs
    result: list[LRScheduler] = [LinearLR(optimizer, 1 / (warm + 1), total_iters=warm)] if warm else []
    if config.schedule == "cosine":
        cosine = CosineAnnealingLR(optimizer, rest)
        result = [SequentialLR(optimizer, [*result, cosine], [warm])] if warm else [cosine]
    return result


def _parameter_groups(model: torch.nn.Module, config: TrainConfig) -> list[dict[str, Any]]:
    """All parameters, with weight decay where `decayed_layers` says (Kipf & Welling: the first conv only)."""
    first = config.decayed_layers == "first"
    decayed = list((model.get_submodule("convs.0") if first else model).parameters())
    chosen = {id(parameter) for parameter in decayed}
    others = [parameter for parameter in model.parameters() if id(parameter) not in chosen]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
