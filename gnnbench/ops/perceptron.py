"""A hidden layer of few inputs and its one output, as networks over edges are."""

from __future__ import annotations

from torch import Tensor

from gnnbench.ops._custom import Pair, is_transformed
from gnnbench.ops._workload import Workload
from gnnbench.ops.kernels import Kernels


def perceptron(kernels: Kernels, x: Tensor, weights: Tensor) -> Tensor:
    """out[i] = relu(x[i] W + b) times a vector: nothing of the hidden layer is in memory.

    Not a torch custom op, which costs more to call: under `torch.compile` and autocast it is torch's ops.

    Args:
        x: [N, K], floating point.
        weights: [K + 2, D], of its type: the rows of W, then b, then that vector.

    Returns:
        [N], differentiable in both.
    """
    if is_transformed(x, weights):
        return Kernels().perceptron(x, weights)
    out: Tensor = Pair.apply("perceptron", kernels, x, weights)
    return out


WORKLOADS = {
    "perceptron": Workload(
        inputs={"x": "RI", "weights": "WD"},
        out="R",
        call=lambda kernels, _, **inputs: perceptron(kernels, **inputs),
        sizes={"R": "rows", "D": "hidden"},
        fixed={"I": 3, "W": 5},
        shapes=("8192x64",),  # of more, some number is so close to zero that rounding decides on its gradient
        peers={"torch": Kernels().perceptron},
    )
}
