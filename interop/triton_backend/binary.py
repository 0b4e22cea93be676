"""A kernel that Triton compiled, before it is loaded.

Not here: loading (`interop.load`). Next: `interop/triton_backend/launcher.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivers.amd import code
from drivers.amd.layouts import chips
from drivers.nv import cubin
from drivers.nv.program import thread_limit

if TYPE_CHECKING:
    from typing import Self

    from hcq.hardware import DeviceInfo


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled kernel: its name, code, and the resources of a thread, as Triton asks for them."""

    name: str
    code: bytes
    registers: int
    """Registers of a thread; 0 for AMD GPUs: not read from a code object."""
    spills: int
    """Local memory of a thread in units of 4 bytes: spilled registers, and also arrays and the stack.
    0x3FFFFFFF for an NVIDIA kernel with recursive or indirect calls, whose stack has no bound."""
    max_threads: int
    """The most threads of a workgroup."""

    @classmethod
    def read(cls, name: str, data: bytes, info: DeviceInfo) -> Self:
        """Read a cubin or a code object.

        Raises `UsageError` for a malformed file and an unknown kernel, `UnsupportedError` for a code object
        of another target.
        """
        if info.arch.startswith("sm_"):
            _, _, kernel = cubin.read(data, name)
            made_for = math.prod(kernel.required_threads or (kernel.max_threads or 1024,))
            most = min(thread_limit(kernel.registers), made_for)
            return cls(name, data, kernel.registers, kernel.stack_bytes // 4, most)
        _, found = code.read(data, name, chips.CHIPS[info.arch])
        return cls(name, data, 0, found.fields.private_segment_fixed_size // 4, found.max_threads or 1024)
