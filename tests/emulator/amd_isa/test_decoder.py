"""The decoder's text is LLVM's, and what must be refused.

tests/golden/amd_isa has a line `dwords: text` for each form of an instruction: TARGET.txt as LLVM 22 (`+dumpcode`)
wrote it for kernels of every intrinsic, the others as `python -m tests.guests.build_amd golden` writes them.
"""

# ruff: noqa: E501 - rows of tables and lines of IR read best on one line

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.amd.isa.decode import decode, one
from emulator.amd.isa.instruction import IsaError
from emulator.amd.isa.opcodes import target
from hcq.errors import UnsupportedError

GOLDEN = Path(__file__).parents[2] / "golden/amd_isa"
TARGETS = sorted(p.stem for p in GOLDEN.glob("*.txt"))


def code(words: str) -> bytes:
    """Return dwords written in hexadecimal as bytes."""
    return b"".join(int(w, 16).to_bytes(4, "little") for w in words.split())


def read(words: str, name: str = "gfx1100") -> str:
    """Return the text of one instruction."""
    found = one(code(words), 0, target(name), lanes=target(name).lanes)
    assert found.size == len(code(words))
    return found.text


@pytest.mark.parametrize("name", TARGETS)
def test_text_equals_that_of_llvm(name: str) -> None:
    lines = (GOLDEN / f"{name}.txt").read_text().splitlines()
    assert len(lines) > (70 if "_" in name else 600)
    wrong = []
    for line in lines:
        words, _, wanted = line.partition(": ")
        if (got := read(words, name.partition("_")[0])) != wanted:
            wrong.append((words, wanted, got))
    assert not wrong


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("BFA5FFF0", "s_cbranch_execz 65520"),
        ("D7600003 02013F02", "v_readlane_b32 s3, v2, 31"),
        ("F4000100 F8000010", "s_load_b32 s4, s[0:1], 0x10"),
        ("F4000100 0A000010", "s_load_b32 s4, s[0:1], s5 offset:0x10"),
        ("D5038002 10021104", "v_add_f32_e64 v2, v4, v8 clamp mul:4"),
        ("CC200402 24321104", "v_fma_mix_f32 v2, -v4, v8, |v12|"),
        ("060204FA FF0C0111", "v_add_f32_dpp v1, v17, v2 quad_perm:[1,0,0,0] row_mask:0xf bank_mask:0xf bound_ctrl:1 fi:1"),
        ("060204E9 05397701", "v_add_f32_dpp v1, v1, v2 dpp8:[7,6,5,4,3,2,1,0]"),
        ("D8D4041F 02000004", "ds_swizzle_b32 v2, v4 offset:swizzle(SWAP,1)"),
        ("D8D4001E 02000004", "ds_swizzle_b32 v2, v4 offset:swizzle(BROADCAST,2,0)"),
        ("DC521FFC 027C0004", "global_load_b32 v2, v[4:5], off offset:-4"),
        ("DC511FFC 02850004", "scratch_load_b32 v2, v4, s5 offset:-4"),
        ("DCD64004 027C0604", "global_atomic_add_u32 v2, v[4:5], v6, off offset:4 glc"),
        ("E0507004 80F10204", "buffer_load_b32 v2, v[4:5], s[68:71], 0 idxen offen offset:4 glc slc dlc tfe"),
        ("B880F801", "s_getreg_b32 s0, hwreg(HW_REG_MODE)"),
        ("B9801001 00000005", "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 3), 5"),
        ("BF870131", "s_delay_alu instid0(VALU_DEP_1) | instskip(SKIP_2) | instid1(VALU_DEP_2)"),
        ("BE8001F8", "s_mov_b64 s[0:1], 0.15915494309189532"),
        ("D5030002 200210F2", "v_add_f32_e64 v2, neg(1.0), v8"),
        ("D491007E 00021004", "v_cmpx_lt_f32_e64 s4, v8"),
        ("D7000203 02020002", "v_add_co_u32 v3, s2, s2, v0"),
        ("D59C4030 02010187", "v_mov_b16_e64 v48.h, v135.l"),
        ("8201FF01 FFFFFFFF", "s_addc_u32 s1, s1, -1"),
    ],
)  # fmt: skip
def test_text_of_single_instructions(words: str, text: str) -> None:
    """What the corpus lacks; the texts are those of LLVM 19's disassembler."""
    assert read(words) == text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("7E2E3904", "v_mov_b16_e32 v23.l, v4.l"),
        ("7F301519", "v_cvt_f16_f32_e32 v24.h, v25"),
        ("D59C4090 02010103", "v_mov_b16_e64 v144.h, v3.l"),
    ],
)
def test_halves_of_registers_on_gfx12(words: str, text: str) -> None:
    """Texts of Triton's assembly: bit 7 of a register of a short encoding is its half there, too."""
    assert read(words, "gfx1201") == text


