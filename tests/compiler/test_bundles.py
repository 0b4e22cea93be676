"""Bundles: lines of several registers have the text of as many single lines, and are checked."""

import pytest

from compiler.dtype import DType, dtypes
from compiler.emit import linear
from compiler.emit.accesses import rows_of, transposed
from compiler.emit.builder import Builder
from compiler.emit.linear import POINTER, Line
from compiler.pipeline import steps
from compiler.targets import target_of
from compiler.text.llvm_ir import render
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
    square = b.line("transpose", F32, lanes, (rows(b, lanes, lanes),), lanes)
    b.line("store_rows", F32, lanes, (pointer(b), square), tuple(range(lanes)))
    text = text_of(b)
    assert sum("shufflevector" in line for line in text) == shuffles
    assert len(text) < shuffles + 5 * lanes + 12


def test_shuffles_of_equal_rows_are_written_once():
    b = Builder()
    square = transposed(b, rows_of(b, rows(b, 1, 4), 1) * 4, 4)
    b.line("store_rows", F32, 4, (pointer(b), square), (0, 4, 8, 12))
    assert sum("shufflevector" in line for line in text_of(b)) == 6


def test_rows_of_a_square_that_are_not_wanted_have_no_shuffles():
    b = Builder()
    square = b.line("transpose", F32, 4, (rows(b, 4, 4),), 1)
    b.line("store_rows", F32, 4, (pointer(b), square), (0,))
    assert sum("shufflevector" in line for line in text_of(b)) == 3


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
    square = b.line("transpose", F32, 4, (rows(b, 3, 4),), 3)
    b.line("store_rows", F32, 4, (pointer(b), square), (0, 4, 8, 12))
    with pytest.raises(CompileError, match="as many vectors as lanes"):
        text_of(b)


def test_a_masked_factor_is_written_by_single_lines():
    i, j, k = loop(0, 64), loop(1, 64), loop(2, 64)
    x, y = load(1, i * 64 + k, mask=i + k < 100), load(2, k * 64 + j)
    made = steps(sink(store(0, i * 64 + j, reduce(op("MUL", x, y), "ADD", k))), target_of(X86))
    assert "llvm.fma" in made.ir


def filled(b: Builder, count: int) -> Line:
    return b.line("repeat", F32, 4, (b.const(F32, 0.0, 4),), count)


def products_of(b: Builder, sums: Line, places: tuple[int, ...], lanes: int = 4) -> Line:
    left, right = linear.LoadedFactor(F32, 1, places), linear.LoadedFactor(F32, lanes, (0,) * len(places))
    return b.line("products", F32, 4, (pointer(b), pointer(b), sums), linear.BundleProducts(left, right))


def test_products_keep_their_accumulators_in_a_loop():
    b = Builder()
    loop_ = b.enter_loop(b.index(0), b.index(10), 1, b.cursor)
    sums = b.carry(loop_, filled(b, 3))
    (total,) = b.leave_loop(loop_, [products_of(b, sums, (0, 5, 10))])
    both = b.line("alu_rows", F32, 4, (total, total), "fadd")
    b.line("store_rows", F32, 4, (pointer(b), both), (0, 4, 8))
    text = "\n".join(text_of(b))
    assert text.count("= phi <4 x float>") == 3
    assert text.count("= load float,") == 3
    assert text.count("= load <4 x float>,") == 1
    assert text.count("= fadd <4 x float>") == 3


def test_products_for_other_accumulators_are_refused():
    b = Builder()
    b.line("store_rows", F32, 4, (pointer(b), products_of(b, filled(b, 3), (0, 5))), (0, 4, 8))
    with pytest.raises(CompileError, match=r"wanted 3 places of each factor, saw \[2, 2\]"):
        text_of(b)


def test_factors_of_another_width_are_refused():
    b = Builder()
    b.line("store_rows", F32, 4, (pointer(b), products_of(b, filled(b, 2), (0, 5), 2)), (0, 4))
    with pytest.raises(CompileError, match="one lane or 4"):
        text_of(b)


def test_bundles_of_different_sizes_are_not_added():
    b = Builder()
    both = b.line("alu_rows", F32, 4, (filled(b, 2), filled(b, 3)), "fadd")
    b.line("store_rows", F32, 4, (pointer(b), both), (0, 4))
    with pytest.raises(CompileError, match="two bundles of one size"):
        text_of(b)
