"""Command processors of the emulated AMD GPU: PM4 and AQL compute queues, SDMA, and dispatches of kernels.

Not here: the kernel driver's objects (`emulator.amd.kfd`), which queue runs (`emulator.amd.machine`).
Next: `engines`, one queue; `pm4`, `aql`, `sdma`, its packets; `dispatch` and `kernels`, launches.
"""
