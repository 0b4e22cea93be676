"""Random tensor programs on fixed seeds, and the tool itself; more by `python -m tests.fuzz.tensors`."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler import workers
from compiler.schedule import chains
from frontend import Device, Tensor
from hcq.config import override
from tests.fuzz.slopes import duals, greatest, lesser, parts, positive
from tests.fuzz.tensor_graphs import convolved, greatest_of_windows
from tests.fuzz.tensor_kinds import KINDS
from tests.fuzz.tensor_programs import Line, Maker
from tests.fuzz.tensor_runs import Differs, kernels, oracle, outlive, run
from tests.fuzz.tensor_values import brief, cast, near, same_bits, total
from tests.fuzz.tensor_writes import of_row
from tests.fuzz.tensors import as_test, failure, is_joined, program, record, shrunk

if TYPE_CHECKING:
    from pathlib import Path

    from compiler.ir.uop import UOp

SHARES = {
    "eager": (0, 5, 45),
    "jit": (20_000, 5, 35),
    "threads": (40_000, 1, 9),
    "views": (60_000, 5, 35),
    "gradients": (80_000, 3, 21),
    "graphs": (100_000, 4, 96),
    "wide": (120_000, 5, 45),
    "chains": (140_000, 4, 36),
    "small": (160_000, 6, 54),
    "names": (180_000, 5, 45),
    "states": (200_000, 5, 45),
    "functions": (220_000, 10, 90),
    "large": (240_000, 3, 27),
    "slopes": (260_000, 10, 90),
}
"""By mode: the first seed, the programs of the quick part, and those of the slow part behind them."""


@pytest.mark.parametrize("mode", SHARES)
@pytest.mark.parametrize(
    "part", ["quick", pytest.param("slow", marks=[pytest.mark.slow, pytest.mark.landing])]
)
def test_programs_agree_with_the_oracle(mode: str, part: str) -> None:
    first, quick, slow = SHARES[mode]
    shares = {"quick": range(first, first + quick), "slow": range(first + quick, first + quick + slow)}
    for seed in shares[part]:
        made = program(seed, mode)
        text = failure(made, mode)
        assert not text, as_test(made, mode, text)


@pytest.mark.slow
@pytest.mark.sampled(9)
@pytest.mark.parametrize("mode", ["graphs", "chains"])
@pytest.mark.parametrize("device", ["nv-emu", "amd-emu"])
def test_graphs_on_emulated_gpus_agree_with_the_oracle(
    device: str, mode: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No program of chains starts processes that compile its kernels, which took most of its time.

    No kernel is in the cache yet.
    """
    started: list[int] = []
    compile_texts = workers.compile_texts

    def counted(texts: list[tuple[str, str]], arch: str) -> object:
        started.append(len(texts))
        return compile_texts(texts, arch)

    monkeypatch.setattr(workers, "compile_texts", counted)
    default = Device.DEFAULT
    Device.DEFAULT = device
    try:
        with override(cache=tmp_path):
            for seed in range(110_000, 110_002):
                made = program(seed, mode)
                text = failure(made, mode)
                assert not text, as_test(made, mode, text)
    finally:
        Device.DEFAULT = default
    assert bool(started) == (mode == "graphs")


@pytest.mark.parametrize("mode", ["states", "wide", "gradients", "functions"])
@pytest.mark.parametrize("part", [0, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.landing])])
def test_programs_on_three_devices_agree_with_the_oracle(mode: str, part: int) -> None:
    """Inputs and results are divided along random axes, into parts of random sizes."""
    default, first = Device.DEFAULT, SHARES[mode][0] + 1000 + 4 * part
    Device["cpu"].synchronize()  # opened with all cores
    try:
        with override(cpu_devices=3):
            Device.DEFAULT = "cpu:0,cpu:1,cpu:2"
            for seed in range(first, first + 4):
                made = program(seed, mode)
                text = failure(made, mode)
                assert not text, as_test(made, mode, text)
    finally:
        Device.DEFAULT = default
        for name in ("cpu:1", "cpu:2"):
            if (found := Device._open.get(name)) is not None:
                found.synchronize()
                found.close()


def joined(seed: int) -> list[UOp]:
    """Return the joined kernels of a program of chains."""
    made = program(seed, "chains")
    env = run(made, lambda _: False)
    return [ast for ast in kernels([env[line.makes] for line in made.body]) if is_joined(ast)]


def test_programs_of_chains_reach_many_different_joined_kernels() -> None:
    found = [joined(seed) for seed in range(150_000, 150_040)]
    assert len({ast for asts in found for ast in asts}) >= 10
    assert any(not asts for asts in found)


