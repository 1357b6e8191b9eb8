"""One YAML file is one run: typed, frozen sections, validated as a whole, with every problem listed at once."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator, model_validator

from gnnbench import documents, registry, units
from gnnbench.errors import ConfigError, did_you_mean

Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[int, Field(gt=0, lt=2**62)]
Count = Annotated[int, Field(ge=0, lt=2**62)]
RECORDED_EPOCH = 4  # of a run with cuda_graph, after warm-up and one epoch that looks for obstacles
BY_BACKEND = {"train": ("cuda_graph", "workers", "precision"), "batch": ("halo",)}  # options of backends


class Section(BaseModel):
    """A frozen part of the configuration that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DatasetConfig(Section):
    """The keys of every source; each source's own `Config` adds more."""

    source: str
    to_undirected: bool = Field(False, description="add the reverse of every edge")
    reorder: Literal["none", "degree", "rcm", "metis"] = Field(
        "none", description="put nodes that share neighbours close together in memory"
    )
    normalize_features: bool = Field(False, description="scale each node's features to sum to one")
    random_features: Count = Field(0, description="width of seeded random features where the graph has none")
    random_labels: Count = Field(0, description="classes of seeded random labels where the graph has none")
    train_share: Fraction = Field(0.6, description="share of training nodes, or links, where there is no split")
    val_share: Fraction = Field(0.2, description="share of validation nodes, or links, where there is no split")
    seed: Count = Field(0, description="seeds everything that is drawn: features, labels, split, graph")
    task: Literal["nodes", "links"] = Field("nodes", description="links: tell edges from pairs that are none")
    metric: str = Field(
        "",
        pattern=r"^(|hits@[1-9]\d*|mrr|auc|ap)$",
        description="of links: hits@K, mrr, auc or ap; empty: the benchmark's own, else auc",
    )
    negatives: Count = Field(
        0, description="destinations drawn for each evaluated link, as mrr needs; 0: one list for all"
    )
    embedding: Count = Field(0, description="width of vectors trained in place of features, of links or types")

    @model_validator(mode="after")
    def _fits_together(self) -> DatasetConfig:
        if self.train_share + self.val_share > 1:
            raise ValueError(
                f"train_share {self.train_share} and val_share {self.val_share} add up to more than 1"
            )
        given = [key for key in ("metric", "negatives") if getattr(self, key)]
        if given and self.task == "nodes":
            raise ValueError(f"{given[0]} is for task links; set dataset.task=links too")
        return self


class ModelConfig(Section):
    """The keys of every model; each model's own `Config` adds more."""

    name: str
    layers: Positive = 2
    hidden: Positive = Field(64, description="width between layers, all heads together")
    dropout: Fraction = Field(0.5, description="dropped share of every layer's input")
    norm: Literal["none", "batch", "layer"] = "none"
    activation: Literal["relu", "elu", "gelu", "silu", "leaky_relu", "tanh"] = "relu"
    residual: bool = Field(False, description="add each hidden layer's input to its output")
    readout: Literal["none", "mean", "sum", "max"] = Field(
        "none", description="how the nodes of a graph become its one output; none: outputs are of nodes"
    )
    jk: Literal["none", "cat", "max"] = Field(
        "none", description="outputs of which layers count: of the last, or of all, side by side or their maxima"
    )
    head_layers: Positive = Field(1, description="linear layers after the readout, or of decoder mlp")
    decoder: Literal["dot", "mlp", "distmult"] = Field(
        "dot",
        description="how two nodes become the score of their link: dot product; a network on the product of both; "
        "dot product weighted by the type of the link",
    )
    out_channels: Count = Field(0, description="width of a node before the decoder; 0: hidden")


def heads_divide(config: Any) -> Any:
    """Raise ValueError unless heads share `hidden` evenly."""
    if config.hidden % config.heads:
        raise ValueError(f"hidden {config.hidden} is not divisible by heads {config.heads}")
    return config


class AttentionConfig(ModelConfig):
    """Models whose layers have heads; `hidden` is the width of all heads together."""

    heads: Positive = 8
    output_heads: Positive = Field(1, description="heads of the last layer, averaged")
    attention_dropout: Fraction = 0.0
    edge_features: bool = Field(False, description="attend to the features of edges too, embedded in `hidden`")

    _heads_divide = model_validator(mode="after")(heads_divide)


