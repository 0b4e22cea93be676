"""AMD targets: AMDGPU code objects, emitted by LLVM directly.

Not here: loading and launching them (`drivers.amd`). Next: `target`, the text of kernels; `rows`, the
processors.
"""
