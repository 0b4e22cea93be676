"""Bring-up bugs planted in what a driver sends, which the emulated GPU must identify.

Each is a typical mistake in a new driver. A vendor's bugs and its program are in its folder
(`tests.mutants.nv.planted`); `catalogs` lists them.

Not here: mutants of packets and calls (the rest of `tests.mutants`). Next: `wire`, a bug; `run`, one bug in a
child process.
"""
