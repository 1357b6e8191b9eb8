"""The processes that train one model together: every one runs the same code, and they end for the same reason."""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from gnnbench import launch
from gnnbench.config import Run
from gnnbench.errors import ConfigError, GnnbenchError, RunFailed, WorkerLost
from gnnbench.graph.part import communicating
from gnnbench.results.schema import Sample, Worker, counted
from gnnbench.training.batching._batch import Batching

T = TypeVar("T")
TIMES = ("epoch_s", "load_s", "forward_s", "backward_s", "exchange_s", "optimizer_s")
REASON = "reason"  # the key of the store where the first process that fails says why
REASON_WAIT_S = 2  # for it, when another process is gone


class Team:
    """The processes that train together, which call each of these together; or one alone.

    Args:
        store: where they leave word for each other, once they are a group; None for one alone.
    """

    def __init__(self, store: dist.Store | None = None) -> None:
        self._store = store
        self.rank, self.size = (0, 1) if store is None else (dist.get_rank(), dist.get_world_size())

    def collected(self, mine: T) -> list[T]:
        """Exchange values, by rank; they travel as JSON, so that nothing that another process sends can run."""
        if self._store is None:
            return [mine]
        text = json.dumps(mine).encode()
        longest = max(int(each) for each in self._gathered(torch.tensor([len(text)])))
        rows = self._gathered(torch.frombuffer(bytearray(text.ljust(longest)), dtype=torch.uint8))
        return [json.loads(row.numpy().tobytes()) for row in rows]

    def any(self, flag: bool) -> bool:
        """Return whether it is so on any process."""
        return any(self.collected(flag))

    def _gathered(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of every process, which have the same shape."""
        every = [torch.empty_like(x) for _ in range(self.size)]
        with communicating():
            dist.all_gather(every, x)
        return every

    def bind_to_cores(self) -> None:
        """Keep this process on cores of its own, if it is one of several that `--workers` started here."""
        if sys.platform != "linux" or launch.RENDEZVOUS not in os.environ:
            return
        cores = sorted(os.sched_getaffinity(0))
        each = len(cores) // self.size
        if torch.get_num_threads() <= each:
            os.sched_setaffinity(0, cores[self.rank * each : (self.rank + 1) * each])

    @contextmanager
    def propagate_errors(self) -> Iterator[None]:
        """Let all processes end with the error of the first that fails in the block."""
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if self._store is None:
                raise
            with suppress(RuntimeError):  # the store is gone with the process that had it
                if isinstance(error, WorkerLost):
                    self._store.wait([REASON], timedelta(seconds=REASON_WAIT_S))
                    raise OtherWorker(**json.loads(self._store.get(REASON))) from error
                interrupted = isinstance(error, KeyboardInterrupt)
                status = "interrupted" if interrupted else getattr(error, "status", None)
                text = str(error) if isinstance(error, GnnbenchError) else f"{type(error).__name__}: {error}"
                code = getattr(error, "exit_code", 1)
                said = {"text": text, "status": status, "exit_code": code, "rank": self.rank}
                self._store.compare_set(REASON, "", json.dumps(said))
            raise

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Let the first process leave the block before the others enter it, such as to write files for all."""
        if self.rank:
            self.any(False)
        yield
        if not self.rank:
            self.any(False)

    def check_alike(self, what: Mapping[str, Any]) -> None:
        """Raise ConfigError, on all processes, unless `what` is the same on all of them."""
        for rank, differs in self._differing({name: str(value).encode() for name, value in what.items()}):
            raise ConfigError(
                f"worker {rank} has another {' and another '.join(differs)} than worker 0; "
                "start all workers with the same files and versions"
            )

    def check_weights(self, model: torch.nn.Module) -> None:
        """Raise RunFailed, on all processes, unless the parameters of `model` are equal on them in every bit."""
        if self.size == 1:
            return
        weights = [each.detach().cpu().flatten().view(torch.uint8) for each in model.parameters()]
        for rank, _ in self._differing({"weights": torch.cat(weights).numpy().tobytes()}):
            raise RunFailed(
                f"worker {rank} ended with other weights than worker 0, so that its losses are of another model; "
                "start all workers on equal machines"
            )

    def _differing(self, what: Mapping[str, bytes]) -> Iterator[tuple[int, list[str]]]:
        """Yield processes that have something else than the first, and the names of what it is."""
        first, *others = self.collected({name: hashlib.sha256(value).hexdigest() for name, value in what.items()})
        for rank, theirs in enumerate(others, 1):
            if differs := [name for name, digest in theirs.items() if digest != first[name]]:
                yield rank, differs


class OtherWorker(GnnbenchError):
    """The error that another process met."""

    def __init__(self, text: str, status: Any, exit_code: int, rank: int) -> None:
        super().__init__(f"worker {rank}: {text}")
        self.status, self.exit_code = status, exit_code  # type: ignore[misc]


@contextmanager
def joined(config: Run, resolved: dict[str, Any], code: str) -> Iterator[Team]:
    """The team of this process while the block runs, which is itself alone unless several train together.

    On CPUs they talk by gloo, through the network interface in `GLOO_SOCKET_IFNAME`, on GPUs by NCCL.

    Raises:
        ConfigError: this process was not started as one of several, they differ in what they were started with, or
            the port where they are to meet is taken.
        WorkerLost: another process ended before it joined.
    """
    if not config.distributed:
        yield Team()
        return
    if (place := launch.started()) is None:
        raise ConfigError(
            f"batch.kind={config.batch.kind} is of several processes; start them by `gnnbench train` or torchrun"
        )
    rank, size = place
    if config.train.workers != size:
        raise ConfigError(
            f"train.workers is {config.train.workers}, but {size} processes were started; make them equal"
        )
    import_module("torch.distributed.nn")  # whose functions would keep a group that they find, beyond its end
    timeout = timedelta(seconds=config.batch.timeout_s)
    on_gpu = "cuda" in (config.backend.name, config.train.device) and torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)) % torch.cuda.device_count())
    with communicating():
        url = os.environ.get(launch.RENDEZVOUS, "env://")
        try:
            store, rank, size = next(dist.rendezvous(url, rank, size, timeout=timeout))
        except dist.DistNetworkError as error:
            if "address already in use" not in str(error).lower():
                raise
            raise ConfigError(
                f"port {os.environ.get('MASTER_PORT')} is taken; choose another MASTER_PORT for workers to meet at"
            ) from error
        store.set_timeout(timeout)
        backend, kept = "cpu:gloo,cuda:nccl" if on_gpu else "gloo", dist.PrefixStore("group", store)
        dist.init_process_group(backend, store=kept, rank=rank, world_size=size, timeout=timeout)
    try:
        team = Team(store)
        team.check_alike({"configuration": resolved, "version of the code": code})
        yield team
    finally:
        dist.destroy_process_group()


def figures(team: Team, batching: Batching, samples: Sequence[Sample]) -> list[Worker]:
    """Collect those of every worker, from the `samples` that it took; none of one alone, or without epochs."""
    if not batching.share or not samples:
        return []
    kept = counted(samples)
    times = {name: statistics.median(getattr(sample, name) or 0.0 for sample in kept) for name in TIMES}
    memory = {"peak_memory_bytes": max(sample.peak_memory_bytes for sample in kept)}
    every = team.collected({**batching.share, **memory, **times})
    return [Worker(rank=rank, **figures) for rank, figures in enumerate(every)]
