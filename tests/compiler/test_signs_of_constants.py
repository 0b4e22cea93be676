"""0.0 and -0.0 are different constants, however they are made."""

from __future__ import annotations

import math

import pytest

from compiler.dtype import DType, dtypes
from compiler.ir.ops import Ops
from compiler.ir.serialize import kernel_key, parse_kernel
from compiler.ir.uop import const, uop
from tests.compiler.kernels import loop, run, sink, store


@pytest.mark.parametrize(
    "dtype",
    [t for t in dtypes.all() if t.is_float and not t.name.endswith("fnuz")],
    ids=lambda d: d.name,
)
def test_a_zero_keeps_its_sign(dtype: DType):
    for first, second in ((0.0, -0.0), (-0.0, 0.0)):
        kept = const(first, dtype), uop(Ops.CONST, dtype, (), second)
        assert [math.copysign(1.0, x.arg) for x in kept] == [math.copysign(1.0, n) for n in (first, second)]
        assert uop(Ops.CONST, dtype, (), first) is kept[0]
        assert const(second, dtype) is kept[1]


def test_a_kernel_stores_the_zero_of_its_text():
    i = loop(0, 8)
    ast = sink(store(0, i, const(-0.0, dtypes.float32)))
    assert parse_kernel(kernel_key(ast)) is ast
    stored = run(ast, {}, {0: (8, dtypes.float32)})[0]
    assert all(math.copysign(1.0, n) < 0 for n in stored.tolist())
