"""NVIDIA's part of the mutants: packets, launch descriptors, ioctls, planted bugs.

`emulated` is the machine. `doorbells` and `packets` generate the mutants of submissions, `contents` those of
the memory that they reference, and `structures` describes ioctls. `planted` has the catalogues of bugs.

Not here: running and judging mutants (`tests.mutants`).
"""
