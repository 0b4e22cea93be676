"""The table of PTX lines in a cubin, compared with the code that it describes."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.targets.nvptx import assembler
from drivers.elf import Elf, ElfError
from drivers.nv.layouts.cubin import INSTRUCTION_BYTES, Section
from drivers.nv.lines import LineTable, ptx_line
from tests.support.nv.golden import small_cubin

needs_assembler = pytest.mark.skipif(
    not assembler.available(), reason="neither nvJitLink nor ptxas is installed"
)

PTX = """// a line before the version
.version 8.8
.target {arch}
.address_size 64

.visible .entry first(.param .u64 out,
                      .param .u64 other)
{{
 .reg .b64 %rd<4>; .reg .b32 %r<4>;
 ld.param.u64 %rd1, [out];
 ld.param.u64 %rd2, [other];
 /* a comment
    of two lines */
 ld.global.u32 %r1, [%rd1];

 st.global.u32 [%rd2], %r1;
 ret;
}}
.visible .entry second(.param .u64 out)
{{
 .reg .b64 %rd<4>;
 .reg .f32 %f<4>;
 ld.param.u64 %rd1, [out];
 ld.global.f32 %f1, [%rd1];
 sqrt.rn.f32 %f2, %f1;
 st.global.f32 [%rd1], %f2;
 ret;
}}
"""
LOAD, STORE, EXIT = 0x981, 0x986, 0x94D
"""The low twelve bits of LDG, STG and EXIT, sm_80 and later (measured with nvdisasm)."""


def line_of(text: str, words: str) -> int:
    return next(i for i, line in enumerate(text.split("\n"), 1) if words in line)


def opcodes(elf: Elf, section: str) -> dict[int, int]:
    """Byte offset -> opcode of a function's instructions."""
    code = elf.content(elf.section(section))
    words = struct.iter_unpack("<Q8x", code)
    return {i * INSTRUCTION_BYTES: word & 0xFFF for i, (word,) in enumerate(words)}


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_loads_stores_and_exit_have_their_source_lines(arch: str):
    text = PTX.format(arch=arch)
    elf = Elf(assembler.assemble(text, arch))
    for name, load, store in (
        ("first", "ld.global.u32", "st.global.u32"),
        ("second", "ld.global.f32", "st.global.f32"),
    ):
        table = LineTable.of(elf, f"{Section.TEXT}{name}")
        assert table is not None
        code = opcodes(elf, f"{Section.TEXT}{name}")
        for opcode, words in ((LOAD, load), (STORE, store)):
            line = line_of(text, words)
            places = [at for at, op in code.items() if op == opcode]
            assert places
            assert [table.line_at(at) for at in places] == [line]
            assert set(places) <= set(table.offsets_of(line))
            assert words in ptx_line(text, line)
        ends = [table.line_at(at) for at, op in code.items() if op == EXIT]
        assert {ptx_line(text, line) for line in ends if line} == {"ret;"}


@needs_assembler
@pytest.mark.skipif(not assembler.available().startswith("nv"), reason="only one assembler is installed")
def test_both_assemblers_write_a_table_that_is_read():
    try:
        data = assembler.assemble(PTX.format(arch="sm_90a"), "sm_90a", assembler="ptxas")
    except NotImplementedError as error:
        pytest.skip(str(error))
    table = LineTable.of(Elf(data), ".text.first")
    assert table is not None
    assert table.offsets_of(line_of(PTX, "st.global.u32"))


@needs_assembler
def test_every_instruction_has_one_line_and_the_two_directions_agree():
    elf = Elf(assembler.assemble(PTX.format(arch="sm_90a"), "sm_90a"))
    table = LineTable.of(elf, ".text.second")
    assert table is not None
    offsets = list(opcodes(elf, ".text.second"))
    lines = [table.line_at(at) for at in offsets]
    assert None not in lines
    for line in set(lines):
        assert list(table.offsets_of(line)) == [
            at for at, own in zip(offsets, lines, strict=True) if own == line
        ]
    assert table.line_at(offsets[-1] + INSTRUCTION_BYTES) is None
    assert table.line_at(-1) is None
    assert table.offsets_of(0) == table.offsets_of(10_000) == ()


@needs_assembler
def test_line_information_changes_no_instruction(monkeypatch: pytest.MonkeyPatch):
    text = PTX.format(arch="sm_90a")
    lined = Elf(assembler.assemble(text, "sm_90a"))
    monkeypatch.setattr(assembler, "_LINES", "-O3")
    plain = Elf(assembler.assemble(text, "sm_90a"))
    assert plain.section(Section.LINES) is None
    for section in plain.sections:
        if section.name.startswith(Section.TEXT):
            assert lined.content(lined.section(section.name)) == plain.content(section)


@needs_assembler
def test_a_helper_that_was_linked_in_has_no_lines():
    elf = Elf(assembler.assemble(PTX.format(arch="sm_90a"), "sm_90a"))
    helpers = [s.name for s in elf.sections if s.name.startswith(".text.__cuda")]
    assert helpers
    assert [LineTable.of(elf, name) for name in helpers] == [None] * len(helpers)


def test_an_image_of_others_has_no_lines():
    elf = Elf(small_cubin("k", 90, 8))
    assert LineTable.of(elf, ".text.k") is None
    assert LineTable.of(elf, ".text.absent") is None


def test_a_line_outside_of_the_text_is_empty():
    assert [ptx_line("a\n  b;\n", line) for line in (-1, 0, 1, 2, 3, 4)] == ["", "", "a", "b;", "", ""]


@pytest.fixture(scope="module")
def assembled() -> bytes:
    return assembler.assemble(PTX.format(arch="sm_90a"), "sm_90a")


@needs_assembler
@settings(deadline=None)
@given(where=st.integers(0, 1 << 16), value=st.integers(0, 255))
def test_a_damaged_table_is_refused_or_read_but_never_breaks(assembled: bytes, where: int, value: int):
    data = bytearray(assembled)
    section = Elf(assembled).section(Section.LINES)
    data[section.offset + where % section.size] = value
    with contextlib.suppress(ElfError):
        LineTable.of(Elf(bytes(data)), ".text.first")


@needs_assembler
def test_a_table_that_is_cut_short_is_refused(assembled: bytes):
    data = bytearray(assembled)
    section = Elf(assembled).section(Section.LINES)
    data[section.offset : section.offset + 4] = (section.size + 1).to_bytes(4, "little")
    with pytest.raises(ElfError, match=Section.LINES):
        LineTable.of(Elf(bytes(data)), ".text.first")
