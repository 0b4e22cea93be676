"""Views: a write to one changes all that share elements with it, and nothing else."""

from __future__ import annotations

import gc
import random
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from frontend import Device, Tensor, TinyJit, Variable, stats
from frontend.evaluation.views import SWEEP
from hcq.errors import UsageError
from tests.children import python

if TYPE_CHECKING:
    from collections.abc import Callable


def grid(*shape: int) -> Tensor:
    return Tensor(np.arange(float(np.prod(shape))).reshape(shape))


ROWS = np.arange(12.0).reshape(3, 4)

WRITES: dict[str, Callable[[Any], Any]] = {
    "slice": lambda z: z[1:3],
    "slice with a step": lambda z: z[:, ::2],
    "whole number": lambda z: z[1],
    "element": lambda z: z[1, 2, ...],
    "everything": lambda z: z[:],
    "new axis": lambda z: z[:, None, 1],
    "part of a part": lambda z: z[1:][0][1:3],
    "nothing": lambda z: z[1:1],
    "reshape": lambda z: z.reshape(2, 6),
    "part of a reshape": lambda z: z.reshape(-1)[3:7],
    "transpose": lambda z: z.T[1],
    "swapped back": lambda z: z.T.T[0],
    "rows": lambda z: list(z)[2],
}
"""Operations that are views in NumPy too."""


@pytest.mark.sampled(5)
@pytest.mark.parametrize("computed", [False, True], ids=["pending", "computed"])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_to_a_view_is_one_to_the_tensor(name: str, *, computed: bool):
    z, want = Tensor(ROWS) + 0.5, ROWS + 0.5
    v, part = WRITES[name](z), WRITES[name](want)
    if computed:
        Tensor.realize(z, v)
    v += 10
    part += 10
    np.testing.assert_array_equal(z.numpy(), want)
    np.testing.assert_array_equal(v.numpy(), part)
    z *= 2
    want *= 2
    np.testing.assert_array_equal(v.numpy(), part)


@pytest.mark.parametrize(
    ("taken", "place"),
    [
        (lambda z: z.permute(1, 0), lambda i: i.T),
        (lambda z: z.flatten(), lambda i: i.reshape(-1)),
        (lambda z: z.unflatten(1, (2, 2)), lambda i: i.reshape(3, 2, 2)),
        (lambda z: z.unsqueeze(0), lambda i: i[None]),
        (lambda z: z[:1].squeeze(0), lambda i: i[0]),
        (lambda z: z.shrink(((1, 3), None)), lambda i: i[1:]),
        (lambda z: z.diagonal(1), lambda i: np.diagonal(i, 1)),
        (lambda z: z.split(2, 1)[1], lambda i: i[:, 2:]),
        (lambda z: z.chunk(2)[1], lambda i: i[2:]),
        (lambda z: z.unbind(1)[3], lambda i: i[:, 3]),
        (lambda z: z.T.reshape(2, 2, 3), lambda i: i.T.reshape(2, 2, 3)),
        (lambda z: z.expand(3, 4), lambda i: i),
        (lambda z: z[2:3].expand(1, 4), lambda i: i[2:3]),
    ],
)
def test_views_of_methods(taken: Callable[[Tensor], Tensor], place: Callable[[Any], Any]):
    z, want = Tensor(ROWS), ROWS.copy()
    v = taken(z)
    values = np.arange(100.0, 100.0 + v.numel()).reshape(v.shape)
    v.assign(Tensor(values))
    want.reshape(-1)[place(np.arange(12).reshape(3, 4)).reshape(-1)] = values.reshape(-1)
    np.testing.assert_array_equal(z.numpy(), want)
    np.testing.assert_array_equal(v.numpy(), values)


@pytest.mark.parametrize("computed", [False, True], ids=["pending", "computed"])
@pytest.mark.parametrize(
    "taken",
    [
        lambda z: z.flip(0),
        lambda z: z.flip(),
        lambda z: z[:1].flip(0),
        lambda z: z[::-1],
        lambda z: z[:, ::-2],
        lambda z: z[1, ::-1],
        lambda z: z[:1][::-1],
        lambda z: z.T[::-1].T,
    ],
)
def test_a_reversed_tensor_is_not_a_view(taken: Callable[[Tensor], Tensor], *, computed: bool):
    z = Tensor(ROWS)
    v = taken(z)
    own = v.clone().numpy()
    if computed:
        Tensor.realize(z, v)
    v += 10
    np.testing.assert_array_equal(z.numpy(), ROWS)
    np.testing.assert_array_equal(v.numpy(), own + 10)
    z *= 2
    np.testing.assert_array_equal(z.numpy(), ROWS * 2)
    np.testing.assert_array_equal(v.numpy(), own + 10)


