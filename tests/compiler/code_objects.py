"""Reads and checks code objects of AMD kernels, with the ELF reader of the loader and `tests.facts`."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from drivers.amd.metadata import unpack
from drivers.elf import UNDEFINED, Elf, ElfKind, ElfMachine, SectionType
from tests.facts import amd_code as facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compiler.image import CompiledKernel


def bits(word: int, place: tuple[int, int]) -> int:
    """Return the bits [low, high] of a word."""
    return word >> place[0] & ((1 << place[1] - place[0] + 1) - 1)


def generation(arch: str) -> str:
    """Return the key of the tables of facts: gfx9 processors have separate rows."""
    return arch if arch.startswith("gfx9") else arch[:5]


class CodeObject(NamedTuple):
    """The object of one kernel."""

    elf: Elf
    name: str
    descriptor: Mapping[str, int]
    metadata: Mapping[str, Any]
    """The entry of the kernel in the note."""
    target: str
    version: tuple[int, int]


def read(code: bytes, name: str) -> CodeObject:
    """Read the object of one kernel."""
    elf = Elf(code)
    symbol = elf.symbol(f"{name}.kd")
    assert symbol is not None
    assert symbol.size == facts.DESCRIPTOR_BYTES
    place = elf.content(elf.sections[symbol.section])[symbol.value :]
    descriptor = {
        field: int.from_bytes(place[at : at + size], "little") for at, size, field in facts.DESCRIPTOR
    }
    (note,) = [s for s in elf.sections if s.type == SectionType.NOTE]
    content = elf.content(note)
    name_bytes, size, kind = struct.unpack_from("<III", content)
    assert content[12 : 12 + name_bytes] == facts.NOTE_NAME.encode() + b"\0"
    assert kind == facts.NOTE_TYPE
    start = 12 + (name_bytes + 3 & -4)
    said: Any = unpack(content[start : start + size])
    (kernel,) = said["amdhsa.kernels"]
    return CodeObject(elf, name, descriptor, kernel, said["amdhsa.target"], tuple(said["amdhsa.version"]))


def check(kernel: CompiledKernel, *, wave: int, version: str = "V5", table: bool = False) -> CodeObject:
    """Assert that the object agrees with the image and the launch, and refers to nothing outside."""
    image = kernel.image
    made = read(image.code, image.name)
    _header(made, image.arch, version)
    _symbols(made, table=table)
    _descriptor(made, kernel, wave)
    _metadata(made, kernel, wave)
    return made


def _header(made: CodeObject, arch: str, version: str) -> None:
    elf = made.elf
    assert (elf.kind, elf.machine) == (ElfKind.REL, ElfMachine.AMDGPU)
    assert ElfMachine.AMDGPU == facts.MACHINE
    assert (elf.abi, elf.abi_version) == (facts.OSABI, facts.ABI_VERSIONS[version])
    assert bits(elf.flags, facts.MACH_BITS) == facts.MACH[arch]
    assert made.target == f"amdgcn-amd-amdhsa--{arch}"
    assert elf.flags == facts.E_FLAGS_VECTORS.get(arch, elf.flags)
    text = elf.section(".text")
    assert text is not None
    assert text.align == facts.TEXT_ALIGNMENT


def _symbols(made: CodeObject, *, table: bool) -> None:
    """Assert one function, no undefined symbol, and no relocations but the descriptor's and a table's."""
    elf = made.elf
    assert [s.name for s in elf.symbols if s.section == UNDEFINED and s.name] == []
    assert [s.name for s in elf.symbols if s.kind == 2] == [made.name]
    kinds = {number: kind for kind, number in facts.RELOCATIONS.items()}
    seen = [(elf.sections[r.section].name, kinds[r.type], r) for r in elf.relocations()]
    ((_, _, entry),) = [one for one in seen if one[:2] == (".rodata", "REL64")]
    descriptor = elf.symbol(f"{made.name}.kd")
    assert descriptor is not None
    assert entry.symbol is not None
    assert (entry.symbol.name, entry.offset - descriptor.value, entry.addend) == (
        made.name,
        facts.DESCRIPTOR_RELOCATION_OFFSET,
        facts.DESCRIPTOR_RELOCATION_ADDEND,
    )
    rest = [(section, kind) for section, kind, one in seen if one is not entry]
    assert set(rest) == ({(".text", "REL32_LO"), (".text", "REL32_HI")} if table else set())


def _descriptor(made: CodeObject, kernel: CompiledKernel, wave: int) -> None:
    image, said, arch = kernel.image, made.descriptor, kernel.image.arch
    sizes = ("group_segment_fixed_size", "private_segment_fixed_size", "kernarg_size")
    assert [said[size] for size in sizes] == [image.shared_bytes, 0, image.kernarg_size]
    assert image.scratch_bytes == 0, "registers are spilled, or an array lies in private memory"
    assert image.shared_bytes <= facts.LDS_MAX[generation(arch)]
    assert not any(value for field, value in said.items() if field.startswith("reserved"))
    assert said["kernarg_preload"] == 0
    properties = {name for name, bit in facts.PROPERTIES.items() if said["kernel_code_properties"] >> bit & 1}
    unarchitected = {"PRIVATE_SEGMENT_BUFFER", "FLAT_SCRATCH_INIT"}
    assert "KERNARG_SEGMENT_PTR" in properties
    assert ("WAVEFRONT_SIZE32" in properties) == (wave == 32)
    assert properties <= unarchitected | {"KERNARG_SEGMENT_PTR", "WAVEFRONT_SIZE32"}
    assert not properties & unarchitected or arch in ("gfx90a", "gfx1030")
    first, second = said["compute_pgm_rsrc1"], said["compute_pgm_rsrc2"]
    for size in ("32", "16_64"):
        assert bits(first, facts.RSRC1[f"FLOAT_ROUND_MODE_{size}"]) == 0, "to nearest"
        assert bits(first, facts.RSRC1[f"FLOAT_DENORM_MODE_{size}"]) == 3, "denormals are kept"
    numbers = {f"TGID_{dim}_EN" for dim, count in zip("YZ", kernel.groups[1:], strict=True) if count > 1}
    enabled = {name for name, place in facts.RSRC2.items() if bits(second, place)}
    assert enabled == {"USER_SGPR", "TGID_X_EN"} | numbers
    assert bits(second, facts.RSRC2["USER_SGPR"]) <= facts.USER_SGPRS_MAX


def _metadata(made: CodeObject, kernel: CompiledKernel, wave: int) -> None:
    image, said = kernel.image, made.metadata
    assert (said[".name"], said[".symbol"]) == (image.name, f"{image.name}.kd")
    assert said[".kernarg_segment_size"] == image.kernarg_size == 8 * len(image.args)
    assert said[".wavefront_size"] == wave
    assert said[".max_flat_workgroup_size"] == image.max_threads <= facts.WORKGROUP_MAX
    assert said[".group_segment_fixed_size"] == image.shared_bytes
    assert said[".vgpr_spill_count"] == said[".private_segment_fixed_size"] == 0
    assert said[".uses_dynamic_stack"] is False
    assert 0 < said[".vgpr_count"] <= facts.VGPRS_MAX[generation(image.arch)]
    kinds = {"POINTER": "global_buffer", "INT": "by_value"}
    assert [(a[".offset"], a[".size"], a[".value_kind"]) for a in said[".args"]] == [
        (slot.offset, slot.size, kinds[slot.kind.name]) for slot in image.args
    ]
