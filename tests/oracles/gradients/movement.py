"""Cases of movement, indexing, casts, gather, scatter and matrix products.

Next: `case`, what a case is; `cases`, the list of all groups.
"""

# ruff: noqa: ARG005 - PyTorch's side gets its module, whether it needs it or not

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.oracles.gradients.case import INF, NAN, Cases, given

if TYPE_CHECKING:
    from collections.abc import Callable


CASES: Final = Cases()
_case = CASES.add


_GRID: Final = [[1.0, -0.0, INF], [NAN, 0.0, -2.0]]


def _moves(
    method: str, ours: Callable[..., Any], theirs: Callable[..., Any], use: str = "", data: Any = _GRID
) -> None:
    _case(method, given(data), ours, theirs, use)


_moves("reshape", lambda x: x.reshape(3, 2), lambda t, x: x.reshape(3, 2))
_moves("permute", lambda x: x.permute(1, 0), lambda t, x: x.permute(1, 0))
_moves("transpose", lambda x: x.transpose(0, 1), lambda t, x: x.transpose(0, 1))
_moves("T", lambda x: x.T, lambda t, x: x.T)
_moves("expand", lambda x: x.expand(2, 2, 3), lambda t, x: x.expand(2, 2, 3))
_moves("flip", lambda x: x.flip(1), lambda t, x: x.flip(1))
_moves("shrink", lambda x: x.shrink((None, (1, 3))), lambda t, x: x[:, 1:3])
_moves("pad", lambda x: x.pad(((1, 0), (0, 2))), lambda t, x: t.nn.functional.pad(x, (0, 2, 1, 0)))
_moves(
    "pad",
    lambda x: x.pad(((0, 0), (-1, 2)), 7.0),
    lambda t, x: t.nn.functional.pad(x, (-1, 2), value=7.0),
    "negative",
)
_moves("squeeze", lambda x: x.unsqueeze(0).squeeze(0), lambda t, x: x.unsqueeze(0).squeeze(0))
_moves("unsqueeze", lambda x: x.unsqueeze(1), lambda t, x: x.unsqueeze(1))
_moves("flatten", lambda x: x.flatten(), lambda t, x: x.flatten())
_moves("unflatten", lambda x: x.unflatten(1, (3, 1)), lambda t, x: x.unflatten(1, (3, 1)))
_moves("repeat", lambda x: x.repeat(2, 2), lambda t, x: x.repeat(2, 2))
_moves("repeat_interleave", lambda x: x.repeat_interleave(2, 1), lambda t, x: x.repeat_interleave(2, 1))
_moves("split", lambda x: list(x.split(2, 1)), lambda t, x: list(x.split(2, 1)))
_moves("split", lambda x: list(x.split([0, 3], 1)), lambda t, x: list(x.split([0, 3], 1)), "zero size")
_moves("chunk", lambda x: list(x.chunk(2, 1)), lambda t, x: list(x.chunk(2, 1)))
_moves("unbind", lambda x: list(x.unbind(1)), lambda t, x: list(x.unbind(1)))
_moves("roll", lambda x: x.roll(1, 1), lambda t, x: x.roll(1, 1))
_moves("tril", lambda x: x.tril(), lambda t, x: x.tril())
_moves("triu", lambda x: x.triu(), lambda t, x: x.triu())
_moves("diag", lambda x: x.diag(), lambda t, x: x.diag(), "of a matrix")
_moves("diag", lambda x: x.diag(1), lambda t, x: x.diag(1), "of a vector", [1.0, INF, NAN])
_moves("diagonal", lambda x: x.diagonal(1), lambda t, x: x.diagonal(1))
_moves("diagonal", lambda x: x.diagonal(5), lambda t, x: x.diagonal(3), "outside")
_moves("contiguous", lambda x: x.contiguous(), lambda t, x: x.contiguous())
_moves("clone", lambda x: x.clone(), lambda t, x: x.clone())
_moves("to", lambda x: x.to(x.device), lambda t, x: x.to("cpu"))
_moves("windows", lambda x: x.windows(1, 2, 1), lambda t, x: x.unfold(1, 2, 1))
_moves(
    "windows",
    lambda x: x.windows(0, 2, 1, 2),
    lambda t, x: t.stack([x[:-2], x[2:]], -1),
    "dilated",
    [[1.0], [INF], [NAN], [2.0]],
)
_moves("__getitem__", lambda x: x[1:, ::2], lambda t, x: x[1:, ::2], "slices")
_moves("__getitem__", lambda x: x[:, [2, 0, 2]], lambda t, x: x[:, [2, 0, 2]], "twice the same")
_moves("__getitem__", lambda x: x[0:0], lambda t, x: x[0:0], "nothing")
_TWO: Final = given([[1.0, INF]], [[NAN, -0.0], [3.0, 1.0]])
_case("cat", _TWO, lambda x, y: x.cat(y), lambda t, x, y: t.cat((x, y)))
_case(
    "cat",
    given([[1.0, 2.0]], []),
    lambda x, y: x.cat(y.reshape(0, 2)),
    lambda t, x, y: t.cat((x, y.reshape(0, 2))),
    "zero size",
)
_case(
    "cat",
    given([], [], [[1.0, 2.0]]),
    lambda x, y, z: y.reshape(0, 2).cat(x.reshape(0, 2), z),
    lambda t, x, y, z: t.cat((y.reshape(0, 2), x.reshape(0, 2), z)),
    "zero size first",
)
_case("cat", given([], []), lambda x, y: x.cat(y), lambda t, x, y: t.cat((x, y)), "zero size only")
_case("stack", given([1.0, INF], [NAN, 2.0]), lambda x, y: x.stack(y), lambda t, x, y: t.stack((x, y)))
_case("stack", given([], []), lambda x, y: x.stack(y), lambda t, x, y: t.stack((x, y)), "zero size")
_case(
    "meshgrid",
    given([1.0, INF], [NAN, 2.0, 3.0]),
    lambda x, y: list(x.meshgrid(y)),
    lambda t, x, y: list(t.meshgrid(x, y, indexing="ij")),
)


