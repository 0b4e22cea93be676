"""Scheduling: from tensor graphs to the ASTs of kernels, and the buffers of each kernel.

Not here: how one kernel becomes machine code (`compiler.pipeline`). Next: `scheduler`, the passes in order;
`fusion`, which decides what operations share a kernel; `lower`, which makes the AST.
"""
