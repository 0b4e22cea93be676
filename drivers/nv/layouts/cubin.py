"""The cubin container: ELF numbers, info records, relocations, and the driver's fields of constant bank 0.

Not here: reading and relocating a cubin. Next: `drivers.nv.cubin`, which does it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hcq.layout import BitStruct, Struct, bits, split, u8, u16, u32, u64

SOURCE = "measured with ptxas 12.9, 13.5 and nvdisasm (nv.md 5)"

EM_CUDA: Final = 190
OSABI_13: Final = 0x41
"""OSABI of e_ident since toolkit 13. The SM number is in e_flags >> 8, in older files in the low byte."""
OSABI_12: Final = 0x33
ABIVERSION: Final[Mapping[int, int]] = MappingProxyType({OSABI_12: 7, OSABI_13: 8})
"""OSABI -> ABI version of e_ident."""
SM_SHIFT: Final[Mapping[int, int]] = MappingProxyType({OSABI_12: 0, OSABI_13: 8})
"""OSABI -> lowest bit of the SM number in e_flags."""
TEXT_ALIGN: Final = 128
INSTRUCTION_BYTES: Final = 16
"""Bytes of a machine instruction, sm_75 and later."""
PREFETCH_PAD: Final = 4096
"""Bytes that must be mapped after the last code byte, because instruction prefetch runs past the end."""
PTX_SECTION: Final = ".hcq.ptx"
"""The section of hcq's images with the PTX from which they were assembled."""
TEXT_BARRIERS_SHIFT: Final = 20
"""Lowest bit of the number of barriers in sh_flags of .text.*, toolkit 12."""
TEXT_REGISTERS_SHIFT: Final = 24
"""Lowest bit of the number of registers in sh_info of .text.*, older toolkits."""


class Section(enum.StrEnum):
    """Section names; most are followed by the kernel's name."""

    TEXT = ".text."
    INFO = ".nv.info"
    CONSTANT = ".nv.constant"
    """The bank's number follows. The kernel's name follows for banks of one kernel: 0, and 2, in which the
    assembler keeps jump tables and constants."""
    CONSTANT0 = ".nv.constant0."
    CONSTANT3 = ".nv.constant3"
    CONSTANT4 = ".nv.constant4"
    SHARED = ".nv.shared."
    GLOBAL = ".nv.global"
    GLOBAL_INIT = ".nv.global.init"
    LINES = ".nv_debug_line_sass"
    """The PTX line of each instruction; present if the file was assembled with -lineinfo."""


class InfoFormat(enum.IntEnum):
    """The format of an info record's value: none, 8 bits, 16 bits, or a size with as many bytes after it."""

    NVAL = 1
    BVAL = 2
    HVAL = 3
    SVAL = 4


class InfoAttribute(enum.IntEnum):
    """The attributes of info records (EIATTR) that this project names; others remain numbers."""

    MAX_THREADS = 0x05
    PARAM_CBANK = 0x0A
    EXTERNS = 0x0F
    REQNTID = 0x10
    FRAME_SIZE = 0x11
    MIN_STACK_SIZE = 0x12
    KPARAM_INFO = 0x17
    CBANK_PARAM_SIZE = 0x19
    MAXREG_COUNT = 0x1B
    EXIT_INSTR_OFFSETS = 0x1C
    CRS_STACK_SIZE = 0x1E
    REGCOUNT = 0x2F
    CTA_PER_CLUSTER = 0x3D
    EXPLICIT_CLUSTER = 0x3E
    MAX_CLUSTER_RANK = 0x3F
    SW_WAR = 0x36
    CUDA_API_VERSION = 0x37
    NUM_BARRIERS = 0x4C


class InfoRecord(Struct, size=4, source=SOURCE):
    """The header of an info record; for SVAL, `value` bytes follow."""

    format: InfoFormat = u8(0x0)
    attribute: int = u8(0x1)
    value: int = u16(0x2)


class InfoParamCbank(Struct, size=8, source=SOURCE):
    """PARAM_CBANK: offset and size of the parameters in constant bank 0."""

    symbol: int = u32(0x0)
    offset: int = u16(0x4)
    size: int = u16(0x6)


class InfoSymbolValue(Struct, size=8, source=SOURCE):
    """REGCOUNT, FRAME_SIZE and MIN_STACK_SIZE: a number for a symbol."""

    symbol: int = u32(0x0)
    value: int = u32(0x4)


class InfoThreads(Struct, size=12, source=SOURCE):
    """MAX_THREADS and REQNTID: threads of a workgroup; CTA_PER_CLUSTER: workgroups of a cluster."""

    x: int = u32(0x0)
    y: int = u32(0x4)
    z: int = u32(0x8)

    @property
    def xyz(self) -> tuple[int, int, int]:
        """The three numbers."""
        return self.x, self.y, self.z


