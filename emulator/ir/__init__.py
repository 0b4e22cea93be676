"""LLVM IR of emulated kernels: the builder of vector code, and records that generated code and Python share.

`vector` builds code in which a warp is a vector of lanes. `library` finds helper functions by name. `state`
lays out the records. `addresses` and `clusters` translate and check addresses. `findings` and `report`
describe errors of a kernel. `ir_text` and `strips` read and rewrite IR text. `lanes` and `numeric` have
operations that LLVM lacks. `jit` compiles.

Not here: how a kernel is translated and run (`emulator.simt`), optional checks (`emulator.sanitizers`). Next:
`vector`.
"""
