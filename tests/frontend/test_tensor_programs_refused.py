"""Wrong input is refused by `UsageError` before anything is sent, and says what was wanted and seen."""

# ruff: noqa: ARG005 - the entries of one table take the same arguments

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hcq
from frontend import Device, Tensor, TinyJit, dtypes, nn, stats
from tests.children import python

if TYPE_CHECKING:
    from collections.abc import Callable

CASES: dict[str, tuple[Callable[[Any, Any, Any, Any], object], str]] = {
    "broadcast": (lambda a, b, i, p: a + b, r"\(3, 4\) and \(5, 4\) do not broadcast"),
    "reshape": (lambda a, b, i, p: a.reshape(5, 3), "12 elements are not 15"),
    "two unknown sizes": (lambda a, b, i, p: a.reshape(-1, -1), "at most one is -1"),
    "fractional shape": (lambda a, b, i, p: a.reshape(1.5, 8), "shape .* a whole number .*, saw 1.5"),
    "matmul": (lambda a, b, i, p: a @ b, "last axis of the left, 4, must equal axis -2 of the right, 5"),
    "cat": (lambda a, b, i, p: a.cat(b, axis=1), r"shapes \[\(3, 4\), \(5, 4\)\] must be equal"),
    "cat axis": (lambda a, b, i, p: a.cat(b, axis=5), r"no axis 5; the shape \(3, 4\) has axes -2..1"),
    "channels": (lambda a, b, i, p: p.conv2d(Tensor.ones(4, 2, 3, 3)), "wanted 2 input channels"),
    "window": (lambda a, b, i, p: p.max_pool2d((9, 9)), "a kernel of 9.*8 elements"),
    "axis": (lambda a, b, i, p: a.sum(2), "no axis 2"),
    "axis twice": (lambda a, b, i, p: a.sum((0, 0)), "stands twice"),
    "order": (lambda a, b, i, p: a.permute(0, 0), "every axis 0..1 exactly once"),
    "bounds": (lambda a, b, i, p: a.shrink(((0, 5), None)), "begin <= end <= size"),
    "index": (lambda a, b, i, p: a[3], "outside its 3 elements"),
    "index of floats": (lambda a, b, i, p: a[a], "must hold integers, saw float32"),
    "axes": (lambda a, b, i, p: a[0, 0, 0], "only 2 axes"),
    "dtype by name": (lambda a, b, i, p: Tensor([1], dtype="float31"), "'float31'; there are: bool, int8"),
    "dtype of kernels": (lambda a, b, i, p: Tensor([1], dtype="index"), "only inside kernels; .*float32"),
    "dtype of cast": (lambda a, b, i, p: a.cast("foo"), "no element type is called 'foo'"),
    "bits of floats": (lambda a, b, i, p: a & 1, "integers or bool, saw float32"),
    "assigned dtype": (lambda a, b, i, p: a.assign(a.int()), "float32, the value int32; cast"),
    "assigned shape": (lambda a, b, i, p: a.assign(b), r"\(3, 4\) and \(5, 4\)"),
    "operand": (lambda a, b, i, p: a + "x", "saw str"),
    "ragged lists": (lambda a, b, i, p: Tensor([[1], [2, 3]]), "differ in length"),
    "range": (lambda a, b, i, p: Tensor([-1], dtype=dtypes.uint8), "does not fit uint8"),
    "range of numbers": (lambda a, b, i, p: Tensor.arange(300, dtype=dtypes.uint8),
        "to 299 does not fit uint8"),
    "truth": (lambda a, b, i, p: bool(a > 0), r"\.item\(\)"),
    "device": (lambda a, b, i, p: Tensor([1], device="gpu9000"), "(?s)'gpu9000'; drivers: .*has .*cpu"),
    "device number": (lambda a, b, i, p: a.to("cpu:7"), "one cpu device"),
    "layer": (lambda a, b, i, p: Tensor.no_grad()(lambda: nn.Linear(5, 2)(a))(),
              r"Linear has 5 inputs, saw \(3, 4\), whose last axis is 4"),
    "targets": (lambda a, b, i, p: a.cross_entropy(i[:2]), r"wanted integer targets \(3,\), saw int64\[2\]"),
    "size": (lambda a, b, i, p: (Tensor.ones(2**40, 2**40) * a[0, 0]).realize(),
             "(?s)would take 48357.* bytes.*hint"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_wrong_input_is_refused_before_anything_is_sent(case: str) -> None:
    call, message = CASES[case]
    given = [Tensor(np.ones(s, "f")) for s in ((3, 4), (5, 4))] + [
        Tensor([1, 2, 0]),
        Tensor(np.ones((1, 3, 8, 8), "f")),
    ]
    before = (stats.launches, stats.kernels)
    with pytest.raises(hcq.UsageError, match=message):
        call(*given)
    assert (stats.launches, stats.kernels) == before
    assert given[0].sum().item() == 12


def test_every_use_of_a_closed_buffer_is_refused() -> None:
    x = Tensor(np.arange(5, dtype="f"))
    doubled = TinyJit(lambda t: t * 2)
    (x + 1).realize()
    for _ in range(3):
        doubled(x)
    x.leaves[0].buffer.close()
    before = (stats.launches, stats.kernels)
    for use in (
        lambda: (x + 1).sum().item(),
        lambda: (x * 7 - 2).sum().item(),
        lambda: doubled(x).realize(),
        x.numpy,
        lambda: x.assign(x + 1),
        lambda: x.assign(Tensor.ones(5)),
    ):
        with pytest.raises(hcq.UsageError, match="used after it was closed"):
            use()
    assert (stats.launches, stats.kernels) == before
    assert doubled(Tensor(np.ones(5, "f"))).tolist() == [2] * 5


@pytest.mark.slow
def test_closed_device_is_refused_and_reopens() -> None:
    """What was to be assigned there does not come back to trouble others."""
    done = python("-W", "error", "-c", textwrap.dedent("""
            import hcq, numpy as np
            from frontend import Device, Tensor, TinyJit
            x, y = Tensor(np.arange(5.0)), Tensor(np.arange(5.0))
            double = TinyJit(lambda t: t * 2)
            for _ in range(3): double(x)
            y.assign(x + 1)
            Device["cpu"].close()
            uses = lambda: (x + 2).numpy(), lambda: double(x), lambda: x.assign(x + 1)
            for use in (x.numpy, y.numpy, *uses):
                try: use()
                except hcq.UsageError as error: assert "is closed" in str(error), error
                else: raise AssertionError("not refused")
            new = Tensor(np.arange(5.0))
            try: double(new)
            except hcq.UsageError as error: assert "is closed" in str(error), error
            double.reset()
            print([double(new).tolist() for _ in range(4)] == [[0, 2, 4, 6, 8]] * 4)
        """), status=None)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_available_devices_are_reported() -> None:
    with pytest.raises(hcq.UsageError, match=r"(?s)'tpu'.*this machine has .*cpu"):
        Device["tpu"]