def test_a_reversal_needs_no_kernel_of_its_own():
    z = Tensor(ROWS)
    z.realize()
    before = stats.kernels
    (z.flip(0) + z[::-1]).realize()
    assert stats.kernels == before + 1


def test_writing_to_a_part_that_is_named_backwards_writes_there():
    z, want = Tensor(ROWS), ROWS.copy()
    z[::-1, ::-2] += 10
    z[2::-1] = Tensor([1.0, 2.0, 3.0, 4.0], dtype=z.dtype)
    want[::-1, ::-2] += 10
    want[2::-1] = [1.0, 2.0, 3.0, 4.0]
    np.testing.assert_array_equal(z.numpy(), want)


def test_writing_by_two_keys_and_by_a_view():
    z = grid(2, 3)
    z[0][1] = 9
    z.T[0] = 7
    z.reshape(6)[4:] = Tensor([5.0, 6.0], dtype="float64")
    assert z.tolist() == [[7.0, 9.0, 2.0], [7.0, 5.0, 6.0]]


@pytest.mark.parametrize("name", ["slice", "whole number", "element", "slice with a step"])
def test_an_operator_on_a_part_writes_once(name: str):
    keys: dict[str, Any] = {
        "slice": slice(1, 3),
        "whole number": 1,
        "element": (1, 2),
        "slice with a step": (slice(None), slice(None, None, 2)),
    }
    z, want = Tensor(ROWS), ROWS.copy()
    z[keys[name]] += 10
    want[keys[name]] += 10
    np.testing.assert_array_equal(z.numpy(), want)


def test_an_operator_on_a_part_is_one_kernel_in_place():
    z = Tensor(ROWS)
    before = z.leaves[0].buffer
    z[0] += 1.0
    z.realize()
    submitted = Device[z.device].queue.timeline.last.value
    z[0] += 1.0
    z.realize()
    assert Device[z.device].queue.timeline.last.value == submitted + 1
    assert z.leaves[0].buffer is before


def test_a_part_at_a_variable_is_a_view():
    z, at = grid(4, 2), Variable("at", 0, 3)
    for i in (1, 3):
        row = z[at.bind(i)]
        row += 10.0
        z[at.bind(i)] *= 2.0
    assert z.tolist() == [[0.0, 1.0], [24.0, 26.0], [4.0, 5.0], [32.0, 34.0]]


def test_values_computed_from_a_view_are_kept():
    z = grid(4)
    v = z[1:3]
    before = v * 10
    z += 1
    after = v * 10
    assert (before.tolist(), after.tolist()) == ([10.0, 20.0], [20.0, 30.0])


@pytest.mark.parametrize(
    "copied",
    [
        lambda z: z + 0,
        lambda z: z * 1,
        lambda z: z.clone(),
        Tensor,
        lambda z: z[Tensor([0, 1])],
        lambda z: z.cast("float32"),
        lambda z: z.pad(((0, 0),)),
        lambda z: z.repeat(1),
        lambda z: z.repeat(1).realize(),
        lambda z: z.reshape(1, 2).expand(3, 2).reshape(6),
        lambda z: z.reshape(2, 1).expand(2, 2).flatten(),
        lambda z: z.unfold(0, 1, 1).expand(2, 2).ravel(),
        lambda z: (z * Tensor([1.0, 1.0], dtype="float64")).sum().gradient(z)[0],
    ],
)
def test_values_are_no_views(copied: Callable[[Tensor], Tensor]):
    z = Tensor([1.0, 2.0], dtype="float64")
    y = copied(z)
    memory = z.leaves[0].buffer
    want = y.tolist()
    y += 10
    y.realize()
    assert z.tolist() == [1.0, 2.0]
    assert z.leaves[0].buffer is memory
    z += 5
    assert y.tolist() == [x + 10 for x in want]


def test_a_cast_to_the_same_dtype_is_the_tensor_itself():
    z = Tensor([1.0])
    assert z.float() is z
    assert z.cast("float32") is z
    assert z.bitcast("float32") is z
    assert z.to(z.device) is z


def test_writing_where_elements_are_repeated_is_refused():
    z = Tensor([1.0, 2.0])
    wide, windows = z.expand(3, 2), grid(4).windows(0, 2)
    for v in (wide, windows):
        before = v.tolist()
        with pytest.raises(UsageError, match="clone"):
            v.assign(v + 1)
        assert v.tolist() == before
    assert z.tolist() == [1.0, 2.0]
    z += 1
    assert wide.tolist() == [[2.0, 3.0]] * 3


