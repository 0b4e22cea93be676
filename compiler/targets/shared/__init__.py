"""The types of all targets: a target, its dialect of LLVM IR, and its matrix operations.

Not here: the targets (`compiler.targets.host`, `compiler.targets.nvptx`, `compiler.targets.amdgcn`). Next:
`target`.
"""
