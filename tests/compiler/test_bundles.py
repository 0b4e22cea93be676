"""Bundles: lines of several registers have the text of as many single lines, and are checked."""

import pytest

from compiler.codegen.llvm_ir import render
from compiler.dtype import DType, dtypes
from compiler.kernel import linear
from compiler.kernel.accesses import rows_of, transposed
from compiler.kernel.builder import Builder
from compiler.kernel.linear import POINTER, Line
from compiler.pipeline import steps
from compiler.targets import target_of
from hcq.errors import CompileError
from tests.compiler.kernels import load, loop, op, reduce, sink, store

F32 = dtypes.float32
X86 = "x86_64-v4"


def text_of(b: Builder) -> list[str]:
    lines = linear.prune(linear.flatten(b.root))
    linear.verify(lines)
    return render(lines, "kernel", 1, 0, target_of(X86).dialect).splitlines()


def pointer(b: Builder) -> Line:
    return b.line("argument", POINTER, 1, (), 0)


def rows(b: Builder, count: int, lanes: int, dtype: DType = F32) -> Line:
    return b.line("load_rows", dtype, lanes, (pointer(b),), tuple([100 * k for k in range(count)]))


def products(n: int):
    """A matrix times a transposed one."""
    i, j, k = loop(0, n), loop(1, n), loop(2, n)
    return sink(store(0, i * n + j, reduce(op("MUL", load(1, i * n + k), load(2, j * n + k)), "ADD", k)))


def test_rows_are_loaded_and_stored_by_one_instruction_each():
    b = Builder()
    b.line("store_rows", F32, 8, (pointer(b), rows(b, 3, 8)), (0, 8, 16))
    text = text_of(b)
    loads = [line for line in text if "= load <8 x float>" in line]
    assert len(loads) == 3
    assert all(line.endswith("align 4") for line in loads)
    assert [line.split("i64 ")[1] for line in text if "= getelementptr float" in line] == [
        "100",
        "200",
        "8",
        "16",
    ]
    assert sum("store <8 x float>" in line for line in text) == 3


def test_the_first_vector_is_at_the_pointer_itself():
    b = Builder()
    b.line("store_rows", F32, 4, (pointer(b), rows(b, 1, 4)), (0,))
    assert not any("= getelementptr float" in line for line in text_of(b))


@pytest.mark.parametrize(("lanes", "shuffles"), [(2, 2), (4, 8), (16, 64)])
def test_a_square_is_transposed_by_shuffles_of_two_rows(lanes: int, shuffles: int):
    b = Builder()
    square = b.line("transpose", F32, lanes, (rows(b, lanes, lanes),))
    b.line("store_rows", F32, lanes, (pointer(b), square), tuple(range(lanes)))
    text = text_of(b)
    assert sum("shufflevector" in line for line in text) == shuffles
    assert len(text) < shuffles + 5 * lanes + 12


def test_shuffles_of_equal_rows_are_written_once():
    b = Builder()
    square = transposed(b, rows_of(b, rows(b, 1, 4), 1) * 4)
    b.line("store_rows", F32, 4, (pointer(b), square), (0, 4, 8, 12))
    assert sum("shufflevector" in line for line in text_of(b)) == 6


def test_a_row_of_a_bundle_is_used_like_any_register():
    b = Builder()
    first, second = rows_of(b, rows(b, 2, 4), 2)
    b.line("store", F32, 4, (pointer(b), b.alu("fadd", first, second)))
    assert any("fadd <4 x float>" in line for line in text_of(b))


def test_a_row_that_a_bundle_lacks_is_refused():
    b = Builder()
    b.line("store", F32, 4, (pointer(b), b.line("row", F32, 4, (rows(b, 2, 4),), 2)))
    with pytest.raises(CompileError, match="one of 2 rows, not 2"):
        text_of(b)


def test_a_row_of_a_single_register_is_refused():
    b = Builder()
    x = b.line("load", F32, 4, (pointer(b),))
    b.line("store", F32, 4, (pointer(b), b.line("row", F32, 4, (x,), 0)))
    with pytest.raises(CompileError, match="one of 0 rows"):
        text_of(b)


def test_more_addresses_than_vectors_are_refused():
    b = Builder()
    b.line("store_rows", F32, 4, (pointer(b), rows(b, 2, 4)), (0, 4, 8))
    with pytest.raises(CompileError, match="wanted 3 vectors, saw 2"):
        text_of(b)


def test_a_bundle_that_is_no_square_is_not_transposed():
    b = Builder()
    square = b.line("transpose", F32, 4, (rows(b, 3, 4),))
    b.line("store_rows", F32, 4, (pointer(b), square), (0, 4, 8, 12))
    with pytest.raises(CompileError, match="as many vectors as lanes"):
        text_of(b)


def test_a_panel_that_is_transposed_takes_a_few_lines():
    made = steps(products(256), target_of(X86))
    ops = [line.op for line in made.lines]
    assert "shuffle" not in ops
    assert ops.count("load_rows") == ops.count("transpose") == ops.count("store_rows") == 1
    assert made.ir.count("shufflevector") >= 64
