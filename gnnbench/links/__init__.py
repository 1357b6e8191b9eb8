"""Links: pairs of nodes that are joined, and pairs that are not.

negatives    draws pairs that are not
"""
