"""Results: everything that was measured, as JSON on disk.

schema       `Result` and its parts, every raw sample, and the figures drawn from them
files        reading, atomic writing, and new folders
"""
