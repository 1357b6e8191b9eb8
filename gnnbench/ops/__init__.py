"""Ops: what convs are put together from, differentiable on every backend.

kernels      the op set as an executable specification in plain PyTorch, which backends override
layers       the ops of it that take no graph
spmm edge attention dense   one autograd Function for each op, written once for all backends
families     attention's score functions, one file each
dropout      random numbers by a hash: what is dropped is drawn again, not kept
program      elementwise functions of edges as steps over registers, and their gradients
fused        programs over edges, run without keeping anything over these
stream       functions of edges, a chunk of destinations at a time
pairs        dot products and other functions of pairs of nodes, as decoders of links need
negatives    pairs drawn at random that are no edges
features     dropout of features, and products with those that are mostly zero
_workload    what an op is checked, timed and tuned on; each declares its own
_custom      ops as `torch.library` operators, so that torch.compile takes them
"""
