"""Scheduling: tensor graphs to kernel ASTs and the buffers they run on.

Not here: how one kernel becomes machine code (`compiler.kernel`, `compiler.codegen`). Next: `scheduler`, the
passes in order; `fusion`, which operations share a kernel; `lower`, a group to its AST.
"""