def test_kernels_are_counted_over_all_runs_that_record_them(tmp_path: Path) -> None:
    file = tmp_path / "kernels"
    made = [program(seed, "chains") for seed in range(150_000, 150_012)]
    record(made[:8], file)
    once = file.read_text().splitlines()
    record(made[4:], file)
    lines = set(file.read_text().splitlines())
    assert len(once) == len(set(once)) < len(lines)
    joins = {ast for one in made for ast in joined(one.seed)}
    assert sum(line.startswith("joined ") for line in lines) == len(joins) > 0


def test_programs_of_chains_reach_rows_that_a_chain_stored_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of one row with a computed matrix, between two products, is within few hundred programs.

    Without the rules that refuse it, its chain is one kernel, which loads what no part has stored.
    """
    proof = chains._all_stored
    monkeypatch.setattr(chains, "_all_stored", lambda *_: True)
    monkeypatch.setattr(chains, "_cut_at_rows", lambda ast, *_: ast)
    monkeypatch.setattr(chains, "prod", lambda _: 1)
    assert not all(proof(ast.src, *ast.arg) for ast in joined(150_029))


def test_a_graph_that_computes_something_else_when_fused_is_found() -> None:
    made = program(100_001, "graphs")
    first = made.leaves[0].makes
    wrong = Line("w", (first,), f"w = {first}.relu() - 1", f"w = positive({first})")
    assert "unfused: w is" in failure(replace(made, lines=(*made.lines, wrong)), "graphs")


def test_convolutions_and_pools_of_the_oracle_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(-3, 4, (2, 4, 6, 5)), rng.integers(-3, 4, (6, 2, 3, 2))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    found = convolved(x, w, stride=2, padding=1, dilation=1, groups=2)
    for n, o, i, j in np.ndindex(*found.shape):
        window = padded[n, 2 * (o // 3) : 2 * (o // 3) + 2, 2 * i : 2 * i + 3, 2 * j : 2 * j + 2]
        assert found[n, o, i, j] == (window * w[o]).sum()
    assert greatest_of_windows(x, 2, 2)[1, 3, 2, 1] == x[1, 3, 4:6, 2:4].max()


def test_programs_have_sizes_of_none_one_two_primes_and_powers_of_two() -> None:
    for mode, wanted in {"eager": {0, 1, 2, 3, 8, 16, 17}, "chains": {0, 1, 2, 3, 8, 13, 16}}.items():
        leaves = [oracle(program(seed, mode).leaves) for seed in range(150)]
        shapes = [x.shape for env in leaves for x in env.values() if isinstance(x, np.ndarray)]
        for axis in range(2):
            assert wanted <= {shape[axis] for shape in shapes if len(shape) > axis}


def test_each_thread_writes_and_reads_its_row_in_every_way() -> None:
    statements = of_row(random.Random(1), 2, 200)
    assert len({one.replace("5", "4") for one, _ in statements}) > 30
    rows = np.zeros((4, 2), np.int32)
    for _, same in statements:
        exec(same, {"rows": rows})
    assert not rows[[0, 1, 3]].any()
    assert rows[2].any()


def test_exported_memory_that_is_used_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = program(3, "eager")
    monkeypatch.setattr(np, "from_dlpack", lambda x: np.frombuffer(x.leaves[0].buffer.borrow(), np.uint8))
    env = run(made, lambda _: True)
    env[made.leaves[0].makes] = Tensor(np.arange(5, 70_000, dtype="f")).realize()
    with pytest.raises(Differs, match="the exported"):
        outlive(env, [made.leaves[0].makes])


def test_a_wrong_chain_is_cut_down_to_its_line_and_the_factors() -> None:
    made = program(150_003, "chains")
    last = made.body[-1]
    wrong = replace(last, tensor=f"{last.tensor} + 1")
    broken = replace(made, lines=(*made.lines[:-1], wrong))
    least = shrunk(broken, lambda one: failure(one, "chains"))
    assert [line.makes for line in least.lines] == [*last.needs, last.makes]
    assert f"joined: {last.makes} is" in failure(least, "chains")


def test_a_seed_is_one_program() -> None:
    assert [program(7, "eager").lines for _ in range(2)] == [Maker(7, KINDS).program.lines] * 2


def test_a_wrong_line_is_found_and_the_program_cut_down_to_it() -> None:
    made = program(3, "eager")
    first = made.leaves[0].makes
    wrong = Line(
        "w", (first,), f"w = {first}.reshape(-1)", f"w = np.append({first}.reshape(-1), {first}.reshape(-1))"
    )
    broken = replace(made, lines=(*made.lines, wrong))
    assert "wanted" in failure(broken, "eager")
    least = shrunk(broken, lambda one: failure(one, "eager") if wrong in one.lines else "")
    assert [line.makes for line in least.lines] == [first, "w"]
    assert f"w = {first}.reshape(-1)" in as_test(least, "eager", "")


def test_casts_of_the_oracle_saturate_and_round() -> None:
    x = np.array([-1.5, 300.0, np.nan, np.inf, -np.inf], "float32")
    assert cast(x, "uint8").tolist() == [0, 255, 0, 255, 0]
    assert cast(x, "int64").tolist() == [-1, 300, 0, 2**63 - 1, -(2**63)]
    assert cast(np.array([-1, 300]), "uint8").tolist() == [255, 44]
    assert cast(x, "bool").tolist() == [True] * 5


def test_bits_are_compared_with_the_sign_of_zero_and_any_nan() -> None:
    zero, nan = np.array([0.0, np.nan]), np.array([-0.0, -np.nan])
    assert not same_bits(zero, nan)
    assert same_bits(zero[1:], nan[1:])
    assert not same_bits(zero, zero.astype("float32"))


def test_sums_are_compared_within_their_bound() -> None:
    x = np.full(1000, 0.1, "float32")
    assert near(np.asarray(x.sum()), *total(x, None))
    assert not near(np.asarray(np.float32(101.0)), *total(x, None))


def test_bfloat16_of_the_oracle_rounds_to_even():
    x = np.array([1.00390625, 1.01171875, -3.4e38, np.nan, np.inf, 1e-45], "float32")
    np.testing.assert_array_equal(brief(x), np.array([1.0, 1.015625, -np.inf, np.nan, np.inf, 0.0], "f"))


def test_a_wrong_gradient_is_found():
    made = program(4, "gradients")
    name = made.leaves[0].makes
    wrong = Line("w", (name,), f"w = {name} * 2.0", f"w = {name} * 2.0 + held({name})")
    slope = Line("w", (name,), f"w = {name} * 2.0", f"w = {name} + held({name})")
    assert "the loss" in failure(replace(made, lines=(*made.lines, wrong)), "gradients")
    assert f": {name}: " in failure(replace(made, lines=(*made.lines, slope)), "gradients")


@pytest.mark.parametrize(
    ("mode", "wrong", "text"),
    [
        ("functions", ".sin() * 1.001", "at the end: w is"),
        ("slopes", ".detach().sin()", "the slope of the loss"),
    ],
)
def test_a_wrong_function_and_a_wrong_slope_are_found(mode: str, wrong: str, text: str):
    made = program(1, mode)
    name = made.leaves[0].makes
    line = Line("w", (name,), f"w = {name}{wrong}", f"w = np.sin({name})", weight=4.0)
    assert not failure(made, mode)
    assert text in failure(replace(made, lines=(*made.lines, line)), mode)


def test_a_state_that_a_captured_function_does_not_write_is_found(monkeypatch: pytest.MonkeyPatch):
    seed = next(s for s in range(100) if {x.makes for x in program(s, "states").leaves} & written(s))
    made = program(seed, "states")
    assert not failure(made, "states")
    monkeypatch.setattr(Tensor, "assign", lambda x, _: x)
    for name in ("__iadd__", "__isub__", "__imul__"):
        monkeypatch.setattr(Tensor, name, lambda x, _: x)
    monkeypatch.setattr(Tensor, "__setitem__", lambda *_: None)
    assert "call" in failure(made, "states")


def written(seed: int) -> set[str]:
    """Return the names that a program of states writes."""
    return {line.makes for line in program(seed, "states").body if line.kind == "write"}


def test_slopes_are_those_of_the_chain_rule():
    x = duals({"x": np.array([2.0, -1.0, 2.0])})["x"]
    y = greatest(x * x - x, 0) + lesser(x, x[::-1]).sum() + positive(x)[1]
    assert parts(y)[0] == 2.0 + 3.0
    np.testing.assert_array_equal(parts(y)[1], [1.0 + 1.0, -1.0 + 1.0, 1.0 + 1.0])


def test_the_oracle_runs_every_line() -> None:
    made = program(11, "eager")
    assert set(made.names()) <= set(oracle(made.lines))


def test_results_of_the_oracle_lie_in_memory_in_the_order_of_their_axes() -> None:
    # np.concatenate keeps the order of broadcast operands, and a reshape of its result would be a copy.
    made = Maker(31_744, KINDS, sizes=(0, 1, 1, 2, 3, 4, 5, 7, 7, 17), views=True).program
    values = oracle(made.lines)
    assert values["v3"].flags.c_contiguous
    assert np.shares_memory(values["v3"], values["v5"])
