"""Bugs planted in what is sent by the AMD driver.

Not here: planting them (`tests.mutants.planted`). Next: `wire`, the bugs; `program`, which runs on each.
"""
