"""One run from its configuration to its Result, with every way it can end; in one process, or in several."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from gnnbench import backends, datasets, launch, stopping
from gnnbench.backends.base import Backend
from gnnbench.config import Run, validate
from gnnbench.errors import BackendUnavailable, ConfigError, GnnbenchError
from gnnbench.launch import Task
from gnnbench.measure import advice, clock, code, energy, environment, memory
from gnnbench.results import files
from gnnbench.results.schema import Evaluation, Record, Result, Sample, Status
from gnnbench.training import checkpoint, loop, setup, team
from gnnbench.training.batching._batch import Batching
from gnnbench.training.loop import Trainer
from gnnbench.training.team import Team, joined

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


Hear = Callable[[Event], None]
Inspect = Callable[[Backend, torch.nn.Module, Batching, setup.ModelDims], None]


def run(
    config: Run,
    *,
    roots: datasets.Roots,
    out: Path | None,
    resume: bool = False,
    on_event: Hear | None = None,
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
        state = None
        if resume:
            with team.propagate_errors():
                if out is None or not (out / files.RUN).exists():
                    raise ConfigError(f"{out}: holds no {files.RUN} to resume; give the folder of a run")
                stored = files.load(Result, out / files.RUN)
                checkpoint.check_same(stored.config, result.config, out)
                state = checkpoint.read(out, result.code)
                team.any(False)  # all have read what the first one writes again
            if stored.status == "ok":
                return stored
            if state:
                result = state["result"]
        if team.rank:
            out, on_event = None, None
        if out and not resume:
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
    on_event: Hear
    inspect: Inspect | None
    begin: Callable[[torch.nn.Module], None]
    team: Team
    other_programs: clock.OtherPrograms = field(default_factory=clock.OtherPrograms)
    saved_s: float = field(default_factory=clock.cpu)  # when the latest checkpoint was
    best: checkpoint.Best = field(default_factory=checkpoint.Best)

    def execute(self, state: dict[str, Any] | None) -> None:
        """Load, prepare and train; `state` is a checkpoint to go on from."""
        measure = self.config.measure
        environment.use_threads(measure.threads)
        backend = backends.load(self.config.backend, self.config.train)
        self.result.environment = environment.describe()  # of the machine, before a worker keeps to some cores
        self.team.bind_to_cores()
        device = backend.device
        with memory.limited(measure.memory_limit, device):
            joules, unknown = energy.meter(device) if measure.energy else (None, "")
            self.recorder = clock.Recorder(measure.warmup, clock.of(device), memory.meter(device), joules)
            model, batching = self._prepare(backend)
            self.result.environment["threads"] = environment.threads()  # now that the kernels are loaded
            self.result.resting_memory_bytes = self.recorder.meter.resting()
            earlier = len(self.result.samples)  # of a run that is resumed
            with stopping.requested(lambda text: self._emit("message", message=text)) as self.stop:
                finished = self._train(model, batching, state)
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

    def _prepare(self, backend: Backend) -> tuple[torch.nn.Module, Batching]:
        """Model and batching; the dataset ends here, so that edges which the backend does not need are freed."""
        with self.team.in_turn():  # as a dataset may be processed and kept
            dataset = setup.read(self.config, self.roots)
        dataset, self.dims = setup.opened(self.config, dataset, self.recorder, self.result)
        self._emit("dataset_loaded")
        model = self._build().to(backend.device)
        ready, self.result.prepare_s = self.recorder.time(
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

    def _train(self, model: torch.nn.Module, batching: Batching, state: dict[str, Any] | None) -> bool:
        for repeat in range(state["repeat"] if state else 0, self.config.train.repeats):
            # The prepared model takes the weights of a new one, so that the graph is prepared only once.
            model.load_state_dict(self._build(repeat).state_dict())
            trainer = loop.trainer(model, batching, self.config.train, self.config.train.seed + repeat)
            if state:
                checkpoint.restore(state, trainer, self.best)
                state = None
            if not self._repeat(trainer, repeat):
                return False
            self._emit("repeat_done")
        return True

    def _repeat(self, trainer: Trainer, repeat: int) -> bool:
        """Train to the end; False if stopped before."""
        evaluations = [evaluation for evaluation in self.result.evaluations if evaluation.repeat == repeat]
        every, batching, recorder = trainer.config.checkpoint_every, trainer.batching, self.recorder
        recorder.begin(trainer.config.epochs - trainer.epoch, trainer.odd_epochs)

        def tell(steps: int) -> None:
            if batching.steps > 1:
                with recorder.phase(clock.PAUSED):
                    self._emit("step", steps=steps, of=batching.steps)

        while not trainer.finished(evaluations):
            if self.team.any(self.stop.is_set()):
                self._checkpoint(trainer, repeat)
                return False
            # One epoch shows what memory it needs; the next one faults in what those after it find.
            peak = self.result.samples[-1].peak_memory_bytes if self.result.samples else None
            if peak and recorder.cold_epochs <= 1 and memory.room_to_keep(self.config.measure, peak):
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

    def _checkpoint(self, trainer: Trainer, repeat: int) -> None:
        """Save where training stands; a full disk must not end it, so that is told and training goes on."""
        if not self.out:
            return
        self.saved_s = clock.cpu()
        try:
            checkpoint.save(self.out, trainer, repeat, self.result, self.best)
            self.save()
        except GnnbenchError as error:
            self.result.warnings.append(f"no checkpoint after epoch {trainer.epoch}: {error}")
            self._emit("message", message=self.result.warnings[-1])


class Share(Task):
    """A run, of which every worker does its share."""

    config: dict[str, Any]
    resume: bool

    def perform(self) -> int:
        """Train as one worker; returns the exit code."""
        try:
            config = validate(self.config, str(self.out))
            result = run(config, roots=self.roots, out=self.out, resume=self.resume, on_event=_say)
        except GnnbenchError as error:
            print(json.dumps({"kind": "error", "message": str(error), "exit_code": error.exit_code}), flush=True)
            print(f"gnnbench: {error}", file=sys.stderr)
            return error.exit_code
        if result.status != "ok":
            print(f"gnnbench: {result.reason}", file=sys.stderr)
        return {"ok": 0, "interrupted": stopping.exit_code()}.get(result.status, 1)


def by_torchrun(config: Run) -> Run:
    """`config` with as many workers as torchrun started."""
    place = launch.started()
    if place is None or place[1] == config.train.workers:
        return config
    raw = resolved(config)
    return validate({**raw, "train": {**raw["train"], "workers": place[1]}}, "torchrun")


def start(
    config: Run, *, roots: datasets.Roots, out: Path, resume: bool = False, on_event: Hear | None = None
) -> Result:
    """Train as `run`, in `train.workers` processes if it asks for several and torchrun started none."""
    if not config.distributed or launch.started():
        return run(config, roots=roots, out=out, resume=resume, on_event=on_event)
    task = Share(config=resolved(config), roots=roots, out=out, resume=resume)
    if not resume:
        (out / files.RUN).unlink(missing_ok=True)
    source, backend = task.config["dataset"]["source"], task.config["backend"]["name"]
    known = Result(status="failed", backend=backend, dataset=source, config=task.config)
    errors: list[GnnbenchError] = []

    def hear(line: str) -> None:
        """Pass on an event of worker 0, with the result as far as its events tell it."""
        nonlocal known
        if not line.startswith('{"kind":'):  # what a library prints
            return
        word = json.loads(line)
        if word["kind"] == "error":
            kind = ConfigError if word["exit_code"] == ConfigError.exit_code else GnnbenchError
            errors.append(kind(word["message"]))
            return
        event = Event.model_validate({"result": known, **word})
        known = event.result
        if event.sample:
            known.samples.append(event.sample)
        if on_event:
            on_event(event)

    codes = launch.run_ranks(task, config.train.workers, hear)
    if errors:
        raise errors[-1]
    return _result(task, known, codes)


def _say(event: Event) -> None:
    """Print an event as a line, with the result where more of it is known than epochs."""
    known = event.kind in ("dataset_loaded", "prepared")
    print(event.model_dump_json(exclude_defaults=True, exclude=set() if known else {"result"}), flush=True)


def _result(task: Share, known: Result, codes: dict[int, int]) -> Result:
    """Read what worker 0 wrote; with the reason, where a worker ended without giving one."""
    stored = task.out / files.RUN
    result = files.load(Result, stored) if stored.exists() else known
    if result.status == "ok":
        return result
    for rank, ended in codes.items():
        if ended < 0 or (ended and result.reason in ("", UNFINISHED)):
            result.status, reason = launch.rank_verdict(task, rank, ended)
            if (task.out / checkpoint.CHECKPOINT).exists():
                out = shlex.quote(str(task.out))
                reason += f"; go on from the last checkpoint with: gnnbench train --resume {out}"
            result.reason = reason
            if stopping.stopped(ended):
                result.status, result.reason = "interrupted", f"stopped by {stopping.by()} before the first epoch"
            files.save_json(result, stored)
            break
    return result
