"""Object files for the cpu device, whose kernels are C functions with one signature.

It is `void entry(void *arguments, uint64_t x, uint64_t y, uint64_t z)`: the argument block, and the index of
the workgroup. Not here: images for GPUs (`interop.nvidia`, `interop.amdgpu`). Next: `drivers.cpu.program`,
linking and loading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.elf import UNDEFINED, Elf
from hcq.errors import UsageError
from interop.signature import Signature, declared

if TYPE_CHECKING:
    from collections.abc import Sequence


def from_object(data: bytes, entry: str, types: Sequence[str] | None) -> tuple[bytes, Signature]:
    """Return an object and the signature of `entry`, whose parameters `types` declare.

    Raises `UsageError` for an unknown or empty entry, without `types` (an object has no record of the
    parameters), and for a malformed file; `UsageTypeError` for types that are no list.
    """
    names = [one.name for one in Elf(data).symbols if one.section != UNDEFINED and one.name]
    if not entry or entry not in names:
        raise UsageError(
            f"wanted an entry of the object, saw {entry!r}; its symbols: {', '.join(names) or 'none'}\n"
            "hint: load(..., entry=NAME)"
        )
    if types is None:
        raise UsageError(
            f"kernel {entry}: a host object has no record of its arguments\n"
            "hint: declare them: load(..., arguments=['pointer', 'i32'])"
        )
    return data, Signature(
        entry=entry, parameters=declared(types), static_shared=0, required_threads=(1, 1, 1), max_threads=1
    )
