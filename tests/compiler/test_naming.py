"""Names of kernels say what they do."""

import re

import pytest

from compiler.dtype import dtypes
from compiler.ir import graph
from compiler.ir.naming import kernel_name
from compiler.ir.uop import UOp
from compiler.schedule.scheduler import schedule


def _name(output: UOp) -> str:
    (item,) = schedule([output])
    return kernel_name(item.ast)


def param(slot: int, *shape: int) -> UOp:
    return graph.param(slot, shape, dtypes.float32)


def matrix_product(rows: int, columns: int, depth: int) -> UOp:
    a = graph.expand(graph.reshape(param(0, rows, depth), (rows, 1, depth)), (rows, columns, depth))
    b = graph.expand(graph.reshape(param(1, columns, depth), (1, columns, depth)), (rows, columns, depth))
    return graph.reduce(graph.binary("MUL", a, b), "ADD", (2,))


def softmax(rows: int, columns: int) -> UOp:
    def per_row(x: UOp) -> UOp:
        return graph.expand(graph.reshape(x, (rows, 1)), (rows, columns))

    x = param(0, rows, columns)
    powers = graph.unary("EXP", graph.binary("SUB", x, per_row(graph.reduce(x, "MAX", (1,)))))
    return graph.binary("DIV", powers, per_row(graph.reduce(powers, "ADD", (1,))))


def convolution() -> UOp:
    windows = graph.window(param(0, 8, 8), (0, 1), (3, 3), (1, 1), (1, 1))
    kernel = graph.expand(graph.reshape(param(1, 3, 3), (1, 1, 3, 3)), (6, 6, 3, 3))
    return graph.reduce(graph.binary("MUL", windows, kernel), "ADD", (2, 3))


@pytest.mark.parametrize(
    ("output", "name"),
    [
        (matrix_product(64, 48, 32), "matmul_64x48x32"),
        (graph.reduce(graph.binary("MUL", param(0, 100), param(1, 100)), "ADD", (0,)), "dot_100"),
        (softmax(64, 100), "softmax_64x100"), (convolution(), "conv_6x6x3x3"),
        (graph.reduce(param(0, 32, 10, 7), "ADD", (2,)), "sum_(32x10|320)_of_7"),
        (graph.reduce(param(0, 32, 10), "MAX", (1,)), "max_32_of_10"),
        (graph.unary("NEG", param(0, 4096)), "neg_4096"),
        (graph.binary("MIN", param(0, 64), param(1, 64)), "min_64"),
        (graph.unary("EXP", graph.binary("ADD", param(0, 64), param(1, 64))), "exp_add_64"),
        (graph.permute(param(0, 16, 8), (1, 0)), "copy_8x16"),
        (graph.contiguous(graph.full(0, (10,), dtypes.float32)), "fill_10"),
    ],
)  # fmt: skip
def test_a_kernel_is_named_by_its_role_and_sizes(output: UOp, name: str):
    assert re.fullmatch(f"{name}_[0-9a-f]{{6}}", _name(output))


def test_kernels_of_one_role_and_shape_have_different_names():
    x, y = param(0, 16), param(1, 16)
    sums = [graph.binary("ADD", x, y), graph.binary("ADD", x, x)]
    assert len({_name(each) for each in sums}) == 2


def test_a_name_is_bounded_and_an_identifier():
    x = graph.permute(param(0, *[3] * 14), tuple(reversed(range(14))))
    for op in ("EXP", "FLOOR", "SQRT", "LOG1P", "TRUNC", "ROUND"):
        x = graph.unary(op, x)
    assert re.fullmatch("round_trunc_log1p_3(x3){11}_[0-9a-f]{6}", _name(x))
