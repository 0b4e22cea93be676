"""Bring-up bugs planted in a driver's source, which its emulated GPU must name.

These are edits of source lines, each a mistake that a driver's author makes. A vendor's catalogue and its
program are in its folder (`tools.mutants.nv.planted`); `catalogs` lists them.

Not here: mutants of words and calls (the rest of `tools.mutants`). Next: `bug`, what a catalogue is made of;
`run`, one bug in a child process.
"""
