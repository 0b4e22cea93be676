"""Methods of the compute classes c6c0 to cec0: windows, local memory, launches, report semaphores.

Byte addresses of methods are the same in all classes. Upper halves of addresses are wider since Hopper.

Not here: the launch descriptor (`qmd`), host methods (`host`). Next: `drivers.nv.push`, the sequences in use.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from drivers.nv.layouts.gpfifo import Method
from drivers.nv.layouts.host import SetObject
from hcq.layout import BitStruct, bits, optional

SOURCE = "NVIDIA open-gpu-doc, clc6c0.h to clcdc0.h (nv.md 3.4)"


class ComputeMethod(enum.IntEnum):
    """Byte addresses of the methods."""

    SET_OBJECT = 0x0000
    NO_OPERATION = 0x0100
    WAIT_FOR_IDLE = 0x0110
    SET_REPORT_SEMAPHORE_PAYLOAD_LOWER = 0x0158
    SET_REPORT_SEMAPHORE_PAYLOAD_UPPER = 0x015C
    SET_REPORT_SEMAPHORE_ADDRESS_LOWER = 0x0160
    SET_REPORT_SEMAPHORE_ADDRESS_UPPER = 0x0164
    REPORT_SEMAPHORE_EXECUTE = 0x0168
    LINE_LENGTH_IN = 0x0180
    LINE_COUNT = 0x0184
    OFFSET_OUT_UPPER = 0x0188
    OFFSET_OUT = 0x018C
    LAUNCH_DMA = 0x01B0
    LOAD_INLINE_DATA = 0x01B4
    SET_VALID_SPAN_OVERFLOW_AREA_A = 0x0200
    SET_VALID_SPAN_OVERFLOW_AREA_B = 0x0204
    SET_VALID_SPAN_OVERFLOW_AREA_C = 0x0208
    INVALIDATE_SHADER_CACHES = 0x021C
    INVALIDATE_TEXTURE_HEADER_CACHE_NO_WFI = 0x0244
    SET_QMD_VERSION = 0x0288
    INVALIDATE_SKED_CACHES = 0x0298
    SET_SHADER_SHARED_MEMORY_WINDOW_A = 0x02A0
    SET_SHADER_SHARED_MEMORY_WINDOW_B = 0x02A4
    SEND_PCAS_A = 0x02B4
    SEND_SIGNALING_PCAS_B = 0x02BC
    SEND_SIGNALING_PCAS2_B = 0x02C0
    SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A = 0x02E4
    SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B = 0x02E8
    SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C = 0x02EC
    SET_SPA_VERSION = 0x0310
    SET_INLINE_QMD_ADDRESS_A = 0x0318
    SET_INLINE_QMD_ADDRESS_B = 0x031C
    LOAD_INLINE_QMD_DATA = 0x0320
    SET_SHADER_LOCAL_MEMORY_A = 0x0790
    SET_SHADER_LOCAL_MEMORY_B = 0x0794
    SET_SHADER_LOCAL_MEMORY_WINDOW_A = 0x07B0
    SET_SHADER_LOCAL_MEMORY_WINDOW_B = 0x07B4
    INVALIDATE_SAMPLER_CACHE_NO_WFI = 0x1424
    SET_SHADER_EXCEPTIONS = 0x1528
    SET_TEX_SAMPLER_POOL = 0x155C
    SET_TEX_HEADER_POOL = 0x1574
    INVALIDATE_SHADER_CACHES_NO_WFI = 0x1698
    SET_REPORT_SEMAPHORE_A = 0x1B00
    SET_REPORT_SEMAPHORE_B = 0x1B04
    SET_REPORT_SEMAPHORE_C = 0x1B08
    SET_REPORT_SEMAPHORE_D = 0x1B0C
    SET_TRAP_HANDLER_A = 0x25F8
    SET_TRAP_HANDLER_B = 0x25FC


class PcasAction(enum.IntEnum):
    """The action of SEND_SIGNALING_PCAS2_B on the descriptor that SEND_PCAS_A named."""

    INVALIDATE = 0x1
    SCHEDULE = 0x2
    INVALIDATE_COPY_SCHEDULE = 0x3
    INCREMENT_PUT = 0x6
    DECREMENT_DEPENDENCE = 0x7
    PREFETCH = 0x8
    PREFETCH_SCHEDULE = 0x9
    INVALIDATE_PREFETCH_COPY_SCHEDULE = 0xA
    INVALIDATE_PREFETCH_COPY_FORCE_REQUIRE_SCHEDULING = 0xB
    INCREMENT_DEPENDENCE = 0xC
    INCREMENT_CWD_REF_COUNTER = 0xD


class ReportOperation(enum.IntEnum):
    """The operation of a report semaphore."""

    RELEASE = 0
    ACQUIRE = 1
    REPORT_ONLY = 2
    TRAP = 3


class SendPcasA(BitStruct, source=SOURCE):
    """SEND_PCAS_A: the descriptor's address in units of 256 bytes."""

    QMD_ADDRESS_SHIFTED8: int = bits(31, 0, shift=8)


