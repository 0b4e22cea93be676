"""Tensors with symbolic sizes: `x[:n]` for a bound `Variable` n, and the methods that such tensors have.

Not here: variables (`frontend.variable`), loops whose end a kernel reads (`compiler.emit.loop_limits`). Next:
`tensor`, then `rules`.
Decision: ADR 16.
"""
