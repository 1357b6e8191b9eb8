"""torch custom ops: how an op of ours becomes `torch.ops.gnnbench.<name>`, opaque to `torch.compile`.

Ops are called with a Graph and Kernels. Where nothing in torch watches a call, these are passed on as they are,
and the dispatcher, which takes as long as a small op, is left out. Through the dispatcher they travel as
handles, so that none of their tensors enters a traced graph. Differentiable ops are given their own kernel for
torch's Autograd key: measured on one forward and backward, `torch.library.register_autograd` costs 31 us more than
a bare `autograd.Function`, this way 12 us more.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial, reduce
from operator import attrgetter, or_
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.autograd import forward_ad

from gnnbench.graph import handles
from gnnbench.ops.kernels import Kernels

_LIBRARY = torch.library.Library("gnnbench", "DEF")
_PLAIN = Kernels()
_AUTOCAST = ("AutocastCPU", "AutocastCUDA")
_AUTOCAST_KEYS = reduce(or_, (torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key)) for key in _AUTOCAST))

_is_profiled, _modes = torch.autograd._profiler_enabled, torch._C._len_torch_function_stack
_TENSORS = (Tensor, torch.nn.Parameter)
_requires_grad = attrgetter("requires_grad")
_HANDLED = ("graph", "kernels")  # parameters that are handles in a schema
# Of a schema, for the annotations that are not of its own words.
_PAIR = "tuple[Tensor, Tensor]"
_KINDS = {"Tensor | None": "Tensor?", "Graph": "str", "Kernels": "str", _PAIR: "(Tensor, Tensor)"}

F = TypeVar("F", bound=type[torch.autograd.Function])


_dispatch_keys = torch._C._dispatch_keys
# What a thread adds to the dispatch keys of every tensor, and what it removes from them.
_added_keys, _removed_keys = torch._C._dispatch_tls_local_include_set, torch._C._dispatch_tls_local_exclude_set


def _keys(device: str) -> tuple[int, int, int]:
    tensor = torch.empty(0, device=device)
    return _dispatch_keys(tensor).raw_repr(), _added_keys().raw_repr(), _removed_keys().raw_repr()


@cache
def _plain(device: str, inferring: bool = False) -> tuple[int, int, int]:
    """Keys of a plain tensor there, and of a plain thread: not of this one, which may be within autocast."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(torch.inference_mode(inferring)(_keys), device).result()


_PLAIN_TENSOR, _PLAIN_ADDED, _REMOVED = _plain("cpu")
_UNWATCHED = {_PLAIN_ADDED, _plain("cpu", inferring=True)[1]}
_NAMED = torch._C._parse_dispatch_key("Named")  # which torch 2.8 removes in a backward, and later ones lack
_PLAIN_REMOVED = {_REMOVED, _REMOVED | (torch._C.DispatchKeySet(_NAMED).raw_repr() if _NAMED else 0)}


class Op:
    """A callable op of ours.

    Attributes:
        overload: the op as torch knows it.
        function: its implementation, which autograd does not see.
        names: its parameters.
        handled, tensors: places of those that are handles in the schema, at least one, and of tensors.
        apply: of the autograd Function that calls it; None where there is no gradient.
    """

    def __init__(self, overload: OpOverload, function: Callable[..., Any]) -> None:
        self.overload = overload
        self.function = function
        arguments = overload._schema.arguments
        self.names = [argument.name for argument in arguments]
        self.apply: Callable[..., Any] | None = None
        self.handled = [place for place, name in enumerate(self.names) if name in _HANDLED]
        self.tensors = [place for place, each in enumerate(arguments) if "Tensor" in str(each.type)]

    def __call__(self, *args: Any) -> Any:
        tensors = [args[place] for place in self.tensors if args[place] is not None]
        if type(args[self.handled[0]]) is str or is_dispatched(tensors):
            return self._dispatched(args)
        if self.apply is not None and is_learned(tensors):
            return self.apply(*args)
        return self.function(*args)

    def _dispatched(self, args: tuple[Any, ...]) -> Any:
        return self.overload(*[arg.handle if isinstance(arg, handles.Handled) else arg for arg in args])

    def is_by_handle(self, args: tuple[Any, ...]) -> bool:
        """Return whether a call came by torch's dispatcher."""
        return type(args[self.handled[0]]) is str

    def objects(self, args: tuple[Any, ...]) -> list[Any]:
        """Arguments with the objects that handles stand for."""
        found = list(args)
        for place in self.handled:
            found[place] = handles.find(args[place])
        return found

    def by_handle(self, *args: Any) -> Any:
        """Call the implementation as torch's dispatcher does."""
        return self.function(*self.objects(args))


def is_watched() -> bool:
    """Return whether torch may do more with a call in this thread than run it and tell autograd.

    Modes, autocast, transforms and traces add to the dispatch keys of the thread. Forward derivatives, profilers
    and functions' modes have no key.
    """
    return (
        torch.compiler.is_compiling()
        or _added_keys().raw_repr() not in _UNWATCHED
        or forward_ad._current_level >= 0
        or _is_profiled()
        or _modes() > 0
    )


def is_dispatched(tensors: list[Tensor]) -> bool:
    """Return whether a call on these tensors has to go by torch's dispatcher.

    So it does in a thread that is watched, or has keys removed, which autograd reads, and with subclasses,
    batches, views that negate and tensors on other devices, whose own keys say so.
    """
    if is_watched() or _removed_keys().raw_repr() not in _PLAIN_REMOVED:
        return True
    for tensor in tensors:
        keys = _dispatch_keys(tensor).raw_repr() if type(tensor) in _TENSORS else None
        if keys != _PLAIN_TENSOR and not (keys and tensor.is_cuda and keys == _plain("cuda")[0]):
            return True
    return False


