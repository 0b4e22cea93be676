"""Bring-up bugs planted in the source of the NVIDIA driver, which the emulated GPU must name.

These are edits of source lines, each a mistake that a driver's author makes: they were chosen from the
driver's sources and public bug trackers, without reading the emulator.

Not here: mutants of words and calls (the rest of `tools.mutants`). Next: `catalog`, the bugs; `program`, what
each must survive; `run`, one bug in a child process.
"""
