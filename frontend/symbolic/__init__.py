"""Tensors with symbolic sizes: `x[:n]` for a bound `Variable` n, and the methods that such tensors have.

Not here: variables (`frontend.variable`), loops that end at a number (`compiler.emit.loop_limits`).
Decision: ADR 16.
"""