class TrainConfig(Section):
    """Full-batch training."""

    epochs: Positive = 200
    lr: Annotated[float, Field(gt=0)] = 0.01
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    decayed_layers: Literal["all", "first"] = Field("all", description="where weight decay applies")
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    repeats: Positive = Field(1, description="runs with seeds seed, seed + 1, ...")
    seed: Count = 0
    patience: Count = Field(0, description="epochs without a better validation metric before stopping; 0: never")
    eval_every: Positive = Field(1, description="epochs between evaluations, which are never timed")
    checkpoint_every: Count = Field(50, description="epochs between checkpoints, or a minute; 0: when stopped")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="of backends that run on either; auto: the GPU for cuda_graph and beside backend cuda"
    )
    cuda_graph: bool = Field(False, description="record a training step on the GPU once, then replay it whole")
    workers: Positive = Field(1, description="processes that train together, on parts of the graph or of batches")
    precision: Literal["float32", "bf16"] = Field("float32", description="of dense products; bf16: under autocast")
    schedule: Literal["none", "cosine", "plateau"] = Field(
        "none", description="of the rate, from lr: to zero in the last epoch, or by half where validation stalls"
    )
    warmup_epochs: Count = Field(0, description="first epochs, in which the rate rises to lr")
    stalled: Positive = Field(10, description="evaluations without a better one before plateau halves the rate")
    clip_norm: Annotated[float, Field(ge=0)] = Field(0.0, description="norm of all gradients at most; 0: any")
    label_smoothing: Fraction = Field(0.0, description="share of each target that is spread over all classes")

    @model_validator(mode="after")
    def _epochs_are_left(self) -> TrainConfig:
        if self.cuda_graph and self.epochs <= RECORDED_EPOCH:
            raise ValueError(
                f"cuda_graph records epoch {RECORDED_EPOCH} and replays those after it; "
                f"raise epochs (now {self.epochs}), or leave it out"
            )
        if self.cuda_graph and (self.schedule != "none" or self.warmup_epochs):
            raise ValueError("cuda_graph replays one learning rate; leave it out, or schedule and warmup_epochs")
        if self.warmup_epochs >= self.epochs:
            raise ValueError(f"warmup_epochs {self.warmup_epochs} leaves none of {self.epochs} epochs; lower it")
        return self


class BatchConfig(Section):
    """The keys of every kind of batches; each kind's own `Config` adds more, and says what the kind can do."""

    graphs: ClassVar[bool] = False  # a step is on some of many graphs, not on one
    links: ClassVar[bool] = False  # a step is on some links, not on nodes
    typed: ClassVar[bool] = False  # a step may be on a graph of several types
    draws_neighbors: ClassVar[bool] = False  # edges are drawn from a graph that may be too large to be copied
    distributed: ClassVar[bool] = False  # each of several processes has a part of the graph
    data_parallel: ClassVar[bool] = False  # several that have the whole data may share out the targets of a step
    loaders: ClassVar[tuple[str, ...]] = ("ours",)  # who may make its batches, by the names of `backend.loader`
    undivided: ClassVar[str] = "full"  # the kind whose one batch has all that a step may be on
    with_workers: ClassVar[str] = ""  # the kind that takes its place where several processes are asked for, if any

    kind: str = "full"
    timeout_s: Positive = Field(600, description="how long a worker waits for another one that does not answer")

    @property
    def repeats(self) -> bool:
        """Return whether all steps are on the same edges, so that convs may keep what they made of them."""
        return False

    @property
    def tolerance(self) -> float | None:
        """Relative error that the batches own up to, for parity; None for that of summing in another order."""
        return None


class MeasureConfig(Section):
    """How time and memory are measured."""

    warmup: Count = Field(2, description="first epochs left out of the figures; one epoch always counts")
    memory_limit: str = Field("90%", description="a size such as 16GiB, or a share of the machine's memory")
    allocator: Literal["warm", "system"] = Field(
        "system",
        description="warm: epochs find the memory that earlier ones freed; system: as the C library has it",
    )
    threads: Count = Field(0, description="threads for all kernels; 0 uses PyTorch's default")
    energy: bool = Field(False, description="joules of every epoch, where the machine counts them")

    @field_validator("memory_limit")
    @classmethod
    def _readable(cls, value: str) -> str:
        units.size_bytes(value, total_bytes=1)
        return value


