"""The vendor-neutral machine of emulated GPUs. Packets, ioctls and engines belong to each vendor's emulator.

- The machine: `scheduler` (command processor), `memory`, `vaspace` and `backing` (memory).
- Checks of a driver's ordering: `races` and `waits` (happens-before with vector clocks, deadlocks),
  `caches` (incoherent caches, store buffers), `combining` (write-combining buffers).
  `machine_report` holds their findings.
- The kernel driver: `emulated_kernel` (open files, memory of the caller), `device_files` (system calls),
  `surprises` (injected failures, refused values of quirks).
- Measurement: `counts` (counters, roofline), `accuracy` (inexact instructions).

Not here: how kernels run (`emulator.simt`), findings about a kernel (`emulator.ir.report`). Next:
`emulator.nv`, the emulated NVIDIA GPU, which is built from these modules.
"""
