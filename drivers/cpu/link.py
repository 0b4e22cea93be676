"""The linker of host code: relocations of x86-64 and aarch64, and jumps to external functions.

`HostImage` places the sections of an object or shared object, adds an address slot and a far jump for each
external function, and returns the bytes for a base address. Kernels must be pure code: writable data and
thread-local data are refused, so one readable and executable mapping holds the whole kernel.

Not here: parsing ELF (`drivers.elf`), mapping the bytes (`image`). Next: `image`. Sources: System V ABI for
x86-64 (table 4.9) and for the Arm 64-bit architecture (AAELF64, section 5.7).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from drivers.elf import (
    ALLOC,
    TLS,
    UNDEFINED,
    WRITE,
    Elf,
    ElfError,
    ElfMachine,
    ElfSite,
    Formula,
    Image,
    Relocation,
    Section,
    SectionType,
    place_sections,
    place_segments,
)
from drivers.kernel import PAGE
from hcq.errors import UnsupportedError, UsageError

ENTRY = 24
"""Bytes after the image for each external function: its address, then a jump to it."""
SLOT = 8
"""Bytes of the address in an entry; the jump follows."""
JUMPS = {
    ElfMachine.X86_64: bytes.fromhex("ff25f2ffffff") + bytes(10),  # jmp *[rip - 14]
    ElfMachine.AARCH64: bytes.fromhex("d0ffff5800021fd6") + bytes(8),  # ldr x16, [pc - 8]; br x16
}
LARGEST = 1 << 26
"""The largest kernel, in bytes; a file that needs more is rejected as invalid."""
READ_ONLY_AFTER_LINK = (".got", ".got.plt", ".data.rel.ro", ".dynamic", ".relro_padding")
"""Sections with the flag WRITE that nothing writes after relocation, so they are allowed."""


def _put(site: ElfSite, form: str, value: int) -> None:
    try:
        struct.pack_into(form, site.content, site.at, value)
    except struct.error:
        raise ElfError(f"a relocation at {site.at:#x} does not reach: {value:#x} as {form!r}") from None


def _sum(site: ElfSite) -> int:
    if site.addend is None:
        raise ElfError(f"the relocation at {site.at:#x} has no addend; this machine uses RELA sections")
    return site.symbol + site.addend


def _relative32(site: ElfSite) -> None:
    _put(site, "<i", _sum(site) - site.place)


def _relative64(site: ElfSite) -> None:
    _put(site, "<q", _sum(site) - site.place)


def _absolute32(site: ElfSite) -> None:
    _put(site, "<I", _sum(site))


def _absolute32_signed(site: ElfSite) -> None:
    _put(site, "<i", _sum(site))


def _absolute64(site: ElfSite) -> None:
    _put(site, "<Q", _sum(site) & 0xFFFF_FFFF_FFFF_FFFF)


X86_64: Mapping[int, Formula] = {
    1: _absolute64,  # R_X86_64_64
    2: _relative32,  # R_X86_64_PC32
    4: _relative32,  # R_X86_64_PLT32
    6: _absolute64,  # R_X86_64_GLOB_DAT
    7: _absolute64,  # R_X86_64_JUMP_SLOT
    8: _absolute64,  # R_X86_64_RELATIVE
    9: _relative32,  # R_X86_64_GOTPCREL
    10: _absolute32,  # R_X86_64_32
    11: _absolute32_signed,  # R_X86_64_32S
    24: _relative64,  # R_X86_64_PC64
    41: _relative32,  # R_X86_64_GOTPCRELX
    42: _relative32,  # R_X86_64_REX_GOTPCRELX
}


def _insert(site: ElfSite, value: int, lo: int, width: int) -> None:
    """Replace bits [lo, lo + width) of the instruction."""
    (word,) = struct.unpack_from("<I", site.content, site.at)
    mask = ((1 << width) - 1) << lo
    struct.pack_into("<I", site.content, site.at, word & ~mask | value << lo & mask)


def _reach(site: ElfSite, value: int, bits: int, unit: int) -> int:
    if value % unit or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ElfError(f"a relocation at {site.at:#x} does not reach: {value:#x} in {bits} bits")
    return value // unit


def _page(site: ElfSite) -> None:
    """Patch an ADRP instruction: the distance in 4 KiB pages, whose low 2 bits are a field of their own."""
    pages = _reach(site, (_sum(site) & ~0xFFF) - (site.place & ~0xFFF), 33, 4096)
    _insert(site, pages & 3, 29, 2)
    _insert(site, pages >> 2, 5, 19)


def _adr(site: ElfSite) -> None:
    distance = _reach(site, _sum(site) - site.place, 21, 1)
    _insert(site, distance & 3, 29, 2)
    _insert(site, distance >> 2, 5, 19)


def _low12(unit: int) -> Formula:
    def formula(site: ElfSite) -> None:
        low = _sum(site) & 0xFFF
        if low % unit:
            raise ElfError(f"a relocation at {site.at:#x} needs an address aligned to {unit}")
        _insert(site, low // unit, 10, 12)

    return formula


def _branch(bits: int, lo: int) -> Formula:
    def formula(site: ElfSite) -> None:
        _insert(site, _reach(site, _sum(site) - site.place, bits + 2, 4), lo, bits)

    return formula


AARCH64: Mapping[int, Formula] = {
    257: _absolute64,  # R_AARCH64_ABS64
    258: _absolute32,  # R_AARCH64_ABS32
    260: _relative64,  # R_AARCH64_PREL64
    261: _relative32,  # R_AARCH64_PREL32
    274: _adr,  # R_AARCH64_ADR_PREL_LO21
    275: _page,  # R_AARCH64_ADR_PREL_PG_HI21
    277: _low12(1),  # R_AARCH64_ADD_ABS_LO12_NC
    278: _low12(1),  # R_AARCH64_LDST8_ABS_LO12_NC
    279: _branch(14, 5),  # R_AARCH64_TSTBR14
    280: _branch(19, 5),  # R_AARCH64_CONDBR19
    282: _branch(26, 0),  # R_AARCH64_JUMP26
    283: _branch(26, 0),  # R_AARCH64_CALL26
    284: _low12(2),  # R_AARCH64_LDST16_ABS_LO12_NC
    285: _low12(4),  # R_AARCH64_LDST32_ABS_LO12_NC
    286: _low12(8),  # R_AARCH64_LDST64_ABS_LO12_NC
    299: _low12(16),  # R_AARCH64_LDST128_ABS_LO12_NC
    311: _page,  # R_AARCH64_ADR_GOT_PAGE
    312: _low12(8),  # R_AARCH64_LD64_GOT_LO12_NC
    1025: _absolute64,  # R_AARCH64_GLOB_DAT
    1026: _absolute64,  # R_AARCH64_JUMP_SLOT
    1027: _absolute64,  # R_AARCH64_RELATIVE
}

FORMULAS = {ElfMachine.X86_64: X86_64, ElfMachine.AARCH64: AARCH64}
THROUGH_SLOT = {ElfMachine.X86_64: (9, 41, 42), ElfMachine.AARCH64: (311, 312)}
"""Relocation types that take the address of a slot, which holds the symbol's address."""
TRUE_ADDRESS = {ElfMachine.X86_64: (1, 6, 7), ElfMachine.AARCH64: (257, 1025, 1026)}
"""Relocation types of 64 bits, which can hold any address: an external function needs no jump."""
MACHINES = {"x86_64": ElfMachine.X86_64, "aarch64": ElfMachine.AARCH64}


