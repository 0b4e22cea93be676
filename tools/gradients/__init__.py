"""Gradients at kinks, edges, ties and special values: what PyTorch gives, as recorded data.

Each case declares how a method is called here and in PyTorch. `tools.gradients.oracle` records PyTorch's
answers; `tests/frontend/test_gradients_of_pytorch.py` compares. The cases import neither PyTorch nor the
frontend: their functions receive the tensors that they call methods on.

Next: `case`, one case; `cases`, all of them; `probes`, random ones.
"""
