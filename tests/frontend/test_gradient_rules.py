"""Every gradient rule, checked numerically in float64; higher orders; backward and .grad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from compiler.ir import ops
from compiler.ir.ops import Ops
from frontend import Tensor, dtypes, stats
from frontend.autograd import elementwise, table
from frontend.evaluation.expr import CONV, INPUT, PLACE, RULED, SEGMENT, STOP, VERSION
from frontend.evaluation.history import OPAQUE
from frontend.methods import METHODS
from frontend.primitives.gather_scatter import SEGMENT_SUM, TAKE_ALONG_AXIS
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontend.evaluation.expr import TensorExpr
    from frontend.methods import MethodRow

RNG = np.random.default_rng(3)


def numbers(*shape: int, low: float = -2.0, high: float = 2.0) -> Any:
    """Float64 numbers of distinct magnitudes, not near 0: away from jumps of derivatives."""
    n = int(np.prod(shape))
    least = max(low, 0.1)
    sizes = least + (np.arange(n) + RNG.uniform(0.25, 0.75, n)) * (high - least) / n
    signs = RNG.choice([-1.0, 1.0], n) if low < 0 else 1.0
    return RNG.permutation(sizes * signs).reshape(shape)


def check(fn: Callable[..., Tensor], *arrays: Any, eps: float = 1e-5, rtol: float = 1e-5) -> None:
    """Compare the gradients of a weighted sum of fn's result with central differences."""
    tensors = [Tensor(a) for a in arrays]
    shape = fn(*tensors).shape
    weight = RNG.uniform(0.5, 1.5, shape)

    def loss(ts: list[Tensor]) -> Tensor:
        return (fn(*ts) * Tensor(weight)).sum()

    grads = loss(tensors).gradient(*tensors)
    for k, (array, g) in enumerate(zip(arrays, grads, strict=True)):
        assert g.shape == array.shape
        assert g.dtype is dtypes.float64
        want = np.zeros_like(array)
        for at in np.ndindex(*array.shape):
            values = []
            for sign in (1, -1):
                moved = array.copy()
                moved[at] += sign * eps
                values.append(loss([*tensors[:k], Tensor(moved), *tensors[k + 1 :]]).item())
            want[at] = (values[0] - values[1]) / (2 * eps)
        np.testing.assert_allclose(g.numpy(), want, rtol=rtol, atol=1e-7)


SMOOTH = [row for row in METHODS if row.oracle and row.differentiable and "float" in row.kinds]


def operations(e: TensorExpr) -> set[str]:
    """Return the operations of an expression and of all that it is made of."""
    return {e.op}.union(*map(operations, e.src))


def arrays_of(row: MethodRow) -> list[Any]:
    return [numbers(4, low=row.domain[0], high=row.domain[1]) for _ in range(row.operands)]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("row", SMOOTH, ids=lambda row: row.own)
def test_gradients_of_an_elementwise_method(row: MethodRow):
    check(getattr(Tensor, row.plain[0]), *arrays_of(row))


UNARY: dict[str, tuple[Callable[[Tensor], Tensor], Any]] = {
    Ops.RESHAPE: (lambda x: x.reshape(3, 2) * Tensor([[1.0], [2.0], [3.0]], dtype="float64"), numbers(2, 3)),
    Ops.PERMUTE: (lambda x: x.permute(2, 0, 1).exp(), numbers(2, 3, 2)),
    Ops.EXPAND: (lambda x: x.expand(4, 3).sin(), numbers(1, 3)),
    Ops.PAD: (lambda x: x.pad(((1, 0), (2, 1))).exp(), numbers(2, 2)),
    Ops.SHRINK: (lambda x: x[1:3, :1].exp(), numbers(4, 2)),
    Ops.FLIP: (lambda x: x.flip(0).exp(), numbers(3, 2)),
    Ops.CONTIGUOUS: (lambda x: x.contiguous().exp(), numbers(3)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", UNARY)
def test_rule_of_one_source(op: str):
    fn, x = UNARY[op]
    check(fn, x)


BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "broadcast": lambda a, b: a * b + b,
    "power": lambda a, b: a.exp() ** b,
    "remainder": lambda a, b: (a * 7) % (b + 10),
    Ops.WHERE: lambda a, b: (a > b).where(a * 2, b * 3),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", BINARY)
def test_rule_of_two_sources(op: str):
    check(BINARY[op], numbers(2, 3), numbers(3))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (2, 3)])
def test_rule_of_windows(size: int, stride: int, dilation: int):
    check(lambda x: x.windows(1, size, stride, dilation).exp(), numbers(2, 11))


def test_rule_of_windows_over_two_axes():
    check(lambda x: x.windows((0, 1), (2, 3), (2, 1), (1, 2)).sin(), numbers(5, 7))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("axis", [None, 0, (0, 2)])
@pytest.mark.parametrize("name", ["sum", "amax", "amin", "prod"])
def test_rule_of_reductions(name: str, axis: Any):
    check(lambda x: getattr(x, name)(axis).sin(), numbers(2, 3, 2))


