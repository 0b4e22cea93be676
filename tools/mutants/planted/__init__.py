"""Bring-up bugs planted in the source of the NVIDIA driver, which the emulated GPU must name.

Mutants of words and calls are made by the rest of `tools.mutants`. These are edits of source lines, each a
mistake that a driver's author makes: they were chosen from the driver's sources and public bug trackers,
without a look at the emulator.
"""
