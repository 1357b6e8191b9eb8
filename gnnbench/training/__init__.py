"""Training one model on one graph.

run          a run from its configuration to its `Result`, in as many processes as it asks for
setup        a model on its backend, ready for steps
loop         one epoch, evaluation, early stopping, steps recorded in a CUDA graph; holds no clock
team         the processes that train together, what each measured, and how they end for the same reason
layerwise    outputs of all nodes, a layer at a time in blocks
checkpoint   where training stands, on disk
"""
