"""Ops: what convs are put together from, differentiable on every backend.

kernels      the op set as an executable specification in plain PyTorch, which backends override
spmm edge attention fusedmm   one autograd Function for each op, written once for all backends
families     attention's score functions, one file each
edge_fn dropout               functions on edges for FusedMM; dropout whose mask is drawn again, not kept
_custom      ops as `torch.library` operators, so that torch.compile takes them
"""
