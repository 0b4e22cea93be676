"""Triton kernels whose code objects lie beside this file; `python -m tests.guests.build_amd` compiles them.

Not run by the tests: it needs Triton. What a kernel computes is stated in its docstring.
"""

# ruff: noqa: ANN001, ANN202, E501, N803, PLR0917 - parameters of kernels are Triton's, constants are upper case

import triton
import triton.language as tl


@triton.jit
def rowsum(x, out, n, BLOCK: tl.constexpr):
    """Sum each row of `n` numbers."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    value = tl.load(x + row * n + i, mask=i < n, other=0.0)
    tl.store(out + row, tl.sum(value, axis=0))


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    """Add two vectors of `n` numbers."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    """Take the softmax of each row."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < columns
    value = tl.load(x + row * columns + i, mask=inside, other=-float("inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * columns + i, power / tl.sum(power, axis=0), mask=inside)


@triton.jit
def layer_norm(x, weight, bias, out, mean, scale, columns, epsilon, BLOCK: tl.constexpr):
    """Normalise each row to mean 0 and variance 1, in steps of BLOCK columns; keep both statistics."""
    row = tl.program_id(0)
    x += row * columns
    out += row * columns
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        i = first + tl.arange(0, BLOCK)
        total += tl.load(x + i, mask=i < columns, other=0.0)
    middle = tl.sum(total, axis=0) / columns
    spread = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        i = first + tl.arange(0, BLOCK)
        value = tl.where(i < columns, tl.load(x + i, mask=i < columns, other=0.0) - middle, 0.0)
        spread += value * value
    factor = 1 / tl.sqrt(tl.sum(spread, axis=0) / columns + epsilon)
    tl.store(mean + row, middle)
    tl.store(scale + row, factor)
    for first in range(0, columns, BLOCK):
        i = first + tl.arange(0, BLOCK)
        inside = i < columns
        value = (tl.load(x + i, mask=inside, other=0.0) - middle) * factor
        value = value * tl.load(weight + i, mask=inside) + tl.load(bias + i, mask=inside)
        tl.store(out + i, value, mask=inside)


@triton.jit
def matmul(
    a, b, c, m, n, k, row_a, row_b, row_c,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Multiply two matrices in tiles, pipelined; sums in the widest type of the matrix instruction."""
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    rows = (tile_m * M + tl.arange(0, M)) % m
    columns = (tile_n * N + tl.arange(0, N)) % n
    inner = tl.arange(0, K)
    pa = a + rows[:, None] * row_a + inner[None, :]
    pb = b + inner[:, None] * row_b + columns[None, :]
    total = tl.zeros((M, N), dtype=tl.int32 if c.dtype.element_ty == tl.int32 else tl.float32)
    for step in range(tl.cdiv(k, K)):
        left = tl.load(pa, mask=inner[None, :] < k - step * K, other=0.0)
        right = tl.load(pb, mask=inner[:, None] < k - step * K, other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
        pa += K
        pb += K * row_b
    rows = tile_m * M + tl.arange(0, M)
    columns = tile_n * N + tl.arange(0, N)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * row_c + columns[None, :], total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def attention(q, k, v, out, length, scale, CAUSAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    """Flash attention of one head a program of the second axis: softmax(q k^T * scale) v, one pass over the keys."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    head = tl.program_id(1) * length * D
    depth = tl.arange(0, D)
    query = tl.load(q + head + rows[:, None] * D + depth[None, :], mask=rows[:, None] < length, other=0.0)
    most = tl.full([M], -float("inf"), dtype=tl.float32)
    weight = tl.zeros([M], dtype=tl.float32)
    total = tl.zeros([M, D], dtype=tl.float32)
    end = tl.minimum(length, (tl.program_id(0) + 1) * M) if CAUSAL else length
    for first in range(0, end, N):
        keys = first + tl.arange(0, N)
        key = tl.load(k + head + keys[None, :] * D + depth[:, None], mask=keys[None, :] < length, other=0.0)
        score = tl.dot(query, key) * (scale * 1.4426950408889634)
        allowed = keys[None, :] < length
        if CAUSAL:
            allowed = allowed & (rows[:, None] >= keys[None, :])
        score = tl.where(allowed, score, -float("inf"))
        highest = tl.maximum(most, tl.max(score, 1))
        power = tl.math.exp2(score - highest[:, None])
        shrink = tl.math.exp2(most - highest)
        weight = weight * shrink + tl.sum(power, 1)
        value = tl.load(v + head + keys[:, None] * D + depth[None, :], mask=keys[:, None] < length, other=0.0)
        total = tl.dot(power.to(value.dtype), value, total * shrink[:, None])
        most = highest
    total = total / weight[:, None]
    tl.store(out + head + rows[:, None] * D + depth[None, :], total.to(out.dtype.element_ty),
             mask=rows[:, None] < length)  # fmt: skip


@triton.jit
def scan(x, out, n, BLOCK: tl.constexpr):
    """Running sums and running maxima of each row: out[0] and out[1]."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    value = tl.load(x + row * n + i, mask=i < n, other=0.0)
    count = tl.num_programs(0) * n
    tl.store(out + row * n + i, tl.cumsum(value, axis=0), mask=i < n)
    tl.store(out + count + row * n + i, tl.associative_scan(value, 0, _larger), mask=i < n)


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def histogram(x, counts, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    """Count how often each of BINS values occurs, with an atomic addition a program and bin."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=0)
    found = tl.histogram(value, BINS, mask=i < n)
    tl.atomic_add(counts + tl.arange(0, BINS), found, sem="relaxed")
