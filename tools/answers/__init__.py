"""Expressions that PyTorch users write, evaluated here and compared with PyTorch's recorded answers.

Next: `expressions`, the list; `oracle`, recording; `compare`, the comparison.
"""
