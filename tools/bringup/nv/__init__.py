"""NVIDIA's part of the bring-up ladder: rungs, kernels, expected failures."""
