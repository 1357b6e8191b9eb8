"""Named ranges of a profile: epochs, their phases, and the layers of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch.nn import Module, ModuleDict
from torch.profiler import record_function

EPOCH, PHASE, LAYER = "epoch", "phase: ", "layer: "
MODEL = "model"


def phases(
    timed: Callable[[str], AbstractContextManager[None]],
) -> Callable[[str], AbstractContextManager[None]]:
    """`timed`, a phase of a recorder, as a range."""

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        with record_function(PHASE + name), timed(name):
            yield

    return phase


@contextmanager
def layers(model: Module) -> Iterator[None]:
    """Make a range of every forward of the model and of its layers.

    What lies within a layer has no hooks, for kernels leave a hooked layer of a conv to PyTorch.
    """
    opened: list[record_function] = []

    def enter(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            opened.append(record_function(LAYER + name))
            opened[-1].__enter__()

        return hook

    def leave(*_: Any) -> None:
        opened.pop().__exit__(None, None, None)

    handles = []
    for path, module in model.named_modules():
        parent, _, own = path.rpartition(".")
        entry = own.isdecimal() or isinstance(getattr(model, parent, None), ModuleDict)
        # An entry of a list or dict is a layer, too, and so is the conv of a relation, whose name is in brackets.
        if path.count(".") <= entry or own.startswith("<"):
            handles.append(module.register_forward_pre_hook(enter(path or MODEL)))
            handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
