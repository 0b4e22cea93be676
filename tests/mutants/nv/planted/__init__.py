"""Bugs planted in the source of the NVIDIA driver.

Not here: planting them (`tests.mutants.planted`). Next: `catalog`, the bugs; `program`, which runs on each.
"""
