"""A graph in parts, one for each process that trains on it together with others.

part         PartData, what one process holds, in memory and in files, and which node goes where
"""