def test_rule_of_gather():
    index = Tensor([[2, 0], [0, -1]])
    check(lambda x: x.take(index, axis=1).exp(), numbers(2, 3))
    check(lambda x: x[index].exp(), numbers(4, 2))
    check(lambda x: x[Tensor([0, 1, 1]), Tensor([2, 0, 0])].exp(), numbers(2, 3))


@pytest.mark.slow
def test_rules_of_elements_along_an_axis():
    index = Tensor([[2, 0, 2], [-1, 1, 0]])
    for axis, shape in ((1, (2, 4)), (0, (3, 3))):
        check(lambda x, axis=axis: x.gather(axis, index).exp(), numbers(*shape))
        check(lambda x, y, axis=axis: x.scatter_add(axis, index, y).exp(), numbers(*shape), numbers(2, 3))
        once = Tensor([[1, 0, 2], [-1, 1, 0]])  # several values at one index: edges.json
        check(lambda x, y, axis=axis, i=once: x.scatter(axis, i, y).exp(), numbers(*shape), numbers(3, 4))
    check(lambda x: (x.gather(1, index) ** 3).sum().gradient(x)[0], numbers(2, 4))


def test_rule_of_cast():
    x = Tensor([1.0, 2.0])
    (g,) = (x.cast(dtypes.float64).exp() * 2).sum().gradient(x)
    assert g.dtype is dtypes.float32
    np.testing.assert_allclose(g.numpy(), 2 * np.exp([1.0, 2.0]), rtol=1e-6)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [(1, 0, 1, 1), (2, 1, 1, 1), ((3, 2), 1, 1, 1), (1, 2, 2, 1), (2, 1, 1, 2), (1, 0, (1, 2), 4)],
)
def test_rule_of_convolution(stride: Any, padding: Any, dilation: Any, groups: int):
    check(
        lambda x, w, b: x.conv2d(w, b, stride, padding, dilation, groups),
        numbers(2, 4, 6, 7),
        numbers(4, 4 // groups, 2, 3),
        numbers(4),
    )


def test_convolution_differentiates_twice():
    x, w = Tensor(numbers(1, 2, 5, 5)), Tensor(numbers(2, 2, 3, 3))
    check(lambda a, b: (a.conv2d(b, stride=2) ** 2).sum().gradient(a)[0], x.numpy(), w.numpy())


def test_an_assigned_value_passes_gradients_to_what_it_was_assigned_from():
    y, z = Tensor([1.0, 2.0]).realize(), Tensor([3.0, 4.0]).realize()
    y.assign(z)
    assert (y * y).sum().gradient(z)[0].tolist() == [6.0, 8.0]
    assert y.tolist() == [3.0, 4.0]
    part = Tensor([[1.0, 2.0], [3.0, 4.0]])
    part[0] = z
    assert (part * part).sum().gradient(z)[0].tolist() == [6.0, 8.0]


def test_a_detached_tensor_stays_detached_when_realized():
    x = Tensor([3.0], requires_grad=True)
    for stopped in (x.detach(), x.detach().reshape(1, 1).detach().reshape(1)):
        (stopped.realize() * x).sum().backward()
        assert x.grad is not None
        assert x.grad.item() == 3.0
        x.grad = None


def test_reading_a_detached_tensor_runs_no_kernel():
    x = Tensor([[1.0, 2.0]])
    before = stats.kernels
    assert x.detach().reshape(2).numpy().tolist() == [1.0, 2.0]
    assert stats.kernels == before


def test_every_rule_is_tested_here():
    results = [getattr(Tensor, row.plain[0])(*map(Tensor, arrays_of(row))) for row in SMOOTH]
    tested = set().union(*[operations(t.expr) for t in results]) & elementwise.RULES.keys()
    tested |= UNARY.keys() | {Ops.WHERE}
    tested |= {Ops.WINDOW, Ops.REDUCE, Ops.GATHER, Ops.CAST, CONV, STOP, TAKE_ALONG_AXIS, SEGMENT_SUM}
    tested |= {RULED}  # tests/frontend/test_gradients_of_pytorch.py
    tested |= {Ops.WITHIN}  # tests/frontend/test_symbolic_sizes.py
    tested |= {INPUT, SEGMENT, Ops.AFTER}  # tests/frontend/test_checkpointing.py
    tested |= {VERSION}  # tests/frontend/test_gradients_in_place.py
    tested |= {PLACE}  # tests/frontend/test_many_devices.py
    assert set(table.RULES) == tested


TWICE: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        name: (lambda x, name=name: getattr(x, name)())
        for name in [
            "elu", "leaky_relu", "sigmoid", "logsigmoid", "silu", "gelu", "softplus", "softsign", "mish",
            "std", "var", "logsumexp",
        ]
    },
    "clip": lambda x: x.clip(-1, 1) * x,
    "relu": lambda x: x.relu() * x.sin(),
    "hardswish": lambda x: x.hardswish() * x,
    "hardsigmoid": lambda x: x.hardsigmoid() * x.sin(),
    "quick_gelu": lambda x: x.quick_gelu(),
    "norm of 2": lambda x: x.normalize(),
    "norm of 3": lambda x: x.normalize(3.0),
    "square root": lambda x: (x.abs() + 0.5) ** 0.5,
    "inverse square root": lambda x: (x.abs() + 0.5) ** -0.5,
    "remainder": lambda x: (x % 0.7) * x,
    "lerp": lambda x: x.lerp(x.sin(), x.cos()),
    "product": lambda x: x.prod(1),
    "greatest": lambda x: x.max(1)[0] * x.max(),
    "pool": lambda x: x.max_pool2d((2, 2), 1) * 2,
    "part": lambda x: x.cat(x[:0], axis=0).exp(),
    "binary_crossentropy": lambda x: x.sigmoid().binary_crossentropy(x.cos().square()),
    "binary_crossentropy_logits": lambda x: x.binary_crossentropy_logits(x.cos().square()),
}  # fmt: skip


