"""The text of a linear list in LLVM IR, for every target.

Not here: how the list is made (`compiler.emit`), text that differs between targets (`compiler.targets`).
Next: `llvm_ir`, the renderer.
"""
