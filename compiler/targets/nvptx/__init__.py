"""NVIDIA targets: PTX by LLVM, assembled to cubins.

Next: `target`, the rows and the dialect; `assembler`, PTX to cubin; `float_division`, `int_division`, `sqrt`,
IR text for operations without an instruction.
"""