def test_views_share_elements_when_the_tensor_is_gone():
    z = grid(3, 3)
    row, column = z[1], z[:, 1]
    Tensor.realize(row, column)
    del z
    row += 10.0
    assert column.tolist() == [1.0, 14.0, 7.0]
    column *= 2
    assert row.tolist() == [13.0, 28.0, 15.0]


def test_views_keep_nothing_alive():
    z = grid(3, 3)
    leaf, whole = weakref.ref(z.leaves[0]), weakref.ref(z)
    row = z[1].realize()
    views = [weakref.ref(v) for v in list(z)]
    del z
    gc.collect()
    assert whole() is None
    assert leaf() is None
    assert [v() for v in views] == [None] * 3
    assert row.tolist() == [3.0, 4.0, 5.0]


def test_a_family_drops_collected_tensors():
    w = grid(2, 2)
    for _ in range(10 * SWEEP):
        w.T.numel()
    assert len(w.link.family) <= SWEEP


def test_replacing_a_tensor_leaves_its_views_behind():
    z = grid(3)
    v = z[1:]
    z.replace(Tensor([7.0, 8.0, 9.0], dtype="float64"))
    v += 1
    assert (z.tolist(), v.tolist()) == ([7.0, 8.0, 9.0], [2.0, 3.0])


def test_memory_stays_where_it_is():
    z = grid(4)
    flat = z.reshape(2, 2).realize()
    part = z[1:3].realize()
    homes = [t.leaves[0].buffer for t in (z, part)]
    for _ in range(3):
        z += 1
        flat += 1
        part += 1
        Tensor.realize(z, flat, part)
        assert [t.leaves[0].buffer for t in (z, part)] == homes
    assert z.tolist() == [6.0, 10.0, 11.0, 9.0]
    assert flat.tolist() == [[6.0, 10.0], [11.0, 9.0]]
    assert part.tolist() == [10.0, 11.0]


def test_gradients_go_through_what_was_written():
    x, y = Tensor(ROWS), Tensor([1.0, 2.0, 3.0, 4.0], dtype="float64")
    weight = Tensor(ROWS + 1)
    z = x * 2
    row = z[1]
    row *= y
    dx, dy = (z * weight).sum().gradient(x, y)
    want = 2 * (ROWS + 1)
    want[1] *= [1.0, 2.0, 3.0, 4.0]
    np.testing.assert_array_equal(dx.numpy(), want)
    np.testing.assert_array_equal(dy.numpy(), 2 * ROWS[1] * (ROWS + 1)[1])


