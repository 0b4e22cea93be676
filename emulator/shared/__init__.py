"""The vendor-neutral machine of emulated GPUs. Packets, ioctls and engines belong to each vendor's emulator.

The command processor (`scheduler`), memory (`memory`, `vaspace`, `backing`, `user_memory`), and the checks of
what a driver must order: `races` and `releases` (happens-before with vector clocks), `caches` (incoherent
caches, store buffers), `combining` (write-combining buffers), `waits` (deadlock detection). `machine_report`
describes their findings, `report` what a kernel did wrong.

Not here: how kernels run (`emulator.simt`). Next: `emulator.nv`, the emulated NVIDIA GPU built from these.
"""
