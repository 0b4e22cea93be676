"""The emulated KFD kernel driver: topology, memory, queues and events of /dev/kfd and the render nodes.

Written from public sources, not from the driver. A call that is not emulated is refused with its name.

The modules in order of dependence: `refusal` - `gpu`, `events`, `queues`, `sysfs` - `process`, the state of
one process, its open files - `ioctls_memory`, `ioctls_queues`, `ioctls`, the calls.

Not here: GPUs and kernel versions as data (`emulator.amd.profiles`). Next: `emulator.amd.machine`, the GPUs.
"""
