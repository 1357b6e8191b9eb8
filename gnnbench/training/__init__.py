"""Training one model on one graph.

run          a run from its configuration to its `Result`, with every way it can end
setup        a model on its backend, ready for steps
loop         one epoch, evaluation, early stopping; holds no clock
team         the processes that train together, what each measured, and how they end for the same reason
start        a run in as many processes as it asks for
cuda_graph   the same with the training step recorded in a CUDA graph
layerwise    outputs of all nodes, a layer at a time in blocks
checkpoint   where training stands, on disk
"""
