"""Mutants of what the NVIDIA driver says to a machine, and what the emulated machine makes of each.

`scenario` is what the driver does, `interpose` stands between it and the emulated kernel; `sites`, `calls`,
`bells` and `contents` say what can be changed. `judge` runs the scenario with one mutant, `branches` forks a
child for each, `walk` asks seed after seed, `verdicts` says what that comes to, `__main__` prints it.
`corpus` leaves barriers out of kernels.
"""
