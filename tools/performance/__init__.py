"""Make docs/performance.md: times beside NumPy and PyTorch, kernels and bytes of training steps.

Next: `tools.performance.__main__`, the command.
"""
