"""Gradients at kinks, edges, ties and special values: what PyTorch gives, as recorded data.

Each case says how a method is called here and how PyTorch is asked the same. `tools.gradients.oracle` records
what PyTorch answers; `tests/frontend/test_gradients_of_pytorch.py` compares. The cases import neither PyTorch
nor the frontend: their functions get what they call.
"""
