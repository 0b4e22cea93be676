"""Scheduling: from tensor graphs to kernel ASTs, and the buffers of each kernel.

Not here: how one kernel becomes machine code (`compiler.pipeline`). Next: `scheduler`, the
passes in order; `fusion`, which operations share a kernel; `lower`, which makes the AST.
"""
