"""AMD targets: AMDGPU code objects, emitted by LLVM directly."""
