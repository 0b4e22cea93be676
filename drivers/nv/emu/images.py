"""Finding out what code a grid runs: the image that was uploaded, its PTX, and whether every uploaded byte is right. Source: nv.md 5.

The GPU knows only an address. The image that it belongs to is looked for in the memory around it (images
are uploaded whole), or among those the emulated machine was told of. Code bytes must equal the image's; the
words that relocations patch must give, by the relocation's formula, the address of what they name, which
must be uploaded there.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import contextlib
import hashlib
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drivers.emu.engine import Settings
from drivers.nv.emu.ptx import Kernel, Module, initial_bytes, load_ptx
from drivers.nv.emu.stops import ChannelError, DeviceMemory
from drivers.nv.layouts.cubin import (
    EM_CUDA,
    OSABI_12,
    PTX_SECTION,
    RELOCATION_WORD_OFFSET,
    TEXT_BARRIERS_SHIFT,
    CallAbs47,
    CallAbs55,
    InfoAttribute,
    InfoFormat,
    InfoParamCbank,
    InfoRecord,
    InfoSymbolValue,
    Relocation,
)
from drivers.nv.layouts.fault import RcCode
from hcq.config import config

if TYPE_CHECKING:
    from drivers.nv.emu.profile import Profile

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_REL, _RELA, _NOBITS, _ALLOC = 9, 4, 8, 2


@dataclass(frozen=True, slots=True)
class Section:
    """One section of an image."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    entry: int


class Cubin:
    """An ELF image for NVIDIA GPUs, as far as launches need it."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        head = _HEADER.unpack_from(raw)
        if raw[:4] != b"\x7fELF" or head[2] != EM_CUDA:
            raise ValueError("no cubin")
        table, size, count, names = head[6], head[11], head[12], head[13]
        entries = [_SECTION.unpack_from(raw, table + i * size) for i in range(count)]
        strings = entries[names][4]
        self.osabi = raw[7]
        self.sections = [
            Section(self._text(strings + e[0]), e[1], e[2], e[3], e[4], e[5], e[6], e[7], e[9]) for e in entries
        ]  # fmt: skip
        self.by_name = {s.name: s for s in self.sections}
        self.symbols = self._symbols()

    @property
    def ptx(self) -> bytes:
        """The PTX it carries, empty when there is none."""
        section = self.by_name.get(PTX_SECTION)
        return self.data(section) if section else b""

    def _text(self, at: int) -> str:
        return self.raw[at : self.raw.index(b"\0", at)].decode(errors="replace")

    def data(self, section: Section) -> bytes:
        """Return a section's bytes."""
        return b"" if section.type == _NOBITS else self.raw[section.offset : section.offset + section.size]

    def _symbols(self) -> list[tuple[str, int, int, int]]:
        table = next((s for s in self.sections if s.type == 2), None)
        if table is None:
            return []
        names = self.sections[table.link].offset
        found = []
        for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
            name, _, _, section, value, size = _SYMBOL.unpack_from(self.raw, at)
            found.append((self._text(names + name), section, value, size))
        return found

    def relocations(self, target: str) -> list[tuple[int, int, int, int]]:
        """Return (offset, type, symbol, addend) of the relocations of a section."""
        found = []
        for section in self.sections:
            if section.type not in (_REL, _RELA) or self.sections[section.info].name != target:
                continue
            step = 24 if section.type == _RELA else 16
            for at in range(section.offset, section.offset + section.size, step):
                offset, info = struct.unpack_from("<QQ", self.raw, at)
                addend = struct.unpack_from("<q", self.raw, at + 16)[0] if section.type == _RELA else 0
                found.append((offset, info & 0xFFFF_FFFF, info >> 32, addend))
        return found

    def info(self, name: str) -> dict[int, list[bytes]]:
        """Return the .nv.info records of a section: attribute -> payloads (a value in the record itself as 2 bytes)."""
        section = self.by_name.get(name)
        found: dict[int, list[bytes]] = {}
        if section is None:
            return found
        raw, at = self.data(section), 0
        while at + InfoRecord.SIZE <= len(raw):
            record = InfoRecord.from_bytes(raw, at)
            at += InfoRecord.SIZE
            payload = struct.pack("<H", record.value)
            if record.format == InfoFormat.SVAL:
                payload = raw[at : at + record.value]
                at += record.value
            found.setdefault(record.attribute, []).append(payload)
        return found


@dataclass(slots=True)
class Loaded:
    """A kernel whose code was found and verified."""

    name: str
    cubin: Cubin
    kernel: Kernel
    module: Module
    registers: int
    barriers: int
    stack: int
    param_offset: int
    param_size: int
    shared: int
    max_threads: int
    symbols: dict[str, int] = field(default_factory=dict)


