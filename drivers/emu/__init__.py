"""The vendor-neutral parts of emulated GPUs. Packets, ioctls and engines belong to each vendor's emulator.

- `simt`: the engine. A front end (PTX, AMDGPU machine code) turns a kernel into one host function that runs
  one warp as a vector of lanes; the engine compiles, schedules and checks it. `sanitizers` check its
  accesses, `report` describes what a kernel did wrong.
- The machine around it: the command processor (`scheduler`), memory (`memory`, `vaspace`,
  `backing`, `user_memory`), and the checks of what a driver must order: `races` and `releases`
  (happens-before with vector clocks), `caches` (incoherent caches, store buffers), `combining`
  (write-combining buffers), `waits` (deadlock detection). `machine_report` describes their findings.

Next: `drivers.nv.emu`, the emulated NVIDIA GPU built from these.
"""
