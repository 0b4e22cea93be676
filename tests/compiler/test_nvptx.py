# ruff: noqa: ANN001, ANN003  # parametrised arguments: their values are listed at the test
"""Kernels for NVIDIA GPUs.

The PTX runs on the emulated GPU, which checks every access; the cubin assembles.
"""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from compiler.compile import compile_uncached
from compiler.dtype import dtypes
from compiler.ir.index import Variable
from compiler.ir.naming import kernel_name
from compiler.ir.ops import Ops
from compiler.ir.serialize import postorder
from compiler.ir.uop import uop
from compiler.nest.nest_check import dynamic_bytes
from compiler.pipeline import arguments, lower, steps
from compiler.schedule.item import OutRef, ParamRef
from compiler.schedule.scheduler import schedule
from compiler.targets import target_of
from compiler.targets.nvptx import assembler
from compiler.targets.nvptx.target import ROWS, ptx
from emulator.nv.ptx.module import launch, load_ptx
from emulator.shared.memory import AddressSpace
from emulator.simt.engine import Settings
from hcq.config import config
from hcq.errors import UnsupportedError
from tests import oracle
from tests.compiler import graphs
from tests.compiler.kernels import load, loop, number, op, reduce, sink, store, stored_as
from tests.compiler.test_compiled_programs import LAYERS
from tests.compiler.test_elementwise_ops import (
    ALL,
    BINARY,
    UNARY,
    applies,
    cast_by_rule,
    check_binary,
    check_unary,
    compare,
    exactly,
    from_memory,
    sample,
    to_memory,
)  # fmt: skip

ARCH = "sm_90a"


def run_ptx(
    ast, buffers: list[np.ndarray], variables: tuple[int, ...] = (), arch: str = ARCH, choice=None
) -> None:
    """Run a kernel on the emulated GPU over arrays, one a slot."""
    target = target_of(arch)
    made = steps(ast, target, choice=choice)
    ir, plan = made.ir, made.plan
    groups, threads = plan.launch()
    memory = AddressSpace()
    for array in buffers:
        memory.map(array.ctypes.data, array.nbytes)
    raw = b"".join(
        [struct.pack("<Q", a.ctypes.data) for a in buffers] + [struct.pack("<q", v) for v in variables]
    )
    module = load_ptx(ptx(ir, target.machine(), 0), arch=arch, settings=Settings(cache=config().cache))
    kernel = module.kernel(kernel_name(ast), module.place(memory))
    done = launch(kernel, groups, threads, raw, dynamic_bytes(plan), memory=memory)
    assert done.fault is None, done.fault


def run(
    ast, inputs: dict[int, np.ndarray], outputs: dict[int, tuple[int, object]], **options
) -> dict[int, np.ndarray]:
    buffers = []
    for slot in range(len(arguments(ast).access)):
        if slot in inputs:
            buffers.append(np.ascontiguousarray(inputs[slot]).reshape(-1).copy())
        else:
            count, dtype = outputs[slot]
            buffers.append(np.zeros(count, stored_as(dtype)))
    run_ptx(ast, buffers, **options)
    return {slot: buffers[slot] for slot in outputs}


def elementwise(name, arrays, kinds, result, *, arch=ARCH):
    i = loop(0, arrays[0].size)
    value = op(name, *[load(k + 1, i, kind) for k, kind in enumerate(kinds)], dtype=result)
    given = {k + 1: a for k, a in enumerate(arrays)}
    return run(sink(store(0, i, value)), given, {0: (arrays[0].size, result)}, arch=arch)[0]


@pytest.mark.parametrize("arch", ROWS)
def test_every_arch_assembles(arch):
    if not assembler.available():
        pytest.skip("neither nvJitLink nor ptxas is installed")
    i, r = loop(0, 64), loop(1, 1000)
    value = op("EXP", op("MUL", load(1, i * 1000 + r), number(0.5)))
    kernel = compile_uncached(sink(store(0, i, reduce(value, "ADD", r))), arch)
    assert kernel.image.code[:4] == b"\x7fELF"
    assert kernel.threads[0] == kernel.image.max_threads
    assert f".target {arch}" in assembler.ptx_of(kernel.image.code)


def test_an_unknown_arch_names_the_known_ones():
    with pytest.raises(UnsupportedError, match=r"no compiler target for 'sm_70'.*sm_90a"):
        target_of("sm_70")


@pytest.mark.sampled(11)
@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n in BINARY for d in ALL if applies(n, d)])
def test_binary_operation(name, dtype):
    check_binary(name, dtype, ARCH, elementwise)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n in UNARY for d in ALL if applies(n, d)])
def test_unary_operation(name, dtype):
    check_unary(name, dtype, ARCH, elementwise)