@pytest.mark.sampled(17)
@pytest.mark.parametrize("name", TWICE)
def test_rules_differentiate_twice(name: str):
    fn = TWICE[name]
    check(lambda x: (fn(x) ** 2).sum().gradient(x)[0], numbers(3, 4), rtol=1e-4)


def test_losses():
    classes = Tensor([1, 0, 3])
    check(lambda x: x.sparse_categorical_crossentropy(classes, label_smoothing=0.1), numbers(3, 4))
    check(lambda x: x.cross_entropy(classes, reduction="sum"), numbers(3, 4))
    check(lambda x: x.binary_crossentropy_logits(x.sigmoid()), numbers(3))


def test_third_order():
    x = Tensor([0.7], dtype=dtypes.float64)
    g = x.sin().sum()
    for _ in range(3):
        (g,) = g.sum().gradient(x)
    np.testing.assert_allclose(g.numpy(), -np.cos([0.7]), rtol=1e-12)


def test_gradients_of_pending_tensors_and_with_a_given_gradient():
    x = Tensor([1.0, 2.0])
    h = x * x
    (g,) = (h * 3).sum().gradient(h)
    assert g.tolist() == [3.0, 3.0]
    (g,) = h.gradient(x, gradient=Tensor([1.0, 10.0]))
    assert g.tolist() == [2.0, 40.0]


def test_gradient_refuses_invalid_targets():
    x = Tensor([1.0, 2.0])
    with pytest.raises(UsageError, match=r"shape \(2,\)"):
        (x * 2).gradient(x)
    with pytest.raises(UsageError, match="int64"):
        Tensor([1]).sum().gradient(x)
    with pytest.raises(UsageError, match="target 0"):
        Tensor([1.0]).sum().gradient(x)
    with pytest.raises(UsageError, match="gradient= must be"):
        (x * 2).gradient(x, gradient=Tensor([1.0]))


def test_backward_adds_up_and_step_consumers_reset():
    w = Tensor([2.0], requires_grad=True)
    (w * w).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [4.0]
    (w * 3).sum().backward()
    assert w.grad.tolist() == [7.0]
    w.grad = None
    assert w.grad is None


def test_backward_skips_tensors_with_undecided_requires_grad():
    w, v = Tensor([2.0], requires_grad=True), Tensor([3.0])
    (w * v).sum().backward()
    assert v.grad is None
    assert v.requires_grad is False


def test_constants_with_requires_grad_are_distinguished():
    a, b = Tensor.zeros(2).requires_grad_(), Tensor.zeros(2).requires_grad_()
    (a * 2 + b * 3).sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    assert (a.grad.tolist(), b.grad.tolist()) == ([2.0, 2.0], [3.0, 3.0])


def test_backward_of_a_realized_tensor_is_refused():
    w = Tensor([2.0], requires_grad=True)
    loss = (w * w).sum().realize()
    with pytest.raises(UsageError, match="call backward\\(\\) first"):
        loss.backward()
    with pytest.raises(UsageError, match="no tensor with requires_grad"):
        (Tensor([1.0]) * 2).sum().backward()


def test_a_known_backward_is_a_lookup():
    from frontend.evaluation.expr import TABLE

    def grads() -> list[Tensor]:
        x, y = Tensor([1.0, 2.0, 3.0]), Tensor([3.0, 4.0, 5.0])
        return (x * y).tanh().sum().gradient(x, y)

    first = grads()
    size = len(TABLE)
    second = grads()
    assert len(TABLE) == size
    assert [g.expr for g in first] == [g.expr for g in second]


def test_operations_without_a_rule_are_opaque_or_give_no_floats():
    assert table.RULES.keys() & OPAQUE == {STOP}
    whole = {Ops.NOT, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR} | ops.COMPARE
    assert (ops.UNARY | ops.BINARY) - table.RULES.keys() - OPAQUE == whole