class HostImage:
    """An object or shared object for this host, ready to be placed at an address.

    `machine` is the host's architecture, as `os.uname().machine`. Raises `UnsupportedError` for another
    architecture than `MACHINES`, `UsageError` if the code is for another machine or not pure, `ElfError` if
    the file is invalid.
    """

    def __init__(self, data: bytes, machine: str) -> None:
        elf = Elf(data)
        wanted = MACHINES.get(machine)
        if wanted is None:
            raise UnsupportedError(
                f"no relocations are known for {machine}; supported machines: {', '.join(MACHINES)}"
            )
        if elf.machine != wanted:
            raise UsageError(f"the code is for ELF machine {elf.machine}, this host is {wanted.name}")
        for section in elf.sections:
            if section.flags & ALLOC and section.size and not _pure(section.flags, section.name):
                raise UsageError(f"section {section.name} is writable or thread-local; a kernel is pure code")
        self._machine = wanted
        self._elf = elf
        placement = place_segments(elf) if elf.linked else place_sections(elf, keep=_needed)
        if placement.align > PAGE or placement.size > LARGEST:
            raise ElfError(f"the code needs {placement.size:#x} bytes aligned to {placement.align:#x}")
        self._entries: dict[str, int] = {}
        end = (placement.size + 15) & ~15
        for relocation in elf.relocations():
            if relocation.section and relocation.section not in placement.offsets:
                continue
            symbol = relocation.symbol
            slot = relocation.type in THROUGH_SLOT[wanted]
            if symbol and symbol.name not in self._entries and (slot or symbol.section == UNDEFINED):
                self._entries[symbol.name] = end + ENTRY * len(self._entries)
        self._image = Image(elf, placement._replace(size=end + ENTRY * len(self._entries)))
        self.size = len(self._image.content)
        self._functions: dict[str, int] | None = None

    @property
    def undefined(self) -> tuple[str, ...]:
        """The names of the external functions, sorted."""
        names = {s.name for s in self._elf.symbols if s.section == UNDEFINED and s.name}
        return tuple(sorted(names & self._entries.keys()))

    def functions(self) -> dict[str, int]:
        """Return the offset of each function in the image."""
        if self._functions is None:
            self._functions = {
                s.name: self._image.offset_of(s)
                for s in self._elf.symbols
                if s.kind == 2 and s.section != UNDEFINED
            }
        return self._functions

    def at(self, base: int, resolve: Callable[[str], int]) -> bytes:
        """Return the bytes for address `base`; `resolve` returns the address of an external function.

        Raises what `resolve` raises, `UnsupportedError` for a relocation type without a formula, `ElfError`
        for a relocation that cannot reach its symbol.
        """
        content = self._image.content
        elf, machine = self._elf, self._machine
        addresses: dict[str, int] = {}
        for name, offset in self._entries.items():
            symbol = elf.symbol(name)
            addresses[name] = base + self._image.offset_of(symbol) if symbol else resolve(name)
            struct.pack_into("<Q", content, offset, addresses[name])
            content[offset + SLOT : offset + ENTRY] = JUMPS[machine]

        def address(relocation: Relocation) -> int:
            symbol = relocation.symbol
            if symbol is None:  # RELATIVE: B + A, where A is relative to the file's own base
                return base - self._image.placement.first_va
            if relocation.type in THROUGH_SLOT[machine]:
                return base + self._entries[symbol.name]
            if symbol.section != UNDEFINED:
                return base + self._image.offset_of(symbol)
            if relocation.type in TRUE_ADDRESS[machine]:
                return addresses[symbol.name]
            return base + self._entries[symbol.name] + SLOT

        self._image.relocate(base, FORMULAS[machine], address)
        return bytes(content)


def _pure(flags: int, name: str) -> bool:
    return not flags & (WRITE | TLS) or (name in READ_ONLY_AFTER_LINK and not flags & TLS)


def _needed(section: Section) -> bool:
    """Return whether a section is loaded: not unwind tables, because nothing unwinds, and not notes."""
    return section.name != ".eh_frame" and section.type != SectionType.NOTE
