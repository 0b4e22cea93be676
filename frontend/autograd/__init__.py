"""Gradients: reverse mode, from graph to graph.

Not here: which tensors keep a gradient (`frontend.evaluation.gradient_state`). Next: `engine`, the traversal;
`primitives`, a rule for each operation; `rules`, functions with a rule of their own.
"""
