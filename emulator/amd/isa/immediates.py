"""The text of 16-bit immediates of program-control instructions: waits, delays, messages, hardware registers.

All texts are as LLVM's disassembler writes them. Not here: the check of waits (`waits`), other operands
(`instruction`). Next: `decode`, the user.
"""

# ruff: noqa: E501 - rows of tables and lines of IR read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Texts of the fields of s_delay_alu, by number.
_DELAYS = (
    "NO_DEP", "VALU_DEP_1", "VALU_DEP_2", "VALU_DEP_3", "VALU_DEP_4", "TRANS32_DEP_1", "TRANS32_DEP_2", "TRANS32_DEP_3",
    "FMA_ACCUM_CYCLE_1", "SALU_CYCLE_1", "SALU_CYCLE_2", "SALU_CYCLE_3",
)  # fmt: skip
_SKIPS = ("SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4")
_MESSAGES = {1: "MSG_INTERRUPT", 2: "MSG_HS_TESSFACTOR", 3: "MSG_DEALLOC_VGPRS", 9: "MSG_GS_ALLOC_REQ"}
_MESSAGES_GFX9 = {1: "MSG_INTERRUPT", 9: "MSG_GS_ALLOC_REQ"}
"""Number of a message -> its name."""
RETURNED = {
    128: "MSG_RTN_GET_DOORBELL",
    129: "MSG_RTN_GET_DDID",
    130: "MSG_RTN_GET_TMA",
    131: "MSG_RTN_GET_REALTIME",
}
"""Number of a message that returns a value -> its name."""
HARDWARE = {
    1: "HW_REG_MODE", 2: "HW_REG_STATUS", 3: "HW_REG_TRAPSTS", 4: "HW_REG_HW_ID", 5: "HW_REG_GPR_ALLOC",
    6: "HW_REG_LDS_ALLOC", 7: "HW_REG_IB_STS", 15: "HW_REG_SH_MEM_BASES", 20: "HW_REG_FLAT_SCR_LO",
    21: "HW_REG_FLAT_SCR_HI", 23: "HW_REG_HW_ID1", 24: "HW_REG_HW_ID2", 29: "HW_REG_SHADER_CYCLES",
}  # fmt: skip
"""Number of a hardware register -> its name; gfx12 has other names for some (`hwreg`)."""
_DECIMAL = {"s_nop", "s_sleep", "s_setprio", "s_trap", "s_sethalt", "s_branch", "s_sendmsghalt", "s_setkill"}
"""Instructions whose immediate is written in decimal."""
_SILENT_ZERO = {"s_endpgm"}
"""Instructions whose immediate is not written if it is 0."""
_NO_TEXT = {
    "s_barrier", "s_code_end", "s_wait_idle", "s_icache_inv", "s_endpgm_saved", "s_wakeup", "s_ttracedata", "s_set_gpr_idx_off",
}  # fmt: skip


def waits(value: int, family: str) -> dict[str, int]:
    """Return the counters that `s_waitcnt` waits for, each with the accesses that may be left.

    A counter whose field has its largest value is not waited for, and left out. `family` is not "gfx12".
    """
    if family == "gfx11":
        fields = {"vmcnt": (value >> 10 & 63, 63), "expcnt": (value & 7, 7), "lgkmcnt": (value >> 4 & 63, 63)}
    else:
        vm = (value & 15) | (value >> 14 & 3) << 4
        fields = {"vmcnt": (vm, 63), "expcnt": (value >> 4 & 7, 7), "lgkmcnt": (value >> 8 & 15, 15)}
    return {name: count for name, (count, most) in fields.items() if count != most}


def _waitcnt(value: int, family: str) -> str:
    found = waits(value, family)
    return " ".join(f"{name}({count})" for name, count in found.items()) or "vmcnt(63)"


def _one_of(names: tuple[str, ...], number: int, what: str) -> str:
    return names[number] if number < len(names) else f"/* invalid {what} value */"


def _delay(value: int, _: str) -> str:
    first, skip, second = value & 15, value >> 4 & 7, value >> 7 & 15
    parts = [f"instid0({_one_of(_DELAYS, first, 'instid')})"] if first or not second else []
    if skip:
        parts.append(f"instskip({_one_of(_SKIPS, skip, 'instskip')})")
    if second:
        parts.append(f"instid1({_one_of(_DELAYS, second, 'instid')})")
    return " | ".join(parts)


