"""Measuring: time, memory and the machine, and what to think of the figures.

clock        the only reader of clocks: seconds of every phase of every epoch
memory       peak memory of every epoch, limits, running out of it, and what becomes of freed memory
energy       joules of every epoch, where the machine counts them
code         which code ran, as a hash
waiting      how long threads spin
environment  processor, GPU, threads, versions, revision
rounds       repeated calls of several candidates, interleaved
advice       doubts about a result, each with its remedy
"""
