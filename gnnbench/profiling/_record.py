"""The record of a profile: what an epoch's time went to, and the memory of its tensors over time."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gnnbench.results.schema import Binding, OfRun, Record

PHASES = ("load", "forward", "backward", "optimizer")
BATCHES, LOSS, OPTIMIZER, GRADIENTS = "batches", "loss", "optimizer", "gradients"  # beside the layers of a model
BETWEEN = "(between ops)"  # Python, and what starts and ends ops


class Op(Record):
    """An op of a layer in one phase. Times are seconds of an epoch, the mean over all that were profiled."""

    phase: Literal["", "load", "forward", "backward", "optimizer"] = Field(description="empty: between phases")
    layer: str = Field(
        description='path in the model such as "convs.0", or "model" for what it does between layers; "batches", '
        '"loss", "optimizer"; "gradients" for those of parameters as they are accumulated'
    )
    op: str = Field(description='as in the trace, with what it calls; "(between ops)" for Python and dispatch')
    calls: float = Field(description="of an epoch")
    time_s: float = Field(description="on the processor")
    device_s: float | None = Field(None, description="of its kernels on the GPU; None on a CPU")
    share: float = Field(description="of the epoch; on a GPU, of the time of all kernels")


class Memory(Record):
    """Tensors over time, as PyTorch's allocator tells them: those of the profiled epochs alone on a CPU."""

    seconds: list[float] = Field(description="since the first profiled epoch began")
    allocated_bytes: list[int] = Field(description="at that time, or at most since the time before")
    epochs_s: list[float] = Field(description="when each epoch began")
    peak_bytes: int


class Profile(OfRun):
    """Everything known about the profile of a run; fields that it never reached are None or empty."""

    bindings: list[Binding] = Field([], description="which conv ran on which kernels")
    epochs: int = Field(description="that were profiled; as many were timed before, without the profiler")
    timed_epoch_s: float | None = Field(None, description="median epoch without the profiler")
    epoch_s: float | None = Field(None, description="median epoch under it")
    slowdown: float | None = Field(None, description="the second over the first")
    loading_s: float | None = Field(None, description="making the batches of an epoch, in whichever thread")
    ops: list[Op] = Field([], description="the one that takes longest first")
    memory: Memory | None = None
    trace: str = Field("", description="file of the Chrome trace")
    peak_memory_bytes: int | None = Field(None, description="of the process or device, in the timed epochs")
    warnings: list[str] = Field([], description="doubts about the timed epochs")

    @property
    def on_gpu(self) -> bool:
        return any(op.device_s is not None for op in self.ops)

    @property
    def exit_code(self) -> int:
        """0, or 1 where it did not come to its end."""
        return 0 if self.status == "ok" else 1
