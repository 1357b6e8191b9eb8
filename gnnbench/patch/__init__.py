"""The two-line drop-in: unmodified PyG programs run on our kernels wherever those are exact.

forward      what stands in for the forward of a PyG conv, and of the decoder of pairs; propagate: for the messages
             of any other layer; functions: for softmax, spmm, gcn_norm and torch's dropout; sampler: for sampling
stand_in     ours or, where that is not exact, PyG's own
call         what a program asks of a conv; calls that run once more in the backward, as checkpointing does
engine       kernels, the Graphs that they have met, and features that come again, without their zeros
policy       whether a call gains
looks        convs that need no second look, as nothing in or around them changed
status       what ran where, and why
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch_geometric.nn
from torch.nn import Module

from gnnbench import backends, convs
from gnnbench.errors import BackendUnavailable, ConfigError, did_you_mean
from gnnbench.ops.kernels import Kernels
from gnnbench.patch import forward, functions, propagate, sampler
from gnnbench.patch.policy import Policy
from gnnbench.patch.stand_in import StandIn, disguised, share_overloads
from gnnbench.patch.status import TALLY, Status

M = TypeVar("M", bound=Module)
WITHIN = "activation checkpointing inside of patched(), which may end before backward; call patch_pyg() instead"


@dataclass(frozen=True, eq=False)
class _Setting:
    """Names that are patched, and how; `names` is empty where PyG is to run untouched."""

    names: frozenset[str]
    engine: forward.Engine | None = None
    others: bool = False  # layers too that nobody could name, for their classes are not yet there

    def includes(self, target: StandIn) -> bool:
        """Return whether `target` stands in."""
        if isinstance(target, propagate.Compilation):
            return self.engine is not None
        return target.name in self.names or (self.others and isinstance(target, propagate.Propagate))


_lock = threading.RLock()
# What `patch_pyg` asked for, then what the contexts entered did, the innermost last: the last one is in force.
_settings = [_Setting(frozenset())]
_warned: set[str] = set()  # types of device
_policy = Policy()  # of the engines that are asked for
_engines: dict[tuple[str, bool, Policy], forward.Engine] = {}  # by backend, strictness and policy


def patch_pyg(
    backend: str = "auto", names: Sequence[str] | None = None, strict: bool = False, dropout: bool = False
) -> None:
    """Run the convs of all PyG models of this process on our kernels, until `unpatch_pyg()`.

    So do `InnerProductDecoder`, which scores pairs for GAE and VGAE, calls of `torch_geometric.utils.softmax` and
    `spmm`, by whatever module holds them under these names, and the sampling of `NeighborLoader` and
    `LinkNeighborLoader` where neither pyg-lib nor torch-sparse is installed.

    What cannot be computed exactly runs PyG's own code; `patch_status()` says what and why. Called again, the last
    call's arguments hold. Where there are no kernels for a device of this machine, a warning says why, once.

    The sorted graph of an `edge_index`, and what PyG's layers make of it by `gcn_norm`, are kept until that tensor
    is edited. torch does not count edits of `edge_index.data`, of the array that `edge_index.numpy()` shares, or
    by other processes. On the CPU they show if they change a number that every call compares: any of a tensor of
    up to 4,096, else of about 64 in each row. Other such edits, and all of them on a GPU, go unnoticed: edit
    `edge_index` itself.

    Args:
        backend: "auto" (by the device of the tensors), or the name of one with kernels, such as "isplib".
        names: of PyG's classes and functions, such as ["GCNConv", "softmax"], and "sampler"; None for all, but for
            the sampler where PyG has its own.
        strict: run whatever is exact on our kernels, even where PyG is faster, and raise UnsupportedOp instead of
            running PyG's own code.
        dropout: let `torch.nn.functional.dropout`, and through it `torch.nn.Dropout`, draw on the CPU by a hash,
            faster and other numbers than torch's, by a seed of torch's generator; what it leaves of features that
            come again and are mostly zero is then multiplied by weights without zeros.

    Raises:
        ConfigError: an unknown backend or name.
        BackendUnavailable: this machine cannot run it.
    """
    _set_base(_setting(backend, names, strict, dropout))


def unpatch_pyg() -> None:
    """Undo `patch_pyg()` and forget all Graphs; contexts that were entered stay in force until they end."""
    _set_base(_Setting(frozenset()))
    for engine in _engines.values():
        engine.clear()


@contextmanager
def patched(
    backend: str = "auto", names: Sequence[str] | None = None, strict: bool = False, dropout: bool = False
) -> Iterator[None]:
    """`patch_pyg` for the length of a `with`; for all threads, as classes are shared. May be nested."""
    with _within(_setting(backend, names, strict, dropout)):
        yield


@contextmanager
def unpatched() -> Iterator[None]:
    """PyG untouched for the length of a `with`."""
    with _within(_Setting(frozenset())):
        yield


def accelerated(
    function: Callable[..., Any] | None = None,
    *,
    backend: str = "auto",
    names: Sequence[str] | None = None,
    strict: bool = False,
    dropout: bool = False,
) -> Callable[..., Any]:
    """Decorator, with or without arguments: the function runs under `patched`."""
    decorate: Any = patched(backend, names, strict, dropout)  # made anew for every call of what it decorates
    return decorate if function is None else decorate(function)


def accelerate(model: M, backend: str = "auto", names: Sequence[str] | None = None, strict: bool = False) -> M:
    """Run the convs of one model on our kernels; the model itself, whose copies and pickles stay so.

    Raises:
        ConfigError, BackendUnavailable: as `patch_pyg`.
        UnsupportedOp: a conv overrides `forward`, with `strict`.
    """
    setting = _setting(backend, names, strict)
    assert setting.engine is not None
    forward.bind(model, setting.engine, setting.names)
    propagate.bind(model, setting.engine, names)
    return model


def patch_status() -> Status:
    """Return what is patched, what ran accelerated, what PyG ran itself and why, and the memory of Graphs."""
    ran, ways, declined = TALLY.counts()
    engines = [*_engines.values()]
    graphs = [cache for engine in engines for _, cache in engine.by_device.values()]
    return Status(
        patched=tuple(sorted(_settings[-1].names)),
        accelerated=ran,
        ways=ways,
        declined=declined,
        missing=_missing(_settings[-1].engine),
        graphs=sum(map(len, graphs)),
        graph_bytes=sum(cache.nbytes for cache in graphs) + sum(engine.norms.nbytes for engine in engines),
        graph_limit_bytes=forward.MAX_GRAPH_BYTES,
        graphs_found=sum(cache.found for cache in graphs),
        graphs_built=sum(cache.built for cache in graphs),
    )


def _setting(backend: str, names: Sequence[str] | None, strict: bool, dropout: bool = False) -> _Setting:
    with _lock:
        known = {kind.__name__: True for kind in propagate.layers()}
        known |= {target.name: target.enabled_by_default() for target in _always()}
        for name in names or ():
            if name not in known:
                raise ConfigError(f"unknown layer {name!r}{did_you_mean(name, known)}")
        if (key := (backend, strict, _policy)) not in _engines:
            engine = _engines[key] = _engine(*key)
            for device, why in _missing(engine).items():
                if device not in _warned:
                    _warned.add(device)
                    warnings.warn(f"gnnbench leaves everything on {device} to PyG: {why}", stacklevel=3)
    by_default = [name for name, is_default in known.items() if is_default]
    wanted = {*(by_default if names is None else names), *([functions.DROPOUT.name] if dropout else [])}
    return _Setting(frozenset(wanted), _engines[key], names is None)


def _missing(engine: forward.Engine | None) -> dict[str, str]:
    """Why there are no kernels for a type of device that this machine has."""
    reasons = engine.missing if engine else {}
    return {device: why for device, why in reasons.items() if device != "cuda" or torch.cuda.is_available()}


def _engine(backend: str, strict: bool, policy: Policy) -> forward.Engine:
    if backend != "auto":
        kind = backends.backend_type(backend)
        if reasons := kind.unavailable():
            raise BackendUnavailable(f"backend {backend!r} is unavailable: {'; '.join(reasons)}")
        if kind.kernels is None:
            raise ConfigError(
                f"backend {backend!r} runs PyG's own code; patch_pyg takes 'auto' or one with kernels"
            )
        return forward.Engine([kind.kernels()], policy, strict=strict)
    kernels: dict[str, Kernels] = {}
    missing: dict[str, str] = {}
    for name, automatic in backends.with_kernels().items():
        device = automatic.automatic_on
        if not device or device in kernels:
            continue
        if reasons := automatic.unavailable():
            missing.setdefault(device, f"backend {name!r} is unavailable: {'; '.join(reasons)}")
        elif automatic.kernels.device_type != device:
            missing.setdefault(device, f"backend {name!r} does not run on {device}")
        else:
            kernels[device] = automatic.kernels()
    return forward.Engine([*kernels.values()], policy, missing, strict)


def _set_base(setting: _Setting) -> None:
    with _lock:
        _settings[0] = setting
        functions.holders.cache_clear()
        _apply()


@contextmanager
def _within(setting: _Setting) -> Iterator[None]:
    with _lock:
        _settings.append(setting)
        _apply()
    try:
        yield
    finally:
        with _lock:
            _settings.remove(setting)
            _apply()


def _apply() -> None:
    """Let classes and modules be as the innermost setting says."""
    with _lock:
        for target in (*_always(), *propagate.known()):  # of which those for parts of one class share its name
            ours, pygs = _replacement(target), target.original
            wanted, other = (ours, pygs) if _settings[-1].includes(target) else (pygs, ours)
            for owner in target.owners():
                if vars(owner).get(target.attribute) is other:
                    share_overloads(wanted, other)
                    setattr(owner, target.attribute, wanted)


@functools.cache
def _always() -> list[StandIn]:
    forwards = [forward.forward_of(getattr(torch_geometric.nn, name)) for name in convs.table()]
    named = functions.SOFTMAX, functions.SPMM, functions.NORM, functions.DROPOUT
    return [*forwards, forward.DECODER, *named, *sampler.STAND_INS, propagate.Compilation(_apply)]


@functools.cache
def _replacement(target: StandIn) -> Any:
    original, settings, within, is_compiling = target.original, _settings, WITHIN, torch.compiler.is_compiling

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        setting, base = settings[-1], settings[0]
        if setting.engine is None or not setting.includes(target):  # held elsewhere than by its owners
            return original(*args, **kwargs)
        outlasts = setting is base or (setting.engine is base.engine and base.includes(target))
        if not outlasts and target.is_repeated(*args, **kwargs):
            return target.left(setting.engine, within, *args, **kwargs)
        return target(setting.engine, *args, **kwargs)

    return disguised(stand_in, original)
