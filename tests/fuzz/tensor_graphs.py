"""Lines of tensor programs for the scheduler: products of matrices, convolutions, pools, rows, embeddings.

The values are small integers, and a line is left out if one of its sums could exceed 2^24, so every order of
summation gives the same bits. Softmax and norms are compared within a bound, and no other line uses them.

Not here: a whole program (`tensor_programs`), other kinds of lines (`tensor_kinds` lists them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from tests.fuzz.tensor_programs import Maker

Array = np.ndarray[Any, Any]
SIZES: Final = (1, 1, 1, 2, 2, 3, 4, 4, 5, 7, 8, 8, 16, 17, 31, 32)
"""Sizes of axes: blocks of vectors, and one more or less."""
CHAINED: Final = (1, 1, 1, 2, 2, 3, 4, 5, 7, 8, 13, 16)
"""Sizes of axes of products in chains: one row, one column and one summed product are rules of their own."""
LEAST: Final = (1, 2, 3, 4)
"""Sizes of most chains: joins depend on which sizes are 1, and many programs have the same kernels."""
EXACT: Final = 2.0**24
"""Integers of float32 up to here are exact."""
_BOUND: Final = 2.0**-18
"""Relative error of a softmax or a norm of few elements."""


def convolved(x: Array, w: Array, *, stride: int, padding: int, dilation: int, groups: int) -> Array:
    """Return the convolution of (batch, channels, height, width) with (outputs, channels / groups, ...)."""
    size = [dilation * (n - 1) + 1 for n in w.shape[2:]]
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, size, (2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    n, c, h, v = windows.shape[:4]
    windows = windows.reshape(n, groups, c // groups, h, v, *w.shape[2:])
    weights = w.reshape(groups, len(w) // groups, *w.shape[1:])
    found = np.einsum("ngchvij,gocij->ngohv", windows, weights)
    return np.asarray(found.reshape(n, len(w), h, v))


def greatest_of_windows(x: Array, size: int, stride: int) -> Array:
    """Return the maximum of each square window of the last two axes."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))
    return np.asarray(windows[:, :, ::stride, ::stride].max((-1, -2)))


def softened(x: Array, axis: int) -> tuple[Array, Array]:
    """Return the softmax along an axis in float64, and its error bound in x's dtype."""
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    y = e / e.sum(axis, keepdims=True)
    return y, np.full_like(y, _BOUND)


def normed(x: Array, axis: int) -> tuple[Array, Array]:
    """Return the layer norm along an axis in float64, and its error bound in x's dtype."""
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(axis, keepdims=True) + 1e-5)
    size = 1 + np.abs(wide).max(axis, keepdims=True)
    spread = np.abs(centred).max(axis, keepdims=True) + 0.003
    return y, np.broadcast_to(_BOUND * len(str(x.shape[axis])) * (1 + np.abs(y)) * size / spread, y.shape)


def attended(scores: Array, values: Array) -> tuple[Array, Array]:
    """Return the softmax of rows times a matrix in float64, and its error bound in float32."""
    weights, bound = softened(scores, -1)
    wide = values.astype(np.float64)
    return weights @ wide, (bound + _BOUND * weights) @ np.abs(wide)


FUNCTIONS: Final = (convolved, greatest_of_windows, softened, normed, attended)


def _exact(m: Maker, needs: tuple[str, ...], numpy: str) -> bool:
    """Return whether a line is exact for any order of its sums: it is so on the absolute values."""
    env = dict(m.env) | {name: np.abs(m.env[name].astype(np.float64)) for name in needs}
    value = eval(numpy.format(*needs), env)  # noqa: S307 - lines made here
    return bool(np.max(value, initial=0.0) < EXACT)


def _cut(m: Maker, name: str, shape: tuple[int, ...]) -> str:
    """Return the text of a value of a shape, from the first elements of a value that has enough."""
    rank = m.env[name].ndim
    flat = "{0}" if rank == 1 else "{0}.reshape(-1)"
    return f"{flat}[:{int(np.prod(shape))}].reshape({shape!r})"


def _shape_of(m: Maker, size: int, rank: int) -> tuple[int, ...] | None:
    """Return a random shape of a rank with at most `size` elements, or None."""
    for _ in range(8):
        shape = tuple(m.r.choice(m.few or SIZES) for _ in range(rank))
        if int(np.prod(shape)) <= size:
            return shape
    return None


