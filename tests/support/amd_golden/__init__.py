"""Golden text of AMD machine code, as LLVM writes it; `python -m tests.support.amd_golden` writes the files.

Kernels in LLVM IR cover the instructions of each target. LLVM's AMDGPU target (llvmlite) compiles them and,
with its feature `dumpcode`, prints the text of each instruction beside its dwords.
tests/golden/amd_isa/TARGET.txt has one line for each form of an instruction: `dwords: text`.

Not here: the decoder that the files test (`emulator.amd.isa`). Next: `corpus`, the kernels; `__main__`.
"""
