"""A kernel that is loaded into this process: its mapped code, and the entry address for the encoder.

Not here: relocations (`link`), the neutral program and its arguments (`hcq.program`). Next: `link`.
"""

from __future__ import annotations

import os
from array import array

from drivers.cpu.image import HostCode
from drivers.cpu.link import HostImage
from drivers.cpu.threads import KERNEL_IMPORTS, Libc
from drivers.kernel import Kernel
from hcq.errors import UnsupportedError, UsageError
from hcq.program import KernelImage


class CpuProgram:
    """A kernel's code in executable memory, which the device unmaps.

    `entry` is the kernel's address, `ready` the groups and threads of its last launch, and the packet of that
    launch without arguments. The kernel runs in this process with all its rights: a store outside its buffers
    corrupts memory, and a fault ends the process, as in any native library. Raises `UnsupportedError` if the
    code calls other functions than `KERNEL_IMPORTS`, `UsageError` if the kernel is not in the code, and as
    `HostImage` and `HostCode`.
    """

    __slots__ = ("code", "entry", "image", "ready")

    def __init__(self, kernel: Kernel, libc: Libc, image: KernelImage) -> None:
        def resolve(name: str) -> int:
            if name not in KERNEL_IMPORTS:
                raise UnsupportedError(
                    f"kernel {image.name} calls {name}; kernels may call {', '.join(KERNEL_IMPORTS)} only\n"
                    "hint: compile mathematical functions into the kernel"
                )
            return libc.address[name]

        self.image = image
        host = HostImage(image.code, os.uname().machine)
        if image.name not in host.functions():
            found = ", ".join(sorted(host.functions())) or "nothing"
            raise UsageError(f"kernel {image.name} is not in its code; the code defines: {found}")
        self.code = HostCode(kernel, host, resolve)
        self.entry = self.code.address[image.name]
        self.ready: tuple[object, object, array[int]] = (None, None, array("Q"))
