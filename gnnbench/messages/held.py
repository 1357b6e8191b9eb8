"""State of a layer and its modules: options that change how it computes, and attributes that it writes."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from gnnbench.errors import UnsupportedOp

VALUES = (int, float, bool, str, type(None))
LONG = 64  # of lists, beyond which they are data
TORCHS = vars(Module()).keys() - {"training"}
MISSING, KEPT = object(), object()


def options(module: Module) -> tuple[Any, ...]:
    """Attributes of a module that may change how it computes, fit for comparison; functions by identity."""
    return tuple([_option(value) for name, value in vars(module).items() if name not in TORCHS])


def _option(value: Any) -> Any:
    if type(value) in VALUES:
        return value
    if isinstance(value, (Mapping, list, tuple, set)) and len(value) <= LONG:
        items = value.items() if isinstance(value, Mapping) else value
        return tuple([_option(each) for each in items])
    if callable(value) and not isinstance(value, Module):
        function = getattr(value, "__func__", value)  # of a method, which would hold the layer
        try:
            return weakref.ref(function)
        except TypeError:
            return function
    return type(value)


class Held:
    """All that a layer holds at a moment, so that a backward finds it as the forward did."""

    def __init__(self, conv: Module) -> None:
        registries = ("_parameters", "_buffers", "_modules")
        held = [each for m in conv.modules() for each in (vars(m), *(vars(m)[name] for name in registries))]
        # A result that the layer keeps from call to call would keep the graphs of all calls.
        self._then = [
            (own, {n: KEPT if isinstance(v, Tensor) and v.grad_fn is not None else v for n, v in own.items()})
            for own in held
        ]

    @contextmanager
    def restored(self, but: tuple[str, ...]) -> Iterator[None]:
        """Hold the same again for a while, except for attributes `but`."""
        changed = [
            (own, name, now, value)
            for own, then in self._then
            for name, now, value in _changes(own, then)
            if name not in but and value is not KEPT
        ]
        for own, name, _, value in changed:
            _put(own, name, value)
        try:
            yield
        finally:
            for own, name, value, _ in changed:
                _put(own, name, value)


def _changes(own: dict[str, Any], then: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Names of what is not as it was, with what is there now and was then, or MISSING."""
    pairs = [(name, own.get(name, MISSING), then.get(name, MISSING)) for name in {**then, **own}]
    return [(name, now, value) for name, now, value in pairs if now is not value]


def _put(own: dict[str, Any], name: str, value: Any) -> None:
    if value is MISSING:
        own.pop(name, None)
    else:
        own[name] = value


@contextmanager
def unchanged(conv: Module) -> Iterator[dict[str, Tensor]]:
    """Refuse functions that write to a layer, which is then as it was; yield the tensors that they leave on it.

    Raises:
        UnsupportedOp: they write anything else.
    """
    before = [(vars(module), vars(module).copy()) for module in conv.modules()]
    containers = [
        (name, value, value.copy())
        for own, _ in before
        for name, value in own.items()
        if type(value) in (list, dict, set)
    ]
    buffers = [(buffer, buffer._version, buffer.detach().clone()) for buffer in conv.buffers()]
    left: dict[str, Tensor] = {}
    written = ""
    try:
        yield left
    finally:
        for own, attributes in before:
            for name, now, value in _changes(own, attributes):
                if own is vars(conv) and isinstance(now, Tensor) and now.dim():
                    left[name] = now
                else:
                    written = name
                _put(own, name, value)
        for name, now, then in containers:
            if not _same_items(now, then):
                written = "a buffer" if name == "_buffers" else name
                now.clear()
                now.extend(then) if isinstance(now, list) else now.update(then)
        for buffer, version, copy in buffers:
            if buffer._version != version:
                written = "a buffer"
                with torch.no_grad():
                    buffer.copy_(copy)
    if written:
        raise UnsupportedOp("streaming", [f"its message writes {written}, which others read"])


def _same_items(now: Any, then: Any) -> bool:
    if isinstance(now, dict):
        return not _changes(now, then)
    if isinstance(now, set):
        return bool(now == then)
    return len(now) == len(then) and all(map(operator.is_, now, then))
