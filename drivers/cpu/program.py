"""A kernel loaded into this process: its code mapped, its entry address known to the encoder.

Not here: relocations (`link`), the neutral program and its arguments (`hcq.program`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drivers.cpu.image import Code
from drivers.cpu.link import HostImage
from drivers.cpu.threads import KERNEL_IMPORTS
from hcq.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from drivers.cpu.threads import Libc
    from drivers.kernel import Kernel
    from hcq.program import KernelImage


class CpuProgram:
    """Code in executable memory; `entry` is the kernel's address.

    It runs in this process with all its rights: what it writes outside of its buffers is lost or fatal, and a
    fault inside it ends the process as it would in any native library. Keeping kernels inside their buffers
    is the task of the compiler and of the validation layer.
    """

    __slots__ = ("code", "entry", "group_ns", "image")

    def __init__(self, kernel: Kernel, libc: Libc, image: KernelImage) -> None:
        def resolve(name: str) -> int:
            if name not in KERNEL_IMPORTS:
                raise UnsupportedError(
                    f"kernel {image.name} calls {name}; kernels may call {', '.join(KERNEL_IMPORTS)} only\n"
                    "hint: mathematics has to be part of the kernel's code"
                )
            return libc.address[name]

        self.image = image
        self.group_ns = image.group_ns
        host = HostImage(image.code, os.uname().machine)
        if image.name not in host.functions():
            found = ", ".join(sorted(host.functions())) or "nothing"
            raise UsageError(f"kernel {image.name} is not in its code; there is: {found}")
        self.code = Code(kernel, host, resolve)
        self.entry = self.code.address[image.name]
