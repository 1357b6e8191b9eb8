"""The tuner: tries what the kernels declare on the user's own graph, and keeps what is faster beyond doubt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnbench import backends, convs, models, stats
from gnnbench.backends.base import KernelBackend
from gnnbench.benchmarks.ops import OPS, Case
from gnnbench.config import BackendConfig, Run
from gnnbench.datasets import NodeDataset
from gnnbench.errors import ConfigError, GnnbenchError, did_you_mean
from gnnbench.graph import Graph
from gnnbench.measure import clock
from gnnbench.measure.rounds import Budget, Timed, interleaved, timed
from gnnbench.messages import bound
from gnnbench.ops.families import FAMILIES
from gnnbench.ops.kernels import Choice, Kernels, choice_key
from gnnbench.results import files
from gnnbench.results.schema import ChoiceRecord, Ratio
from gnnbench.training import setup
from gnnbench.training.batching.full import Full
from gnnbench.training.loop import Trainer
from gnnbench.tuning import store
from gnnbench.tuning.store import CPU, DTYPES, Tuned

SURVEY = Budget(rounds=3, least_s=0.03, most_s=3.0)  # which of all choices could be the best
DUEL = Budget(rounds=9, least_s=0.3, most_s=20.0)  # whether that one beats the heuristic, on samples of its own
TOLERANCE = 1e-4  # between choices that add in another order, of the largest entry
TUNABLE_OPS = (
    *(name for name, op in OPS.items() if op.kernel),
    *(f"{name}_backward" for name, op in OPS.items() if op.backward),
)
AGGREGATIONS = ("spmm", "spmm_max")  # which have no heads
# Whose pass over destinations forward has spared them.
OVER_SOURCES = [f"{family.op}_backward" for family in FAMILIES.values() if family.keeps_positive]
HARMLESS = {"prefetch", "threads"}  # knobs that leave the order of a sum, and so its bits, alone
DEFAULT, BEST, FALLBACK = "default", "best", "fallback"


class Request(NamedTuple):
    """One choice to tune: that of an op on one adjacency, at one width, dtype and number of heads."""

    adjacency: str
    op: str
    width: int
    dtype: str = "float32"
    heads: int = 1


def requests(
    graph: Graph, ops: Iterable[str], widths: Iterable[int], heads: Iterable[int] = (1,)
) -> list[Request]:
    """Every op at every width and number of heads, over all rows that it runs over.

    Raises:
        ConfigError: an op that has no choices, a number below one, or a width that heads cannot share.
    """
    ops, widths, heads = list(ops), list(widths), list(heads)
    problems = [f"op {op!r} cannot be tuned{did_you_mean(op, TUNABLE_OPS)}" for op in ops if op not in TUNABLE_OPS]
    problems += [f"{width} is no width" for width in widths if width < 1]
    problems += [f"{count} is no number of heads" for count in heads if count < 1]
    if not problems and not set(ops) <= set(AGGREGATIONS):
        uneven = [(width, count) for width in widths for count in heads if width % count]
        problems += [f"width {width} cannot be shared by {count} heads" for width, count in uneven]
    if problems or not ops or not widths or not heads:
        raise ConfigError(*(problems or ["give at least one op, one width and one number of heads"]))
    return [
        Request(adjacency, op, width, heads=count)
        for adjacency in ("graph", "transpose")
        for op in ops
        if adjacency in _adjacencies(op, graph)
        for width in widths
        for count in ([1] if op in AGGREGATIONS else heads)
    ]


def _adjacencies(op: str, graph: Graph) -> tuple[str, ...]:
    """The adjacencies whose rows the passes of an op run over; for spmm those of its backward too."""
    if graph.is_symmetric or not (op == "spmm" or op.endswith("_backward")):
        return ("graph",)
    return ("transpose",) if op in OVER_SOURCES else ("graph", "transpose")


def requests_of(
    config: Run, dataset: NodeDataset, kind: type[Kernels], device: torch.device = CPU
) -> list[Request]:
    """The choices that kernels of this kind look up in one epoch of the run that `config` describes.

    Raises:
        UnsupportedOp: they cannot run the model.
    """
    listening = type("Listening", (_Listening, kind), {})()
    dims = setup.ModelDims.of(dataset)
    if config.batch.links:
        dims = dims._replace(outputs=models.width_of_node(config.model))
    model = models.build(config.model, *dims).to(device)
    allowed = config.backend.model_dump(include={"transform_first", "fold_norm"})
    convs.bind(model, listening, rest=bound.bind, **allowed)
    graph = dataset.graph(device, listening)
    Trainer(model, Full(dataset, graph, device), config.train).train()
    return listening.asked(graph)


def tune(
    graph: Graph,
    label: str,
    wanted: Iterable[Request],
    *,
    kernels: Kernels,
    now: Callable[[], float] | None = None,
    on_event: Callable[[list[ChoiceRecord], Request], None] = lambda *_: None,
) -> Tuned:
    """Find the best choice for every request.

    Every choice must compute what the heuristic's computes. The best of a short survey then meets the heuristic
    on new samples, and replaces it only if the interval of their ratio is clear of one.

    Args:
        label: the dataset's.
        kernels: whose choices.
        now: clock in seconds; that of the graph's device if None.
        on_event: hears what was found so far, and what comes next.

    Raises:
        GnnbenchError: a choice computes something else.
    """
    now = now or clock.of(graph.device)
    start, choice_records = now(), list[ChoiceRecord]()
    for request in dict.fromkeys(wanted):
        on_event(choice_records, request)
        choice_records.append(_Search(kernels, graph, request, now).record())
    return Tuned(
        machine=store.machine(graph.device),
        kernels=kernels.name,
        graph=label,
        fingerprint=store.fingerprint(graph),
        tuning_s=now() - start,
        choices=choice_records,
    )


def keep(tuned: Tuned, cache: Path, graph: Graph) -> Tuned:
    """Add to what is known of the graph, and write it; everything known."""
    file = store.path(cache, graph, tuned.kernels)
    if older := store.read(file)[0]:
        every = (*older.choices, *tuned.choices)
        known = {(one.adjacency, one.op, one.dtype, one.width, one.heads): one for one in every}
        total = {"choices": [known[key] for key in sorted(known)], "tuning_s": older.tuning_s + tuned.tuning_s}
        tuned = tuned.model_copy(update=total)
    files.save_json(tuned, file)
    return tuned


def kernels_of(backend: str) -> tuple[type[Kernels], torch.device]:
    """The kernels that are to be tuned, and where they run.

    Raises:
        ConfigError: the backend's have no choices.
        BackendUnavailable: this machine cannot run them.
    """
    result = backends.load(BackendConfig(name=backend))
    if isinstance(result, KernelBackend) and result.can_be_tuned():
        return result.kernels, result.device
    allowed = [name for name, kind in backends.with_kernels().items() if kind.can_be_tuned()]
    raise ConfigError(f"backend {backend!r} cannot be tuned; allowed: {', '.join(allowed)}")


class _Search:
    """One request."""

    def __init__(self, kernels: Kernels, graph: Graph, request: Request, now: Callable[[], float]) -> None:
        self.kernels, self.request, self.now = kernels, request, now
        self.chooses = graph if request.adjacency == "graph" else graph.transpose
        self.asked = request.width, DTYPES[request.dtype], request.heads
        self.key = choice_key(request.op, *self.asked)
        name, backward, _ = request.op.partition("_backward")
        target = graph if backward else self.chooses
        case = Case(name, target, request.width, request.heads, dtype=self.asked[1])
        inputs = tuple(tensor.detach() for tensor in case.inputs.values())
        self.kernel: Any = case.op.backward if backward else case.op.kernel
        self.arguments: tuple[Any, ...] = target, *inputs
        if backward and case.op.kernel:
            self.arguments = target, inputs, case.op.kernel(kernels, target, *inputs), case.grad_out

    def record(self) -> ChoiceRecord:
        """The best choice, with the figures that made it so."""
        request = self.request
        choices = self.kernels.choices(request.op, self.chooses, *self.asked)
        default, others = choices[0], choices[1:]
        self._verify(default, others)
        contestants = {str(place): self._timed(self.kernels, choice) for place, choice in enumerate(others)}
        surveyed = interleaved(contestants, SURVEY, _raise)
        best = min(surveyed, key=lambda name: stats.median_interval(surveyed[name]).value, default=None)
        duellists = {
            DEFAULT: self._timed(self.kernels, default),
            FALLBACK: self._timed(*self.kernels.fallback(default)),
        }
        if best is not None:
            duellists[BEST] = contestants[best]
        times = interleaved(duellists, DUEL, _raise)
        del self.chooses.cache[self.key]
        choice, winner, gain = default, DEFAULT, stats.Interval(1.0, 1.0, 1.0)
        if best is not None and (interval := stats.ratio_interval(times[DEFAULT], times[BEST])).low > 1.0:
            choice, winner, gain = others[int(best)], BEST, interval
        return ChoiceRecord(
            **request._asdict(),
            choice=choice,
            default=default,
            time_s=stats.median_interval(times[winner]).value,
            gain=_ratio(gain),
            speedup=_ratio(stats.ratio_interval(times[FALLBACK], times[winner])),
        )

    def _call(self, kernels: Kernels, choice: Choice) -> Any:
        self.chooses.cache[self.key] = choice
        return self.kernel(kernels, *self.arguments)

    def _timed(self, kernels: Kernels, choice: Choice) -> Timed:
        return partial(timed, partial(self._call, kernels, choice), self.now)

    def _verify(self, default: Choice, others: list[Choice]) -> None:
        expected = _tensors(self._call(self.kernels, default))
        for choice in others:
            same_order = all(choice.get(name) == default.get(name) for name in {*choice, *default} - HARMLESS)
            for out, truth in zip(_tensors(self._call(self.kernels, choice)), expected, strict=True):
                finite = truth[truth.isfinite()]
                exact = same_order or not finite.numel() or not out.is_floating_point()
                limit = 0.0 if exact else TOLERANCE * float(finite.abs().max())
                if not torch.allclose(out, truth, rtol=0.0, atol=limit):
                    raise GnnbenchError(f"{self.request.op} by {choice} differs from {default}; nothing is kept")


class _Listening(Kernels):
    """Remembers how it was asked for, in front of the kernels that it is mixed with."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[tuple[Graph, str, int, torch.dtype, int], None] = {}

    def chosen(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> Choice:
        self._asked[graph, op, width, dtype, heads] = None
        return super().chosen(op, graph, width, dtype, heads)

    def asked(self, graph: Graph) -> list[Request]:
        """The requests, each once; those on the graph with self-loops count as on the graph."""
        names = {dtype: name for name, dtype in DTYPES.items()}
        forward = (graph, vars(graph).get("with_self_loops"))
        return list(
            dict.fromkeys(
                Request("graph" if target in forward else "transpose", op, width, names[dtype], heads)
                for target, op, width, dtype, heads in self._asked
                if op in TUNABLE_OPS
            )
        )


def _tensors(out: Any) -> tuple[Tensor, ...]:
    return (out,) if isinstance(out, Tensor) else out


def _ratio(interval: stats.Interval) -> Ratio:
    return Ratio(ratio=interval.value, low=interval.low, high=interval.high)


def _raise(name: str, error: Exception) -> None:
    raise error