class SendSignalingPcas2B(BitStruct, source=SOURCE):
    """SEND_SIGNALING_PCAS2_B: starts the grid."""

    PCAS_ACTION: PcasAction = bits(3, 0)


class LaunchDmaInline(BitStruct, source=SOURCE):
    """LAUNCH_DMA of the inline-to-memory path."""

    DST_MEMORY_LAYOUT: bool = optional(0, doc="1 is pitch")
    SYSMEMBAR_DISABLE: bool = optional(6)


class InvalidateShaderCaches(BitStruct, source=SOURCE):
    """INVALIDATE_SHADER_CACHES: waits for idle first."""

    INSTRUCTION: bool = optional(0)
    LOCKS: bool = optional(1)
    FLUSH_DATA: bool = optional(2)
    DATA: bool = optional(4)
    CONSTANT: bool = optional(12)


class InvalidateShaderCachesNoWfi(BitStruct, source=SOURCE):
    """INVALIDATE_SHADER_CACHES_NO_WFI."""

    INSTRUCTION: bool = optional(0)
    GLOBAL_DATA: bool = optional(4)
    CONSTANT: bool = optional(12)


class SetQmdVersion(BitStruct, source=SOURCE):
    """SET_QMD_VERSION; optional."""

    CURRENT: int = bits(15, 0)
    OLDEST_SUPPORTED: int = bits(31, 16)


class SetSpaVersion(BitStruct, source=SOURCE):
    """SET_SPA_VERSION; optional."""

    MINOR: int = bits(7, 0)
    MAJOR: int = bits(15, 8)


class Upper17(BitStruct, source=SOURCE):
    """The upper half of an address: 17 bits."""

    UPPER: int = bits(16, 0)


class Upper25(BitStruct, source=SOURCE):
    """The upper half of an address: 25 bits."""

    UPPER: int = bits(24, 0)


class Upper8(BitStruct, source=SOURCE):
    """The upper half of an address or size: 8 bits."""

    UPPER: int = bits(7, 0)


class NonThrottledC(BitStruct, source=SOURCE):
    """SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C."""

    MAX_SM_COUNT: int = bits(8, 0)


class ReportSemaphoreExecute(BitStruct, source=SOURCE):
    """REPORT_SEMAPHORE_EXECUTE."""

    OPERATION: ReportOperation = bits(1, 0)
    AWAKEN_ENABLE: bool = optional(2)
    STRUCTURE_SIZE: int = optional(4, 3, doc="0 four words, 1 one, 2 two")
    FLUSH_DISABLE: bool = optional(5)
    REDUCTION_ENABLE: bool = optional(6)
    REDUCTION_OP: int = optional(9, 7)
    REDUCTION_FORMAT: int = optional(11, 10)
    PAYLOAD_SIZE64: bool = optional(12)


