"""Expressions that PyTorch users write, evaluated here and compared with PyTorch's recorded answers.

Next: `expressions`, the list; `answers`, recording; `compare`, the comparison.
"""
