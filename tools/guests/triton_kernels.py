"""Triton kernels with the structure of Triton's tutorials, and further ones. Needs Triton.

Not here: inputs and expected results (`tools.guests.cases`).
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
