"""Gradients in reverse mode: from the graph of a value to graphs of its gradients.

Not here: which tensors keep a gradient (`frontend.evaluation.gradient_state`). Next: `engine`, the traversal;
`primitives`, a rule for each operation; `rules`, functions with a rule of their own.
"""
