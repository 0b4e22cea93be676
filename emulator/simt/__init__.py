"""The SIMT engine: it translates a kernel to host code that runs one warp, with a warp as a vector of lanes.

Not here: instruction sets, which front ends translate (`emulator.nv.ptx`). Next: `engine` and `launch`,
the interface; `warp_function`, the translation; `dispatch`, the scheduler.
"""
