"""NVIDIA targets: PTX by LLVM, assembled to cubins."""
