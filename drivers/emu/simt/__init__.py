"""The SIMT engine: a warp is a vector of lanes, and a kernel is translated to host code for one warp.

Not here: instruction sets, which front ends translate (`drivers.nv.emu.ptx`). Next: `engine` and `launch`,
its interface; `warp_function`, the translation; `dispatch`, the scheduler.
"""
