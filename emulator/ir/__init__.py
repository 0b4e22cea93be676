"""LLVM IR of emulated kernels: the builder of vector code, the records that generated code and Python share.

Below the engine and its sanitizers: `vector` builds code in which a warp is a vector of lanes; `library`
finds helper functions by name; `state` lays out the records; `addresses` and `clusters` translate and check
addresses; `findings` and `report` tell what a kernel did wrong; `jit` compiles.

Not here: how a kernel is translated and run (`emulator.simt`), what else is checked (`emulator.sanitizers`).
"""
