"""Tuning: how kernels run fastest on a graph.

search       tries what the kernels declare, and keeps what is faster beyond doubt
store        what was found, on disk by machine and graph, and its way to the kernels
"""