def _depctr(value: int, _: str) -> str:
    fields = (
        ("hold_cnt", 7, 1), ("sa_sdst", 0, 1), ("va_vdst", 12, 4), ("va_sdst", 9, 3), ("va_ssrc", 8, 1), ("va_vcc", 1, 1),
        ("vm_vsrc", 2, 3),
    )  # fmt: skip
    parts = []
    for name, low, bits in fields:
        most = (1 << bits) - 1
        if (value >> low & most) != most:
            parts.append(f"depctr_{name}({value >> low & most})")
    return " ".join(parts) or f"{value:#x}"


def _message(value: int, family: str) -> str:
    name = (_MESSAGES_GFX9 if family == "gfx9" else _MESSAGES).get(value)
    return f"sendmsg({name})" if name else f"{value:#x}"


def hwreg(value: int, family: str) -> str:
    """Return the text of a field of a hardware register: register, first bit and size in bits."""
    number, offset, size = value & 63, value >> 6 & 31, (value >> 11 & 31) + 1
    name = HARDWARE.get(number, str(number))
    if family == "gfx12":
        name = {
            1: "HW_REG_WAVE_MODE",
            2: "HW_REG_WAVE_STATUS",
            4: "HW_REG_WAVE_STATE_PRIV",
            29: "HW_REG_SHADER_CYCLES_LO",
        }.get(number, name)
    return f"hwreg({name})" if (offset, size) == (0, 32) else f"hwreg({name}, {offset}, {size})"


def _none(_: int, __: str) -> str:
    return ""


_TEXTS: dict[str, Callable[[int, str], str]] = {
    "s_waitcnt": _waitcnt, "s_delay_alu": _delay, "s_waitcnt_depctr": _depctr, "s_wait_alu": _depctr, "s_sendmsg": _message,
    "s_sendmsghalt": _message, **dict.fromkeys(_NO_TEXT, _none),
}  # fmt: skip


def program_text(name: str, value: int, family: str) -> str:
    """Return the text of the immediate of a SOPP instruction; "" if the assembler writes none."""
    if name in _TEXTS:
        return _TEXTS[name](value, family)
    if name in _SILENT_ZERO and not value:
        return ""
    if name in _DECIMAL or name.startswith("s_cbranch") or name in _SILENT_ZERO:
        return str(value)
    if name == "s_barrier_wait":
        return str(value - 0x10000 if value >> 15 else value)
    return f"{value:#x}"


def swizzle(value: int) -> str:
    """Return the text of the offset of ds_swizzle_b32."""
    if value & 0x8000 and not value & 0x7F00:
        picks = ",".join(str(value >> 2 * k & 3) for k in range(4))
        return f"swizzle(QUAD_PERM,{picks})"
    if value & 0xE000 == 0xE000:
        return f"swizzle(FFT,{value & 31})"
    if value & 0xE000 == 0xC000:
        return f"swizzle(ROTATE,{value >> 10 & 1},{value >> 5 & 31})"
    if value & 0x8000:
        return f"{value}"
    keep, fill, flip = value & 31, value >> 5 & 31, value >> 10 & 31
    if keep == 31 and not fill and flip.bit_count() == 1:
        return f"swizzle(SWAP,{flip})"
    if keep == 31 and not fill and flip and (flip & (flip + 1)) == 0:
        return f"swizzle(REVERSE,{flip + 1})"
    group = 32 - keep
    if not flip and group.bit_count() == 1 and group > 1 and fill < group:
        return f"swizzle(BROADCAST,{group},{fill})"
    bits = []
    for k in reversed(range(5)):
        zeroed, inverted = not keep >> k & 1, flip >> k & 1
        forced = fill >> k & 1
        if forced:
            bits.append("0" if inverted else "1")
        elif zeroed:
            bits.append("1" if inverted else "0")
        else:
            bits.append("i" if inverted else "p")
    return f'swizzle(BITMASK_PERM,"{"".join(bits)}")'
