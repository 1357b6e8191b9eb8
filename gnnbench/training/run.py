"""One run from its configuration to its Result, with every way it can end."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from gnnbench import backends, datasets, stopping
from gnnbench.backends.base import Backend
from gnnbench.config import Run
from gnnbench.errors import BackendUnavailable, ConfigError, GnnbenchError
from gnnbench.measure import advice, clock, code, energy, environment, memory
from gnnbench.results import files, schema
from gnnbench.results.schema import Evaluation, Record, Result, Sample, Status
from gnnbench.training import checkpoint, cuda_graph, setup, team
from gnnbench.training.batching._batch import Batching
from gnnbench.training.loop import Trainer
from gnnbench.training.team import Team, joined

ROOM = 10  # peaks of an epoch: glibc may leave seven freed tensors of a size idle before it reuses one
UNFINISHED = "the run had not ended when this was written"


class Event(Record):
    """Something that just happened in a run.

    Attributes:
        kind: "dataset_loaded" (`result.dataset_facts` is known), "prepared" (`result.prepare_s` and
            `result.bindings` are), "step" (`steps` of the epoch at hand are done, of `of`), "epoch" (with its
            `sample`, and its `evaluation` where there was one), "repeat_done", or "message" (one sentence for the
            user).
        result: everything known so far; read it, do not change it.
    """

    kind: Literal["dataset_loaded", "prepared", "step", "epoch", "repeat_done", "message"]
    result: Result
    sample: Sample | None = None
    evaluation: Evaluation | None = None
    message: str = ""
    steps: int = 0
    of: int = 0


Inspect = Callable[[Backend, torch.nn.Module, Batching, setup.ModelDims], None]


def run(
    config: Run,
    *,
    roots: datasets.Roots,
    out: Path | None,
    resume: bool = False,
    on_event: Callable[[Event], None] | None = None,
    inspect: Inspect | None = None,
    begin: Callable[[torch.nn.Module], None] = lambda _: None,
) -> Result:
    """Train as `config` says and measure it.

    The graph is prepared once. Repeat r starts from the weights and random numbers of seed `train.seed + r`.
    `out/results.json` is written before anything else, at every checkpoint and at the end, so that nothing
    measured is lost. Ctrl-C, SIGTERM and SIGHUP stop after the epoch at hand; a second Ctrl-C kills the process.

    Args:
        config: the complete configuration.
        roots: where datasets are.
        out: the run's folder, or None to write nothing.
        resume: go on with the run in `out`, to the losses and metrics it would have reached.
        on_event: called after every step, outside the timed region.
        inspect: called once after the last epoch, before the run counts as ended; it may change the model.
        begin: called with every model and its first weights, which it may change.

    Returns:
        The result; a run that did not reach its end says so in `status` and `reason`.

    Raises:
        ConfigError: a bad value, or `out` holds no run, or one of another configuration, to resume.
        DatasetError: the data are missing, broken or cannot be trained on.
        GnnbenchError: `out` cannot be written.
    """
    result = Result(
        status="interrupted",
        reason=UNFINISHED,
        backend=config.backend.name,
        dataset=config.dataset.source,
        config=resolved(config),
        code=code.digest(backends.module_of(config.backend.name)),
    )
    with joined(config, result.config, result.code) as team:
        if team.rank:
            out, on_event = None, None
        state = None
        if resume:
            with team.propagate_errors():
                stored, state = _stored(out, result.config, team)
            if stored.status == "ok":
                return stored
            if state:
                result = checkpoint.resumed(state["result"], result.code)
        elif out:
            checkpoint.discard(out)
        running = _Run(config, roots, out, result, on_event or (lambda _: None), inspect, begin, team)
        running.save()
        try:
            with team.propagate_errors():
                running.execute(state)
            result.status, result.reason = "ok", ""
        except (Exception, KeyboardInterrupt) as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            status: Status | None = "interrupted" if interrupted else getattr(error, "status", None)
            result.status = status or "failed"
            result.reason = running.interruption() if status == "interrupted" else str(error)
            if status is None:
                with suppress(GnnbenchError):  # the first error says more
                    running.conclude()
                raise
        running.conclude()
        return result


def resolved(config: Run) -> dict[str, Any]:
    """The whole configuration with its defaults, as it is stored and as `config.validate` reads it back.

    Rewrites are left out for a backend that takes none.
    """
    result = config.model_dump(mode="json", serialize_as_any=True)
    with suppress(BackendUnavailable):
        if not backends.backend_type(config.backend.name).takes_rewrites:
            result["backend"] = config.backend.model_dump(mode="json", exclude_unset=True)
    return result


@dataclass
class _Run:
    """The steps of one run and what they share; everything they learn goes into `result`."""

    config: Run
    roots: datasets.Roots
    out: Path | None
    result: Result
    on_event: Callable[[Event], None]
    inspect: Inspect | None
    begin: Callable[[torch.nn.Module], None]
    team: Team
    other_programs: clock.OtherPrograms = field(default_factory=clock.OtherPrograms)
    saved_s: float = field(default_factory=clock.cpu)  # when the latest checkpoint was
    best: checkpoint.Best = field(default_factory=checkpoint.Best)

    def execute(self, state: dict[str, Any] | None) -> None:
        """Load, prepare and train; `state` is a checkpoint to go on from."""
        environment.use_threads(self.config.measure.threads)
        backend = backends.load(self.config.backend, self.config.train)
        self.result.environment = environment.describe()  # of the machine, before a worker keeps to some cores
        self.team.bind_to_cores()
        with memory.limited(self.config.measure.memory_limit, backend.device):
            joules, unknown = energy.meter(backend.device) if self.config.measure.energy else (None, "")
            recorder = clock.Recorder(
                self.config.measure.warmup, clock.of(backend.device), memory.meter(backend.device), joules
            )
            model, batching = self._prepare(backend, recorder)
            self.result.environment["threads"] = environment.threads()  # now that the kernels are loaded
            self.result.resting_memory_bytes = recorder.meter.resting()
            earlier = len(self.result.samples)  # of a run that is resumed
            with stopping.requested(lambda text: self._emit("message", message=text)) as stop:
                finished = self._train(model, batching, recorder, stop, state)
            self.result.warnings += [*batching.remarks, *([f"no energy: {unknown}"] if unknown else [])]
            self.team.check_weights(model)
            self.result.workers = team.figures(self.team, batching, self.result.samples[earlier:])
            if not finished:
                raise KeyboardInterrupt
            if self.inspect:
                self.inspect(backend, model, batching, self.dims)

    def save(self) -> None:
        """Write what is known so far."""
        if self.out:
            files.save_json(self.result, self.out / files.RUN)

    def conclude(self) -> None:
        """Draw the figures and the doubts about them from the samples, and write all."""
        if self.team.size == 1:
            self.result.environment["other_programs_busy_cores"] = self.other_programs.busy_cores()
        self.result.refresh()
        self.result.warnings += advice.warnings(self.result)
        self.save()
        if self.out:
            self.best.export(self.out)

    def interruption(self) -> str:
        """How far an interrupted run came, and how to go on."""
        last = self.result.samples[-1] if self.result.samples else None
        where = f"after epoch {last.epoch} of repeat {last.repeat}" if last else "before the first epoch"
        remedy = f"; continue with: gnnbench train --resume {shlex.quote(str(self.out))}" if self.out else ""
        return f"stopped by {stopping.by()} {where}{remedy}"

    def _emit(self, kind: Any, **details: Any) -> None:
        self.on_event(Event(kind=kind, result=self.result, **details))

    def _prepare(self, backend: Backend, recorder: clock.Recorder) -> tuple[torch.nn.Module, Batching]:
        """Model and batching; the dataset ends here, so that edges which the backend does not need are freed."""
        with self.team.in_turn():  # as a dataset may be processed and kept
            dataset = setup.read(self.config, self.roots)
        dataset, reorder_s = recorder.time(lambda: datasets.reordered(dataset, self.config.dataset))
        self.result.dataset = dataset.label
        self.dims = setup.ModelDims.of(dataset)
        self.result.dataset_facts = facts(self.config, dataset, self.dims, reorder_s)
        self._emit("dataset_loaded")
        model = self._build().to(backend.device)
        ready, self.result.prepare_s = recorder.time(
            lambda: setup.prepare(self.config, model, backend, dataset, self.roots.cache)
        )
        self.result.bindings = ready.bindings
        self.result.warnings += ready.warnings
        if ready.tuned:
            self.result.choices, self.result.tuning_s = ready.tuned.choices, ready.tuned.tuning_s
        self._emit("prepared")
        return model, ready.batching

    def _build(self, repeat: int = 0) -> torch.nn.Module:
        model = setup.build(self.config, self.dims, repeat)
        self.begin(model)
        return model

    def _train(
        self,
        model: torch.nn.Module,
        batching: Batching,
        recorder: clock.Recorder,
        stop: threading.Event,
        state: dict[str, Any] | None,
    ) -> bool:
        for repeat in range(state["repeat"] if state else 0, self.config.train.repeats):
            # The prepared model takes the weights of a new one, so that the graph is prepared only once.
            model.load_state_dict(self._build(repeat).state_dict())
            trainer = cuda_graph.trainer(model, batching, self.config.train, self.config.train.seed + repeat)
            if state:
                checkpoint.restore(state, trainer, self.best)
                state = None
            if not self._repeat(trainer, repeat, recorder, stop):
                return False
            self._emit("repeat_done")
        return True

    def _repeat(self, trainer: Trainer, repeat: int, recorder: clock.Recorder, stop: threading.Event) -> bool:
        """Train to the end; False if stopped before."""
        evaluations = [evaluation for evaluation in self.result.evaluations if evaluation.repeat == repeat]
        recorder.begin(trainer.config.epochs - trainer.epoch, trainer.odd_epochs)
        every, batching = trainer.config.checkpoint_every, trainer.batching

        def tell(steps: int) -> None:
            if batching.steps > 1:
                with recorder.paused():
                    self._emit("step", steps=steps, of=batching.steps)

        while not trainer.finished(evaluations):
            if self.team.any(stop.is_set()):
                self._checkpoint(trainer, repeat)
                return False
            # One epoch shows what memory it needs; the next one faults in what those after it find.
            if self.result.samples and recorder.cold_epochs <= 1 and self._has_room():
                recorder.keeps_freed = recorder.keeps_freed or memory.keep_freed()
                self.result.environment["allocator"] = "warm" if recorder.keeps_freed else "system"
            with recorder.epoch():
                loss = trainer.train(recorder.phase, tell)
            loading_s = batching.loading_s if batching.loads else None
            sample = recorder.sample(repeat, trainer.epoch, trainer.check(loss), trainer.held_bytes, loading_s)
            sample.edges, sample.negatives_s = batching.edges, batching.negatives_s
            self.result.samples.append(sample)
            evaluation = None
            if trainer.evaluates:
                evaluation = Evaluation(repeat=repeat, epoch=trainer.epoch, **self._scores(trainer))
                evaluations.append(evaluation)
                self.result.evaluations.append(evaluation)
                if self.out:
                    self.best.see(evaluation, trainer.model)
                trainer.adapt(evaluation)
            self._emit("epoch", sample=sample, evaluation=evaluation)
            due = every and (trainer.epoch % every == 0 or trainer.finished(evaluations))
            if due or (every and clock.cpu() - self.saved_s > checkpoint.LONGEST_S):
                self._checkpoint(trainer, repeat)
        return True

    def _scores(self, trainer: Trainer) -> dict[str, float | None]:
        """Evaluate: together where each process has a part; else the first does, and tells the others."""
        if not self.config.data_parallel:
            return trainer.evaluate()
        return self.team.collected({} if self.team.rank else trainer.evaluate())[0]

    def _has_room(self) -> bool:
        """Return whether malloc is to keep what is freed, and may without reaching the limit of memory."""
        limit = memory.limit_bytes(self.config.measure.memory_limit, memory.total_bytes())
        fits = ROOM * self.result.samples[-1].peak_memory_bytes <= limit
        return self.config.measure.allocator == "warm" and fits

    def _checkpoint(self, trainer: Trainer, repeat: int) -> None:
        """Save where training stands; a full disk must not end it, so that is told and training goes on."""
        if not self.out:
            return
        self.saved_s = clock.cpu()
        try:
            checkpoint.save(self.out, trainer, repeat, self.result, self.best)
            self.save()
        except GnnbenchError as error:
            text = f"no checkpoint after epoch {trainer.epoch}: {error}"
            self.result.warnings.append(text)
            self._emit("message", message=text)


def facts(
    config: Run, dataset: datasets.AnyDataset, dims: setup.ModelDims, reorder_s: float
) -> schema.DatasetFacts:
    """Facts of a dataset whose nodes were put in order in `reorder_s` seconds."""
    return schema.DatasetFacts(
        name=dataset.name,
        made_up=dataset.made_up,
        nodes=dataset.num_nodes,
        edges=dataset.num_edges,
        features=dims.features,
        classes=dims.outputs,
        metric=dataset.metric,
        **_counts(dataset),
        reorder=config.dataset.reorder,
        reorder_s=None if config.dataset.reorder == "none" else reorder_s,
    )


def _counts(dataset: datasets.AnyDataset) -> dict[str, int | None]:
    """Graphs, and what an epoch goes over, of many graphs; links; nothing of nodes."""
    if isinstance(dataset, datasets.LinksDataset):
        links = dataset.positives["train"].size(1)
        return {"train_links": links, "embedding_bytes": dataset.embedding_bytes or None}
    if isinstance(dataset, datasets.TypedDataset):
        types = {"node_types": len(dataset.nodes), "edge_types": len(dataset.relations)}
        return {**types, "embedding_bytes": dataset.embedding_bytes or None}
    if isinstance(dataset, datasets.NodeDataset):
        return {}
    train = dataset.parts["train"]
    edges = int(dataset.edge_ptr.diff()[train].sum())
    return {"graphs": dataset.num_graphs, "train_graphs": len(train), "train_edges": edges}


def _stored(out: Path | None, wanted: dict[str, Any], team: Team) -> tuple[Result, dict[str, Any] | None]:
    """Result and checkpoint of the run to resume, which the first process reads for all."""
    result = state = b""
    if not team.rank:
        if out is None or not (out / files.RUN).exists():
            raise ConfigError(f"{out}: holds no {files.RUN} to resume; give the folder of a run")
        stored = files.load(Result, out / files.RUN)
        checkpoint.check_same(stored.config, wanted, out)
        result, state = stored.model_dump_json().encode(), checkpoint.read(out)
    stored = Result.model_validate_json(team.shared(result))
    return stored, checkpoint.parsed(team.shared(state), out)
