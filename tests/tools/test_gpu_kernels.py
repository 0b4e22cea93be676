"""The table of GPU kernels, and the count of bank conflicts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from compiler.dtype import dtypes
from compiler.emit.builder import Builder
from compiler.emit.linear import POINTER, Line, flatten
from drivers.elf import Elf, ElfMachine
from tools.bank_conflicts import Conflicts, conflicts
from tools.gpu_kernels import main

if TYPE_CHECKING:
    from pathlib import Path


def stored(stride: int, lanes: int = 1, *, turned: bool = False) -> list[Line]:
    """A store of each thread at `stride` words times its number, with its bit 3 toggling bit 2 if turned."""
    b = Builder()
    memory = b.line("shared", POINTER, 1, (), (dtypes.float32, 4096))
    thread = b.line("thread", dtypes.int64, 1, (), 0)
    at = b.mul(thread, stride)
    if turned:
        at = b.alu("xor", at, b.mul(b.alu("lshr", thread, b.index(2)), 4))
    b.line(
        "store",
        dtypes.float32,
        lanes,
        (b.offset(memory, at, dtypes.float32), b.const(dtypes.float32, 1.0, lanes)),
    )
    return flatten(b.root)


@pytest.mark.parametrize(
    ("stride", "lanes", "passes"),
    [(1, 1, 1), (2, 1, 2), (32, 1, 32), (33, 1, 1), (0, 1, 1), (4, 4, 4), (8, 4, 8)],
)
def test_threads_that_touch_different_words_of_a_bank_take_more_passes(
    stride: int, lanes: int, passes: int
) -> None:
    least = 1 if lanes == 1 else 4
    assert conflicts(stored(stride, lanes), 32) == Conflicts(1, least, passes)


def test_a_permuted_place_has_no_conflicts() -> None:
    assert conflicts(stored(8, 4, turned=True), 8).passes == 1


def test_the_table_has_matrix_operations_and_no_spills(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--arch", "gfx1100,gfx942", "--kernel", "matmul_f16", "--size", "128", "--json"]
    assert main(options) == 0
    for made in json.loads(capsys.readouterr().out):
        assert made["matrix"] > 0
        assert (made["private_bytes"], made["conflicts"]) == (0, 0)
        assert "matrix v_" in made["plan"]


def test_listings_hold_the_matrix_instructions_that_the_table_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--arch", "gfx1201,sm_80", "--kernel", "matmul_f16", "--size", "128", "--json"]
    assert main([*options, "--listing", str(tmp_path / "new")]) == 0
    amd, nv = sorted(json.loads(capsys.readouterr().out), key=lambda made: made["arch"])
    written = {path.name: path for path in (tmp_path / "new").iterdir()}
    assert written["matmul_f16_gfx1201.s"].read_text().count("v_wmma_") == amd["matrix"] > 0
    assert written["matmul_f16_sm_80.ptx"].read_text().count("mma.sync") == nv["matrix"] > 0
    assert Elf(written["matmul_f16_sm_80.cubin"].read_bytes()).machine == ElfMachine.CUDA


@pytest.mark.slow
def test_kernels_move_what_they_touch_and_have_no_bank_conflicts(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--arch", "sm_80,gfx1100", "--kernel", "matmul_f16,softmax", "--size", "128"]
    assert main([*options, "--count", "64", "--json"]) == 0
    for made in json.loads(capsys.readouterr().out):
        counted = made["counted"]
        assert counted["conflicts"] == 0
        assert counted["cycles"] > 0
        wanted = 3 * 64 * 64 * 2 if made["kernel"] == "matmul_f16" else 2 * 64 * 64 * 4
        assert counted["touched"] == wanted
        assert counted["moved"] >= counted["asked"] >= wanted


@pytest.mark.slow
def test_products_of_amd_gpus_move_the_lines_that_they_ask_for(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--arch", "gfx942,gfx1100,gfx1201", "--kernel", "matmul_f32,matmul_f16", "--size", "256"]
    assert main([*options, "--count", "256", "--json"]) == 0
    for made in json.loads(capsys.readouterr().out):
        assert made["counted"]["moved"] <= 1.1 * made["counted"]["asked"], made["kernel"]


@pytest.mark.slow
def test_matrix_operations_of_amd_gpus_are_right_on_the_emulated_gpus() -> None:
    arches = "gfx942,gfx1100,gfx1201"
    assert main(["--check", "--arch", arches, "--kernel", "matmul_f16", "--size", "128"]) == 0
