"""Masks whose lanes are read one by one, beside other uses: LLVM 22.1 loses such a mask on AVX-512.

Its pass x86-compress-evex replaces VPMOVD2M and a move of the mask to a general register by VMOVMSKPS, and
overlooks later instructions that read the mask and overwrite it.

Not here: the values of masked elements (`tests/frontend/test_movement_methods`), their addresses
(`test_masked_accesses`). Next: `compiler.text.llvm_ir.read_mask`.
"""

from __future__ import annotations

import numpy as np
import pytest

from compiler.dtype import DType, dtypes
from compiler.emit import linear
from compiler.emit.builder import Builder
from compiler.emit.linear import POINTER, Line
from compiler.targets import target_of
from compiler.text.llvm_ir import render
from frontend import Tensor
from frontend.autograd import grad
from tests.compiler.host_kernel import ARCH, HostKernel


def argument(b: Builder, slot: int) -> Line:
    return b.line("argument", POINTER, 1, (), slot)


def run(b: Builder, *arrays: np.ndarray) -> None:
    """Compile the lines of a builder for this machine, and run them on arrays."""
    lines = linear.flatten(b.root)
    linear.verify(lines)
    target = target_of(ARCH)
    text = render(lines, "kernel", len(arrays), 0, target.dialect)
    HostKernel(target.emit(text, target.machine(), 0)).run([x.ctypes.data for x in arrays])


@pytest.mark.parametrize("read", ["any", "extract", "gather"])
@pytest.mark.parametrize(
    ("dtype", "lanes"),
    [(dtypes.int64, 4), (dtypes.int32, 8), (dtypes.int8, 16), (dtypes.int32, 3), (dtypes.int8, 12)],
)
def test_a_mask_of_signs_that_is_read_is_the_same_afterwards(dtype: DType, lanes: int, read: str) -> None:
    """The mask of negative elements, one lane of it, and what a bit that no lane knows leaves of it."""
    kept = (*[True] * (lanes - 1), False)
    b = Builder()
    signs, bits, out, one = [argument(b, slot) for slot in range(4)]
    x = b.line("load", dtype, lanes, (signs,))
    some = b.alu("and", b.cmp("slt", x, b.const(dtype, 0)), b.const(dtypes.bool, kept, lanes))
    if read == "any":
        found = b.line("any", dtypes.bool, 1, (some,))
    elif read == "extract":
        found = b.line("extract", dtypes.bool, 1, (some,), 2)
    else:
        index = b.const(dtypes.int32, tuple(range(lanes)), lanes)
        picked = b.line("gather", dtypes.int8, lanes, (bits, index, some))
        b.line("store", dtypes.int8, lanes, (b.offset(one, b.index(8), dtypes.int8), picked))
        found = b.const(dtypes.bool, value=True)
    b.line("store", dtypes.int8, 1, (one, b.convert("zext", found, dtypes.int8)))
    bit = b.cmp("sgt", b.line("load", dtypes.int8, 1, (bits,)), b.const(dtypes.int8, 0))
    rest = b.alu("and", some, b.splat(bit, lanes))
    b.line("store", dtype, lanes, (out, b.select(rest, x, b.const(dtype, 0, lanes))))
    for seed in range(4):
        values = np.random.default_rng(seed).integers(-9, 9, lanes).astype(f"i{dtype.itemsize}")
        into, told = np.full(lanes, 7, values.dtype), np.zeros(8 + lanes, np.int8)
        run(b, values, np.ones(lanes, np.int8), into, told)
        mask = (values < 0) & kept
        np.testing.assert_array_equal(into, np.where(mask, values, 0))
        assert told[0] == {"any": mask.any(), "extract": mask[2], "gather": True}[read]
        if read == "gather":
            np.testing.assert_array_equal(told[8:], mask)


def test_a_picture_padded_twice_keeps_its_elements() -> None:
    x = np.arange(6, dtype=np.int32).reshape(3, 2)
    once = ((2, 0), (0, 1))
    twice = ((0, 0), (1, 1), (2, 0))
    wanted = np.pad(np.pad(x, once).reshape(3, 5, 1), twice)
    np.testing.assert_array_equal(Tensor(x).pad(once).reshape(3, 5, 1).pad(twice).numpy(), wanted)


@pytest.mark.parametrize(("stride", "size", "side"), [(2, 4, 8), (3, 4, 8), (5, 4, 6), (6, 7, 5)])
def test_a_sum_over_the_gradient_of_a_transposed_convolution(stride: int, size: int, side: int) -> None:
    """Its kernel asks whether any of three elements is needed."""

    def gradient() -> Tensor:
        x = (Tensor.arange(6 * side * side).float().reshape(2, 3, side, side) * 0.37).sin().requires_grad_()
        w = Tensor.arange(6 * size * size).float().reshape(3, 2, size, size).cos()
        y = x.conv_transpose2d(w, stride=stride, padding=1)
        weights = Tensor.arange(y.numel()).float().cos().reshape(*y.shape)
        (found,) = grad((y * weights).sum(), [x])
        return found

    wanted = np.abs(gradient().numpy()).sum(dtype=np.float64)
    assert gradient().abs().sum().item() == pytest.approx(wanted, rel=1e-4)