_moves(
    "cast",
    lambda x: x.cast("float16"),
    lambda t, x: x.to(t.float16),
    data=[1.0, -0.0, INF, NAN, 1e30, 1e-30, 0.1],
)
for _name in ("float", "double", "half", "bfloat16"):
    _moves(
        _name,
        lambda x, n=_name: getattr(x, n)(),
        lambda t, x, n=_name: getattr(x, n)(),
        data=[1.0, -0.0, INF, NAN, 1e30, 1e-30, 0.1],
    )

_INDEX: Final = [[0, 2, 0], [1, 1, 1]]
_case("gather", given(_GRID, _INDEX), lambda x, i: x.gather(1, i), lambda t, x, i: x.gather(1, i))
_case("take", given(_GRID, [1, 1, 0]), lambda x, i: x.take(i, 1), lambda t, x, i: x.index_select(1, i))
_case(
    "index_select",
    given(_GRID, [1, 1, 0]),
    lambda x, i: x.index_select(1, i),
    lambda t, x, i: x.index_select(1, i),
)
_case(
    "scatter",
    given(_GRID, [[2, 0], [1, 0]], [[7.0, NAN], [INF, 4.0]]),
    lambda x, i, y: x.scatter(1, i, y),
    lambda t, x, i, y: x.scatter(1, i, y),
)
_case(
    "scatter_add",
    given(_GRID, _INDEX, [[7.0, NAN, 1.0], [INF, 4.0, 2.0]]),
    lambda x, i, y: x.scatter_add(1, i, y),
    lambda t, x, i, y: x.scatter_add(1, i, y),
)


_A, _B = [[1.0, -0.0, 2.0], [INF, 3.0, 0.0]], [[1.0, 0.0], [NAN, 2.0], [-1.0, 0.5]]
for _name in ("matmul", "dot"):
    _case(_name, given(_A, _B), lambda x, y, n=_name: getattr(x, n)(y), lambda t, x, y: x @ y)
_case(
    "matmul",
    given([], []),
    lambda x, y: x.reshape(2, 0) @ y.reshape(0, 3),
    lambda t, x, y: x.reshape(2, 0) @ y.reshape(0, 3),
    "nothing",
)
_case("__rmatmul__", given(_A, _B), lambda x, y: y.__rmatmul__(x), lambda t, x, y: x @ y)
_case("linear", given(_A, _B, [1.0, NAN]), lambda x, w, b: x.linear(w, b), lambda t, x, w, b: x @ w + b)
_case(
    "einsum",
    given(_A, _B),
    lambda x, y: x.einsum("ij,jk->ik", x, y),
    lambda t, x, y: t.einsum("ij,jk->ik", x, y),
)
_case(
    "einsum",
    given([[1.0, INF], [2.0, NAN]]),
    lambda x: x.einsum("ii->i", x),
    lambda t, x: t.einsum("ii->i", x),
    "diagonal",
)
