"""Tools that show kernels: the table of GPU kernels, bank conflicts, the corpus, calibration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compiler.dtype import dtypes
from compiler.emit.builder import Builder
from compiler.emit.linear import POINTER, Line, flatten
from compiler.ir.serialize import kernel_key
from compiler.llvm import Machine
from drivers.elf import Elf, ElfMachine
from hcq.counters import KernelCounters
from hcq.errors import UsageError
from tests.children import python
from tests.compiler.kernels import load, loop, op, sink, store
from tests.fuzz.kernels import Case
from tests.support import kernel_corpus
from tools import calibrate, hardware_run
from tools.bank_conflicts import Conflicts, conflicts
from tools.gpu_kernels import main
from tools.hardware.stage import Run


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


HOME = Path(__file__).parents[2]


def add() -> str:
    i = loop(0, 300)
    return kernel_key(sink(store(0, i, op("ADD", load(1, i), load(2, i)))))


@pytest.mark.slow
def test_kernels_of_a_run_are_recorded_once_and_added_to_the_file(tmp_path: Path) -> None:
    test = tmp_path / "test_one.py"
    test.write_text(
        "from compiler.compile import compile_kernel, forget\n"
        "from tests.compiler.kernels import load, loop, op, sink, store\n"
        "def test_one():\n"
        "    i = loop(0, 300)\n"
        "    for name in ('MUL', 'ADD'):\n"
        "        kernel = sink(store(0, i, op(name, load(1, i), load(2, i))))\n"
        "        compile_kernel(kernel, 'x86_64-v3'), forget(), compile_kernel(kernel, 'x86_64-v3')\n"
    )
    kernels = tmp_path / "kernels"
    kernels.write_text(json.dumps(add()) + "\n")
    words = ("record", kernels, "--", test, "-q", "-p", "no:cacheprovider")
    python("-m", "tests.support.kernel_corpus", *words)
    texts = kernel_corpus.read(kernels)
    assert texts[0] == add()
    assert len(texts) == 2


def test_a_corpus_is_compiled_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernels = tmp_path / "kernels"
    kernels.write_text(json.dumps(add()) + "\n")
    assert kernel_corpus.main(["compile", str(kernels), "gfx1100", "--json"]) == 0
    (count,) = json.loads(capsys.readouterr().out)
    assert (count["arch"], count["kernels"], count["failures"], count["private"]) == ("gfx1100", 1, [], [])


def test_predecessors_are_counted_by_block() -> None:
    text = """define i32 @f(i32 %x) {
  switch i32 %x, label %c [
    i32 0, label %a
    i32 1, label %b
  ]

a:                                                ; preds = %0
  br label %end

end:                                              ; preds = %c, %b, %a
"""
    assert kernel_corpus.predecessors(text) == {"a": 1, "end": 3}


def test_the_case_that_llvm_miscompiles_is_counted_and_a_kernel_of_the_compiler_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Case.whole(48).text("gfx1100")
    wrong = kernel_corpus.optimised(text, Machine("amdgcn-amd-amdhsa", "gfx1100"))
    assert max(kernel_corpus.predecessors(wrong).values()) > 2
    kernels = tmp_path / "kernels"
    kernels.write_text(json.dumps(add()) + "\n")
    assert kernel_corpus.main(["merges", str(kernels), "gfx942", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"gfx942": {}}


def test_a_kernel_that_cannot_be_compiled_is_counted_and_fails(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    kernels.write_text(json.dumps("no kernel") + "\n")
    assert kernel_corpus.main(["compile", str(kernels), "gfx1100"]) == 1


def rows(device: str, capsys: pytest.CaptureFixture[str], groups: int = 4) -> dict[str, dict[str, Any]]:
    assert calibrate.main(["--device", device, "--groups", str(groups)]) == 0
    return {row["case"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}


@pytest.mark.parametrize(
    "device", ["nv-emu:sm_80", *(pytest.param(f"amd-emu:{t}", marks=pytest.mark.slow) for t in ("gfx1100",
    "gfx942"))]
)  # fmt: skip
def test_each_kernel_is_bound_by_what_it_is_made_for(device: str, capsys: pytest.CaptureFixture[str]):
    found = rows(device, capsys, 8)
    assert list(found) == list(calibrate.KERNELS)
    bounds = [found[name]["bound"] for name in ("fma", "shared", "conflicts")]
    assert bounds == ["compute", "on-chip", "on-chip"]
    assert all(row["emulated"] and row["ratio"] > 0 for row in found.values())
    shared, conflicts = (found[name]["estimated_us"] for name in ("shared", "conflicts"))
    assert 20 < conflicts / shared < 40  # 32 lanes in one bank, and a little global memory


def test_counts_grow_with_the_workgroups():
    one = KernelCounters(kernel="k", arch="sm_80", lanes=32, unit=32, launches=1, groups=4, read=128)
    one.flops["f32"] = 10
    one.shared["load"].units = 3
    many = one.scaled(5)
    assert (many.launches, many.groups, many.read) == (1, 20, 640)
    assert (many.flops, many.shared["load"].units) == ({"f32": 50}, 15)
    assert (one.flops, one.shared["load"].units) == ({"f32": 10}, 3)


def test_a_gpu_without_rates_is_refused_by_name():
    with pytest.raises(UsageError, match="sm_86"):
        calibrate.chip_of(type("Info", (), {"arch": "sm_86", "name": "GPU"})(), ())


def test_the_stage_of_a_dry_hardware_run_has_its_rows(tmp_path: Path):
    folders = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    options = hardware_run.parse(["--dry", "--device", "nv", *folders])
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\necho "$*" >&2\necho \'{"case": "copy", "ratio": 2}\'\n')
    script.chmod(0o755)
    run = Run(options, python=str(script))
    hardware_run.calibration(run, 60)
    (stage,) = run.stages
    assert (stage.status, stage.facts) == ("passed", {"rows": [{"case": "copy", "ratio": 2}]})
    assert stage.tail.split() == ["-m", "tools.calibrate", "--device", "nv-emu", "--groups", "4"]
