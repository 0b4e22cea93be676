"""NVIDIA's part of the mutants: packets, launch descriptors, ioctls, kernels, planted bugs.

`emulated` is what `tools.mutants.devices` lists; `bells` and `packets` are the mutants of submissions,
`contents` those of the memory behind them, `structures` says what ioctls carry. `kernels` are those that lose
their barriers (`handmade`: two of them); `planted` has the edits of the driver's source.

Not here: running and judging them (`tools.mutants`).
"""
