"""Runs host kernels in tests: loads the ELF object into executable memory and calls every workgroup."""

from __future__ import annotations

import ctypes
import io
import mmap
import platform
import struct

from elftools.elf.elffile import ELFFile

ARCH = f"{platform.machine()}-00000000"
LIBC = ctypes.CDLL(None)


class HostKernel:
    """A loaded object; `call(args, x)` runs one workgroup."""

    def __init__(self, code: bytes, name: str = "") -> None:
        elf = ELFFile(io.BytesIO(code))
        sections = list(elf.iter_sections())
        place: dict[int, int] = {}
        end = 0
        for number, section in enumerate(sections):
            if section["sh_flags"] & 2 and section.name != ".eh_frame":
                end = -(-end // 64) * 64
                place[number] = end
                end += section["sh_size"]
        symbols = list(next(s for s in sections if s["sh_type"] == "SHT_SYMTAB").iter_symbols())
        outside = sorted({s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF" and s.name})
        self.outside = outside
        stubs = -(-end // 16) * 16
        self.memory = mmap.mmap(
            -1, stubs + 16 * len(outside) + 64, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        )
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        address = {n: base + stubs + 16 * k for k, n in enumerate(outside)}
        for k, n in enumerate(outside):
            assert n in ("memcpy", "memset", "memmove"), f"the kernel calls {n}"
            at = stubs + 16 * k
            target = ctypes.cast(getattr(LIBC, n), ctypes.c_void_p).value
            self.memory[at : at + 14] = b"\xff\x25\0\0\0\0" + struct.pack("<Q", target)
        for number, at in place.items():
            if sections[number]["sh_type"] != "SHT_NOBITS":
                self.memory[at : at + sections[number]["sh_size"]] = sections[number].data()

        def value(number: int) -> int:
            symbol = symbols[number]
            if symbol["st_shndx"] == "SHN_UNDEF":
                return address[symbol.name]
            return base + place[symbol["st_shndx"]] + symbol["st_value"]

        self.relocations: set[int] = set()
        for section in sections:
            if section["sh_type"] != "SHT_RELA" or section["sh_info"] not in place:
                continue
            for r in section.iter_relocations():
                at = place[section["sh_info"]] + r["r_offset"]
                kind = r["r_info_type"]
                self.relocations.add(kind)
                total = value(r["r_info_sym"]) + r["r_addend"]
                assert kind in (1, 2, 4), f"relocation type {kind}"
                if kind == 1:
                    struct.pack_into("<Q", self.memory, at, total)
                else:
                    struct.pack_into("<i", self.memory, at, total - (base + at))
        defined = [s for s in symbols if s["st_shndx"] != "SHN_UNDEF"]
        functions = [s for s in defined if s["st_info"]["type"] == "STT_FUNC"]
        entry = next(s for s in functions if not name or s.name == name)
        self.entry = base + place[entry["st_shndx"]] + entry["st_value"]
        self.call = ctypes.CFUNCTYPE(
            None, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64
        )(self.entry)

    def run(self, pointers: list[int], variables: list[int] = [], groups: int = 1) -> None:  # noqa: B006  # never changed
        """Run all workgroups with these argument words."""
        words = [*pointers, *[v & (2**64 - 1) for v in variables]]
        block = (ctypes.c_uint64 * max(1, len(words)))(*words)
        for x in range(groups):
            self.call(ctypes.addressof(block), x, 0, 0)
