"""Triton kernels with the structure of Triton's tutorials, and further ones. Needs Triton.

Not here: inputs and expected results (`tests.guests.cases`).
"""

import triton
import triton.language as tl


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def softmax(out, x, row_stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * row_stride + at, mask=at < n, other=-float("inf")).to(tl.float32)
    raised = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * row_stride + at, raised / tl.sum(raised, axis=0), mask=at < n)


@triton.jit
def matmul(
    a, b, c, M, N, K, a_row, b_row, c_row,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = pid // (GROUP * columns) * GROUP
    height = tl.minimum(rows - first, GROUP)
    m = first + pid % (GROUP * columns) % height
    n = pid % (GROUP * columns) // height
    at_m = (m * BM + tl.arange(0, BM)) % M
    at_n = (n * BN + tl.arange(0, BN)) % N
    at_k = tl.arange(0, BK)
    a_at = a + at_m[:, None] * a_row + at_k[None, :]
    b_at = b + at_k[:, None] * b_row + at_n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = tl.load(a_at, mask=at_k[None, :] < K - k * BK, other=0.0)
        right = tl.load(b_at, mask=at_k[:, None] < K - k * BK, other=0.0)
        total = tl.dot(left, right, total)
        a_at += BK
        b_at += BK * b_row
    out_m, out_n = m * BM + tl.arange(0, BM), n * BN + tl.arange(0, BN)
    place = c + out_m[:, None] * c_row + out_n[None, :]
    tl.store(place, total.to(c.dtype.element_ty), mask=(out_m[:, None] < M) & (out_n[None, :] < N))


@triton.jit
def layer_norm(x, out, weight, bias, mean_out, scale_out, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * stride
    out += row * stride
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
        value = tl.where(at < n, value - mean, 0.0)
        square += value * value
    scale = 1 / tl.sqrt(tl.sum(square, axis=0) / n + eps)
    tl.store(mean_out + row, mean)
    tl.store(scale_out + row, scale)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        w = tl.load(weight + at, mask=at < n)
        b = tl.load(bias + at, mask=at < n)
        value = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(out + at, (value - mean) * scale * w + b, mask=at < n)


@triton.jit
def layer_norm_dx(
    dx, dy, dw, db, x, weight, mean_in, scale_in, lock, stride, n, GROUP: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < n
    value = tl.load(x + row * stride + at, mask=mask, other=0.0).to(tl.float32)
    grad = tl.load(dy + row * stride + at, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(weight + at, mask=mask, other=0.0).to(tl.float32)
    mean, scale = tl.load(mean_in + row), tl.load(scale_in + row)
    hat = tl.where(mask, (value - mean) * scale, 0.0)
    wide = tl.where(mask, w * grad, 0.0)
    first, second = tl.sum(hat * wide, axis=0) / n, tl.sum(wide, axis=0) / n
    tl.store(dx + row * stride + at, (wide - (hat * first + second)) * scale, mask=mask)
    own = row % GROUP
    lock += own
    count = lock + GROUP
    dw += own * n + at
    db += own * n + at
    part_w, part_b = grad * hat, grad
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        part_w += tl.load(dw, mask=mask)
        part_b += tl.load(db, mask=mask)
    tl.store(dw, part_w, mask=mask)
    tl.store(db, part_b, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def attention(
    q, k, v, out, scale, rows, CAUSAL: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    start = tl.program_id(0) * BM
    head = tl.program_id(1) * rows * D
    at_m, at_n, at_d = start + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    query = tl.load(q + head + at_m[:, None] * D + at_d[None, :])
    highest = tl.zeros((BM,), tl.float32) - float("inf")
    weight = tl.zeros((BM,), tl.float32) + 1.0
    total = tl.zeros((BM, D), tl.float32)
    end = start + BM if CAUSAL else rows
    for n in range(0, end, BN):
        key = tl.load(k + head + (n + at_n)[None, :] * D + at_d[:, None])
        score = tl.dot(query, key) * (scale * 1.44269504)
        if CAUSAL:
            score = tl.where(at_m[:, None] >= (n + at_n)[None, :], score, -1.0e6)
        top = tl.maximum(highest, tl.max(score, 1))
        chance = tl.math.exp2(score - top[:, None])
        alpha = tl.math.exp2(highest - top)
        weight = weight * alpha + tl.sum(chance, 1)
        value = tl.load(v + head + (n + at_n)[:, None] * D + at_d[None, :])
        total = tl.dot(chance.to(value.dtype), value, total * alpha[:, None])
        highest = top
    tl.store(
        out + head + at_m[:, None] * D + at_d[None, :], (total / weight[:, None]).to(out.dtype.element_ty)
    )


@triton.jit
def grouped_gemm(
    a_list, b_list, c_list, sizes, strides, count,
    SMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    passed = 0
    for g in range(count):
        m, n, k = tl.load(sizes + g * 3), tl.load(sizes + g * 3 + 1), tl.load(sizes + g * 3 + 2)
        columns = tl.cdiv(n, BN)
        tiles = tl.cdiv(m, BM) * columns
        while tile >= passed and tile < passed + tiles:
            a_row, b_row = tl.load(strides + g * 3), tl.load(strides + g * 3 + 1)
            c_row = tl.load(strides + g * 3 + 2)
            a = tl.load(a_list + g).to(tl.pointer_type(tl.float16))
            b = tl.load(b_list + g).to(tl.pointer_type(tl.float16))
            c = tl.load(c_list + g).to(tl.pointer_type(tl.float16))
            own = tile - passed
            at_m = own // columns * BM + tl.arange(0, BM)
            at_n = own % columns * BN + tl.arange(0, BN)
            at_k = tl.arange(0, BK)
            a_at = a + at_m[:, None] * a_row + at_k[None, :]
            b_at = b + at_k[:, None] * b_row + at_n[None, :]
            total = tl.zeros((BM, BN), dtype=tl.float32)
            for _ in range(tl.cdiv(k, BK)):
                total = tl.dot(tl.load(a_at), tl.load(b_at), total)
                a_at += BK
                b_at += BK * b_row
            tl.store(c + at_m[:, None] * c_row + at_n[None, :], total.to(tl.float16))
            tile += SMS
        passed += tiles


@triton.jit
def persistent_matmul(
    a, b, c, M, N, K, SMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    columns = tl.cdiv(N, BN)
    a_tiles = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b_tiles = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    c_tiles = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * columns, SMS):
        m, n = tile // columns * BM, tile % columns * BN
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(tl.cdiv(K, BK)):
            total = tl.dot(a_tiles.load([m, k * BK]), b_tiles.load([n, k * BK]).T, total)
        c_tiles.store([m, n], total.to(c.dtype.element_ty))


@triton.jit
def sum_rows(x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row, tl.sum(tl.load(x + row * n + at, mask=at < n, other=0), axis=0))


@triton.jit
def argmax_rows(x, best, place, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
    tl.store(best + row, tl.max(values, axis=0))
    tl.store(place + row, tl.argmax(values, axis=0))


@triton.jit
def cumulative_sum(x, out, BLOCK: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.cumsum(tl.load(x + at), axis=0, reverse=REVERSE))


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def running_maximum(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.associative_scan(tl.load(x + at), 0, larger))


@triton.jit
def sort_rows(x, out, BLOCK: tl.constexpr, DESCENDING: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at), descending=DESCENDING))


@triton.jit
def histogram(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x + at, mask=at < n, other=0), BINS, mask=at < n)
    tl.atomic_add(out + tl.arange(0, BINS), counts)


@triton.jit
def scatter_add(x, index, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(index + at, mask=at < n, other=0), tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def atomic_extremes(x, low, high, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_min(low + at % 4, values, mask=at < n)
    tl.atomic_max(high + at % 4, values, mask=at < n)


@triton.jit
def transpose(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (m[:, None] < M) & (n[None, :] < N)
    tile = tl.load(x + m[:, None] * N + n[None, :], mask=mask)
    tl.store(out + n[:, None] * M + m[None, :], tl.trans(tile), mask=(n[:, None] < N) & (m[None, :] < M))


@triton.jit
def stencil(x, out, H, W, BH: tl.constexpr, BW: tl.constexpr):
    i, j = tl.program_id(0) * BH + tl.arange(0, BH), tl.program_id(1) * BW + tl.arange(0, BW)
    place = i[:, None] * W + j[None, :]
    inside = (i[:, None] > 0) & (i[:, None] < H - 1) & (j[None, :] > 0) & (j[None, :] < W - 1)
    total = tl.load(x + place - 1, mask=inside, other=0.0) + tl.load(x + place + 1, mask=inside, other=0.0)
    total += tl.load(x + place - W, mask=inside, other=0.0) + tl.load(x + place + W, mask=inside, other=0.0)
    centre = tl.load(x + place, mask=(i[:, None] < H) & (j[None, :] < W), other=0.0)
    tl.store(out + place, tl.where(inside, total * 0.25, centre), mask=(i[:, None] < H) & (j[None, :] < W))


@triton.jit
def sparse_rows(start, column, value, x, out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    first, last = tl.load(start + row), tl.load(start + row + 1)
    total = tl.zeros((BLOCK,), tl.float32)
    for base in range(first, last, BLOCK):
        at = base + tl.arange(0, BLOCK)
        mask = at < last
        total += tl.load(value + at, mask=mask, other=0.0) * tl.load(
            x + tl.load(column + at, mask=mask, other=0)
        )
    tl.store(out + row, tl.sum(total, axis=0))


@triton.jit
def gather_rows(table, index, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row * n + at, tl.load(table + tl.load(index + row) * n + at, mask=at < n), mask=at < n)


@triton.jit
def gather_in_block(x, index, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(index + at), axis=0))


@triton.jit
def gelu(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.store(out + at, value * 0.5 * (1.0 + tl.erf(value * 0.70710678)))


@triton.jit
def elementary(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(out + at, tl.exp(v))
    tl.store(out + BLOCK + at, tl.log(v))
    tl.store(out + 2 * BLOCK + at, tl.sin(v))
    tl.store(out + 3 * BLOCK + at, tl.cos(v))
    tl.store(out + 4 * BLOCK + at, tl.sqrt(v))
    tl.store(out + 5 * BLOCK + at, tl.rsqrt(v))
    tl.store(out + 6 * BLOCK + at, tl.exp2(v))
    tl.store(out + 7 * BLOCK + at, tl.log2(v))


@triton.jit
def rounding(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(out + at, tl.floor(v))
    tl.store(out + BLOCK + at, tl.ceil(v))
    tl.store(out + 2 * BLOCK + at, tl.abs(v))
    tl.store(out + 3 * BLOCK + at, tl.clamp(v, -1.0, 1.0))
    tl.store(out + 4 * BLOCK + at, tl.minimum(v, 0.5))


@triton.jit
def integer_division(x, y, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a // b)
    tl.store(out + BLOCK + at, a % b)


@triton.jit
def bit_operations(x, y, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, (a & b) ^ (a | ~b))
    tl.store(out + BLOCK + at, (a << 3) + (a >> 5))
    tl.store(out + 2 * BLOCK + at, tl.umulhi(a, b))


@triton.jit
def random_numbers(out, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.randint(seed, at))


@triton.jit
def casts(x, half, brain, whole, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(half + at, v.to(tl.float16))
    tl.store(brain + at, v.to(tl.bfloat16))
    tl.store(whole + at, v.to(tl.int32))


@triton.jit
def to_fp8(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at).to(tl.float8e5))


@triton.jit
def product(a, b, c, PRECISION: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    batch = tl.program_id(0)
    left = tl.load(a + batch * M * K + m[:, None] * K + k[None, :])
    right = tl.load(b + batch * K * N + k[:, None] * N + n[None, :])
    tl.store(c + batch * M * N + m[:, None] * N + n[None, :], tl.dot(left, right, input_precision=PRECISION))


@triton.jit
def matrix_vector(a, x, out, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        part = tl.load(a + row[:, None] * n + at[None, :], mask=at[None, :] < n, other=0.0)
        total += tl.sum(part * tl.load(x + at, mask=at < n, other=0.0)[None, :], axis=1)
    tl.store(out + row, total)


@triton.jit
def convolution(x, weight, out, n, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for tap in tl.static_range(TAPS):
        total += tl.load(x + at + tap, mask=at + tap < n, other=0.0) * tl.load(weight + tap)
    tl.store(out + at, total, mask=at < n)


@triton.jit
def max_pool(x, out, W, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    for i in tl.static_range(2):
        for j in tl.static_range(2):
            best = tl.maximum(best, tl.load(x + (2 * row + i) * W + 2 * at + j))
    tl.store(out + row * BLOCK + at, best)


@triton.jit
def rms_norm(x, weight, out, n, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0)
    scale = tl.rsqrt(tl.sum(v * v, axis=0) / n + eps)
    tl.store(out + row * n + at, v * scale * tl.load(weight + at, mask=at < n), mask=at < n)


@triton.jit
def cross_entropy(x, label, loss, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
    top = tl.max(v, axis=0)
    total = tl.log(tl.sum(tl.exp(v - top), axis=0)) + top
    tl.store(loss + row, total - tl.load(x + row * n + tl.load(label + row)))


@triton.jit
def adam(p, g, m, v, rate, beta1, beta2, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    grad = tl.load(g + at)
    first = beta1 * tl.load(m + at) + (1 - beta1) * grad
    second = beta2 * tl.load(v + at) + (1 - beta2) * grad * grad
    tl.store(m + at, first)
    tl.store(v + at, second)
    tl.store(p + at, tl.load(p + at) - rate * first / (tl.sqrt(second) + 1e-8))


@triton.jit
def rotary(x, cosine, sine, out, HALF: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, HALF)
    a, b = tl.load(x + row * 2 * HALF + at), tl.load(x + row * 2 * HALF + HALF + at)
    c, s = tl.load(cosine + row * HALF + at), tl.load(sine + row * HALF + at)
    tl.store(out + row * 2 * HALF + at, a * c - b * s)
    tl.store(out + row * 2 * HALF + HALF + at, b * c + a * s)


@triton.jit
def flip_and_interleave(x, y, flipped, joined, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(flipped + at, tl.flip(a))
    tl.store(joined + tl.arange(0, 2 * BLOCK), tl.interleave(a, b))


@triton.jit
def split_pairs(x, even, odd, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    pairs = tl.reshape(tl.load(x + tl.arange(0, 2 * BLOCK)), (BLOCK, 2))
    a, b = tl.split(pairs)
    tl.store(even + at, a)
    tl.store(odd + at, b)


@triton.jit
def combine(mean_a, square_a, count_a, mean_b, square_b, count_b):
    delta, count = mean_b - mean_a, count_a + count_b
    share = count_b / count
    return mean_a + delta * share, square_a + square_b + delta * delta * count_a * share, count


@triton.jit
def welford(x, mean, variance, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    v = tl.load(x + row * BLOCK + tl.arange(0, BLOCK))
    m, s, c = tl.reduce((v, tl.zeros_like(v), tl.full((BLOCK,), 1.0, tl.float32)), 0, combine)
    tl.store(mean + row, m)
    tl.store(variance + row, s / c)


@triton.jit
def parity(x, out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    tl.store(out + row, tl.xor_sum(tl.load(x + row * BLOCK + tl.arange(0, BLOCK)), axis=0))


@triton.jit
def wide_integers(x, y, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a * b + (a >> 7) - (b << 2))


@triton.jit
def doubles(x, y, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, tl.fma(a, b, a) / (b * b + 1.0))


@triton.jit
def compare_and_swap(counter, out, BLOCK: tl.constexpr):
    old = tl.atomic_add(counter, 1)
    tl.atomic_cas(out + old % 4, 0, 1)


@triton.jit
def split_k(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BK: tl.constexpr):
    part = tl.program_id(0)
    m, n, k = tl.arange(0, M), tl.arange(0, N), part * BK + tl.arange(0, BK)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * N + n[None, :])
    tl.atomic_add(c + m[:, None] * N + n[None, :], tl.dot(left, right))


@triton.jit
def show(x, n):
    at = tl.program_id(0) * 32 + tl.arange(0, 32)
    v = tl.load(x + at, mask=at < n, other=0)
    tl.device_print("value: ", v)
    tl.device_assert(v < 100, "too large")
