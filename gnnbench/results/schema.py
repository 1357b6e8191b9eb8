"""The result of a run: its schema, every raw sample, what is drawn from them, and its JSON, written atomically.

`Result.model_json_schema()` is the schema of `results.json`, with the description of every field.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, Literal, get_args

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from gnnbench import stats
from gnnbench.stats import grouped

SCHEMA_VERSION: Literal[1] = 1

Status = Literal["ok", "interrupted", "oom", "unsupported", "unavailable", "failed"]
Phase = Literal[
    "epoch",
    "load",
    "loading",
    "negatives",
    "forward",
    "encoder",
    "decoder",
    "loss",
    "backward",
    "exchange",
    "optimizer",
]
Mode = Literal["full", "layerwise", "sampled"]
MODES: dict[Mode, str] = {  # of inference, in words
    "full": "at once",
    "layerwise": "a layer at a time",
    "sampled": "on sampled neighbourhoods",
}
SyntheticParts = Annotated[  # `made_up` in version 0.1
    list[str],
    Field(
        validation_alias=AliasChoices("synthetic_parts", "made_up"),
        description="what is not real: graph or graphs, features, labels, split, negatives",
    ),
]
# Phases that lie within another one.
OUTER: dict[Phase, Phase] = {"negatives": "load", "encoder": "forward", "decoder": "forward", "loss": "forward"}


class Record(BaseModel):
    """A part of a result; unknown keys are refused so that a file of another schema is noticed."""

    model_config = ConfigDict(extra="forbid")


class Sample(Record):
    """One training epoch. Times in seconds, memory in bytes."""

    repeat: int = Field(description="from 0; its seed is train.seed + repeat")
    epoch: int = Field(description="from 1")
    warmup: bool = Field(description="measured, kept here, and left out of every summary")
    load_s: float | None = Field(None, description="waiting for batches; None where there is only one, kept ready")
    loading_s: float | None = Field(None, description="making batches, in any thread; `load_s` is the wait for it")
    negatives_s: float | None = Field(None, description="drawing negatives of links, in `loading_s`")
    edges: int | None = Field(None, description="of all batches, where they are sampled")
    encoder_s: float | None = Field(None, description="vectors of nodes, whose links are scored, in `forward_s`")
    decoder_s: float | None = Field(None, description="scores of links and negatives, in `forward_s`")
    loss_s: float | None = Field(None, description="of these scores, in `forward_s`")
    forward_s: float | None = Field(None, description="model and loss; None in a CUDA graph, which is one whole")
    backward_s: float | None = Field(None, description="all gradients")
    exchange_s: float | None = Field(None, description="data from and to other workers; in no other phase")
    optimizer_s: float | None = Field(None, description="parameter update")
    epoch_s: float = Field(description="the whole epoch, evaluation excluded")
    peak_memory_bytes: int = Field(description="highest of the process (CPU) or device (CUDA) in this epoch")
    energy_j: float | None = Field(None, description="joules of the processor packages, or of the GPU, on request")
    keeps_freed: bool = Field(False, description="malloc keeps what is freed, so that memory may lie idle")
    loss: float = Field(description="mean over training targets, each before the update of its batch")


class Evaluation(Record):
    """Metrics after an epoch, taken outside the timed region; None where undefined, as without nodes."""

    repeat: int
    epoch: int
    train: float | None
    val: float | None
    test: float | None


class Summary(Record):
    """A distribution of times in seconds over all epochs that are not warm-up (the last one if all are)."""

    median: float
    low: float = Field(description="lower end of the 95% bootstrap interval of the median")
    high: float = Field(description="upper end of it")
    mad: float = Field(description="median absolute deviation")
    count: int


class Metrics(Record):
    """Quality at each repeat's best epoch (see `best`), averaged over repeats."""

    name: str = Field(description="as `DatasetFacts.metric`")
    train: float | None
    val: float | None
    test: float | None
    test_std: float | None = Field(description="sample standard deviation over repeats; zero for one")
    per_repeat: list[Evaluation]


