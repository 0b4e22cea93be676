"""Kernels whose loops may wait for other waves: such loops must yield, or the wave waited for never runs.

Sleeps, atomics and loads that see what other waves write say so themselves. An atomic load of LDS encodes as
a plain one. It is told by its loop, which loads the same place again and again, and stores nothing.

Not here: the yielding (`drivers.emu.simt.wave_function`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from drivers.amd.emu.isa.names import canonical
from drivers.amd.emu.isa.operands import Reg
from drivers.amd.emu.isa.registers_used import used
from drivers.amd.emu.isa.scopes import reach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drivers.amd.emu.isa.instruction import Instruction

_WAITS = re.compile(r"s_sleep|(global|flat|ds|buffer)_atomic|ds_\w+_rtn_")
_LOAD = re.compile(r"(global|flat|buffer)_load_")
_LOCAL_LOAD = re.compile(r"ds_load_")
_PROGRESS = re.compile(r"\w+_store_|s_barrier")


def may_wait(blocks: Sequence[tuple[list[Instruction], tuple[int, ...]]], family: str) -> bool:
    """Return whether a loop of a kernel may wait for other waves, of its workgroup or of others."""
    code = [i for body, _ in blocks for i in body]
    if any(_reads_others(i, family) for i in code):
        return True
    ends = ((body[0].address, body[-1].address, target) for body, follow in blocks for target in follow)
    return any(
        _polls([i for i in code if target <= i.address <= last], family)
        for first, last, target in ends
        if target <= first
    )


def _reads_others(i: Instruction, family: str) -> bool:
    name = canonical(i.stem, family)
    return bool(_WAITS.match(name) or (_LOAD.match(name) and reach(i, family)))


def _polls(loop: Sequence[Instruction], family: str) -> bool:
    """Return whether a loop stores nothing, meets no barrier, and loads the same place of LDS each time."""
    names = [canonical(i.stem, family) for i in loop]
    if not any(map(_LOCAL_LOAD.match, names)) or any(map(_PROGRESS.match, names)):
        return False
    written = {register for i in loop for register in used(i, family)[1]}
    return any(
        isinstance(at := i.operands[1], Reg) and (at.file, at.index) not in written
        for i, name in zip(loop, names, strict=True)
        if _LOCAL_LOAD.match(name)
    )
