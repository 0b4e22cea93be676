"""Mutation tests of the emulated machines: changes of a driver's packets and calls that they must detect.

`planted` has catalogues of mistakes in what a driver sends, each of which a report must name. `__main__` is a
random walk through all changes of one field: `interpose` is between the driver and the emulated kernel,
`sites` and `calls` generate the changes, `planted.wired` runs the program with one.

A vendor's packets, launch descriptors, ioctls and planted bugs are in a folder (`tests.mutants.nv`), behind
the interface of `emulated`. Results: docs/reliability.md.
"""
