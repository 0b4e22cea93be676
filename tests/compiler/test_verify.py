"""The verifier names the node that breaks a rule."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from compiler.dtype import dtypes
from compiler.ir import graph as g
from compiler.ir import index as symbolic
from compiler.ir.ops import Ops
from compiler.ir.uop import const, uop
from compiler.ir.verify import verify_kernel, verify_tensor
from compiler.schedule.scheduler import schedule
from hcq.config import override
from hcq.errors import CompileError
from tests.compiler.graphs import F32, Program

if TYPE_CHECKING:
    from collections.abc import Callable

    from compiler.ir.uop import UOp

R0, R1 = symbolic.loop(0, 4), symbolic.loop(1, 5)


def buffer(slot: int) -> UOp:
    return uop(Ops.BUFFER, F32, (), slot)


def load(slot: int, index: UOp, *mask: UOp) -> UOp:
    return uop(Ops.LOAD, F32, (buffer(slot), index, *mask))


def store(value: UOp, index: UOp = R0, slot: int = 0) -> UOp:
    return uop(Ops.STORE, dtypes.void, (buffer(slot), index, value))


def kernel(*stores: UOp) -> UOp:
    return uop(Ops.SINK, dtypes.void, stores)


def reduce(value: UOp, *ranges: int) -> UOp:
    return uop(Ops.REDUCE, F32, (value,), (Ops.ADD, ranges))


def test_a_good_kernel_passes() -> None:
    verify_kernel(kernel(store(reduce(load(1, R0 * 5 + R1), 1))))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: store(load(1, R0)), "a kernel is a SINK"),
        (lambda: kernel(store(load(1, R0 * 5 + R1))),
         r"ranges \[1\] of its value are neither stored over nor reduced"),
        (lambda: kernel(store(reduce(load(1, R0), 1))), r"does not depend on ranges \[1\]"),
        (lambda: kernel(store(reduce(load(1, R0), 0))), r"reduces output ranges \[0\]"),
        (lambda: kernel(store(load(2, R0))), "numbered from 0 without holes"),
        (lambda: kernel(store(load(1, symbolic.loop(1, 3)), symbolic.loop(1, 3))),
         r"ranges must be numbered 0\.\.0"),
        (lambda: kernel(store(load(1, R0 - 1))), "reads at -1 without a mask"),
        (lambda: kernel(store(load(1, R0, symbolic.TRUE))), "leave out one that always holds"),
        (lambda: kernel(store(load(1, R0)), store(load(1, R1), R1, 2)),
         r"stores over ranges \[1\], another store"),
        (lambda: kernel(store(load(1, R0)), store(load(2, R0))), "two stores write the same elements"),
        (lambda: kernel(store(load(0, R0 * -1 + 3))), "loads a stored buffer at another place"),
        (lambda: kernel(store(uop(Ops.ADD, F32, (load(1, R0), const(1, dtypes.int32))))),
         "float32 and int32"),
        (lambda: kernel(store(uop(Ops.ADD, F32, (load(1, R0), R0)))), "IVALUE turns an index"),
        (lambda: kernel(store(const(1, dtypes.int32))), "stores int32 to a buffer of float32"),
        (lambda: kernel(store(uop(Ops.SQRT, dtypes.int32, (const(1, dtypes.int32),)))), "wanted a float"),
        (lambda: kernel(store(g.param(0, (), F32))), "is not an operation of kernels"),
        (lambda: kernel(store(reduce(reduce(load(1, R0 * 5 + R1), 1), 1))),
         r"does not depend on ranges \[1\]"),
    ],
)  # fmt: skip
def test_a_broken_kernel_is_refused_with_a_message(build: Callable[[], UOp], words: str) -> None:
    with pytest.raises(CompileError, match=words):
        verify_kernel(build())


def test_a_tensor_node_whose_sources_do_not_fit_is_named() -> None:
    x, y = g.param(0, (3,), F32), g.param(1, (4,), F32)
    with pytest.raises(CompileError, match=r"<ADD float32 \(3,\).*\(3,\) and \(4,\)"):
        verify_tensor(uop(Ops.ADD, F32, (x, y)))


def test_a_kernel_node_is_refused_in_a_tensor_graph() -> None:
    with pytest.raises(CompileError, match="not an operation of tensor graphs"):
        verify_tensor(load(0, R0))


def test_scheduling_verifies_when_debugging() -> None:
    bad = uop(Ops.ADD, F32, (g.param(0, (3,), F32), g.param(1, (4,), F32)))
    with override(debug=1), pytest.raises(CompileError):
        schedule([bad])


def test_random_graphs_pass() -> None:
    for seed in range(50):
        for output in Program(random.Random(seed), length=20).outputs():
            verify_tensor(output)
