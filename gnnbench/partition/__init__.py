"""A graph in parts, one for each process that trains on it together with others.

part         PartData, what one process holds, and which node goes where
files        parts as a folder, written piece by piece
"""
