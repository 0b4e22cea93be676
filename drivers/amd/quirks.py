"""Quirks: settings of the driver that public sources do not settle. A working driver uses each alternative.

A device is opened with one `AmdQuirks`, which selects a value for each field. The bring-up ladder tries the
other values and reports which of them work. Docstrings name the driver that uses a value.

Not here: values that follow from the target (`layouts.chips`), reading and printing values
(`drivers.shared.choices`), the search (`tools.bringup.ladder`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from drivers.shared.choices import alternatives, known, read


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdQuirks:
    """A value for each setting; the defaults have the most evidence.

    A text lists the alternatives in the order of the annotation; that of a bool states True first.
    """

    priv: Literal["listed", "gfx11", "never"] = "listed"
    """The targets whose PM4 dispatches set RSRC1.PRIV, a workaround for context save: those that the kernel
    and kfdtest list, all of gfx11 (tinygrad), or none."""
    trap_present: bool = False
    """RSRC2.TRAP_PRESENT of PM4 dispatches before gfx12: kfdtest sets it, tinygrad does not."""
    order: Literal["flush", "release"] = "flush"
    """How a PM4 queue waits for its own kernels: CS_PARTIAL_FLUSH, or a release of a value for which the
    queue then waits (kfdtest, because the flush delays preemption)."""
    acquire: Literal["launch", "order"] = "launch"
    """Caches above L2 are invalidated before each kernel (tinygrad), or only after each flush."""
    release_event: Literal["flush", "bottom"] = "flush"
    """The event of a release: CACHE_FLUSH_AND_INV_TS (tinygrad, ROCr), or BOTTOM_OF_PIPE_TS."""
    release_policy: Literal["target", "lru", "bypass"] = "target"
    """Cache policy of the value that a release stores: the kernel's on gfx12 and 0 on other targets; 0
    (tinygrad); or 3 (kernel)."""
    ace_offload: bool = True
    """WAIT_REG_MEM sets OPTIMIZE_ACE_OFFLOAD_MODE (ROCr, kfdtest), or not (tinygrad)."""
    aql_overlap: bool = False
    """Kernels of an AQL queue without a barrier between them may overlap, or every packet has a barrier
    bit."""
    single_xcc: Literal["pm4", "aql"] = "pm4"
    """The packets of compute queues of a gfx942 with one XCC (partition mode CPX)."""
    aql_eop: bool = True
    """AQL queues get an end-of-pipe buffer (tinygrad), or none (thunk)."""
    copy_pieces: Literal["large", "small"] = "large"
    """SDMA copies since v5.2 in pieces of almost 1 GiB (ROCr, tinygrad), or of 4 MiB (kernel)."""
    copy_order: Literal["engine", "fence"] = "engine"
    """Consecutive SDMA commands of one queue rely on the engine's order, or a fence is awaited between
    them."""
    copy_stamp: Literal["aligned", "direct"] = "aligned"
    """SDMA timestamps are written to 32-byte aligned memory and copied from there, or written directly to the
    8-byte aligned destination."""
    fence_mtype: bool = True
    """SDMA fences since v5 set the uncached memory type, or leave the field 0."""
    coher_size: Literal["8", "25", "32"] = "8"
    """Number of set bits in COHER_SIZE_HI of an ACQUIRE_MEM for all memory: as the header's field, Mesa,
    tinygrad."""
    release_caches: Literal["all", "l2"] = "all"
    """A release of gfx9 acts on all caches, or only on L2 (kfdtest)."""
    release_confirm: bool = False
    """A release without an interrupt sets INT_SEL to data after write confirm (kfdtest), or 0 (tinygrad)."""
    signal_bits: Literal["64", "32"] = "64"
    """Bits of a signal's value that a release stores: all, or the low 32 (tinygrad)."""
    order_mode: bool = False
    """PM4 dispatches set ORDER_MODE (Mesa), or not (tinygrad, kfdtest)."""
    force_start: bool = True
    """PM4 dispatches set FORCE_START_AT_000 (tinygrad, Mesa), or not (kfdtest)."""
    aql_scratch: Literal["xcc", "zero"] = "xcc"
    """scratch_backing_memory_byte_size of AQL queues: the bytes of one XCC (ROCr), or 0 (tinygrad)."""
    ring_bytes: Literal["small", "large"] = "small"
    """Rings of 1 MiB, AQL 256 KiB; or of 16 MiB (tinygrad)."""
    cwsr_sizes: Literal["sysfs", "formula"] = "sysfs"
    """Sizes of the context-save area: those in sysfs (thunk), or computed (tinygrad)."""
    system_uncached: bool = True
    """System memory has the flag UNCACHED (tinygrad), or only COHERENT (thunk)."""
    runtime: Literal["enable", "setup"] = "enable"
    """RUNTIME_ENABLE with ENABLE, which reports exceptions (thunk); or with mode 0 (tinygrad)."""
    hdp: Literal["none", "flush"] = "none"
    """The host never flushes the host data path, or flushes it by its register before each doorbell (HIP)."""


DEFAULT: Final = AmdQuirks()

ALTERNATIVES: Final = alternatives(DEFAULT)
"""Field -> its values, the default first."""


def parse(text: str) -> AmdQuirks:
    """Parse a text such as "order=release+priv=gfx11".

    Raises `UsageError`, which lists all fields and values, for an unknown part.
    """
    return read(text, DEFAULT, ALTERNATIVES, _unknown)


def _unknown(part: str, _name: str) -> str:
    return f"{part!r} is not an option of the AMD driver\nhint: the options are: {known(ALTERNATIVES)}"