class BackendConfig(Section):
    """The backend that executes the convs, and the exact rewrites it may use."""

    name: str = "pyg"
    transform_first: bool = Field(True, description="multiply by the weights first where that is narrower")
    tuned: bool = Field(True, description="use the choices that `gnnbench tune` kept for the graph")
    fold_norm: bool = Field(True, description="GCN normalisation as two row scalings instead of edge weights")
    gather: Literal["float32", "bf16"] = Field(
        "float32", description="type of gathered features; sums are in float32, and parity is judged less strictly"
    )
    keep_aggregation: bool = Field(False, description="aggregate features that never change once, not every epoch")
    sparse_features: bool = Field(True, description="multiply features that are mostly zero without their zeros")
    dropout: bool = Field(True, description="draw the numbers of dropout by a hash, others than torch's")
    layers: bool = Field(True, description="compute linear layers and batch norms by kernels too")
    loader: Literal["ours", "pyg", "dgl"] = Field(
        "ours", description="who makes batches: gnnbench, or the library whose own convs run"
    )
    loader_workers: Count = Field(
        0, description="processes that their loader makes batches in, ahead of training; 0: none, in its thread"
    )


SECTIONS: dict[str, tuple[str, str, type[Section]]] = {  # those of which a key names the class, as a module has it
    "dataset": ("source", "datasets", DatasetConfig),
    "model": ("name", "models", ModelConfig),
    "batch": ("kind", "training.batching", BatchConfig),
}


class Run(Section):
    """A complete run."""

    dataset: Any
    model: Any
    batch: Any
    train: TrainConfig = TrainConfig()
    measure: MeasureConfig = MeasureConfig()
    backend: BackendConfig = BackendConfig()

    def changed(self, **sections: Mapping[str, Any]) -> Run:
        """Return a copy with other values of keys, by section; they are not validated."""
        made = {name: getattr(self, name).model_copy(update=values) for name, values in sections.items()}
        return self.model_copy(update=made)

    @property
    def distributed(self) -> bool:
        """Return whether several processes train together, or one does as if it were one of several."""
        return self.batch.distributed or self.train.workers > 1

    @property
    def data_parallel(self) -> bool:
        """Return whether several processes share out the targets of each step."""
        return self.batch.data_parallel and self.train.workers > 1


Overrides: TypeAlias = Mapping[str, Any] | Sequence[str]


def load(
    source: Path | Mapping[str, Any],
    overrides: Overrides = (),
    *,
    dataset: dict[str, Any] | None = None,
    backend: str | None = None,
    names: Mapping[str, str] = {},
    where: str = "",
) -> Run:
    """Read and validate one run.

    Args:
        source: a YAML file, or its sections, which are left as they are.
        overrides: values by `"section.key"`, or `"section.key=value"` each in YAML, applied before validation.
        dataset: replaces the dataset section whole.
        backend: `"NAME[:key=value]..."`, replaces the backend section whole.
        names: by key, the options to name where overrides of these keys are at fault, in place of `--set`.
        where: names `source` in problems; by default the file.

    Raises:
        ConfigError: with every problem, one sentence each.
    """
    if isinstance(source, Path):
        raw, origin = documents.read(source, [*Run.model_fields]), str(source)
    else:
        raw, origin = copy.deepcopy({**source}), "config"
    given: dict[str, str] = {}
    if dataset is not None:
        raw["dataset"], given["dataset"] = dict(dataset), "--dataset"
    if backend is not None:
        raw["backend"], own = backend_sections(backend)
        given["backend"] = "--backend"
        options = {f"{name}.{key}": value for name, section in own.items() for key, value in section.items()}
        given |= override(raw, options, dict.fromkeys(options, "--backend"))
    given |= override(raw, overrides, names)
    return validate(raw, where or origin, given)


