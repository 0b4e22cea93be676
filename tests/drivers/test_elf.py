"""The ELF loader: files as data against pyelftools, relocations against code that runs."""

from __future__ import annotations

import ctypes
import io
import os
import shutil
import struct
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from compiler.llvm import Machine as Target
from compiler.llvm import emit_object
from drivers.cpu.image import HostCode, nothing_from_outside
from drivers.cpu.link import HostImage
from drivers.elf import (
    ALLOC,
    Elf,
    ElfError,
    ElfMachine,
    ElfSite,
    Image,
    Relocation,
    place_sections,
    place_segments,
)
from drivers.kernel import LinuxKernel
from hcq.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

HERE = os.uname().machine
TRIPLES = {
    "x86_64": Target("x86_64-unknown-linux-gnu", "x86-64"),
    "aarch64": Target("aarch64-unknown-linux-gnu", "generic"),
    "amdgcn": Target("amdgcn-amd-amdhsa", "gfx1100"),
}

PLAIN = """
@table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
declare ptr @memcpy(ptr, ptr, i64)
define internal i64 @helper(i64 %i) noinline {
  %p = getelementptr [4 x i64], ptr @table, i64 0, i64 %i
  %v = load volatile i64, ptr %p
  ret i64 %v
}
define i64 @entry(i64 %i, ptr %to, ptr %from) {
  %v = call i64 @helper(i64 %i)
  %q = call ptr @memcpy(ptr %to, ptr %from, i64 8)
  %w = load i64, ptr %to
  %s = add i64 %v, %w
  ret i64 %s
}
"""
"""A constant table, an internal call and a call to the outside."""

AMD = """
declare i32 @outside(i32)
@number = external addrspace(1) global i32
define amdgpu_kernel void @k(ptr addrspace(1) %p) {
  %v = load i32, ptr addrspace(1) @number
  store i32 %v, ptr addrspace(1) %p
  ret void
}
"""

SOURCES = {"x86_64": PLAIN, "aarch64": PLAIN, "amdgcn": AMD}


def compiled(arch: str, **changes: str) -> bytes:
    base = TRIPLES[arch]
    target = Target(base.triple, base.cpu, base.features, **changes)
    return emit_object(SOURCES[arch], target)


def oracle(data: bytes) -> Any:
    return ELFFile(io.BytesIO(data))


@pytest.mark.parametrize("arch", SOURCES)
def test_sections_are_what_pyelftools_reads(arch: str) -> None:
    data = compiled(arch)
    ours, theirs = Elf(data), oracle(data)
    assert [
        (s.name, s.flags, s.va, s.offset, s.size, s.link, s.info, s.align, s.entry_size)
        for s in ours.sections
    ] == [
        (
            s.name, s["sh_flags"], s["sh_addr"], s["sh_offset"], s["sh_size"], s["sh_link"], s["sh_info"],
            s["sh_addralign"], s["sh_entsize"],
        )
        for s in theirs.iter_sections()
    ]  # fmt: skip
    assert [ours.content(s) for s in ours.sections[1:]] == [
        s.data() for s in list(theirs.iter_sections())[1:]
    ]
    assert (ours.flags, ours.entry) == (theirs["e_flags"], theirs["e_entry"])


@pytest.mark.parametrize("arch", SOURCES)
def test_symbols_are_what_pyelftools_reads(arch: str) -> None:
    data = compiled(arch)
    (table,) = [s for s in oracle(data).iter_sections() if isinstance(s, SymbolTableSection)]
    assert [(s.name, s.value, s.size) for s in Elf(data).symbols] == [
        (s.name, s["st_value"], s["st_size"]) for s in table.iter_symbols()
    ]


@pytest.mark.parametrize("arch", SOURCES)
def test_relocations_are_what_pyelftools_reads(arch: str) -> None:
    data = compiled(arch)
    file = oracle(data)
    theirs = [
        (table["sh_info"], r["r_offset"], r["r_info_type"], r["r_addend"])
        for table in file.iter_sections()
        if isinstance(table, RelocationSection) and file.get_section(table["sh_info"])["sh_flags"] & ALLOC
        for r in table.iter_relocations()
    ]
    assert theirs
    assert [(r.section, r.offset, r.type, r.addend) for r in Elf(data).relocations()] == theirs


def run(code: HostCode, index: int, number: int) -> int:
    function = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)
    to, source = ctypes.c_uint64(), ctypes.c_uint64(number)
    entry = function(code.address["entry"])
    result: int = entry(index, ctypes.addressof(to), ctypes.addressof(source))
    assert to.value == number
    return result


def libc(name: str) -> int:
    address = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    assert address
    return address


@pytest.mark.parametrize(("reloc", "codemodel"), [("pic", "small"), ("static", "small"), ("static", "large")])
def test_object_with_data_and_an_outside_call_runs(reloc: str, codemodel: str) -> None:
    data = compiled(HERE, reloc=reloc, codemodel=codemodel)
    image = HostImage(data, HERE)
    assert image.undefined == ("memcpy",)
    try:
        code = HostCode(LinuxKernel(), image, libc)
    except ElfError as error:  # 32-bit absolute addresses cannot hold where a mapping lies
        assert (reloc, codemodel) == ("static", "small")
        assert "does not reach" in str(error)  # noqa: PT017 - only this combination may fail
        return
    assert [run(code, i, 7) for i in range(4)] == [17, 27, 37, 47]
    code.close()


@pytest.mark.skipif(
    shutil.which("gcc") is None, reason="gcc, which links the shared object, is not installed"
)
def test_shared_object_runs(tmp_path: Path) -> None:
    (tmp_path / "a.o").write_bytes(compiled(HERE))
    out = tmp_path / "a.so"
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", out, tmp_path / "a.o"], check=True)
    code = HostCode(LinuxKernel(), HostImage(out.read_bytes(), HERE), libc)
    assert [run(code, i, 100) for i in range(4)] == [110, 120, 130, 140]
    code.close()


