"""The tool that records the kernels of a run of tests and compiles them for other targets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from compiler.ir.serialize import kernel_key
from compiler.llvm import Machine
from tests.compiler.kernels import load, loop, op, sink, store
from tests.fuzz.amd_cases import Case
from tools import kernel_corpus

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
    command = [sys.executable, "-m", "tools.kernel_corpus", "record", str(kernels), "--"]
    subprocess.run([*command, str(test), "-q", "-p", "no:cacheprovider"], check=True, cwd=HOME)
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
