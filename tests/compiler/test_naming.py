"""Names of kernels say what they do."""

import re

from compiler import graph
from compiler.dtype import dtypes
from compiler.naming import kernel_name
from compiler.schedule import schedule
from compiler.uop import UOp


def _name(output: UOp) -> str:
    (item,) = schedule([output])
    return kernel_name(item.ast)


def test_a_reduction_is_named_by_what_it_does_and_its_output_sizes():
    x = graph.param(0, (32, 10, 7), dtypes.float32)
    assert re.fullmatch(r"sum_(32x10|320)_[0-9a-f]{6}", _name(graph.reduce(x, "ADD", (2,))))


def test_a_map_is_named_by_its_sizes():
    x = graph.param(0, (4096,), dtypes.float32)
    assert re.fullmatch(r"map_4096_[0-9a-f]{6}", _name(graph.unary("NEG", x)))


def test_kernels_of_one_shape_have_different_names():
    x = graph.param(0, (16,), dtypes.float32)
    assert _name(graph.unary("NEG", x)) != _name(graph.unary("SQRT", x))
