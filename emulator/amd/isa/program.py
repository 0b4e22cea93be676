"""Instructions without data: waits, hints, cache maintenance, modes, sleeping, messages.

Sources: RDNA3, RDNA4 and CDNA3 ISA documents, chapters of SOPP and SOPK.

Not here: branches and barriers (`translate`), the check of waits (`waits`), the modes (`modes`). Next:
`meanings`, how an operation is defined.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.amd.isa.instruction import AGENT, Word
from emulator.amd.isa.meanings import meaning
from emulator.amd.isa.modes import KEEPS_NAN, MODE, changed

if TYPE_CHECKING:
    from emulator.amd.isa.values import IsaTranslator

WAITS = (
    "s_waitcnt", "s_waitcnt_vscnt", "s_waitcnt_vmcnt", "s_waitcnt_expcnt", "s_waitcnt_lgkmcnt", "s_waitcnt_depctr",
    "s_wait_loadcnt", "s_wait_storecnt", "s_wait_samplecnt", "s_wait_bvhcnt", "s_wait_expcnt", "s_wait_dscnt",
    "s_wait_kmcnt", "s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt", "s_wait_alu", "s_wait_idle", "s_wait_event",
)  # fmt: skip
"""Waits have no effect, because every access completes at once here; `waits` checks them statically."""
HINTS = (
    "s_nop", "s_delay_alu", "s_clause", "s_setprio", "s_set_inst_prefetch_distance", "s_inst_prefetch", "s_icache_inv",
    "s_ttracedata", "s_ttracedata_imm", "s_incperflevel", "s_decperflevel", "s_prefetch_data", "s_prefetch_inst",
    "s_prefetch_inst_pc_rel", "s_prefetch_data_pc_rel", "s_buffer_prefetch_data", "s_code_end", "s_wakeup",
    "s_singleuse_vdst",
)  # fmt: skip
"""Instructions that affect timing only; hardware is correct without `s_delay_alu`, too."""
CACHES = (
    "buffer_gl0_inv", "buffer_gl1_inv", "s_gl1_inv", "s_dcache_inv", "buffer_inv", "buffer_wbl2", "buffer_wbinvl1",
    "buffer_wbinvl1_vol", "global_inv", "global_wb", "global_wbinv", "s_dcache_wb", "s_dcache_inv_vol", "s_dcache_wb_vol",
)  # fmt: skip


@meaning(*WAITS, *HINTS)
def _nothing(t: IsaTranslator) -> None:
    del t


def _of_workgroup(t: IsaTranslator) -> bool:
    """Return whether a cache instruction has workgroup scope or narrower.

    For a wider scope gfx11 also invalidates GL1; gfx12 and gfx942 encode the scope in the instruction.
    """
    i = t.instruction
    if t.target.family == "gfx12":
        return t.stem.startswith("global_") and i.get("scope") < AGENT
    return t.stem == "buffer_gl0_inv" or (t.stem == "buffer_inv" and not i.get("sc1"))


@meaning(*CACHES)
def _cache(t: IsaTranslator) -> None:
    """Emit a host fence, because memory is coherent here: it orders accesses of other host threads.

    A workgroup runs on one host thread, so a fence of workgroup scope costs no host instruction.
    """
    t.c.emit("fence acq_rel" if _of_workgroup(t) else "fence seq_cst")


@meaning("s_sleep")
def _sleep(t: IsaTranslator) -> None:
    t.c.emit("fence seq_cst")


@meaning("s_round_mode", "s_denorm_mode", "s_setreg_imm32_b32")
def _mode(t: IsaTranslator) -> None:
    """Set the float mode of the following operations."""
    t.modes = changed(t.modes, t.instruction, t.kernel)


@meaning("s_sendmsg", "s_sendmsghalt")
def _message(t: IsaTranslator) -> None:
    """MSG_DEALLOC_VGPRS has no effect here; all other messages would have one, and are refused."""
    if t.instruction.get("simm16") != 3 or t.stem != "s_sendmsg":
        raise t.error("only MSG_DEALLOC_VGPRS is supported")


@meaning("s_getreg_b32")
def _getreg(t: IsaTranslator) -> None:
    """Read a field of the MODE register."""
    d, field = t.instruction.operands
    if not isinstance(field, Word) or field.value & 63 != MODE:
        raise t.error("only MODE can be read")
    offset, size = field.value >> 6 & 31, (field.value >> 11 & 31) + 1
    mode = t.modes ^ (KEEPS_NAN if t.target.family != "gfx12" else 0)
    t.set_scalar(d, t.c.const("i32", mode >> offset & (1 << size) - 1))


@meaning("s_setkill", "s_sethalt")
def _halt(t: IsaTranslator) -> None:
    if t.instruction.get("simm16"):
        raise t.error("halting a wave is not supported")