class DatasetFacts(Record):
    """Facts of the dataset after loading."""

    name: str
    synthetic_parts: SyntheticParts
    graphs: int | None = Field(None, description="how many there are; None for one that is trained on whole")
    train_graphs: int | None = Field(None, description="of an epoch")
    train_edges: int | None = Field(None, description="of these graphs, an undirected edge counting twice")
    train_links: int | None = Field(None, description="of an epoch, where links are predicted")
    node_types: int | None = Field(None, description="of a graph of several types; None of one type")
    edge_types: int | None = Field(None, description="relations of such a graph")
    embedding_bytes: int | None = Field(None, description="of vectors of nodes that are trained")
    nodes: int
    edges: int
    features: int
    classes: int = Field(description="outputs of the model: classes, labels or values; 1 of links")
    metric: str = Field(description="what evaluations measure, such as accuracy or rocauc; higher is better")
    reorder: str = Field("none", description="the order that nodes were put in")
    reorder_s: float | None = Field(None, description="what that took, once per graph, in no other figure")


class Binding(Record):
    """Which conv runs on which kernels."""

    module: str = Field(description='path of the conv in the model, such as "convs.0"')
    conv: str = Field(description="its PyG class name")
    kernels: dict[str, str] = Field(
        {}, description='op -> its kernels, such as "isplib"; "torch": plain torch; "composition": of other ops'
    )
    rewrites: list[str] = Field([], description="names of the exact rewrites in force")
    declined: dict[str, str] = Field({}, description="rewrite that was asked for and is not in force -> why")


class Ratio(Record):
    """How many times faster, with the 95% bootstrap interval."""

    ratio: float
    low: float
    high: float


class ChoiceRecord(Record):
    """How an op runs on a graph, as `gnnbench tune` found; see `gnnbench.ops.kernels.Kernels.choices`."""

    adjacency: Literal["graph", "transpose"]
    op: str
    width: int = Field(ge=1, description="channels of all heads together")
    dtype: Literal["float32", "float64"]
    heads: int = Field(1, ge=1, description="of an op over heads; 1 for aggregations")
    choice: dict[str, int | str]
    default: dict[str, int | str] = Field(description="what the heuristic takes")
    time_s: float = Field(description="median call with the choice")
    gain: Ratio = Field(description="the heuristic's time over the choice's")
    speedup: Ratio = Field(description="the fallback's time over the choice's")


class Worker(Record):
    """One of the processes that train together, on parts of a graph or batches. Times are medians in seconds."""

    rank: int
    nodes: int
    halo_nodes: int | None = Field(description="nodes of others, whose features it is sent; None: it has no part")
    edges: int = Field(description="of its part, or of its share of an epoch's batches")
    sent_bytes: int = Field(description="in an epoch: features and gradients; of shares of batches, terms of sums")
    received_bytes: int
    peak_memory_bytes: int
    epoch_s: float
    load_s: float = Field(0.0, description="waiting for batches")
    forward_s: float
    backward_s: float
    exchange_s: float
    optimizer_s: float


class OfRun(Record):
    """How a run ended, and what it was."""

    schema_version: Literal[1] = SCHEMA_VERSION
    status: Status
    reason: str = Field("", description="one sentence where status is not ok")
    backend: str
    dataset: str = Field(description="the dataset's label, with what is synthetic")
    dataset_facts: DatasetFacts | None = None
    config: dict[str, Any] = Field(description="the resolved configuration")
    environment: dict[str, Any] = Field({}, description="see `gnnbench.measure.environment.describe`")
    code: str = Field("", description="hash of the code that ran, see `gnnbench.measure.code`; empty: not known")


