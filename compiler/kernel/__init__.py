"""One kernel: its plan (loop nest), and its operations as a linear list.

Not here: which operations share a kernel (`compiler.schedule`), text for LLVM (`compiler.codegen`). Next:
`compiler.pipeline`, the order of the steps; `tiling`, the choice of a plan; `linearize`, AST and plan to
lines.
"""
