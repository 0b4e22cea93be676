"""Emulated GPUs below the ioctl: the real drivers run on them unchanged.

- `nv`, `amd`: one vendor's machine: the kernel driver's interface, the engines, the machine code or PTX.
- `simt`: the engine that runs kernels. A warp is a vector of lanes, translated to host code (`ir`).
- `sanitizers`: checks of the kernels' accesses to memory.
- `shared`: the parts of both machines: memory, the scheduler of queues, happens-before, caches, reports.

An emulator is written from public facts, independently of the driver. It imports the driver's layouts of
packets and structures, never its encoders. Not here: the drivers (`drivers.nv`, `drivers.amd`). Next:
`devices`, the two entry points.
"""