class Both:
    """A tensor beside an array, whose views NumPy takes; where it copies, PyTorch does."""

    def __init__(self, tensor: Tensor, array: np.ndarray[Any, Any]) -> None:
        self.tensor, self.array = tensor, array

    def view(self, rng: random.Random) -> Both:
        array, shape = self.array, self.array.shape
        kind = rng.randrange(5)
        if kind == 0 and shape:
            axis = rng.randrange(len(shape))
            begin = rng.randrange(shape[axis])
            cut = rng.choice([begin, slice(begin, None, rng.choice([1, 2])), slice(begin, None, -1)])
            key: Any = (slice(None),) * axis + (cut, ...)
            backwards = isinstance(cut, slice) and cut.step == -1
            return Both(self.tensor[key], array[key].copy() if backwards else array[key])
        if kind == 1:
            order = list(range(len(shape)))
            rng.shuffle(order)
            return Both(self.tensor.permute(*order), array.transpose(order))
        if kind == 2:
            wanted = (2, array.size // 2) if array.size % 2 == 0 else (-1,)
            return Both(self.tensor.reshape(*wanted), array.reshape(wanted))
        if kind == 3 and shape:
            axis = rng.randrange(len(shape))
            return Both(self.tensor.flip(axis), np.flip(array, axis).copy())
        return Both(self.tensor[None], array[None])

    def write(self, rng: random.Random) -> None:
        number = float(rng.randrange(1, 9))
        if rng.randrange(2):
            self.tensor += number
            self.array[...] += number
        else:
            self.tensor.assign(self.tensor * 0.5 - number)
            self.array[...] = self.array * 0.5 - number

    def computed(self, rng: random.Random) -> Both:
        number = float(rng.randrange(1, 9))
        return Both(self.tensor * number, np.array(self.array * number))


@pytest.mark.sampled(23)
@pytest.mark.parametrize("seed", range(60))
def test_random_programs_of_views_and_writes(seed: int):
    rng = random.Random(seed)
    data = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    known = [Both(Tensor(data), data.copy())]
    for _ in range(14):
        one = rng.choice(known)
        kind = rng.randrange(10)
        if kind < 4:
            known.append(one.view(rng))
        elif kind < 7:
            one.write(rng)
        elif kind == 7:
            known.append(one.computed(rng))
        elif kind == 8:
            one.tensor.realize()
        elif len(known) > 2:
            known.remove(one)
    rng.shuffle(known)
    for each in known:
        np.testing.assert_array_equal(each.tensor.numpy(), each.array)


@pytest.mark.sampled(41)
@pytest.mark.parametrize("seed", range(40))
def test_random_captured_programs_match_their_function(seed: int):
    rng = random.Random(seed)
    plan = [(rng.randrange(4), rng.random(), rng.randrange(1 << 30)) for _ in range(5)]
    data = np.arange(12.0, dtype=np.float32).reshape(3, 4)

    def outcome(wrap: Callable[[Any], Any]) -> list[Any]:
        outside = [Both(Tensor(data), data.copy()) for _ in range(2)]
        choices = random.Random(seed)
        outside.append(outside[0].view(choices))
        outside.append(outside[-1].view(choices))
        if seed % 2:
            for each in outside:
                each.tensor.realize()

        def step(x: Tensor) -> list[Tensor]:
            known = [Both(x, data.copy()), *outside]
            for kind, where, number in plan:
                one, own = known[int(where * len(known))], random.Random(number)
                if kind == 0:
                    known.append(one.view(own))
                elif kind == 1:
                    known.append(one.computed(own))
                else:
                    one.write(own)
            return [b.tensor * 1.0 + 0.25 for b in known]

        run, seen = wrap(step), []
        for i in range(5):
            x = Tensor(data + np.float32(i))
            held = x[1]
            seen += [t.tolist() for t in run(x)]
            seen += [t.tolist() for t in (x, held, *[b.tensor for b in outside])]
        return seen

    assert outcome(TinyJit) == outcome(lambda f: f)


def test_writes_through_a_detached_tensor_reach_the_original_and_back():
    z = Tensor([[1.0, 2.0], [3.0, 4.0]])
    d, realized = z.detach(), z.detach().realize()
    d[0] = 9
    assert [t.tolist() for t in (z, d, realized)] == [[[9.0, 9.0], [3.0, 4.0]]] * 3
    z += 1
    z[1].detach().mul_(2)
    assert [t.tolist() for t in (z, d, realized)] == [[[10.0, 10.0], [8.0, 10.0]]] * 3


def test_a_detached_view_writes_a_leaf_with_requires_grad_and_leaves_its_history():
    w = Tensor([1.0, 2.0], requires_grad=True)
    y = w * 3
    y.detach().add_(1)
    (y * y).sum().backward()
    assert (y.tolist(), w.grad.tolist()) == ([4.0, 7.0], [24.0, 42.0])
    w.detach()[0] = 5
    w.detach().view(2, 1).mul_(2)
    assert w.tolist() == [10.0, 4.0]
    w.grad = None
    (w * w).sum().backward()
    assert w.grad.tolist() == [20.0, 8.0]
    with pytest.raises(UsageError, match="requires_grad"):
        w.mul_(2)


def test_the_first_write_of_a_process_may_be_to_a_view_with_a_step():
    code = "from frontend import Tensor; z = Tensor([1, 2, 3]); v = z[::2]; v += 10; print(z.tolist())"
    done = python("-c", code)
    assert done.stdout == "[11, 2, 13]\n"


def test_strides_and_copies_do_not_depend_on_what_was_read():
    for read in (False, True):
        x = Tensor.arange(12).reshape(3, 4).clone()
        turned, diagonal, half = x.T, x[:, :2].diagonal(), x[0, ::2]
        if read:
            [t.tolist() for t in (turned, diagonal, half)]
        assert (turned.stride(), diagonal.stride(), half.stride()) == ((1, 4), (5,), (2,))
        assert not any(t.is_contiguous() for t in (turned, diagonal, half))
        for copy in (turned.reshape(-1), turned.flatten(), half.ravel(), diagonal.contiguous()):
            copy.add_(100)
        assert x.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        for view in (half.flatten(), diagonal.reshape(1, -1), x[1:].ravel()):
            view.add_(100)
        assert x.tolist() == [[200, 1, 102, 3], [104, 205, 106, 107], [108, 109, 110, 111]]
