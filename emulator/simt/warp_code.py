"""The common base of `WarpFunction` and `WaveFunction`: thread ids, fields of records, numbered instructions.

Not here: control flow and registers, which differ between the two builders. Next: `warp_function`,
`wave_function`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.state import GROUP, THREAD, WARP, warp_ids_at
from emulator.ir.vector import CodeBuilder, Declarations, IrValue
from emulator.simt.blocks import InstructionSite

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.simt.counting import Counted, Counting


class WarpCode:
    """Code of one warp under construction; `c` is the builder, `warp` the address of the warp's state."""

    thread: IrValue
    """The address of the host thread's record; a subclass sets it when it writes the function's entry."""
    group: IrValue
    """The address of the workgroup's record; set with `thread`."""

    def __init__(self, lib: Library, name: str) -> None:
        self.lib = lib
        self.lanes = lib.lanes
        self.name = name
        self.declarations = Declarations()
        self.c = CodeBuilder(self.declarations)
        self.warp = IrValue("ptr", "%warp")
        self.sites: list[InstructionSite] = []
        self.counting: Counting | None = None
        """Writes the counters; None if the function does not count."""

    @property
    def counted(self) -> Counted | None:
        """The slots of the counters; None if the function does not count."""
        return None if self.counting is None else self.counting.counted

    def uniform(self, scalar: IrValue) -> IrValue:
        """Return a vector with the same value in every lane."""
        return self.c.splat(scalar, self.lanes)

    def thread_id(self, axis: int) -> IrValue:
        """Return the lanes' thread ids along an axis (0 is x), as i32; `state.PACKED_IDS` gives all three."""
        return self.c.load(self.lib.v("i32"), self.c.gep(self.warp, warp_ids_at(axis, self.lanes)), align=64)

    def lane_id(self) -> IrValue:
        """Return the lanes' numbers, as i32."""
        return self.c.ints(self.lib.v("i32"), range(self.lanes))

    def of_thread(self, name: str) -> IrValue:
        """Return a field of `state.THREAD`, a scalar."""
        return THREAD.load(self.c, self.thread, name)

    def of_group(self, name: str) -> IrValue:
        """Return a field of `state.GROUP`, a scalar."""
        return GROUP.load(self.c, self.group, name)

    def of_warp(self, name: str) -> IrValue:
        """Return a field of `state.WARP`, a scalar."""
        return WARP.load(self.c, self.warp, name)

    def site(self, line: int, text: str) -> int:
        """Register an instruction for reports; return its number."""
        self.sites.append(InstructionSite(line, text))
        return len(self.sites) - 1
