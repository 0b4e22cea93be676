"""Recorded values and gradients of PyTorch, at special numbers and ties, for comparison with `Tensor`.

A case declares how a method is called, in this project and in PyTorch. `oracle` records the results;
`tests/frontend/test_gradients_of_pytorch.py` compares. Cases do not import PyTorch.

Next: `cases`. Random shapes: `tests.oracles.opdb`.
"""
