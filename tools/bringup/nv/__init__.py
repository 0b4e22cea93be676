"""NVIDIA's part of the bring-up ladder: rungs, kernels, expected failures.

Not here: how the rungs are run (`tools.bringup.ladder`). Next: `table`, the list of rungs.
"""
