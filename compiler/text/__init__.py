"""The linear list as text of LLVM IR, for every target.

Not here: how the list is made (`compiler.emit`), what differs between targets (`compiler.targets`). Next:
`llvm_ir`, the renderer.
"""
