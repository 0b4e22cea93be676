"""The count of blocks in which three ways or more meet, in LLVM's optimised IR."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from compiler.ir.serialize import kernel_key
from compiler.llvm import Machine
from tests.compiler.kernels import load, loop, op, sink, store
from tests.fuzz.amd_cases import Case
from tools import kernel_merges

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

AMD = Machine("amdgcn-amd-amdhsa", "gfx1100")


def test_ways_are_counted_by_block() -> None:
    text = """define i32 @f(i32 %x) {
  switch i32 %x, label %c [
    i32 0, label %a
    i32 1, label %b
  ]

a:                                                ; preds = %0
  br label %end

end:                                              ; preds = %c, %b, %a
"""
    assert kernel_merges.ways(text) == {"a": 1, "end": 3}


def test_the_case_that_llvm_miscompiles_is_one_that_is_counted() -> None:
    assert max(kernel_merges.ways(kernel_merges.optimised(Case.whole(48).text("gfx1100"), AMD)).values()) > 2


def test_a_kernel_of_the_compiler_has_no_such_block(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    i = loop(0, 300)
    kernels = tmp_path / "kernels"
    text = kernel_key(sink(store(0, i, op("ADD", load(1, i), load(2, i)))))
    kernels.write_text(json.dumps(text) + "\n")
    assert kernel_merges.main([str(kernels), "gfx942", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"gfx942": {}}
