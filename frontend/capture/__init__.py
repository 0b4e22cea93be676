"""Captured functions: `TinyJit`, what it records, replays and writes to files.

Next: `jit`.
"""