class InfoKparam(BitStruct, words=3, source=SOURCE):
    """KPARAM_INFO: one parameter."""

    index: int = bits(31, 0)
    ordinal: int = bits(15, 0, word=1)
    offset: int = bits(31, 16, word=1)
    unknown: int = bits(17, 0, word=2, default=0)
    size: int = bits(31, 18, word=2)


class Relocation(enum.IntEnum):
    """Relocation types; 56 and 57 patch the 32-bit word at `RELOCATION_WORD_OFFSET` of the instruction."""

    R_CUDA_64 = 2
    R_CUDA_ABS32_LO = 56
    R_CUDA_ABS32_HI = 57
    R_CUDA_ABS47_34 = 58
    R_CUDA_ABS55_16_34 = 75


RELOCATION_WORD_OFFSET: Final = 4
"""Bytes."""


class CallAbs47(BitStruct, words=4, source="measured with nvJitLink 13.5 and nvdisasm 13.5 on sm_80"):
    """The target of an absolute call up to sm_89: what R_CUDA_ABS47_34 patches in a 16-byte instruction."""

    TARGET: int = bits(80, 34, shift=2)


class CallAbs55(BitStruct, words=4, source="measured with nvJitLink and nvdisasm 13.5 on sm_90a, sm_100a"):
    """The target of an absolute call since sm_90: what R_CUDA_ABS55_16_34 patches in an instruction."""

    TARGET: int = split((23, 16), (80, 34), shift=2)


class Bank0Sm80(Struct, size=0x160, source=SOURCE):
    """Driver words of constant bank 0, sm_75 to sm_89; the parameters follow."""

    ntid: tuple[int, ...] = u32(0x00, count=3)
    nctaid: tuple[int, ...] = u32(0x0C, count=3)
    shared_window: int = u64(0x18)
    local_window: int = u64(0x20)
    stack_pointer: int = u32(0x28)
    dynamic_shared_size: int = u32(0x2C)
    grid_id: int = u64(0x30)
    constant_bank_3: int = u64(0x50)
    nsmid: int = u32(0x10C)
    reserved_shared_size: int = u32(0x114)
    global_descriptor: int = u64(0x118)


class Bank0Sm90(Bank0Sm80, size=0x210, source=SOURCE):
    """Driver words of constant bank 0, sm_90; the parameters follow."""

    shared_window: int = u64(0x18, doc="not read: the hardware supplies it")
    constant_bank_3: int = u64(0xD0)
    cluster_nctaid: tuple[int, ...] = u32(0x144, count=3)
    nclusterid: tuple[int, ...] = u32(0x15C, count=3)
    cluster_nctarank: int = u32(0x188)
    global_descriptor: int = u64(0x208)


class Bank0Sm100(Struct, size=0x380, source=SOURCE):
    """Driver words of constant bank 0, sm_100 and sm_120; the parameters follow."""

    constant_bank_3: int = u64(0x120)
    grid_id: int = u64(0x140)
    reserved_shared_size: int = u32(0x16C)
    cga1_cluster_nctaid: tuple[int, ...] = u32(0x200, count=3, doc="code reads these if SR_CgaSize is 1")
    cga1_dynamic_shared_size: int = u32(0x20C)
    cga1_nclusterid: tuple[int, ...] = u32(0x220, count=3)
    cga1_cluster_nctarank: int = u32(0x22C)
    cluster_nctaid: tuple[int, ...] = u32(0x2A0, count=3)
    dynamic_shared_size: int = u32(0x2AC)
    nclusterid: tuple[int, ...] = u32(0x2C0, count=3)
    cluster_nctarank: int = u32(0x2CC)
    nsmid: int = u32(0x2D0)
    shared_window: int = u64(0x2F0)
    local_window: int = u64(0x2F8)
    global_descriptor: int = u64(0x358)
    ntid: tuple[int, ...] = u32(0x360, count=3)
    nctaid: tuple[int, ...] = u32(0x370, count=3)
    stack_pointer: int = u32(0x37C)


UNBOUNDED_STACK: Final = 0xFFFF_FFFF
"""MIN_STACK_SIZE of a kernel whose calls are recursive or indirect."""
FIRST_SM_WITH_RESERVE: Final = 90
"""Since this SM number the shared section of a kernel includes the system's reserve."""
RESERVED_SHARED: Final = 0x400
"""Bytes of shared memory that the system reserves in each workgroup. Since sm_90 .nv.shared includes them;
before, the launch adds them."""
STACK_POINTER_TOP: Final = 0xFFFDC0
"""The initial stack pointer for the stack at the high end of the local window: the window's size minus
`compute.LOCAL_STACK_RESERVE`. Public drivers use it up to Ada and on Blackwell."""
SHARED_GRANULE: Final = 0x100
"""Bytes: the unit to which a descriptor's shared memory is rounded up."""
