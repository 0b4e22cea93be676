"""The emulated engines: channels, push buffers, compute, copy, semaphores.

Not here: the ioctls that create channels (`drivers.nv.emu.rm`), PTX (`drivers.nv.emu.ptx`). Next: `channel`,
which fetches and dispatches; `compute` and `copy`, the methods.
"""
