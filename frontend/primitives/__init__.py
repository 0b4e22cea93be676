"""Primitives of the frontend: operations composed of compiler operations, each with its own gradient rule.

Not here: the compiler's operations (`compiler.ir.ops`), their gradients (`frontend.autograd.primitives`).
"""
