"""Code generation: the linear list to LLVM IR, and functions that no single instruction computes.

Not here: how the list is made (`compiler.kernel`), what differs between targets (`compiler.targets`). Next:
`llvm_ir`, the renderer; `transcendental`, the table of decomposed functions.
"""
