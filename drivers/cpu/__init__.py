"""The `cpu` device: a hardware queue device whose hardware is this machine's cores.

Rings in memory, doorbells, a native command processor (`processor`, compiled by `native` and `image`), native
threads. A kernel runs in this process: one that faults ends it. It is the driver to read first:
`layouts` (packets), `encode` (commands to packets), `device` (memory, rings, threads), `driver`.

Next: docs/cpu.md and docs/writing-a-driver.md.
"""

from drivers.cpu.driver import DRIVER

__all__ = ["DRIVER"]
