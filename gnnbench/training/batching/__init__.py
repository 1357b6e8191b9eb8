"""The batches that training sees: an epoch is a sequence of steps, and a step sees one batch.

A kind of batches is a module with
    `Config(BatchConfig)`: its keys, and what it can do;
    `prepare(config, model, backend, dataset, cache)`: a `Setup`, everything done once per dataset and model;
and, where it reads its data by itself,
    `read(config)`: the dataset, or None for that of the configuration.

full         one step: the whole graph
graphs       a step is the disjoint union of some of many small graphs
neighbors    a step is a sampled neighbourhood of some training nodes
links        a step is some links and as many negatives, on an encoding of the whole graph
link_neighbors   the same on a sampled neighbourhood of all their ends
parts        one step of several processes: a part of the graph for each
_batch       Batch and Batching, what every kind yields, and what outputs are held against; batches that a thread
             makes while others are trained on, drawn at random or not
_pyg_loader _dgl_loader   batches by PyG's own loaders, and by DGL's own sampler
_shares      the share of a process in each step, and batch norm over all processes
"""
