"""The emulated KFD kernel driver: topology, memory, queues and events of /dev/kfd and the render nodes.

Written from the facts alone, not from the driver. Whatever it does not support is an error that names it.

In order of dependence: `profiles` (GPUs and kernels as data) - `refusal` - `sysfs` - `gpu`,
`events`, `queues` - `process` (what one process owns) - `ioctls`, `ioctls_memory`,
`ioctls_queues`, `ioctls_events`, `render` (the calls).

Next: `emulator.amd.machine`, the GPU behind it.
"""
