"""NVIDIA's part of the mutants: packets, launch descriptors, ioctls, kernels, planted bugs.

`emulated` is the entry in `tests.mutants.devices`. `doorbells` and `packets` generate the mutants of
submissions, `contents` those of the memory that they reference, and `structures` describes ioctls. `kernels`
is the corpus from which barriers are removed (`handmade` has two of them). `planted` has the edits of the
driver's source.

Not here: running and judging mutants (`tests.mutants`).
"""
