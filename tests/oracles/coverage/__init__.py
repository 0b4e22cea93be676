"""Write docs/coverage.md: the methods of PyTorch's and tinygrad's tensors, and which of them `Tensor` has.

    python -m tests.oracles.coverage

The names are data: `torch.txt` is what `dir(torch.Tensor)` of PyTorch 2.13 lists, `tinygrad.txt` what its
public documentation names. "compared" are methods whose answers or gradients are recorded from PyTorch.

Next: `tests.oracles`, `tests.oracles.gradients`: the comparisons.
"""