def validate(raw: dict[str, Any], where: str, given: Mapping[str, str] = {}) -> Run:
    """Check `raw`, and make it a typed configuration.

    Args:
        where: names the origin of `raw` in problems.
        given: by key or section, the option that it comes from, which is named instead.
    """
    raw = {**raw, "batch": raw.get("batch") or {}}
    if isinstance(raw["batch"], dict):
        raw["batch"] = {"kind": BatchConfig().kind, **raw["batch"]}
    kinds: dict[str, Any] = {}
    problems: list[str] = []
    for section, (key, package, base) in SECTIONS.items():
        kinds[section], content = base, raw.get(section)
        if isinstance(content, dict) and key in content:
            if (name := content[key]) in (allowed := registry.names(package)):
                kinds[section] = registry.find(package, name).Config
            else:
                problems.append(f"{section}.{key}: unknown {key} {name!r}{did_you_mean(str(name), allowed)}")
    train, with_workers = raw.get("train"), kinds["batch"].with_workers
    if with_workers and isinstance(train, dict) and train.get("workers", 1) != 1:
        raw["batch"]["kind"] = with_workers
        kinds["batch"] = registry.find("training.batching", with_workers).Config
    kind = _run_type(*kinds.values())
    try:
        config = kind.model_validate(raw)
    except ValidationError as error:
        known = {problem.split(":")[0] for problem in problems}
        sentences = [sentence(problem, kind) for problem in error.errors()]
        problems += [problem for problem in sentences if problem.split(":")[0] not in known]
    if problems:
        raise ConfigError(*(_placed(problem, where, given) for problem in problems))
    if config.train.workers > 1 and not (config.batch.distributed or config.batch.data_parallel):
        raise ConfigError(
            f"{where}: train.workers is {config.train.workers}, but batch.kind={config.batch.kind} trains in one "
            "process; leave one of them out"
        )
    return config


def _placed(problem: str, where: str, given: Mapping[str, str]) -> str:
    """A problem after the option at fault, or else the file."""
    key, _, rest = problem.partition(": ")
    return f"{given[key]}: {rest}" if key in given else f"{given.get(key.partition('.')[0], where)}: {problem}"


def backend_sections(spec: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The backend section that `"NAME[:key=value]..."` stands for, and what of the train and batch sections.

    Values are in YAML, and yet to be validated.
    """
    name, *options = spec.split(":")
    section: dict[str, Any] = {"name": name}
    for option in options:
        key, equals, text = option.partition("=")
        if not (equals and key) or key in section:
            raise ConfigError(
                f"backend {spec!r}: write it as NAME:key=value, each key once, such as isplib:fold_norm=false"
            )
        section[key] = documents.value(text, f"backend {spec!r}")
    own = {name: {key: section.pop(key) for key in keys if key in section} for name, keys in BY_BACKEND.items()}
    return section, own


def by_key(overrides: Overrides) -> dict[str, Any]:
    """The values of overrides, as `load` takes them, by key."""
    if isinstance(overrides, Mapping):
        return dict(overrides)
    values = {}
    for each in overrides:
        key, equals, text = each.partition("=")
        if not equals:
            raise ConfigError(f"--set {each}: write it as section.key=value, such as train.epochs=5")
        values[key.strip()] = documents.value(text, f"--set {each}")
    return values


def override(raw: dict[str, Any], overrides: Overrides, names: Mapping[str, str] = {}) -> dict[str, str]:
    """Put overrides, as `load` takes them, into the sections of a file; what to call each key in a problem."""
    values = by_key(overrides)
    for key, value in values.items():
        section, _, name = key.partition(".")
        if not name:
            raise ConfigError(f"--set {key}={value}: write it as section.key=value, such as train.epochs=5")
        if not isinstance(raw.setdefault(section, {}), dict):
            raise ConfigError(f"--set {key}={value}: section {section!r} holds {raw[section]!r}, not keys")
        raw[section][name] = value
    return {key: names.get(key, f"--set {key}") for key in values}


@functools.cache
def _run_type(dataset: type[Section], model: type[Section], batch: type[Section]) -> type[Run]:
    """Kept, as pydantic takes a while to make it."""
    return create_model("Run", __base__=Run, dataset=(dataset, ...), model=(model, ...), batch=(batch, ...))


def sentence(error: Any, kind: type[Section]) -> str:
    """One of the `errors()` of pydantic about a `kind`."""
    key = [str(part) for part in error["loc"]]
    if error["type"] == "extra_forbidden":
        holder: Any = kind.model_fields[key[0]].annotation if len(key) > 1 else kind
        return f"{'.'.join(key)}: unknown key{did_you_mean(key[-1], holder.model_fields)}"
    if error["type"] == "missing":
        return f"{'.'.join(key)}: is required and was not given"
    if error["type"] == "value_error":
        return f"{'.'.join(key)}: {error['ctx']['error']}"
    message = error["msg"].replace("Input should be", "must be")
    return f"{'.'.join(key)}: {message}, found {error['input']!r}"
