"""Primitives of the frontend: operations composed of the compiler's, each with a gradient of its own.

Not here: the compiler's operations (`compiler.ir.ops`), their gradients (`frontend.autograd.primitives`).
Next: `erf`, the shortest; `convolution`, `gather_scatter`, `limits`.
"""