@pytest.mark.sampled(11)
@pytest.mark.parametrize("target", ALL, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "source", [dtypes.float32, dtypes.int32, dtypes.uint8, dtypes.bool, dtypes.bfloat16], ids=lambda d: d.name
)
def test_cast(source, target):
    x = sample(source, seed=7)
    compare(
        from_memory(elementwise("CAST", [x], [source], target), target),
        from_memory(cast_by_rule(x, source, target), target),
        target,
    )


@pytest.mark.sampled(11)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("name", ["EXP", "EXP2", "LOG", "LOG2", "EXPM1", "LOG1P", "SIN", "COS", "TANH"])
def test_transcendental_equals_the_host_to_the_bit(name, dtype):
    from tests.compiler.kernels import elementwise as on_host

    x = (
        np.random.default_rng(0).standard_normal(500) * np.exp(np.random.default_rng(1).uniform(-3, 20, 500))
    ).astype(dtype.numpy)
    np.testing.assert_array_equal(elementwise(name, [x], [dtype], dtype), on_host(name, [x], [dtype], dtype))


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("POW", d) for d in (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)]
    + [("FMOD", d) for d in (dtypes.float32, dtypes.float64)],
)
def test_powers_and_remainders_equal_the_hosts_to_the_bit(name, dtype):
    from tests.compiler.kernels import elementwise as on_host

    rng = np.random.default_rng(3)
    x, y = rng.integers(-200, 200, (2, 500)).astype(dtype.numpy)
    if dtype.is_float:
        x, y = x * np.exp2(rng.uniform(-30, 30, 500)).astype(dtype.numpy), y / 8
        x[:40] = np.repeat([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 1e30, -1.0], 5).astype(dtype.numpy)
        y[:40] = np.tile([0.0, 3.0, -3.0, np.inf, 0.5], 8).astype(dtype.numpy)
    np.testing.assert_array_equal(
        elementwise(name, [x, y], [dtype, dtype], dtype), on_host(name, [x, y], [dtype, dtype], dtype)
    )


@pytest.mark.sampled(7)
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("name", ["DIV", "RECIP", "SQRT", "FLOORDIV"])
def test_division_and_roots_of_any_bits_match_numpy(name, dtype):
    rng, word = np.random.default_rng(8), np.dtype(f"u{dtype.itemsize}")
    bits = rng.integers(0, np.iinfo(word).max, (2, 4096), word, endpoint=True)
    bits[1, ::2] = bits[0, ::2] ^ bits[1, ::2] >> 9  # of the same sign and about the same size
    x, y = bits.view(dtype.numpy)
    x[1::4] = np.abs(x[1::4])
    sources = [x, y] if name in BINARY else [x]
    got = elementwise(name, sources, [dtype] * len(sources), dtype)
    function = {**BINARY, **UNARY, "FLOORDIV": lambda a, b: np.floor(a / b)}[name]
    want = to_memory(exactly(function, dtype, *sources), dtype)
    compare(got, want, dtype)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.int64, dtypes.uint64], ids=lambda d: d.name)
@pytest.mark.parametrize("name", ["FLOORDIV", "MOD"])
def test_integer_division_of_all_sizes(name, dtype):
    rng, info = np.random.default_rng(9), np.iinfo(dtype.numpy)
    x, y = (
        rng.integers(info.min, info.max, 4096, dtype.numpy, endpoint=True)
        >> rng.integers(0, dtype.bits, 4096).astype(dtype.numpy)
        for _ in range(2)
    )
    ends = np.array(
        [info.min, info.min + 1, 0, 1, 2, info.max - 1, info.max, -1 if info.min else 3], dtype.numpy
    )
    end_x, end_y = (a.ravel() for a in np.meshgrid(ends, ends))
    x, y = np.concatenate([x, end_x]), np.concatenate([y, end_y])
    got = elementwise(name, [x, y], [dtype, dtype], dtype)
    np.testing.assert_array_equal(got, exactly(BINARY[name], dtype, x, y))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("k", [31, 32, 100, 256, 257, 1000])
@pytest.mark.parametrize("name", ["ADD", "MAX", "MIN"])
def test_reduction_over_threads(name, k):
    x = np.random.default_rng(0).standard_normal((3, k)).astype(np.float32)
    i, r = loop(0, 3), loop(1, k)
    got = run(sink(store(0, i, reduce(load(1, i * k + r), name, r))), {1: x}, {0: (3, dtypes.float32)})[0]
    want = {"ADD": np.sum, "MAX": np.max, "MIN": np.min}[name](x, axis=1)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


THROUGH_THREADS = (dtypes.float64, dtypes.float16, dtypes.bfloat16, dtypes.int8, dtypes.uint64, dtypes.bool)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", THROUGH_THREADS, ids=lambda d: d.name)
def test_values_of_every_width_cross_threads(dtype):
    x = sample(dtype, seed=5)[:300]
    r = loop(0, x.size)
    ast = sink(store(0, number(0, dtypes.index), reduce(load(1, r, dtype), "MAX", r)))
    got = run(ast, {1: x}, {0: (1, dtype)})[0]
    want = np.max(from_memory(x, dtype))
    np.testing.assert_array_equal(from_memory(got, dtype)[0], want)


