"""NVIDIA's part of the bring-up ladder: rungs, kernels, expected failures.

Not here: the order of the rungs (`tools.bringup.ladder`). Next: `table`; `rungs`, `rungs_compute`.
"""
