"""Mutation tests of the emulated machines: changes of a driver's packets and calls that they must detect.

`scenario` is the program that the driver runs. `interpose` is between the driver and the emulated kernel;
`sites` and `calls` generate the mutants. `judge` runs the scenario with one mutant, `branches` forks a child
for each, `walk` repeats it for each seed, `verdicts` classifies the outcomes, `__main__` prints them.
`corpus` removes barriers from kernels, `planted` edits the driver's source.

A vendor's packets, launch descriptors, ioctls, kernels and planted bugs are in a folder (`tests.mutants.nv`),
behind the interfaces of `emulated`; `devices` lists them. Results: docs/reliability.md.
"""
