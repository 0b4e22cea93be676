"""Driver branches: the layout of each structure on each branch of the kernel driver.

A branch that is not in `BRANCHES` is refused; layouts are never guessed. The files of structures describe
branch 580. A class whose name ends in another branch, such as `NVOS46_PARAMETERS_570`, is the layout on that
branch and on the branches beyond it.

Not here: the structures (`rm`, `uvm`, `rm_classes`, `controls`). Next: `drivers.nv.rm`, which selects the
structures of its branch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from drivers.nv.layouts import controls, debugger, fault, gpfifo, rm, rm_classes, uvm
from hcq.layout import Struct

SOURCE = "open-gpu-kernel-modules 570.211.01, 580.142, 590.48.01, 595.45.04 (nv.md 1.5)"

BRANCHES: Final = (570, 580, 590, 595)
"""The branches whose layouts are known; 610 shifts the channel parameters and is refused."""
_DESCRIBED: Final = 580
"""The branch of layouts whose name has no branch."""
_FILES: Final = (debugger, fault, gpfifo, rm, uvm, rm_classes, controls)


def _table(branch: int) -> dict[str, type[Struct]]:
    """Return name at branch 580 -> layout on `branch`."""
    plain: dict[str, type[Struct]] = {}
    others: dict[str, type[Struct]] = {}
    for file in _FILES:
        for name, layout in vars(file).items():
            if not isinstance(layout, type) or layout.__module__ != file.__name__:
                continue
            if not issubclass(layout, Struct):
                continue
            stem, _, end = name.rpartition("_")
            if not end.isdecimal() or int(end) not in BRANCHES:
                plain[name] = layout
            elif branch <= int(end) < _DESCRIBED or _DESCRIBED < int(end) <= branch:
                others[stem] = layout
    return plain | others


STRUCTS: Final[Mapping[int, Mapping[str, type[Struct]]]] = {branch: _table(branch) for branch in BRANCHES}
"""Branch -> name of the structure at branch 580 -> layout."""


def branch_of(version: str) -> int | None:
    """Return the branch of a driver version such as "580.159.03", or None if it is unknown."""
    head = version.split(".", 1)[0]
    return int(head) if head.isdigit() and int(head) in BRANCHES else None
