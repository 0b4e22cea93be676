"""Code generation: the linear list to LLVM IR, and functions that no instruction computes."""
