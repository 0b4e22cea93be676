"""Objects for the cpu device: `void entry(void *arguments, uint64_t x, uint64_t y, uint64_t z)`.

Not here: linking and loading (`drivers.cpu.program`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.elf import UNDEFINED, Elf
from hcq.errors import UsageError
from interop.signature import Signature, declared

if TYPE_CHECKING:
    from collections.abc import Sequence


def from_object(data: bytes, entry: str, types: Sequence[str] | None) -> tuple[bytes, Signature]:
    """Return an object and the facts about `entry`, whose parameters `types` declare.

    Raises `UsageError` for an unknown entry, and without `types`: an object has no record of them.
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
