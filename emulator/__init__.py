"""Emulated GPUs below the ioctl: the real drivers run on them unchanged, and every check is on.

- `nv`, `amd`: one vendor's machine: the kernel driver's interface, the engines, the machine code or PTX.
- `simt`: the engine that runs kernels: a warp is a vector of lanes, translated to host code (`ir`).
  `sanitizers` check its accesses.
- `shared`: the machine around it: memory, the scheduler of queues, happens-before, caches, reports.

An emulator is written from the facts, independently of the driver: it imports the layouts of packets and
structures, never what encodes them. Not here: the drivers (`drivers.nv`, `drivers.amd`). Next: `nv.machine`.
"""
