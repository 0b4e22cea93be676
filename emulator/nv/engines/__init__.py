"""The emulated engines: channels, push buffers, compute, copy, semaphores.

Not here: the ioctls that create channels (`emulator.nv.rm`), PTX (`emulator.nv.ptx`). Next: `channel`,
which fetches and dispatches; `compute` and `copy`, the methods.
"""