def test_many_totals_share_barriers():
    """Between warps six totals take the barriers of one; within a warp none."""
    i, r = loop(0, 3), loop(1, 1000)
    value = load(6, i * 1000 + r)
    ast = sink(*[store(k, i, reduce(op("MUL", value, number(float(k))), "ADD", r)) for k in range(6)])
    target = target_of(ARCH)
    ir, plan = lower(ast, target)
    text = ptx(ir, target.machine(), 0)
    steps = (plan.threads // 32).bit_length() - 1
    assert steps > 0
    assert (text.count("bar.sync"), text.count("shfl.sync.bfly")) == (2 * steps * 2, 6 * 5)  # 4 KiB, then 2
    x = np.random.default_rng(0).integers(-9, 9, (3, 1000)).astype(np.float32)
    got = run(ast, {6: x}, dict.fromkeys(range(6), (3, dtypes.float32)))
    for k, row in got.items():
        np.testing.assert_array_equal(row, x.sum(axis=1) * k)


def test_a_workgroup_has_no_more_threads_than_its_ranges_keep_busy():
    """The long range is the one along which memory is strided: threads run along the short one."""
    i, j = loop(0, 1000), loop(1, 20)
    _, plan = lower(sink(store(0, i * 40 + j, load(1, i * 40 + j))), target_of(ARCH))
    assert (plan.threads, plan.axes[1].threads[0].size) == (32, 32)
    _, plan = lower(sink(store(0, loop(0, 1000), load(1, loop(0, 1000)))), target_of(ARCH))
    assert plan.threads == 256


@pytest.mark.parametrize("arch", [ARCH, "gfx1100", "gfx942"])
@pytest.mark.parametrize(
    ("sizes", "groups", "threads"),
    [((3,), 1, 1), ((40,), 1, 64), ((256,), 1, 256), ((7, 5), 7, 1), ((2, 257), 4, 256)],
)
def test_a_small_kernel_fills_its_workgroups(arch, sizes, groups, threads):
    """Elements of the longest range are threads of a workgroup, not a workgroup each; a warp is the least."""
    target = target_of(arch)
    ranges = [loop(k, size) for k, size in enumerate(sizes)]
    flat = ranges[0]
    for r, size in zip(ranges[1:], sizes[1:], strict=True):
        flat = flat * size + r
    turned = ranges[-1]
    for r, size in zip(ranges[-2::-1], sizes[-2::-1], strict=True):
        turned = turned * size + r
    _, plan = lower(sink(store(0, turned, op("ADD", load(1, flat), load(2, flat)))), target)
    assert plan.threads == max(threads, target.warp)
    assert plan.launch()[0][0] <= groups


def test_variables_are_passed_by_value():
    x = np.arange(100, dtype=np.float32)
    i, start = loop(0, 40), Variable("start", 0, 60)
    scale = op("CAST", uop(Ops.IVALUE, dtypes.int64, (Variable("a", 0, 9),)), dtype=dtypes.float32)
    ast = sink(store(0, i, op("MUL", load(1, i + start), scale)))
    got = run(ast, {1: x}, {0: (40, dtypes.float32)}, variables=(3, 31))[0]
    np.testing.assert_array_equal(got, x[31:71] * 3)


def run_items(items, params):
    memory: dict[object, np.ndarray] = {}
    for item in items:
        for ref in item.bufs:
            if ref not in memory:
                memory[ref] = np.zeros(max(1, int(np.prod(ref.shape))), oracle.stored_type(ref.dtype))
                if isinstance(ref, ParamRef):
                    memory[ref][: params[ref.n].size] = params[ref.n].ravel()
        run_ptx(item.ast, [memory[ref] for ref in item.bufs])
    return {ref.n: view.reshape(ref.shape) for ref, view in memory.items() if isinstance(ref, OutRef)}


def agrees(outputs, seed, tolerance):
    rng = np.random.default_rng(seed)
    params = {
        n.arg[0]: oracle.random_array(rng, n.arg[1], n.dtype) for n in postorder(outputs) if n.op is Ops.PARAM
    }
    with np.errstate(all="ignore"):
        want = oracle.evaluate_all(outputs, params)
    got = run_items(schedule(outputs), params)
    for i, expected in enumerate(want):
        if expected.size:
            np.testing.assert_allclose(got[i], expected, rtol=tolerance, atol=tolerance)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    agrees(LAYERS[name](), 3, 2e-4)


@pytest.mark.sampled(16)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed):
    choose = random.Random(seed)
    program = graphs.Program(choose, length=choose.choice((3, 10, 25)), assigns=False)
    agrees(program.outputs(), seed, 1e-9)
