"""The emulated GPU's reader of cubins.

It reads kernels, their info records, relocations, and the embedded PTX (nv.md 5).

It is written from the facts, independently of the driver's loader. Not here: finding cubins in device memory
(`images`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from drivers.elf import Elf, Section
from drivers.nv.layouts.cubin import (
    ABIVERSION,
    EM_CUDA,
    OSABI_12,
    RELOCATION_WORD_OFFSET,
    RESERVED_SHARED,
    SM_SHIFT,
    TEXT_BARRIERS_SHIFT,
    TEXT_REGISTERS_SHIFT,
    CallAbs47,
    CallAbs55,
    InfoAttribute,
    InfoFormat,
    InfoParamCbank,
    InfoRecord,
    InfoSymbolValue,
    Relocation,
)
from drivers.nv.layouts.cubin import Section as Name
from hcq.errors import UsageError

PTX_START: Final = b".version"
_SINCE_90: Final = 90


@dataclass(frozen=True, slots=True)
class CubinPatch:
    """A relocated place of a section."""

    offset: int
    type: int
    target: int
    """Index of the symbol's section."""
    value: int
    """The summand to that section's address."""
    name: str


@dataclass(slots=True)
class KernelInfo:
    """The facts of one kernel in a cubin; sizes are in bytes."""

    name: str
    text: Section
    code: bytes
    patches: tuple[CubinPatch, ...]
    registers: int = 0
    barriers: int = 0
    stack: int = 0
    param_base: int = 0
    param_bytes: int = 0
    static_shared: int = 0
    """Shared memory of a workgroup, the reserved part included."""
    constant0: int = 0
    """Size of bank 0 with the parameters."""
    banks: dict[int, Section] = field(default_factory=dict)
    """Constant banks other than 0 in the image: the kernel's own, and those of all kernels."""


@dataclass(slots=True)
class Cubin:
    """One parsed image."""

    elf: Elf
    arch: int
    ptx: str
    kernels: dict[str, KernelInfo] = field(default_factory=dict)
    tables: dict[int, list[CubinPatch]] = field(default_factory=dict)
    """Section of a constant bank -> relocations of its contents."""

    @classmethod
    def parse(cls, data: bytes) -> Cubin:
        """Parse an image. Raises `UsageError` if it is malformed. `ptx` is empty if the image has none."""
        elf = Elf(data)
        if elf.machine != EM_CUDA or ABIVERSION.get(elf.abi) != elf.abi_version:
            raise UsageError(
                f"no cubin: machine {elf.machine}, ABI {elf.abi:#x} version {elf.abi_version}; wanted "
                f"{EM_CUDA}, one of {', '.join(f'{abi:#x} version {v}' for abi, v in ABIVERSION.items())}"
            )
        arch = elf.flags >> SM_SHIFT[elf.abi] & 0xFF
        texts = [elf.content(s) for s in elf.sections if s.size]
        ptx = next((t.rstrip(b"\0").decode(errors="replace") for t in texts if _is_ptx(t)), "")
        cubin = cls(elf, arch, ptx)
        for section in elf.sections:
            if section.name.startswith(Name.TEXT) and section.size:
                kernel = cubin._kernel(section)
                cubin.kernels[kernel.name] = kernel
        for kernel in cubin.kernels.values():
            for section in kernel.banks.values():
                cubin.tables.setdefault(section.index, cubin._patches(section))
        return cubin

    def _kernel(self, text: Section) -> KernelInfo:
        elf, name = self.elf, text.name[len(Name.TEXT) :]
        kernel = KernelInfo(name, text, elf.content(text), tuple(self._patches(text)))
        if elf.abi == OSABI_12:
            kernel.barriers = text.flags >> TEXT_BARRIERS_SHIFT
            kernel.registers = text.info >> TEXT_REGISTERS_SHIFT
        indices = [i for i, s in enumerate(elf.symbols) if s.name == name and s.section == text.index]
        for info in (f"{Name.INFO}.{name}", str(Name.INFO)):
            section = elf.section(info)
            if section is not None:
                _read_info(kernel, elf.content(section), indices, own=info != Name.INFO)
        shared = elf.section(Name.SHARED + name)
        kernel.static_shared = shared.size if shared else 0
        if self.arch < _SINCE_90 and kernel.static_shared:
            kernel.static_shared += RESERVED_SHARED
        constant = elf.section(Name.CONSTANT0 + name)
        kernel.constant0 = constant.size if constant else 0
        kernel.banks = self._banks(name)
        return kernel

    def _banks(self, kernel: str) -> dict[int, Section]:
        banks = {}
        for section in self.elf.sections:
            number, _, owner = section.name.removeprefix(Name.CONSTANT).partition(".")
            if section.name.startswith(Name.CONSTANT) and number.isdecimal() and owner in ("", kernel):
                banks[int(number)] = section
        banks.pop(0, None)
        return banks

    def _patches(self, section: Section) -> list[CubinPatch]:
        """Return the relocations of a section."""
        out = []
        for one in self.elf.relocations():
            if one.section != section.index or one.type == 0:
                continue
            if one.symbol is None or not 0 < one.symbol.section < len(self.elf.sections):
                name = one.symbol.name if one.symbol else ""
                raise UsageError(f"{section.name} refers to {name!r}, which the image does not define")
            if one.offset + patch_bytes(one.type)[1] > section.size:
                raise UsageError(f"a relocation of {section.name} at {one.offset:#x} lies outside it")
            # REL is for addends of 0 (ptxas 13.5); uploaded, such a place holds the address.
            addend = one.addend or 0
            out.append(
                CubinPatch(
                    one.offset, one.type, one.symbol.section, one.symbol.value + addend, one.symbol.name
                )
            )
        return out


