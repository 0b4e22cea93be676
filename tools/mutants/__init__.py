"""Mutants of what the NVIDIA driver says to a machine, and what the emulated machine makes of each.

`scenario` is what the driver does, `interpose` stands between it and the emulated kernel, `sites` says what
can be changed, `judge` runs one mutant, `__main__` many of them.
"""
