"""Bring-up bugs planted in a driver's source, which the emulated GPU must identify.

Each is an edit of source lines, a typical mistake in a new driver. A vendor's catalogue and its program are
in its folder (`tests.mutants.nv.planted`); `catalogs` lists them.

Not here: mutants of packets and calls (the rest of `tests.mutants`). Next: `bug`, a bug and a catalogue;
`run`, one bug in a child process.
"""