def _is_ptx(content: bytes) -> bool:
    """Return whether a section is PTX: after comments it begins with .version."""
    for line in content[:4096].splitlines():
        if line.strip() and not line.lstrip().startswith(b"//"):
            return line.startswith(PTX_START)
    return False


def _read_info(kernel: KernelInfo, data: bytes, symbols: list[int], *, own: bool) -> None:
    """Read the records of this kernel."""
    at = 0
    while at < len(data):
        head = InfoRecord.from_bytes(data, at)
        at += InfoRecord.SIZE
        payload = b""
        if head.format == InfoFormat.SVAL:
            payload = data[at : at + head.value]
            at += head.value
            if at > len(data):
                raise UsageError(f"the last info record in the image of {kernel.name} is cut off")
        elif head.format not in tuple(InfoFormat):
            raise UsageError(f"info record of format {head.format} in the image of {kernel.name}")
        if own:
            if head.attribute == InfoAttribute.PARAM_CBANK:
                bank = InfoParamCbank.from_bytes(payload)
                kernel.param_base, kernel.param_bytes = bank.offset, bank.size
            elif head.attribute == InfoAttribute.NUM_BARRIERS:
                kernel.barriers = head.value & 0xFF if head.format == InfoFormat.BVAL else head.value
        elif len(payload) == InfoSymbolValue.SIZE:
            pair = InfoSymbolValue.from_bytes(payload)
            if pair.symbol in symbols and head.attribute == InfoAttribute.REGCOUNT:
                kernel.registers = pair.value
            elif pair.symbol in symbols and head.attribute == InfoAttribute.MIN_STACK_SIZE:
                kernel.stack = pair.value


def patch_bytes(kind: int) -> tuple[int, int]:
    """Return the range of bytes, relative to its offset, that a relocation may change."""
    match kind:
        case Relocation.R_CUDA_64:
            return 0, 8
        case Relocation.R_CUDA_ABS32_LO | Relocation.R_CUDA_ABS32_HI:
            return RELOCATION_WORD_OFFSET, RELOCATION_WORD_OFFSET + 4
        case Relocation.R_CUDA_ABS47_34 | Relocation.R_CUDA_ABS55_16_34:
            return 0, CallAbs47.SIZE
        case _:
            raise UsageError(f"relocation type {kind} has no formula")


def read_patch(content: bytes, offset: int, kind: int) -> int:
    """Return the value at a relocated place."""
    match kind:
        case Relocation.R_CUDA_ABS47_34:
            return CallAbs47.from_bytes(content, offset).TARGET
        case Relocation.R_CUDA_ABS55_16_34:
            return CallAbs55.from_bytes(content, offset).TARGET
        case _:
            low, high = patch_bytes(kind)
            return int.from_bytes(content[offset + low : offset + high], "little")


def mask_of(patches: tuple[CubinPatch, ...] | list[CubinPatch], content: bytes) -> bytes:
    """Return contents with all bits that relocations write set to zero."""
    out = bytearray(content)
    for patch in patches:
        if patch.type in (Relocation.R_CUDA_ABS47_34, Relocation.R_CUDA_ABS55_16_34):
            layout = CallAbs47 if patch.type == Relocation.R_CUDA_ABS47_34 else CallAbs55
            raw = int(layout.from_bytes(out, patch.offset)) & ~layout.FIELDS["TARGET"].mask()
            out[patch.offset : patch.offset + layout.SIZE] = raw.to_bytes(layout.SIZE, "little")
            continue
        low, high = patch_bytes(patch.type)
        out[patch.offset + low : patch.offset + high] = bytes(high - low)
    return bytes(out)
