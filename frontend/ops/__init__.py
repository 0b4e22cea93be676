"""Tensor methods, by what they do.

Each module holds functions whose first argument is the tensor; `Tensor` names them.
"""
