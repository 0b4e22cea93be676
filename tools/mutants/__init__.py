"""Mutants of the NVIDIA driver's words and calls, and whether the emulated machine detects each.

`scenario` is the program that the driver runs, `interpose` stands between it and the emulated kernel;
`sites`, `calls`, `bells` and `contents` find what can be changed. `judge` runs the scenario with one mutant,
`branches` forks a child for each, `walk` runs seed after seed, `verdicts` classifies the outcomes, `__main__`
prints them. `corpus` leaves barriers out of kernels.

Not here: edits of the driver's source (`tools.mutants.planted`). Results: docs/reliability.md.
"""
