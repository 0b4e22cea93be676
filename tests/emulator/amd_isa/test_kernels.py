"""Machine code that LLVM makes, run by the engine on every target, agrees with what the host computes."""



from __future__ import annotations

import numpy as np
import pytest

from emulator.amd.isa.instruction import IsaError
from emulator.amd.isa.opcodes import target
from emulator.amd.isa.translate import KernelEntry, translate
from emulator.ir.report import ReportKind
from emulator.simt.engine import engine
from emulator.simt.work import LaunchOptions
from tests.emulator.amd_isa import ir
from tests.emulator.amd_isa.conftest import Bench

Array = np.ndarray
QUICK = LaunchOptions(tier="quick", threads=1)


@pytest.fixture(params=["gfx1100", "gfx1100 wave64", "gfx1201", "gfx942"])
def anywhere(request: pytest.FixtureRequest) -> Bench:
    """Return a bench for each target, and one for waves of 64 where the kernel chooses."""
    processor, _, wide = request.param.partition(" ")
    return Bench(processor, "+wavefrontsize64" if wide else "")


def test_workgroups_reduce_in_lds_with_barriers(anywhere: Bench) -> None:
    rng = np.random.default_rng(0)
    values = anywhere.new(rng.integers(0, 100, 1024), "f4")
    sums = anywhere.new(np.zeros(4), "f4")
    for order in ("forward", "reverse"):
        sums[:] = 0
        done = anywhere.run(
            ir.REDUCTION, 4, 256, sums, values, options=LaunchOptions(tier="quick", warp_order=order)
        )
        assert done.fault is None, done.fault
        assert sums.tolist() == values.reshape(4, 256).sum(1).tolist()


def _steps(n: int) -> int:
    steps = 0
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    return steps


@pytest.mark.sampled(3)
@pytest.mark.parametrize("tier", ["quick", "optimised"])
def test_lanes_loop_differently_often(anywhere: Bench, tier: str) -> None:
    out = anywhere.new(np.zeros(300), "u4")
    done = anywhere.run(ir.COLLATZ, 1, 200, out, options=LaunchOptions(tier=tier))  # type: ignore[arg-type]
    assert done.fault is None, done.fault
    assert out[:200].tolist() == [_steps(i + 1) for i in range(200)]
    assert not out[200:].any()  # a part of the last wave does not exist


def test_scratch_is_private_and_flat_addresses_reach_it(anywhere: Bench) -> None:
    index = anywhere.new(np.arange(256) * 7 % 16, "u4")
    out = anywhere.new(np.zeros(256), "u4")
    done = anywhere.run(ir.SCRATCH, 1, 256, out, index, options=QUICK)
    assert done.fault is None, done.fault
    assert out.tolist() == [i * (i * 7 % 16) for i in range(256)]


def test_atomic_operations_count_every_lane(anywhere: Bench) -> None:
    values = anywhere.new(np.random.default_rng(1).integers(0, 2**32, 1024), "u4")
    bins, largest = anywhere.new(np.zeros(16), "u4"), anywhere.new(np.zeros(1), "u8")
    done = anywhere.run(ir.HISTOGRAM, 4, 256, bins, values, largest, options=QUICK)
    assert done.fault is None, done.fault
    assert bins.tolist() == np.bincount(values & 15, minlength=16).tolist()
    assert int(largest[0]) == int(values.max())


_DIVISION = "  %r = fdiv {T} %x, %y"


@pytest.mark.sampled(11)
@pytest.mark.parametrize(("type_", "dtype"), [("float", "f4"), ("double", "f8")])
def test_quotients_beyond_every_range_are_right(anywhere: Bench, type_: str, dtype: str) -> None:
    """The steps of a division scale their operands; every pair of magnitudes meets another case.

    Subnormal quotients are rounded once: of 1,792 random ones, two roundings make 21 wrong.
    """
    info = np.finfo(dtype)
    tiny, large = float(info.tiny), float(info.max)
    sizes = [
        float(info.smallest_subnormal),
        tiny * 0.37,
        tiny,
        tiny * 3,
        1.0,
        3.0,
        large / 3,
        large * 0.6,
        large,
    ]
    sizes += [float(info.smallest_subnormal) * 5, 1 / tiny, tiny * 2.0**23, 1e-20, 1e20, 0.1, 7.0]
    x, y = (bench.reshape(-1) for bench in np.meshgrid(sizes, sizes))
    rng = np.random.default_rng(7)
    some, others = rng.uniform(1, 2, (2, 1792)).astype(dtype)
    x = np.append(x, np.ldexp(some, info.minexp + 3)).astype(dtype)
    y = np.append(y, np.ldexp(others, rng.integers(2, info.nmant, 1792))).astype(dtype)
    xs, ys = anywhere.new(x, dtype), anywhere.new(-y, dtype)
    out = anywhere.new(np.zeros(2048), dtype)
    done = anywhere.run(
        ir.elementwise(type_, _DIVISION.replace("{T}", type_)), 8, 256, out, xs, ys, xs, options=QUICK
    )
    assert done.fault is None, done.fault
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out, xs / ys)


def test_a_wild_access_names_instruction_and_address(bench: Bench) -> None:
    out = bench.new(np.zeros(256), "u4")
    done = bench.run(ir.COLLATZ, 2, 256, out, options=QUICK)
    assert done.fault is not None
    assert done.fault.kind is ReportKind.OUT_OF_BOUNDS
    assert (done.fault.kernel, done.fault.address) == ("k", out.ctypes.data + 1024)
    assert "global_store_b32" in done.fault.instruction
    assert done.fault.line % 4 == 0


def _translated(bench: Bench, words: str) -> None:
    code = b"".join(int(w, 16).to_bytes(4, "little") for w in words.split())
    translate(engine(bench.settings).library, "probe", code, target("gfx1100"), KernelEntry(user_sgprs=2))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("BF800000 BE884700 BFB00000", "s_getpc_b64"),  # the address of code is not known
        ("BF800000 BF910001 BFB00000", "s_round_mode"),
        ("BF800000 BFB60001 BFB00000", "s_sendmsg"),
        ("BF800000 D8DA0000 00000000 BFB00000", "gds"),
    ],
)  # fmt: skip
def test_an_unsupported_instruction_is_named_with_its_address(bench: Bench, words: str, text: str) -> None:
    with pytest.raises(IsaError, match=text) as caught:
        _translated(bench, words)
    assert (caught.value.address, caught.value.kernel) == (4, "probe")
