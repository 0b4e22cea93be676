"""Counters of accesses in flight: which instructions increment them, and which wait for them.

gfx9 has vmcnt (vector memory) and lgkmcnt (LDS, scalar memory, messages). gfx11 has vscnt for stores, too. gfx12
has loadcnt, storecnt, dscnt and kmcnt. A flat access increments a counter of vector memory and that of LDS.

Not here: missing waits (`waits`), order between workgroups (`orders`). Next: `waits`. Source: LLVM's
AMDGPUUsage and the RDNA3, RDNA4 and CDNA3 ISA documents.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from emulator.amd.isa.immediates import waits as fields_of_waitcnt

if TYPE_CHECKING:
    from emulator.amd.isa.instruction import Instruction

MEMORY = re.compile(r"(global|flat|scratch|buffer)_(load|store|atomic)")
# Cache instructions that increment a counter -> the kind of access whose counter it is.
_MAINTENANCE = {
    "gfx12": {"global_inv": "load", "global_wb": "store", "global_wbinv": "store"},
    "gfx9": {"buffer_inv": "load", "buffer_wbl2": "load"},
}
_SPLIT = {"s_wait_loadcnt": "load", "s_wait_storecnt": "store", "s_wait_dscnt": "ds", "s_wait_kmcnt": "km"}
"""Waits of gfx12 for one counter -> the kind of access."""
COUNTERS = {
    "gfx9": {"load": "vmcnt", "store": "vmcnt", "ds": "lgkmcnt", "km": "lgkmcnt"},
    "gfx11": {"load": "vmcnt", "store": "vscnt", "ds": "lgkmcnt", "km": "lgkmcnt"},
    "gfx12": {"load": "loadcnt", "store": "storecnt", "ds": "dscnt", "km": "kmcnt"},
}
"""Family -> kind of access -> name of its counter."""


def waited(i: Instruction, family: str) -> dict[str, int]:
    """Return the counters that an instruction waits for, each with the accesses that may be left; {} for none."""
    value = i.get("simm16")
    if i.stem == "s_waitcnt":
        return fields_of_waitcnt(value, family)
    if i.stem.startswith("s_waitcnt_") and i.stem != "s_waitcnt_depctr":
        return {i.stem.removeprefix("s_waitcnt_"): value}
    names = COUNTERS[family]
    if i.stem in _SPLIT:
        return {names[_SPLIT[i.stem]]: value}
    if i.stem in ("s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt"):
        first = "load" if "load" in i.stem else "store"
        return {names[first]: value >> 8 & 63, names["ds"]: value & 63}
    return {}


def returns(i: Instruction) -> bool:
    """Return whether an instruction is a vector load, or a vector atomic that returns the old value."""
    match = MEMORY.match(i.stem)
    if match is None or match[2] == "store":
        return False
    return match[2] == "load" or bool(i.get("glc") or i.get("sc0") or i.get("th") & 1)


def events_of(i: Instruction, family: str) -> list[str]:
    """Return the counters that an instruction increments; [] for none."""
    name, names = i.stem, COUNTERS[family]
    if name in _MAINTENANCE.get(family, {}):
        return [names[_MAINTENANCE[family][name]]]
    match = MEMORY.match(name)
    if match:
        found = [names["load" if returns(i) else "store"]]
        return [*found, names["ds"]] if match[1] == "flat" else found
    if name.startswith("ds_"):
        return [names["ds"]]
    if name.startswith(("s_load_", "s_buffer_load_")):
        return [names["km"]]
    return [names["km"]] if name.startswith("s_sendmsg") else []
