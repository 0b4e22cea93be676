"""Captured functions: `TinyJit`, and how it records, replays and saves the launches of a function.

`recording` records launches, `captured` replays them, `files` saves them. A function also depends on names
besides its arguments: `code` reads these names from bytecode, `found` finds the globals, closure cells,
attributes and items that they mean, `guards` compares their values with those at the capture.

Not here: launches outside of a capture (`frontend.evaluation`). Next: `jit`.
"""
