"""Code objects load: descriptors, arguments and bytes are what pyelftools and the formulas give."""

from __future__ import annotations

import dataclasses
import io
import struct
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from compiler.llvm import Machine, emit_object
from drivers.amd import code, metadata
from drivers.amd.code import FORMULAS
from drivers.amd.layouts.chips import CHIPS
from drivers.amd.layouts.code import Descriptor, Relocation
from drivers.amd.program import AmdProgram, check
from drivers.amd.quirks import DEFAULT
from drivers.elf import ElfSite
from hcq.errors import UnsupportedError, UsageError
from hcq.program import ArgKind, ArgSlot
from tests.drivers.amd.rig import compiled, image
from tests.facts import amd_code as facts

ARCHS = ("gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")
TRITON = Path(__file__).parent / "triton"
BASE = 0x7F12_3450_0000


def oracle(data: bytes) -> Any:
    return ELFFile(io.BytesIO(data))


@pytest.mark.parametrize("version", [500, 600])
@pytest.mark.parametrize("arch", ARCHS)
def test_unlinked_object_loads_by_its_sections_and_relocations(arch: str, version: int):
    data = compiled(arch, "hidden", version=version)
    found, kernel = code.read(data, "k", CHIPS[arch])
    elf, loaded = oracle(data), found.load(BASE)
    table = elf.get_section_by_name(".symtab")
    places = found.placement.offsets
    for section in elf.iter_sections():
        number = elf.get_section_index(section.name)
        if number in places and section.name != ".rodata":
            assert loaded[places[number] :][: section.data_size] == section.data()
    (symbol,) = table.get_symbol_by_name("k.kd")
    at = places[symbol["st_shndx"]] + symbol["st_value"]
    (entry,) = table.get_symbol_by_name("k")
    start = places[entry["st_shndx"]] + entry["st_value"]
    raw = bytearray(elf.get_section(symbol["st_shndx"]).data()[symbol["st_value"] :][:64])
    raw[16:24] = struct.pack("<q", start - at)
    assert loaded[at : at + 64] == raw
    assert (kernel.descriptor, kernel.entry) == (at, start)
    assert kernel.fields == Descriptor.from_bytes(raw)
    assert kernel.wave == (64 if arch.startswith("gfx9") else 32)
    assert kernel.fields.group_segment_fixed_size == 1200
    assert kernel.max_threads == 1024
    assert [(one.offset, one.size) for one in kernel.arguments or () if not one.hidden] == [
        (0, 8),
        (8, 8),
        (16, 4),
    ]
    assert start % 256 == at % 64 == 0
    assert len(loaded) >= start + entry["st_size"] + 256, "prefetch may read behind the code"


OBJECTS = sorted(path.stem for path in TRITON.glob("*.hsaco"))
"""Every code object in the folder, one kernel each: NAME_ARCH."""