class Images:
    """The images of one emulated machine."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._told: dict[bytes, Cubin] = {}
        self._modules: dict[bytes, tuple[Cubin, Module]] = {}
        self._known: dict[tuple[int, bytes], tuple[Cubin, str]] = {}

    def tell(self, raw: bytes) -> None:
        """Make an image known that may be uploaded in pieces."""
        self._told[hashlib.sha256(raw).digest()] = Cubin(raw)

    def find(self, memory: DeviceMemory, va: int, banks: dict[int, tuple[int, int]]) -> Loaded:
        """Return the kernel at a program address; anything but verified code is an error of the channel."""
        mapping = memory.space.find(va)
        if mapping is None:
            raise ChannelError(
                RcCode.MMU_FAULT,
                f"the program at {va:#x} is not mapped; nearest: {memory.space.nearest(va)}",
                address=va,
            )
        # What is resident can only be compared with itself: where the image is known from elsewhere, that copy judges.
        known = {c.ptx for c in self._told.values()}
        resident = [c for c in self._around(memory, mapping.va, mapping.size) if c.ptx not in known]
        for cubin in (*self._told.values(), *resident):
            for section in cubin.sections:
                if section.name.startswith(".text.") and self._matches(memory, cubin, section, va):
                    return self._load(memory, cubin, section.name.removeprefix(".text."), va, banks)
        raise ChannelError(
            RcCode.GR_EXCEPTION, f"the bytes at {va:#x} are the code of no image that was uploaded"
        )

    def _around(self, memory: DeviceMemory, start: int, size: int) -> list[Cubin]:
        """Return the images in an allocation, found by their ELF headers."""
        raw = memory.fetch(start, size)
        found: list[Cubin] = []
        at = raw.find(b"\x7fELF")
        while at >= 0:
            with contextlib.suppress(
                ValueError, struct.error, IndexError
            ):  # four bytes that only look like an image
                found.append(Cubin(raw[at:]))
            at = raw.find(b"\x7fELF", at + 4)
        return found

    def _matches(self, memory: DeviceMemory, cubin: Cubin, section: Section, va: int) -> bool:
        """Whether a section's code lies at an address, the words that relocations patch aside."""
        wanted = bytearray(cubin.data(section))
        if memory.space.find(va, len(wanted)) is None:
            return False
        there = bytearray(memory.fetch(va, len(wanted)))
        for offset, type_, _, _ in cubin.relocations(section.name):
            span = 16 if type_ in (Relocation.R_CUDA_ABS47_34, Relocation.R_CUDA_ABS55_16_34) else 8
            wanted[offset : offset + span] = there[offset : offset + span] = bytes(span)
        return wanted == there

    def _load(
        self, memory: DeviceMemory, cubin: Cubin, name: str, va: int, banks: dict[int, tuple[int, int]]
    ) -> Loaded:
        section = cubin.by_name.get(PTX_SECTION)
        if section is None:
            raise ChannelError(
                RcCode.GR_EXCEPTION,
                f"the image of {name} carries no {PTX_SECTION}: the emulated GPU runs PTX only",
            )
        text = cubin.data(section)
        digest = hashlib.sha256(text).digest()
        if digest not in self._modules:
            settings_module = load_ptx(
                text.rstrip(b"\0").decode(), arch=self._profile.code_arch, settings=_settings()
            )
            self._modules[digest] = (cubin, settings_module)
        module = self._modules[digest][1]
        if name not in module.names():
            raise ChannelError(RcCode.GR_EXCEPTION, f"the PTX of the image has no kernel {name}")
        symbols = self._verify_relocations(memory, cubin, f".text.{name}", va)
        symbols |= self._bank_symbols(memory, cubin, banks)
        kernel = module.kernel(name, symbols)
        return self._describe(cubin, name, kernel, module, symbols)

    def _describe(
        self, cubin: Cubin, name: str, kernel: Kernel, module: Module, symbols: dict[str, int]
    ) -> Loaded:
        own, everything = cubin.info(f".nv.info.{name}"), cubin.info(".nv.info")
        index = next(i for i, (n, s, _, _) in enumerate(cubin.symbols) if n == name and s)

        def of_symbol(attribute: InfoAttribute) -> int:
            for payload in everything.get(attribute, []):
                record = InfoSymbolValue.from_bytes(payload)
                if record.symbol == index:
                    return record.value
            return 0

        text = cubin.by_name[f".text.{name}"]
        barriers = text.flags >> TEXT_BARRIERS_SHIFT if cubin.osabi == OSABI_12 else 0
        for payload in own.get(InfoAttribute.NUM_BARRIERS, []):
            barriers = payload[0]
        bank = next(
            (InfoParamCbank.from_bytes(p) for p in own.get(InfoAttribute.PARAM_CBANK, [])), InfoParamCbank()
        )
        shared = cubin.by_name.get(f".nv.shared.{name}")
        limits = own.get(InfoAttribute.MAX_THREADS, [])
        most = 1024
        if limits and len(limits[0]) >= 12:
            x, y, z = struct.unpack_from("<III", limits[0])
            most = x * y * z
        return Loaded(
            name,
            cubin,
            kernel,
            module,
            of_symbol(InfoAttribute.REGCOUNT),
            barriers,
            of_symbol(InfoAttribute.MIN_STACK_SIZE),
            bank.offset,
            bank.size,
            shared.size if shared else 0,
            most,
            symbols,
        )

    # ---- relocations

    def _verify_relocations(
        self, memory: DeviceMemory, cubin: Cubin, target: str, base: int
    ) -> dict[str, int]:
        """Decode what each patched word says and check that what it names lies there; returns addresses of data symbols."""
        found: dict[str, int] = {}
        halves: dict[int, dict[int, int]] = {}
        for offset, type_, symbol, addend in cubin.relocations(target):
            at = base + offset
            if type_ == Relocation.R_CUDA_64:
                self._seen(memory, cubin, symbol, memory.read(at, 8) - addend, found)
            elif type_ in (Relocation.R_CUDA_ABS32_LO, Relocation.R_CUDA_ABS32_HI):
                word = memory.read(at + RELOCATION_WORD_OFFSET, 4)
                pair = halves.setdefault(symbol, {})
                pair[type_] = word
                if len(pair) == 2:
                    value = pair[Relocation.R_CUDA_ABS32_LO] | pair[Relocation.R_CUDA_ABS32_HI] << 32
                    self._seen(memory, cubin, symbol, value - addend, found)
            elif type_ in (Relocation.R_CUDA_ABS47_34, Relocation.R_CUDA_ABS55_16_34):
                layout = CallAbs47 if type_ == Relocation.R_CUDA_ABS47_34 else CallAbs55
                self._seen(
                    memory, cubin, symbol, layout.from_bytes(memory.fetch(at, 16)).TARGET - addend, found
                )
            else:
                raise ChannelError(RcCode.GR_EXCEPTION, f"relocation type {type_} in {target} is unknown")
        return found

    def _seen(
        self, memory: DeviceMemory, cubin: Cubin, symbol: int, address: int, found: dict[str, int]
    ) -> None:
        name, number, value, _ = cubin.symbols[symbol]
        section = cubin.sections[number]
        start = address - value
        if section.name.startswith(".text."):
            if not self._matches(memory, cubin, section, start):
                raise ChannelError(
                    RcCode.GR_EXCEPTION,
                    f"a relocation says that {name} lies at {address:#x}; its code is not there",
                )
            return
        if memory.space.find(address) is None:
            raise ChannelError(
                RcCode.MMU_FAULT,
                f"a relocation says that {name} lies at {address:#x}, which is not mapped",
                address=address,
            )
        known = found.setdefault(name, address)
        if known != address:
            raise ChannelError(
                RcCode.GR_EXCEPTION, f"relocations say that {name} lies at {known:#x} and at {address:#x}"
            )

    def _bank_symbols(
        self, memory: DeviceMemory, cubin: Cubin, banks: dict[int, tuple[int, int]]
    ) -> dict[str, int]:
        """Return the addresses of constants (bank 3) and of the globals that bank 4 lists, checking that they are there."""
        found: dict[str, int] = {}
        for number, section_name in ((3, ".nv.constant3"), (4, ".nv.constant4")):
            section = cubin.by_name.get(section_name)
            if section is None:
                continue
            if number not in banks or banks[number][1] < section.size:
                raise ChannelError(
                    RcCode.GR_EXCEPTION,
                    f"the image has {section_name} of {section.size} bytes, bank {number} is not bound so",
                )
            if number == 4:
                found |= self._verify_relocations(memory, cubin, section_name, banks[4][0])
                continue
            if memory.fetch(banks[3][0], section.size) != cubin.data(section):
                raise ChannelError(RcCode.GR_EXCEPTION, "bank 3 does not hold the image's constants")
            where = cubin.sections.index(section)
            found |= {name: banks[3][0] + value for name, s, value, _ in cubin.symbols if s == where and name}
        return found


def _settings() -> Settings:
    return Settings(cache=config().cache)


__all__ = ["Cubin", "Images", "Loaded", "initial_bytes"]