@pytest.mark.parametrize(("words", "text"), [("BF110806", "s_set_gpr_idx_on s6, gpr_idx(DST)"), ("BF9C0000", "s_set_gpr_idx_off")])
def test_index_mode_of_gfx9(words: str, text: str) -> None:
    assert read(words, "gfx942") == text


def test_a_wave_of_64_lanes_has_masks_of_two_registers() -> None:
    found = one(code("D4110006 00021004"), 0, target("gfx1100"), lanes=64)
    assert found.text == "v_cmp_lt_f32_e64 s[6:7], s4, v8"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("7E00FE00", "opcode"),
        ("D5030402 00021104", "abs"),
        ("F47C0100 F8000010", "opcode"),
        ("F4000100 F8E00010", "reserved"),
        ("D5030002 04021104", "src2"),
        ("D7600003 04013F02", "src2"),
        ("D5030002", "ends within"),
        ("7E0002FF", "ends within"),
        ("060204FA FF0E0142", "DPP"),
        ("F0000000 00000000", "no format"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_name(words: str, why: str) -> None:
    with pytest.raises(IsaError, match=why) as caught:
        one(bytes(8) + code(words), 8, target("gfx1100"), lanes=32, kernel="mul")
    assert (caught.value.address, caught.value.kernel) == (8, "mul")
    assert words.split(maxsplit=1)[0].lower() in str(caught.value)


def test_instructions_follow_one_another() -> None:
    found = decode(code("7E0002FF DEADBEEF BF800003 BFB00000"), target("gfx1100"))
    assert [(i.address, i.text) for i in found] == [
        (0, "v_mov_b32_e32 v0, 0xdeadbeef"), (8, "s_nop 3"), (12, "s_endpgm")
    ]  # fmt: skip


def test_moves_of_accumulation_registers_have_the_bits_that_llvm_sets() -> None:
    """The encoding is that of packed instructions, with every bit of op_sel_hi set."""
    assert read("D3D94000 18000080", "gfx942").startswith("v_accvgpr_write_b32 a0, 0")
    assert read("D3D94000 1800013B", "gfx942") == "v_accvgpr_write_b32 a0, v59"
    assert read("D3D84000 1800011C", "gfx942") == "v_accvgpr_read_b32 v0, a28"
    with pytest.raises(IsaError, match="abid"):
        read("D3D91000 18000080", "gfx942")


def test_a_target_without_a_table_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="gfx1030"):
        target("gfx1030")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gfx1100", "fa86f27e7e37808e"),
        ("gfx1201", "fa86f27e7e37808e"),
        ("gfx942", "faa8ca7ec408d4b1"),
        ("gfx1100", "000000d50000008000000000"),
    ],
)
def test_words_that_are_no_instruction_are_named(name: str, words: str) -> None:
    with pytest.raises(IsaError):
        one(bytes.fromhex(words).ljust(32, b"\0"), 0, target(name), lanes=64, kernel="k")


def test_reserved_delays_are_said_so() -> None:
    found = one(bytes.fromhex("6bf287bf"), 0, target("gfx1100"), lanes=32, kernel="k")
    assert "invalid" in found.text
