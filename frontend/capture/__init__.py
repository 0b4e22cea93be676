"""Captured functions: `TinyJit`, what it records, replays and writes to files.

`recording` takes down launches, `captured` replays them, `files` saves them. What a function depends on
besides its arguments: `code` reads the names out of bytecode, `found` resolves them to globals, closure
cells, attributes and items, `guards` compares what they hold now with what they held.

Next: `jit`.
"""
