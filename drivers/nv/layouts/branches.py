"""Driver branches: the layout of each structure on each branch of the kernel driver.

A branch that is not in the table is refused; layouts are never guessed.

Not here: the structures (`rm`, `uvm`, `rm_classes`, `controls`). Next: `drivers.nv.rm`, which selects the
structures of its branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivers.nv.layouts import controls, debugger, fault, gpfifo, rm, rm_classes, uvm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hcq.layout import Struct

SOURCE = "open-gpu-kernel-modules 570.211.01, 580.142, 590.48.01, 595.45.04 (nv.md 1.5)"

BRANCHES: Final = (570, 580, 590, 595)
"""The branches whose layouts are known; 610 shifts the channel parameters and is refused."""

_FILES: Final = (rm, uvm, rm_classes, controls)


def _table(branch: int) -> dict[str, type[Struct]]:
    table: dict[str, type[Struct]] = {}
    for plain in (debugger.STRUCTS, fault.STRUCTS, gpfifo.STRUCTS):
        table |= plain
    for file in _FILES:
        table |= file.STRUCTS
        table |= file.STRUCTS_BY_BRANCH.get(branch, {})
    return table


STRUCTS: Final[Mapping[int, Mapping[str, type[Struct]]]] = {branch: _table(branch) for branch in BRANCHES}
"""Branch -> name of the structure at branch 580 -> layout."""


def branch_of(version: str) -> int | None:
    """Return the branch of a driver version such as "580.159.03", or None if it is unknown."""
    head = version.split(".", 1)[0]
    return int(head) if head.isdigit() and int(head) in BRANCHES else None