class ReportSemaphoreD(BitStruct, source=SOURCE):
    """SET_REPORT_SEMAPHORE_D: releases after earlier compute work has completed and been flushed."""

    OPERATION: ReportOperation = bits(1, 0)
    FLUSH_DISABLE: bool = optional(2)
    REDUCTION_ENABLE: bool = optional(3)
    REDUCTION_OP: int = optional(11, 9)
    REDUCTION_FORMAT: int = optional(18, 17)
    AWAKEN_ENABLE: bool = optional(20)
    STRUCTURE_SIZE: bool = optional(28, doc="1 one word; 0 four words with the time at +8")


_M = ComputeMethod
_DATA: Final[Mapping[int, type[BitStruct]]] = {
    _M.SET_OBJECT: SetObject,
    _M.SET_REPORT_SEMAPHORE_ADDRESS_UPPER: Upper25,
    _M.REPORT_SEMAPHORE_EXECUTE: ReportSemaphoreExecute,
    _M.LAUNCH_DMA: LaunchDmaInline,
    _M.INVALIDATE_SHADER_CACHES: InvalidateShaderCaches,
    _M.INVALIDATE_SHADER_CACHES_NO_WFI: InvalidateShaderCachesNoWfi,
    _M.SET_QMD_VERSION: SetQmdVersion,
    _M.SET_SPA_VERSION: SetSpaVersion,
    _M.SET_SHADER_SHARED_MEMORY_WINDOW_A: Upper17,
    _M.SET_SHADER_LOCAL_MEMORY_WINDOW_A: Upper17,
    _M.SET_SHADER_LOCAL_MEMORY_A: Upper25,
    _M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A: Upper8,
    _M.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C: NonThrottledC,
    _M.SEND_PCAS_A: SendPcasA,
    _M.SEND_SIGNALING_PCAS2_B: SendSignalingPcas2B,
    _M.SET_REPORT_SEMAPHORE_A: Upper25,
    _M.SET_REPORT_SEMAPHORE_D: ReportSemaphoreD,
}
METHODS: Final[Mapping[int, Method]] = MappingProxyType({int(m): Method(m.name, _DATA.get(m)) for m in _M})
"""Address -> method, Hopper and Blackwell. LOAD_INLINE_QMD_DATA continues in steps of 4."""
METHODS_AMPERE: Final[Mapping[int, Method]] = MappingProxyType(
    {
        **METHODS,
        int(_M.SET_SHADER_LOCAL_MEMORY_A): Method("SET_SHADER_LOCAL_MEMORY_A", Upper17),
        int(_M.SET_REPORT_SEMAPHORE_A): Method("SET_REPORT_SEMAPHORE_A", Upper8),
        int(_M.SET_REPORT_SEMAPHORE_ADDRESS_UPPER): Method("SET_REPORT_SEMAPHORE_ADDRESS_UPPER", Upper8),
    }
)
"""Address -> method, Ampere and Ada."""

SHARED_WINDOW_ALIGN: Final = 1 << 32
"""Alignment and size of the shared window, Hopper and later; nothing may be mapped in the window."""
LOCAL_WINDOW_BYTES: Final = 1 << 24
"""Size of the local window; nothing may be mapped in the window."""
LOCAL_WARP_ALIGN: Final = 0x200
LOCAL_TPC_ALIGN: Final = 0x8000
LOCAL_TOTAL_ALIGN: Final = 0x20000
LOCAL_THREAD_ALIGN: Final = 16
LOCAL_THREADS_PER_WARP: Final = 32
LOCAL_STACK_RESERVE: Final = 0x240
"""Bytes for each thread above the initial stack pointer, for the stack at the high end of the window. Public
drivers use this up to Ada and on Blackwell."""
MAX_SM_COUNT_ALL: Final = 0xFF
"""The value of SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C that two public drivers use."""
NON_THROTTLED_C_COUNTS_HOPPER: Final = 0xFFFF_0000
"""Bits of the same word that hold two further counts on Hopper (nv.md 2.8); no driver sets them."""
QMD_VERSION_HOPPER: Final = 0x0001_0040
"""The value of SET_QMD_VERSION observed on Hopper; the method is optional."""
