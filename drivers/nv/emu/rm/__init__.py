"""The emulated kernel driver: resource manager and UVM, as seen through ioctl and mmap.

Not here: execution (`drivers.nv.emu.engines`), device nodes (`drivers.nv.emu.machine.kernel`). Next:
`ioctls`, the entry; `alloc` and `controls`, its two large calls; `uvm`.
"""
