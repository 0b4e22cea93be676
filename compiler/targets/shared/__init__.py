"""What all targets are made of: the type of a row, of its dialect of LLVM IR, and of its matrix operations.

Not here: the rows (`compiler.targets.host`, `compiler.targets.nvptx`, `compiler.targets.amdgcn`). Next:
`target`.
"""
