"""The `cpu` device: a hardware queue device whose hardware is the cores of this machine.

It has rings in memory, doorbells, a native command processor (`processor`, compiled by `native` and `image`)
and native threads. A kernel runs in this process, so a kernel that faults ends the process. Read this driver
first: `layouts` (packets), `encode` (commands to packets), `device` (memory, rings, threads), `driver`.

Next: docs/cpu.md and docs/writing-a-driver.md.
"""

from drivers.cpu.driver import DRIVER

__all__ = ["DRIVER"]
