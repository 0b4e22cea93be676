"""The emulated kernel driver: resource manager and UVM, as seen through ioctl and mmap.

Not here: execution (`emulator.nv.engines`), device nodes (`emulator.nv.machine.kernel`). Next:
`ioctls`, the entry; `alloc` and `controls`, its two large calls; `uvm`.
"""