class Result(OfRun):
    """Everything known about one run; fields that a failed run never reached are None or empty."""

    bindings: list[Binding] = []
    choices: list[ChoiceRecord] = Field([], description="tuned choices in force, for all widths that are known")
    tuning_s: float | None = Field(None, description="what finding them had cost, before this run")
    prepare_s: float | None = Field(None, description="CSR, transpose and plan; once per graph")
    epoch_s: Summary | None = None
    load_s: Summary | None = None
    loading_s: Summary | None = None
    negatives_s: Summary | None = None
    encoder_s: Summary | None = None
    decoder_s: Summary | None = None
    loss_s: Summary | None = None
    links_per_s: float | None = Field(None, description="training links over the median epoch")
    graphs_per_s: float | None = Field(None, description="training graphs over the median epoch")
    edges_per_s: float | None = Field(None, description="their edges, or those of all sampled batches")
    forward_s: Summary | None = None
    backward_s: Summary | None = None
    exchange_s: Summary | None = None
    optimizer_s: Summary | None = None
    resting_memory_bytes: int | None = Field(None, description="before the first epoch, data and model loaded")
    peak_memory_bytes: int | None = Field(
        None, description="highest epoch before malloc keeps what is freed, or if there is none, after warm-up"
    )
    memory_increase_bytes: int | None = Field(None, description="peak above the resting level")
    energy_j: float | None = Field(None, description="joules of the median epoch, if asked for and counted")
    metrics: Metrics | None = None
    workers: list[Worker] = Field([], description="each process, where several train together")
    largest: dict[str, float] = Field({}, description="the highest of each figure over `workers`")
    samples: list[Sample] = []
    evaluations: list[Evaluation] = []
    warnings: list[str] = Field([], description="doubts about the figures, with evidence and remedy")

    @property
    def losses(self) -> list[float]:
        """The loss of every epoch, warm-up too."""
        return [sample.loss for sample in self.samples]

    def refresh(self) -> None:
        """Set every summary from the raw samples and evaluations."""
        if self.dataset_facts:
            self.metrics = metrics(self.evaluations, self.dataset_facts.metric)
        if not self.samples:
            return
        for phase in get_args(Phase):
            setattr(self, f"{phase}_s", summary(rounds(self.samples, phase)))
        if drawn := [sample.edges / sample.epoch_s for sample in counted(self.samples) if sample.edges]:
            self.edges_per_s = statistics.median(drawn)
        if self.epoch_s and self.dataset_facts and self.dataset_facts.train_links:
            self.links_per_s = self.dataset_facts.train_links / self.epoch_s.median
        if self.epoch_s and self.dataset_facts and self.dataset_facts.train_graphs:
            self.graphs_per_s = self.dataset_facts.train_graphs / self.epoch_s.median
            self.edges_per_s = (self.dataset_facts.train_edges or 0) / self.epoch_s.median
        if joules := [sample.energy_j for sample in counted(self.samples) if sample.energy_j is not None]:
            self.energy_j = statistics.median(joules)
        needed = counted([sample for sample in self.samples if not sample.keeps_freed]) or counted(self.samples)
        self.peak_memory_bytes = max(sample.peak_memory_bytes for sample in needed)
        if self.resting_memory_bytes is not None:
            self.memory_increase_bytes = self.peak_memory_bytes - self.resting_memory_bytes
        if self.workers:
            figures = [worker.model_dump(exclude={"rank"}, exclude_none=True) for worker in self.workers]
            self.largest = {name: max(each[name] for each in figures) for name in figures[0]}
            self.peak_memory_bytes, self.memory_increase_bytes = int(self.largest["peak_memory_bytes"]), None


def counted(samples: Sequence[Sample]) -> list[Sample]:
    """Samples that are not warm-up; the last one if all are, as after a very early stop."""
    return [sample for sample in samples if not sample.warmup] or list(samples[-1:])


def rounds(samples: Sequence[Sample], phase: Phase) -> list[list[float]]:
    """Seconds of one phase, one list per repeat, without warm-up; none where it was not told apart."""
    known = (sample for sample in counted(samples) if getattr(sample, f"{phase}_s") is not None)
    by_repeat = grouped(known, attrgetter("repeat")).values()
    return [[getattr(sample, f"{phase}_s") for sample in of_repeat] for of_repeat in by_repeat]


def times(results: Iterable[Result], phase: Phase = "epoch") -> list[list[float]]:
    """Return the times of several runs after each other."""
    return [seconds for result in results for seconds in rounds(result.samples, phase)]


def summary(by_round: Sequence[Sequence[float]]) -> Summary | None:
    """The distribution of samples; None if there are none."""
    if not by_round:
        return None
    pooled = [seconds for samples in by_round for seconds in samples]
    median, low, high = stats.median_interval(by_round)
    return Summary(median=median, low=low, high=high, mad=stats.mad(pooled), count=len(pooled))


def best(evaluations: Sequence[Evaluation]) -> Evaluation:
    """The evaluation with the highest validation metric, the first of equals; the last one without any."""
    validated = [evaluation for evaluation in evaluations if evaluation.val is not None]
    return max(validated, key=lambda evaluation: evaluation.val or 0.0) if validated else evaluations[-1]


def metrics(evaluations: Sequence[Evaluation], name: str) -> Metrics | None:
    """Quality over repeats; None before the first evaluation."""
    if not evaluations:
        return None
    chosen = [best(of_repeat) for of_repeat in grouped(evaluations, attrgetter("repeat")).values()]
    train, val, test = (spread(getattr(each, split) for each in chosen) for split in ("train", "val", "test"))
    return Metrics(name=name, train=train[0], val=val[0], test=test[0], test_std=test[1], per_repeat=chosen)


def spread(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation of the values that are known: None without any, no deviation of one."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else 0.0


def flat(record: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield values of nested mappings by their names, joined by dots."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        else:
            yield before + name, value
