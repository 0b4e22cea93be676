"""The SIMT engine: it compiles a kernel to host code that runs a warp as vectors of lanes, and runs launches.

Not here: instruction sets, which front ends translate (`emulator.nv.ptx`, `emulator.amd.isa`). Next: `engine`
and `launch`, the interface; `warp_function`, the translation; `dispatch`, the scheduler of warps.
"""
