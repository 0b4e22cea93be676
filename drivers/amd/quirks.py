"""Values that public sources do not settle, each with the choices that working drivers made.

A device is opened with one `AmdQuirks`, a choice for each value. The bring-up ladder tries the other values
in turn and reports which work. Not here: values that follow from the target (`layouts.chips`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from drivers.choices import alternatives, known, read


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdQuirks:
    """One choice for every doubtful value; the defaults have the most evidence."""

    priv: Literal["listed", "gfx11", "never"] = "listed"
    """RSRC1.PRIV of PM4 dispatches, a workaround for context save: on the targets that the kernel and kfdtest
    list, on all of gfx11 (tinygrad), or on none."""
    trap_present: bool = False
    """RSRC2.TRAP_PRESENT of PM4 dispatches before gfx12: kfdtest sets it, tinygrad does not."""
    order: Literal["flush", "release"] = "flush"
    """How a PM4 queue waits for its own kernels: CS_PARTIAL_FLUSH, or a release of a value that the queue
    then waits for (kfdtest: the flush delays preemption)."""
    acquire: Literal["launch", "order"] = "launch"
    """Caches above L2 are invalidated before each kernel (tinygrad), or only where order begins."""
    release_event: Literal["flush", "bottom"] = "flush"
    """The event of a release: CACHE_FLUSH_AND_INV_TS (tinygrad, ROCr), or BOTTOM_OF_PIPE_TS."""
    release_policy: Literal["target", "lru", "bypass"] = "target"
    """Cache policy of the value that a release stores: what the kernel uses on gfx12 and 0 elsewhere, 0 as in
    tinygrad, or 3 as in the kernel."""
    ace_offload: bool = True
    """Waits for memory set OPTIMIZE_ACE_OFFLOAD_MODE (ROCr, kfdtest), or not (tinygrad)."""
    aql_overlap: bool = False
    """Kernels of an AQL queue without a barrier between them may overlap: no barrier bit in their packets."""
    single_xcc: Literal["pm4", "aql"] = "pm4"
    """The compute queues of a gfx942 with one XCC (CPX)."""
    aql_eop: bool = True
    """AQL queues get an end-of-pipe buffer (tinygrad), or none (thunk)."""
    copy_pieces: Literal["large", "small"] = "large"
    """SDMA copies since v5.2 in pieces of almost 1 GiB (ROCr, tinygrad), or of 4 MiB (kernel)."""
    copy_order: Literal["engine", "fence"] = "engine"
    """Consecutive SDMA commands of one queue rely on the engine's order, or a fence is awaited between
    them."""
    copy_stamp: Literal["aligned", "direct"] = "aligned"
    """SDMA timestamps are written to 32-byte aligned memory and copied from there, or written to where they
    belong, 8-byte aligned."""
    fence_mtype: bool = True
    """SDMA fences since v5 name the uncached memory type, or leave the field 0."""
    coher_size: Literal["8", "25", "32"] = "8"
    """Bits of ones in ACQUIRE_MEM's COHER_SIZE_HI for all memory: the header's field, Mesa's, tinygrad's."""
    release_caches: Literal["all", "l2"] = "all"
    """A release of gfx9 names all caches, or only L2 (kfdtest)."""
    release_confirm: bool = False
    """A release without an interrupt sets INT_SEL to data after write confirm (kfdtest), or 0 (tinygrad)."""
    signal_bits: Literal["64", "32"] = "64"
    """Bits of a signal's value that a release stores; tinygrad stores the low 32."""
    order_mode: bool = False
    """PM4 dispatches set ORDER_MODE (Mesa), or not (tinygrad, kfdtest)."""
    force_start: bool = True
    """PM4 dispatches set FORCE_START_AT_000 (tinygrad, Mesa), or not (kfdtest)."""
    aql_scratch: Literal["xcc", "zero"] = "xcc"
    """scratch_backing_memory_byte_size: that of one XCC (ROCr), or 0 (tinygrad)."""
    ring_bytes: Literal["small", "large"] = "small"
    """Rings of 1 MiB, AQL 256 KiB; or of 16 MiB (tinygrad)."""
    cwsr_sizes: Literal["sysfs", "formula"] = "sysfs"
    """Sizes of the context-save area: those in sysfs (thunk), or computed (tinygrad)."""
    system_uncached: bool = True
    """System memory has the flag UNCACHED (tinygrad), or only COHERENT (thunk)."""
    runtime: Literal["enable", "setup"] = "enable"
    """RUNTIME_ENABLE with ENABLE, which reports exceptions (thunk); or with mode 0 (tinygrad)."""
    hdp: Literal["none", "flush"] = "none"
    """The host flushes the host data path by its register before each doorbell (HIP), or never."""


DEFAULT: Final = AmdQuirks()

ALTERNATIVES: Final = alternatives(DEFAULT)
"""Field -> its values, the default first."""


def parse(text: str) -> AmdQuirks:
    """Return the choices that "order=release+priv=gfx11" names; `describe` writes what this reads.

    Raises `UsageError`, which lists all fields and values.
    """
    return read(text, DEFAULT, ALTERNATIVES, _unknown)


def _unknown(part: str, _name: str) -> str:
    return f"{part!r} is no choice of the AMD driver\nhint: there are: {known(ALTERNATIVES)}"