def test_loaded_code_is_never_writable_and_executable() -> None:
    code = HostCode(LinuxKernel(), HostImage(compiled(HERE), HERE), libc)
    lines = LinuxKernel().read_file("/proc/self/maps").decode().splitlines()
    # Linux shows neighbours of equal rights as one range.
    ranges = [([int(end, 16) for end in line.split()[0].split("-")], line.split()[1]) for line in lines]
    assert [rights for (first, last), rights in ranges if first <= code.span[0] < last] == ["r-xp"]
    code.close()


def test_outside_function_that_is_not_given_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="memcpy"):
        HostCode(LinuxKernel(), HostImage(compiled(HERE), HERE), nothing_from_outside)


@pytest.mark.parametrize(
    ("declaration", "section"),
    [
        ("@v = global i64 5", ".data"),
        ("@v = global i64 0", ".bss"),
        ("@v = thread_local global i64 1", ".tdata"),
    ],
)
def test_kernel_with_writable_data_is_refused(declaration: str, section: str) -> None:
    ir = declaration + "\ndefine ptr @f() {\nret ptr @v\n}"
    with pytest.raises(UsageError, match=rf"{section}.* pure code"):
        HostImage(emit_object(ir, TRIPLES[HERE]), HERE)


def test_code_of_another_machine_is_refused() -> None:
    with pytest.raises(UsageError, match="ELF machine 183, this host is X86_64"):
        HostImage(compiled("aarch64"), "x86_64")


# aarch64 words, as `llvm-mc -triple=aarch64 -show-encoding` gives them for these displacements
ARM = [
    (283, 0x94000000, 0x1000, 0x9000, 0x94002000),  # bl +0x8000
    (282, 0x14000000, 0x9000, 0x1000, 0x17FFE000),  # b -0x8000
    (275, 0x90000000, 0x1234, 0x45678, 0x90000220),  # adrp x0, +0x44 pages
    (275, 0x90000000, 0x45678, 0x1234, 0x90FFFDE0),  # adrp x0, -0x44 pages
    (277, 0x91000000, 0, 0x12345ABC, 0x912AF000),  # add x0, x0, #0xabc
    (286, 0xF9400000, 0, 0x12345AB8, 0xF9455C00),  # ldr x0, [x0, #0xab8]
    (299, 0x3DC00000, 0, 0x12345AB0, 0x3DC2AC00),  # ldr q0, [x0, #0xab0]
    (280, 0x54000000, 0x1000, 0x1100, 0x54000800),  # b.eq +0x100
]


@pytest.mark.parametrize(("kind", "word", "place", "symbol", "wanted"), ARM)
def test_aarch64_relocation_gives_the_manual_s_instruction(
    kind: int, word: int, place: int, symbol: int, wanted: int
) -> None:
    from drivers.cpu.link import AARCH64

    content = bytearray(struct.pack("<I", word))
    AARCH64[kind](ElfSite(content, 0, place, symbol, 0))
    assert f"{struct.unpack('<I', content)[0]:#x}" == f"{wanted:#x}"


def test_branch_that_does_not_reach_is_refused() -> None:
    from drivers.cpu.link import AARCH64

    with pytest.raises(ElfError, match="does not reach"):
        AARCH64[283](ElfSite(bytearray(4), 0, 0, 1 << 28, 0))


def test_aarch64_object_links_with_all_its_relocations() -> None:
    image = HostImage(compiled("aarch64"), "aarch64")
    content = image.at(0x7F00_0000_0000, lambda _: 0x5500_0000_1000)
    assert len(content) == image.size
    assert set(image.functions()) == {"helper", "entry"}


def test_another_machine_brings_its_own_formulas() -> None:
    elf = Elf(compiled("amdgcn"))
    assert elf.machine == ElfMachine.AMDGPU
    image = Image(elf, place_sections(elf))
    seen: list[Relocation] = []

    def resolve(relocation: Relocation) -> int:
        seen.append(relocation)
        return 0x4000

    kinds = {relocation.type for relocation in elf.relocations()}
    sites: list[ElfSite] = []
    image.relocate(0x10000, dict.fromkeys(kinds, sites.append), resolve)
    assert "number" in {r.symbol.name for r in seen if r.symbol}
    assert all(site.place == 0x10000 + site.at and site.symbol == 0x4000 for site in sites)


def test_relocation_without_a_formula_is_refused() -> None:
    elf = Elf(compiled("x86_64"))
    with pytest.raises(UnsupportedError, match="relocation type"):
        Image(elf, place_sections(elf)).relocate(0, {}, lambda _: 0)


def test_object_has_no_segments() -> None:
    with pytest.raises(ElfError, match="no segment"):
        place_segments(Elf(compiled("x86_64")))


def test_bytes_that_are_no_elf_file_are_refused() -> None:
    with pytest.raises(ElfError, match="begins with b'PK"):
        Elf(b"PK\3\4" + bytes(100))


def test_every_cut_of_a_file_is_an_elf_error_or_still_whole() -> None:
    data = compiled("x86_64")
    for end in range(0, len(data), 7):
        try:
            HostImage(data[:end], "x86_64").at(0x1000, lambda _: 0)
        except ElfError:
            continue
        assert end > len(data) - 64


def test_flipped_bytes_never_escape_as_another_error() -> None:
    data = compiled("x86_64")
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 0xFF
        try:
            HostImage(bytes(broken), "x86_64").at(0x1000, lambda _: 0)
        except (UsageError, UnsupportedError):
            continue