def is_learned(tensors: list[Tensor]) -> bool:
    """Return whether autograd follows a call on these tensors."""
    return torch.is_grad_enabled() and any(map(_requires_grad, tensors))


def is_transformed(*tensors: Tensor | None) -> bool:
    """Return whether a bare autograd Function would miss what torch does to a call.

    That is `torch.func` and vmap, forward derivatives, autocast, compilation, subclasses, and views that negate.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or torch.is_autocast_enabled("cpu")
        or any(each is not None and (type(each) not in _TENSORS or each.is_neg()) for each in tensors)
    )


def op(fake: Callable[..., Any], schema: str = "") -> Callable[[Callable[..., Any]], Op]:
    """Make a function the implementation of a new op on every device.

    Args:
        fake: its arguments by name -> empty results of the right shapes, types and strides.
        schema: as torch writes it, with handles for `graph` and `kernels`, of which functions get the objects;
            empty for what the name of the function and its annotations say.

    Results are contiguous and share no memory with arguments.
    """

    def register(function: Callable[..., Any]) -> Op:
        declared = schema or _schema(function)
        name = declared.partition("(")[0]

        def shapes(*args: Any) -> Any:
            # Tracing brings tensors that claim a real device; one on "meta" is a user's, for the checks to refuse.
            given = registered.objects(args)
            if any(isinstance(arg, Tensor) and arg.device.type == "meta" for arg in args):
                return function(*given)
            return fake(**dict(zip(registered.names, given, strict=True)))

        _LIBRARY.define(declared, tags=torch.Tag.pt2_compliant_tag)
        registered = Op(getattr(torch.ops.gnnbench, name).default, function)
        _LIBRARY.impl(name, registered.by_handle, "CompositeExplicitAutograd")
        torch.library.register_fake(f"gnnbench::{name}", shapes, lib=_LIBRARY)
        return registered

    return register


def _schema(function: Callable[..., Any]) -> str:
    *kinds, (_, result) = ((name, _KINDS.get(kind, kind)) for name, kind in function.__annotations__.items())
    return f"{function.__name__.strip('_')}({', '.join(f'{kind} {name}' for name, kind in kinds)}) -> {result}"


def gradient(fake: Callable[..., Any], schema: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an op that only backward passes call; `function` uses nothing but Kernels and torch.

    A backward pass whose result is to be differentiated in turn (`create_graph=True`) runs in grad mode. There
    the plain kernels take over, which autograd follows to any order: they make tensors over edges, [E, H, C] at
    most, and keep them for the next derivative, as PyG's own code does.

    Types are those of the forward, which a backward from within `torch.autocast` keeps.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        registered = op(fake, schema)(function)
        _under_autocast(registered, partial(_without_autocast, registered.overload))

        def run(*args: Any) -> Any:
            if not torch.is_grad_enabled():
                return registered(*args)
            given = registered.objects(args) if registered.is_by_handle(args) else args
            plain = {"kernels": _PLAIN}
            return _without_autocast(function, *map(plain.get, registered.names, given))

        return run

    return register


def followed(kernels: Kernels) -> Kernels:
    """Return those that compute a backward: plain ones where autograd follows it to second derivatives."""
    return _PLAIN if torch.is_grad_enabled() else kernels


def differentiates(op: Op) -> Callable[[F], F]:
    """Make an autograd Function the gradient of `op`.

    Its `forward` calls `below_autograd(ctx, op, ...)`, with objects or handles as it is given them itself.
    """

    def register(function: F) -> F:
        op.apply = function.apply
        _LIBRARY.impl(op.overload._opname, function.apply, "Autograd")
        _under_autocast(op, partial(_in_one_type, op))
        return function

    return register


def _under_autocast(op: Op, call: Callable[..., Any]) -> None:
    """Run `call` for `op` within `torch.autocast`."""
    for key in _AUTOCAST:
        _LIBRARY.impl(op.overload._opname, call, key)


def _without_autocast(call: Callable[..., Any], *args: Any) -> Any:
    with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST_KEYS):
        return call(*args)


def _in_one_type(op: Op, *args: Any) -> Any:
    """Call `op` from within `torch.autocast`, which brings products in bfloat16 beside parameters in float32.

    As where PyG multiplies them, the widest type holds; float32 at least for kernels that do not accumulate in it.
    """
    tensors = [arg for arg in args if _is_float(arg)]
    kernels = op.objects(args)[op.names.index("kernels")]
    dtype = kernels.computes_in(reduce(torch.promote_types, (tensor.dtype for tensor in tensors)))
    return _without_autocast(op.overload, *(arg.to(dtype) if _is_float(arg) else arg for arg in args))


def _is_float(argument: Any) -> bool:
    return isinstance(argument, Tensor) and argument.is_floating_point()


def below_autograd(ctx: Any, op: Op, *args: Any) -> Any:
    """Call `op` as autograd does once it has noted what it needs; `ctx` holds the Graph and Kernels for backward.

    Not that of a traced call, which torch.compile never lets go of.
    """
    if not op.is_by_handle(args):
        return op.function(*args)
    if torch._guards.TracingContext.try_get() is None:
        ctx.alive = [handles.find(args[place]) for place in op.handled]
    with torch._C._AutoDispatchBelowAutograd():
        return op.overload(*args)


def like(tensor: Tensor, *shape: int) -> Tensor:
    """An empty contiguous tensor of this type and device, of its own shape where none is given."""
    return tensor.new_empty(shape or tensor.shape)
