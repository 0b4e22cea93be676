"""The emulated GPU's reader of cubins: kernels, their info records, relocations, and the embedded PTX.

It is written from the facts (docs/facts/nv.md 5), independently of the driver's loader.

Contradictory records raise `UsageError`.

Not here: finding cubins in device memory (`images`), translating PTX (`emulator.nv.ptx.module`). Next:
`images`.
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
"""The first directive of a PTX text."""
_SINCE_90: Final = 90


@dataclass(frozen=True, slots=True)
class CubinPatch:
    """One relocation of a section."""

    offset: int
    """Byte offset in the section."""
    type: int
    """A `drivers.nv.layouts.cubin.Relocation`."""
    target: int
    """Index of the symbol's section."""
    value: int
    """Symbol value plus addend: the number that is added to the address of that section."""
    name: str
    """The symbol's name."""


@dataclass(slots=True)
class KernelInfo:
    """One kernel in a cubin; sizes are in bytes. A number is 0 if the image does not declare it."""

    name: str
    text: Section
    """The section with its code."""
    code: bytes
    """The code in the file, before relocation."""
    patches: tuple[CubinPatch, ...]
    """The relocations of the code."""
    registers: int = 0
    """Registers of a thread."""
    barriers: int = 0
    """The number of barriers that it uses."""
    stack: int = 0
    """Stack of a thread in bytes."""
    param_base: int = 0
    """Offset of the parameters in constant bank 0."""
    param_bytes: int = 0
    """Size of the parameters."""
    static_shared: int = 0
    """Static shared memory of a workgroup, the reserved part included."""
    constant0: int = 0
    """Size of constant bank 0, the parameters included."""
    banks: dict[int, Section] = field(default_factory=dict)
    """Constant banks other than 0 in the image: those of this kernel, and those that all kernels share."""


@dataclass(slots=True)
class Cubin:
    """One parsed image."""

    elf: Elf
    arch: int
    """The architecture of the machine code, such as 90."""
    ptx: str
    """The embedded PTX; "" if the image has none."""
    kernels: dict[str, KernelInfo] = field(default_factory=dict)
    """Name -> kernel."""
    tables: dict[int, list[CubinPatch]] = field(default_factory=dict)
    """Section of a constant bank -> relocations of its contents."""

    @classmethod
    def parse(cls, data: bytes) -> Cubin:
        """Parse an image. Raises `UsageError` if it is no cubin or malformed (`ElfError` included)."""
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
        """Return the kernel with code section `text`, and what the image says of it."""
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
        """Return the relocations of a section.

        Raises `UsageError` for an undefined symbol or an unknown type.
        """
        out = []
        for one in self.elf.relocations():
            if one.section != section.index or one.type == 0:
                continue
            if one.symbol is None or not 0 < one.symbol.section < len(self.elf.sections):
                name = one.symbol.name if one.symbol else ""
                raise UsageError(f"{section.name} refers to {name!r}, which the image does not define")
            if one.offset + patch_bytes(one.type)[1] > section.size:
                raise UsageError(f"a relocation of {section.name} at {one.offset:#x} lies outside it")
            # ptxas 13.5 uses REL for addends of 0; uploaded, a word with such a relocation holds the address.
            addend = one.addend or 0
            out.append(
                CubinPatch(
                    one.offset, one.type, one.symbol.section, one.symbol.value + addend, one.symbol.name
                )
            )
        return out


def _is_ptx(content: bytes) -> bool:
    """Return whether a section is PTX: its first line that is no comment begins with .version."""
    for line in content[:4096].splitlines():
        if line.strip() and not line.lstrip().startswith(b"//"):
            return line.startswith(PTX_START)
    return False


def _read_info(kernel: KernelInfo, data: bytes, symbols: list[int], *, own: bool) -> None:
    """Read the info records of a kernel into `kernel`.

    `own`: the section belongs to this kernel; otherwise records name a kernel by one of its `symbols`
    (indices).
    """
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
    """Return the first and end byte, relative to its offset, that a relocation of a type may change.

    Raises `UsageError` for a type without formula.
    """
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
    """Return the value that a relocation of type `kind` at `offset` of `content` has written.

    Raises as `patch_bytes`.
    """
    match kind:
        case Relocation.R_CUDA_ABS47_34:
            return CallAbs47.from_bytes(content, offset).TARGET
        case Relocation.R_CUDA_ABS55_16_34:
            return CallAbs55.from_bytes(content, offset).TARGET
        case _:
            low, high = patch_bytes(kind)
            return int.from_bytes(content[offset + low : offset + high], "little")


def mask_of(patches: tuple[CubinPatch, ...] | list[CubinPatch], content: bytes) -> bytes:
    """Return contents with all bits that relocations write set to zero. Raises as `patch_bytes`."""
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