def product(m: Maker) -> None:
    """Append a matrix product of the first elements of two values, or of a batch of them."""
    a, b = m.pick("f", rank=1), m.pick("f", rank=1)
    if a is None or b is None or m.env[a].dtype != m.env[b].dtype:
        return
    left = _shape_of(m, m.env[a].size, m.r.choice((2, 2, 3)))
    if left is None:
        return
    k = left[-1]
    columns = min(m.env[b].size // k, m.r.choice(m.few or SIZES))
    if not columns:
        return
    turned = m.r.random() < 0.5
    right = _cut(m, b, (columns, k) if turned else (k, columns)).replace("{0}", "{1}")
    text, same = (right + ".transpose(0, 1)", right + ".T") if turned else (right, right)
    numpy = f"{_cut(m, a, left)} @ {same}"
    if _exact(m, (a, b), numpy):
        m.add((a, b), f"{_cut(m, a, left)}.matmul({text})", numpy)


def chain(m: Maker) -> None:
    """Append a chain of two to four products of new leaves, with functions of rows between them.

    No value between them has a name, so the scheduler may join them. The next factor is at either side.
    """
    r = m.r
    count = r.choice((3, 3, 4, 4, 5))
    batch, batched = r.choice(((), (), (1,), (2,), (3,), (2, 2), (3, 1))), r.randint(1, count)
    among = m.few or r.choices((LEAST, CHAINED), (3, 1))[0]
    sizes = [r.choice(among) for _ in range(count + 1)]
    if r.random() < 0.2:
        sizes[0] = 1
    if r.random() < 0.03:
        sizes[r.randrange(count + 1)] = 0
    operands: list[tuple[str, str]] = []
    needs: list[str] = []
    for n in range(count):
        lead, form = batch if n < batched else (), r.random()
        rows, columns = sizes[n], sizes[n + 1]
        cut = f"{{{n}}}", f"{{{n}}}"
        if form < 0.2:
            shape, cut = (*lead, columns, rows), (cut[0] + ".transpose(-2, -1)", cut[1] + ".swapaxes(-2, -1)")
        elif form < 0.35:
            shape, cut = (*lead, rows, columns + 1), (cut[0] + "[..., 1:]", cut[1] + "[..., 1:]")
        elif form < 0.5 and lead:
            shape = (*[1 for _ in lead], rows, columns)
            whole = (*lead, rows, columns)
            cut = (cut[0] + f".expand({whole})", f"np.broadcast_to({cut[1]}, {whole})")
        else:
            shape = (*lead, rows, columns)
        operands.append(cut)
        needs.append(m.leaf(np.asarray(m.rng.integers(-2, 3, shape), np.float32)))
    low = high = r.choice((0, 0, 1, 1, count - 1))
    tensor, numpy = operands[low]
    for n in range(count - 1):
        if n:
            between, also = r.choices(_BETWEEN, (3, 1, 5 * all(sizes), 5, 1, 1))[0]
            tensor, numpy = between.replace("#", f"({tensor})"), also.replace("#", f"({numpy})")
        if low and (high == count - 1 or r.random() < n / 2):
            low -= 1
            left, same = operands[low]
            tensor, numpy = f"({left}).matmul({tensor})", f"({same}) @ ({numpy})"
            continue
        high += 1
        right, same = operands[high]
        if n == count - 2 and r.random() < 0.3 and all(sizes):
            tensor, numpy = f"({tensor}).softmax(-1).matmul({right})", f"attended({numpy}, {same})"
            m.add(tuple(needs), tensor, numpy, kind="sum")
            return
        tensor, numpy = f"({tensor}).matmul({right})", f"({numpy}) @ ({same})"
    m.add(tuple(needs), tensor, numpy)


_BETWEEN: Final = (
    ("#", "#"),
    ("#.relu()", "positive(#)"),
    ("(# - #.amax(-1, True))", "(# - #.max(-1, keepdims=True))"),
    ("(# - #.sum(-1, True))", "(# - #.sum(-1, keepdims=True))"),
    ("(# * 0.5)", "(# * 0.5)"),
    ("#.tril()", "np.tril(#)"),
)
"""Functions of a matrix between two products, exact for small integers, in both dialects."""


def convolution(m: Maker) -> None:
    """Append a two-dimensional convolution, possibly in groups, with a random stride and padding."""
    a, b = m.pick("f", rank=1), m.pick("f", rank=1)
    if a is None or b is None or m.env[a].dtype != m.env[b].dtype:
        return
    r = m.r
    groups, each = r.choice(((1, 1), (1, 2), (1, 3), (2, 1), (2, 2)))
    kernel = r.choice(((1, 1), (2, 2), (3, 3), (3, 1)))
    high, wide = r.randint(3, 8), r.randint(3, 9)
    batch, outputs = r.randint(1, 2), groups * r.randint(1, 4)
    x, w = (batch, groups * each, high, wide), (outputs, each, *kernel)
    if np.prod(x) > m.env[a].size or np.prod(w) > m.env[b].size:
        return
    stride, padding = r.choice((1, 1, 2)), r.choice((0, 1, 1))
    dilation = 2 if max(kernel) * 2 - 1 <= min(high, wide) and r.random() < 0.3 else 1
    left, right = _cut(m, a, x), _cut(m, b, w).replace("{0}", "{1}")
    options = f"groups={groups}, stride={stride}, dilation={dilation}, padding={padding}"
    numpy = f"convolved({left}, {right}, {options})"
    if _exact(m, (a, b), numpy):
        m.add((a, b), f"{left}.conv2d({right}, {options})", numpy)


def pool(m: Maker) -> None:
    """Append a maximum pool."""
    a = m.pick("f", rank=1)
    shape = (m.r.randint(1, 2), m.r.randint(1, 3), m.r.randint(3, 8), m.r.randint(3, 8))
    if a is None or np.prod(shape) > m.env[a].size:
        return
    size, stride = m.r.choice(((2, 2), (3, 1), (3, 2)))
    cut = _cut(m, a, shape)
    m.add((a,), f"{cut}.max_pool2d({size}, {stride})", f"greatest_of_windows({cut}, {size}, {stride})")


def row(m: Maker) -> None:
    """Append an operation on rows that combines each element with a reduction of its row."""
    a = m.pick("f", rank=1, nonempty=True)
    if a is None:
        return
    axis = m.r.randrange(m.env[a].ndim)
    rows = (
        (f"{{0}} - {{0}}.amax({axis}, True)", f"{{0}} - {{0}}.max({axis}, keepdims=True)"),
        (f"{{0}} - {{0}}.sum({axis}, True)", f"{{0}} - {{0}}.sum({axis}, keepdims=True)"),
        (f"({{0}} == {{0}}.amax({axis}, True)).where({{0}}, 0.0)",
         f"np.where({{0}} == {{0}}.max({axis}, keepdims=True), {{0}}, {{0}}.dtype.type(0))"),
    )  # fmt: skip
    tensor, numpy = m.r.choice(rows)
    if _exact(m, (a,), f"{{0}} + {{0}}.sum({axis}, keepdims=True)"):
        m.add((a,), tensor, numpy)


def first_elements(m: Maker) -> None:
    """Append a reduction of the first elements of an axis, as many as a `Variable` says."""
    a = m.pick("f", rank=1, nonempty=True)
    if a is None:
        return
    axis = m.r.randrange(m.env[a].ndim)
    if not _exact(m, (a,), f"4 * {{0}}.sum({axis})"):
        return
    k = m.bound(m.env[a].shape[axis] - 1)
    cut = f"{{0}}[{':, ' * axis}:{{1}} + 1]"
    forms = (
        (f"({cut} * 2).sum({axis})", f"({cut} * 2).sum({axis})"),
        (f"{cut}.amax({axis})", f"{cut}.max({axis})"),
        (f"({cut} - {cut}.amax({axis}, True)).amin({axis})",
         f"({cut} - {cut}.max({axis}, keepdims=True)).min({axis})"),
        (f"{cut}.cat({cut}, axis={axis}).sum({axis})", f"np.concatenate(({cut}, {cut}), {axis}).sum({axis})"),
    )  # fmt: skip
    m.add((a, k), *m.r.choice(forms))


def rows_within_bounds(m: Maker) -> None:
    """Append a softmax or a layer norm."""
    a = m.pick("f", rank=1, nonempty=True)
    if a is None:
        return
    axis = m.r.randrange(m.env[a].ndim)
    tensor, numpy = m.r.choice((("softmax", "softened"), ("layernorm", "normed")))
    m.add((a,), f"{{0}}.{tensor}({axis})", f"{numpy}({{0}}, {axis})", kind="sum")


def embedding(m: Maker) -> None:
    """Append a one-hot encoding or rows gathered at computed indices."""
    a, i = m.pick("f", rank=1, nonempty=True), m.pick("f", rank=1, nonempty=True)
    if a is None or i is None:
        return
    n, of = len(m.env[a]), m.env[i].ndim - 1
    index = f"{{1}}.argmax({of})", f"{{1}}.argmax({of})"
    if m.r.random() < 0.5:
        m.add((a, i), f"{{0}}[{index[0]} % {n}]", f"{{0}}[{index[1]} % {n}]")
    else:
        m.add((a, i), f"{index[0]}.one_hot({m.env[i].shape[of]}).cast('float32')",
              f"np.eye({m.env[i].shape[of]}, dtype='float32')[{index[1]}]")  # fmt: skip
