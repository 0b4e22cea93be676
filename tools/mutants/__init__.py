"""Mutants of a driver's words and calls, and whether the emulated machine detects each.

`scenario` is the program that the driver runs, `interpose` stands between it and the emulated kernel; `sites`
and `calls` say what can be changed. `judge` runs the scenario with one mutant, `branches` forks a child for
each, `walk` runs seed after seed, `verdicts` classifies the outcomes, `__main__` prints them. `corpus` leaves
barriers out of kernels, `planted` edits the driver's source.

A vendor is a folder (`tools.mutants.nv`): its packets, launch descriptors, ioctls, kernels and planted bugs
behind the interfaces of `emulated`; `devices` lists them. Results: docs/reliability.md.
"""
