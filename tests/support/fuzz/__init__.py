"""Random models, played once as PyTorch and PyG compute them and once on kernels, and the differences.

layers    random layers, convs and models of them
inputs    random features and graphs
edits     what programs do to a model: hooks, other layers, settings, copies
rounding  what PyTorch leaves open
play      the story of one seed, told as a list of what was seen
compare   two stories of one seed beside each other
"""
