"""From the AST of one kernel to its plan (the loop nest), and to a linear list of operations.

Not here: which operations share a kernel (`compiler.schedule`), text for LLVM (`compiler.codegen`). Next:
`compiler.pipeline`, the order of the steps; `tiling`, which chooses a plan; `linearize`, which writes the
operations.
"""
