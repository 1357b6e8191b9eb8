"""CUDA graphs: a whole training step is recorded once, and every later one is a single launch of the recording."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from gnnbench.config import RECORDED_EPOCH, TrainConfig
from gnnbench.errors import UnsupportedOp
from gnnbench.measure import memory
from gnnbench.training.batching._batch import Batch, Batching
from gnnbench.training.loop import Phase, Trainer

Work = Callable[[], Tensor]


class CudaGraph:
    """Work on the current GPU that is recorded and repeated, by the recipe of PyTorch's notes on CUDA graphs.

    What the work allocates comes from a pool of the recording, and so is at the same place in every replay.
    Random numbers of torch's generator are drawn anew in each.

    Attributes:
        held_bytes: what a replay needs beside what the allocator calls allocated.

    Raises:
        UnsupportedOp: `device` is no GPU.
    """

    held_bytes = 0

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
    """

    odd_epochs = RECORDED_EPOCH

    def __init__(self, model: torch.nn.Module, batching: Batching, config: TrainConfig, seed: int = 0) -> None:
        super().__init__(model, batching, config, seed)
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
    """A Trainer as `config` asks for it.

    Raises:
        UnsupportedOp: steps that differ are to be recorded, or there is no GPU.
    """
    if not config.cuda_graph:
        return Trainer(model, batching, config, seed)
    if batching.loads:
        reason = "steps on different batches cannot be one recording; leave it out, or train on the full batch"
        raise UnsupportedOp("train.cuda_graph", [reason])
    return RecordingTrainer(model, batching, config, seed)
