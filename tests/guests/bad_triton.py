"""Triton kernels with one mistake each, and, with FIXED, the same kernels without it. Needs Triton.

A comment "BAD: kind" marks a line that a finding must name. Not here: the launches (`tests.guests.bad_cases`).
"""

import triton
import triton.language as tl


@triton.jit
def add_no_mask(x, out, n, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if FIXED:
        tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)
    else:
        value = tl.load(x + at)  # BAD: out_of_bounds
        tl.store(out + at, value)


@triton.jit
def add_store_off_by_one(x, out, n, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    if FIXED:
        tl.store(out + at, value, mask=at < n)
    else:
        tl.store(out + at, value, mask=at <= n)  # BAD: out_of_bounds


@triton.jit
def softmax_wrong_stride(x, out, stride, n, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    if FIXED:
        start = row * stride
    else:
        start = row * BLOCK
    value = tl.load(x + start + at, mask=at < n, other=-float("inf"))  # BAD: out_of_bounds
    raised = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * stride + at, raised / tl.sum(raised, axis=0), mask=at < n)


@triton.jit
def matmul_no_k_mask(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FIXED: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        if FIXED:
            left = tl.load(a + m[:, None] * K + start + k[None, :], mask=start + k[None, :] < K, other=0.0)
            right = tl.load(
                b + (start + k[:, None]) * BN + n[None, :], mask=start + k[:, None] < K, other=0.0
            )
        else:
            left = tl.load(a + m[:, None] * K + start + k[None, :])  # BAD: out_of_bounds
            right = tl.load(b + (start + k[:, None]) * BN + n[None, :])  # BAD: out_of_bounds
        total = tl.dot(left, right, total)
    tl.store(c + m[:, None] * BN + n[None, :], total)


@triton.jit
def gather_no_check(index, table, out, n, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.arange(0, BLOCK)
    i = tl.load(index + at)
    if FIXED:
        i = tl.minimum(i, n - 1)
    tl.store(out + at, tl.load(table + i))  # BAD: out_of_bounds


@triton.jit
def rows_one_too_many(start, value, out, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    row = tl.program_id(0)
    first, last = tl.load(start + row), tl.load(start + row + 1)
    at = first + tl.arange(0, BLOCK)
    if FIXED:
        mask = at < last
    else:
        mask = at <= last
    tl.store(out + row, tl.sum(tl.load(value + at, mask=mask, other=0.0), axis=0))  # BAD: out_of_bounds


@triton.jit
def stencil_no_edge(x, out, n, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if FIXED:
        left = tl.load(x + at - 1, mask=(at > 0) & (at < n), other=0.0)
    else:
        left = tl.load(x + at - 1, mask=at < n, other=0.0)  # BAD: out_of_bounds
    tl.store(out + at, left, mask=at < n)


@triton.jit
def accumulates_unwritten(x, out, n, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if FIXED:
        total = tl.zeros((BLOCK,), tl.float32)
    else:
        total = tl.load(out + at, mask=at < n)  # BAD: uninitialised
    tl.store(out + at, total + tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def scatter_no_atomic(x, index, out, n, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = out + tl.load(index + at, mask=at < n, other=0)
    value = tl.load(x + at, mask=at < n, other=0.0)
    if FIXED:
        tl.atomic_add(place, value, mask=at < n)
    else:
        tl.store(place, tl.load(place, mask=at < n) + value, mask=at < n)  # BAD: global_race


@triton.jit
def sum_of_narrow_scope(x, out, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    total = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), axis=0)
    if FIXED:
        tl.atomic_add(out, total)
    else:
        tl.atomic_add(out, total, scope="cta")  # BAD: global_race


@triton.jit
def sum_stored_by_all(x, out, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    row = tl.program_id(0)
    total = tl.sum(tl.load(x + row * BLOCK + tl.arange(0, BLOCK)), axis=0)
    if FIXED:
        tl.store(out + row, total)
    else:
        tl.store(out, total)  # BAD: global_race


@triton.jit
def split_k_no_atomic(a, c, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.arange(0, BLOCK)
    part = tl.load(a + tl.program_id(0) * BLOCK + at)
    if FIXED:
        tl.atomic_add(c + at, part)
    else:
        tl.store(c + at, tl.load(c + at) + part)  # BAD: global_race


@triton.jit
def lock_relaxed(lock, x, total, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * BLOCK + at)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    value += tl.load(total + at)  # BAD: global_race
    tl.store(total + at, value)  # BAD: global_race
    tl.debug_barrier()
    if FIXED:
        tl.atomic_xchg(lock, 0)
    else:
        tl.atomic_xchg(lock, 0, sem="relaxed")


@triton.jit
def lock_released_first(lock, x, total, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * BLOCK + at)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    value += tl.load(total + at)  # BAD: global_race
    if FIXED:
        tl.store(total + at, value)
        tl.debug_barrier()
        tl.atomic_xchg(lock, 0)
    else:
        tl.debug_barrier()
        tl.atomic_xchg(lock, 0)
        tl.store(total + at, value)  # BAD: global_race


@triton.jit
def shift_in_place(x, out, n, BLOCK: tl.constexpr, FIXED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at + 1, mask=at + 1 < n, other=0.0)  # BAD: global_race
    if FIXED:
        tl.store(out + at, value, mask=at < n)
    else:
        tl.store(x + at, value, mask=at < n)  # BAD: global_race