@pytest.mark.parametrize("stem", OBJECTS)
def test_linked_code_object_of_triton_loads_as_its_segments_lie(stem: str):
    data, arch = (TRITON / f"{stem}.hsaco").read_bytes(), f"gfx{stem.rpartition('_gfx')[2]}"
    elf = oracle(data)
    (name,) = [
        one.name[:-3] for one in elf.get_section_by_name(".dynsym").iter_symbols() if one.name[-3:] == ".kd"
    ]
    found, kernel = code.read(data, name, CHIPS[arch])
    expected = {s.name: bytearray(s.data()) for s in elf.iter_sections() if s["sh_flags"] & 2}
    relocate(elf, expected)
    loaded = found.load(BASE)
    for section in elf.iter_sections():
        if section.name in expected:
            assert loaded[section["sh_addr"] :][: section.data_size] == expected[section.name], section.name
    assert len(loaded) >= max(segment["p_vaddr"] + segment["p_memsz"] for segment in elf.iter_segments())
    (symbol,) = elf.get_section_by_name(".dynsym").get_symbol_by_name(f"{name}.kd")
    (entry,) = elf.get_section_by_name(".dynsym").get_symbol_by_name(name)
    assert (kernel.descriptor, kernel.entry) == (symbol["st_value"], entry["st_value"])
    assert len(loaded) >= entry["st_value"] + entry["st_size"] + 256, "prefetch may read behind the code"
    shared, private, arguments = struct.unpack_from("<III", loaded, kernel.descriptor)
    fields = kernel.fields
    assert (fields.group_segment_fixed_size, fields.private_segment_fixed_size) == (shared, private)
    assert fields.kernarg_size == arguments
    wave = 64 if arch.startswith("gfx9") else 32
    assert kernel.wave == wave
    assert kernel.max_threads % wave == 0
    explicit = [one for one in kernel.arguments or () if not one.kind.startswith("hidden_")]
    assert {one.kind for one in explicit} <= {"global_buffer", "by_value"}
    ends = [0, *(one.offset + one.size for one in explicit)]
    assert all(one.offset == -(-end // one.size) * one.size for one, end in zip(explicit, ends, strict=False))
    assert ends[-1] <= arguments


def relocate(elf: Any, sections: dict[str, bytearray]) -> None:
    """Apply the relocations that the file has, as pyelftools reads them, to the content of its sections."""
    for table in elf.iter_sections():
        if table["sh_type"] != "SHT_RELA":
            continue
        for one in table.iter_relocations():
            assert one["r_info_type"] == facts.RELOCATIONS["RELATIVE64"], "linked objects have no others"
            for section in elf.iter_sections():
                at = one["r_offset"] - section["sh_addr"]
                if section.name in sections and 0 <= at < section.data_size:
                    struct.pack_into("<Q", sections[section.name], at, BASE + one["r_addend"])


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_arguments_of_a_code_object_of_triton_are_those_of_its_signature(arch: str):
    data = (TRITON / f"rowsum_{arch}.hsaco").read_bytes()
    _, kernel = code.read(data, "rowsum", CHIPS[arch])
    assert kernel.max_threads == 4 * kernel.wave
    explicit = [(one.kind, one.offset, one.size) for one in kernel.arguments or ()]
    assert explicit == [
        ("global_buffer", 0, 8),
        ("global_buffer", 8, 8),
        ("by_value", 16, 4),
        ("global_buffer", 24, 8),
        ("global_buffer", 32, 8),
    ]


def test_symbols_of_default_visibility_are_found_through_a_table():
    text = """
@shown = addrspace(1) global i32 7
define amdgpu_kernel void @k(ptr addrspace(1) %p) {
  %v = load i32, ptr addrspace(1) @shown
  store i32 %v, ptr addrspace(1) %p
  ret void
}
"""
    data = emit_object(text, Machine("amdgcn-amd-amdhsa", "gfx1100"))
    found, kernel = code.read(data, "k", CHIPS["gfx1100"])
    loaded = found.load(BASE)
    ((name, place),) = found.table.items()
    symbol = found.elf.symbol("shown")
    assert name == "shown"
    assert symbol is not None
    target = found.placement.offsets[symbol.section] + symbol.value
    assert struct.unpack_from("<Q", loaded, place) == (BASE + target,)
    kinds = {relocation.type: relocation for relocation in found.elf.relocations()}
    low = kinds[Relocation.GOTPCREL32_LO]
    at = found.placement.offsets[low.section] + low.offset
    distance = place + (low.addend or 0) - at
    assert struct.unpack_from("<I", loaded, at) == (distance & 0xFFFF_FFFF,)
    high = kinds[Relocation.GOTPCREL32_HI]
    at = found.placement.offsets[high.section] + high.offset
    assert struct.unpack_from("<i", loaded, at) == (place + (high.addend or 0) - at >> 32,)
    assert loaded[target : target + 4] == (7).to_bytes(4, "little")
    assert kernel.entry >= 0


S, A, P = 0x7000_1234_5678, 0x10, 0x7000_0000_1000


@pytest.mark.parametrize(
    ("kind", "size", "value"),
    [
        ("ABS32_LO", 4, S + A & 0xFFFF_FFFF),
        ("ABS32_HI", 4, S + A >> 32),
        ("ABS64", 8, S + A),
        ("REL32", 4, S + A - P),
        ("REL64", 8, S + A - P),
        ("GOTPCREL", 4, S + A - P),
        ("GOTPCREL32_LO", 4, S + A - P & 0xFFFF_FFFF),
        ("GOTPCREL32_HI", 4, S + A - P >> 32),
        ("REL32_LO", 4, S + A - P & 0xFFFF_FFFF),
        ("REL32_HI", 4, S + A - P >> 32),
        ("RELATIVE64", 8, S + A),
    ],
)
def test_relocation_follows_its_formula(kind: str, size: int, value: int):
    for addend in (A, None):
        content = bytearray(A.to_bytes(size, "little") + b"\xee" * 8)
        FORMULAS[Relocation[kind]](ElfSite(content, 0, P, S, addend))
        assert content == value.to_bytes(size, "little") + b"\xee" * 8


def test_short_relocations_store_what_fits_and_refuse_the_rest():
    content = bytearray(4)
    FORMULAS[Relocation.ABS32](ElfSite(content, 0, P, 0x8000_0000, 1))
    assert content == (0x8000_0001).to_bytes(4, "little")
    far = [(Relocation.REL16, 16, P + 4 + distance) for distance in (1 << 17, -4 - (1 << 17), 2, 1 << 30)]
    for kind, bits, symbol in ((Relocation.ABS32, 32, S), (Relocation.REL32, 32, P + (1 << 31)), *far):
        with pytest.raises(UnsupportedError, match=f"{bits} bits"):
            FORMULAS[kind](ElfSite(content, 0, P, symbol, 0))
    for symbol, dwords in ((0x84, -32), (0x104 + 4 * 0x7FFF, 0x7FFF)):
        FORMULAS[Relocation.REL16](ElfSite(content, 0, 0x100, symbol, 0))
        assert struct.unpack("<h", content[:2]) == (dwords,)


def changed(data: bytes, at: int, value: int, size: int = 4) -> bytes:
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


FLAGS = 48
"""Where `e_flags` stands."""


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        (changed(compiled("gfx1100"), 18, 62, 2), UsageError, "ELF machine 62"),
        (changed(compiled("gfx1100"), 7, 0, 1), UsageError, "OS ABI 0"),
        (changed(compiled("gfx1100"), 8, 2, 1), UnsupportedError, "V4"),
        (compiled("gfx1101"), UnsupportedError, "gfx1101, this GPU is gfx1100"),
        (changed(compiled("gfx1100"), FLAGS, 0x33), UnsupportedError, "machine 0x33"),
        (changed(compiled("gfx1100"), FLAGS, 0x341), UnsupportedError, "XNACK"),
        (changed(compiled("gfx1100"), FLAGS, 0x841), UnsupportedError, "ECC"),
        (b"\x7fELF", UsageError, "complete"),
    ],
)
def test_other_files_are_refused(data: bytes, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        code.read(data, "k", CHIPS["gfx1100"])


def test_missing_kernel_names_those_that_are_there():
    with pytest.raises(UsageError, match="no kernel 'other'; it has: k"):
        code.read(compiled("gfx1100"), "other", CHIPS["gfx1100"])


def test_undefined_symbols_are_refused_by_name():
    text = """
declare void @elsewhere()
define amdgpu_kernel void @k() { call void @elsewhere() ret void }
"""
    data = emit_object(text, Machine("amdgcn-amd-amdhsa", "gfx1100"))
    with pytest.raises(UnsupportedError, match="elsewhere"):
        code.read(data, "k", CHIPS["gfx1100"])


def test_broken_descriptors_are_refused():
    data = compiled("gfx1100")
    rodata = oracle(data).get_section_by_name(".rodata")["sh_offset"]
    with pytest.raises(UsageError, match="descriptor is broken"):
        code.read(changed(data, rodata + 12, 1), "k", CHIPS["gfx1100"])


def test_broken_notes_are_refused():
    data = compiled("gfx1100")
    section = oracle(data).get_section_by_name(".note")
    at = section["sh_offset"] + data[section["sh_offset"] :].index(b"amdhsa.kernels") + len("amdhsa.kernels")
    with pytest.raises(UsageError, match="MessagePack"):
        code.read(changed(data, at, 0xC1, 1), "k", CHIPS["gfx1100"])
    with pytest.raises(UsageError, match="MessagePack"):
        metadata.unpack(b"\x91" * 40)


def test_messagepack_values_are_read():
    packed = bytes.fromhex(
        "8aa161 01 a162 ff a163 cc80 a164 cd1234 a165 ce00010000 a166 d0ff a167 d1ff00 a168 c3"
        "a169 d9026869 a16a 92c0ca3f800000"
    )
    assert metadata.unpack(packed) == {
        "a": 1, "b": -1, "c": 128, "d": 0x1234, "e": 65536, "f": -1, "g": -256, "h": True, "i": "hi",
        "j": [None, 1.0],
    }  # fmt: skip


def program_of(arch: str, case: str = "plain", **changes: Any) -> AmdProgram:
    made = image(arch, case, **changes)
    found, kernel = code.read(made.code, made.name, CHIPS[arch])
    return AmdProgram(
        made, kernel, BASE, found.placement.size, target=CHIPS[arch], choices=DEFAULT, aql=arch == "gfx942"
    )


def test_images_that_contradict_their_code_are_refused():
    slot = image("gfx1100").args
    for changes, text in (
        ({"args": slot[:2]}, "wanted an argument slot for parameter 2 of the code, 4 bytes at 16"),
        ({"args": (*slot[:2], dataclasses.replace(slot[2], size=8))}, "8 bytes at 16"),
        ({"args": (*slot, ArgSlot("more", ArgKind.INT, 20, 4))}, "4 bytes at 20"),
        ({"kernarg_size": 16, "args": slot[:2]}, "reads 20 bytes"),
    ):
        with pytest.raises(UsageError, match=text):
            program_of("gfx1100", **changes)
    with pytest.raises(UnsupportedError, match="LDS"):
        program_of("gfx1100", shared_bytes=65537)


def test_registers_that_pm4_cannot_give_are_refused():
    text = "define amdgpu_kernel void @k() { ret void }"
    data = emit_object(text, Machine("amdgcn-amd-amdhsa", "gfx1100"))
    with pytest.raises(UnsupportedError, match="AQL queue"):
        program_of("gfx1100", code=data, args=(), kernarg_size=0)
    data = emit_object(text, Machine("amdgcn-amd-amdhsa", "gfx942"))
    assert program_of("gfx942", code=data, args=(), kernarg_size=0).block_bytes == 256


def test_kernels_without_a_stack_bound_are_refused():
    made = image("gfx1100")
    _, kernel = code.read(made.code, made.name, CHIPS["gfx1100"])
    deep = dataclasses.replace(kernel, properties=kernel.properties.replace(USES_DYNAMIC_STACK=True))
    with pytest.raises(UnsupportedError, match="scratch_bytes"):
        check(made, deep, CHIPS["gfx1100"], 1200)
    check(dataclasses.replace(made, scratch_bytes=4096), deep, CHIPS["gfx1100"], 1200)


def test_hidden_arguments_without_metadata_lie_behind_the_explicit_ones():
    data = compiled("gfx1100", "hidden")
    section = oracle(data).get_section_by_name(".note")
    bare = changed(data, section["sh_offset"] + 8, 33)
    program = program_of("gfx1100", "hidden", code=bare)
    assert program.kernel.arguments is None
    assert program.hidden["block_count_x"] == 24
    assert program.hidden["dynamic_lds_size"] == 24 + 120
    assert program.block_bytes == 320


def test_addresses_of_a_program_are_known():
    program = program_of("gfx1100")
    assert program.holds(BASE)
    assert not program.holds(BASE + program.size)
    assert program.scratch_bytes == 0
