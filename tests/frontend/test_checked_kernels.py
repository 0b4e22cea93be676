"""`HCQ_CHECK=1`: what it computes, what it compares, and which planted mistakes it names."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.ir import graph
from compiler.ir.ops import Ops
from compiler.ir.serialize import postorder
from frontend import Tensor, TinyJit
from frontend.check import evaluation, interpreter, launches
from hcq.config import override
from hcq.errors import CheckError
from tests import oracle
from tests.children import python
from tests.compiler.graphs import Program
from tests.frontend.planted import MISTAKES

if TYPE_CHECKING:
    from pathlib import Path

    from compiler.dtype import DType
    from compiler.ir.uop import UOp
    from frontend.check.interpreter import Bounded

QUICK = (
    "chain of rows of one matrix",
    "store in place of what is read elsewhere",
    "neighbouring ranges that are no one range merged",
)
CHILD_S = 300


def run_planted(cache: Path, *arguments: str) -> str:
    """Return the first lines of the errors that a child meets."""
    done = python(
        "-m", "tests.frontend.planted", *arguments, HCQ_CACHE=str(cache), HCQ_CHECK="1", HCQ_DEVICE="cpu",
        HCQ_WINOGRAD="1",
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[] if name in QUICK else [pytest.mark.slow, *([pytest.mark.landing] if n % 3 else [])]
        )
        for n, name in enumerate(MISTAKES)
    ],
)
def test_planted_mistake_is_named(name: str, tmp_path: Path) -> None:
    found = run_planted(tmp_path, "--planted", name)
    assert found.startswith("kernel "), found
    assert " on cpu: its result " in found, found


@pytest.mark.slow
def test_programs_without_their_mistakes_have_no_error(tmp_path: Path) -> None:
    assert run_planted(tmp_path, *MISTAKES) == ""


def program_of(seed: int) -> tuple[list[UOp], dict[UOp, Bounded], dict[int, np.ndarray]]:
    """Return the nodes of a random graph, the values of its parameters, and these as arrays."""
    dtype = (dtypes.int64, dtypes.float64, dtypes.float32)[seed % 3]
    outputs = Program(random.Random(seed), length=12, dtype=dtype).outputs()
    rng = np.random.default_rng(seed)
    nodes = postorder(outputs)
    arrays = {n.arg[0]: oracle.random_array(rng, n.arg[1], n.dtype) for n in nodes if n.op is Ops.PARAM}
    known = {n: interpreter.Bounded(arrays[n.arg[0]]) for n in nodes if n.op is Ops.PARAM}
    return [n for n in nodes if n.dtype is not dtypes.index and n.op is not Ops.PARAM], known, arrays


@pytest.mark.parametrize("seed", range(24))
def test_values_and_samples_agree_with_the_oracle(seed: int) -> None:
    nodes, known, arrays = program_of(seed)
    for node, wanted in zip(nodes, oracle.evaluate_all(nodes, arrays), strict=True):
        value, at = evaluation.evaluate(node, known, seed)
        assert at is None
        if value.e is None:
            np.testing.assert_array_equal(value.v, wanted, strict=True)
        else:
            assert (abs(value.v.astype(float) - wanted) <= value.e).all()
        if value.v.size:
            some = np.arange(0, value.v.size, 3)
            sample = evaluation.Sample(known, node).values(node, some)
            near = np.inf if value.e is None else np.broadcast_to(value.e, value.v.shape).reshape(-1)[some]
            if value.e is None:
                np.testing.assert_array_equal(sample.v, value.v.reshape(-1)[some])
            assert (abs(sample.v.astype(float) - value.v.reshape(-1)[some]) <= near).all()


def test_a_sample_computes_each_operation_once() -> None:
    x = graph.param(0, (64,), dtypes.int64)
    node = x
    for _ in range(24):
        node = graph.binary("ADD", node, graph.flip(graph.binary("ADD", node, x), (0,)))
    values = interpreter.Bounded(np.arange(64))
    sample = evaluation.Sample({x: values}, node)
    whole, _ = evaluation.evaluate(node, {x: values}, 0)
    np.testing.assert_array_equal(sample.values(node, np.arange(8)).v, whole.v[:8])
    assert sample.work <= 2 * 8 * 3 * 24


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_wide_integers_round_once_to_bfloat16(kind: type[np.signedinteger]) -> None:
    halves = [(1 << n) + (odd << n - 8) for n in range(40, 63) for odd in (1, 3, 253, 255)]
    values = [half + off for half in halves for off in (-1025, -1, 0, 1, 1025)]
    values += [-x for x in values if kind is np.int64]
    for x, found in zip(values, interpreter.rounded(np.array(values, kind), dtypes.bfloat16), strict=True):
        unit = 1 << abs(x).bit_length() - 8
        assert int(found) == round(Fraction(x, unit)) * unit, x


def test_large_kernels_are_sampled_and_what_is_too_large_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = launches.TALLY.sampled, launches.TALLY.skipped.total()
    with override(check=True):
        monkeypatch.setattr(evaluation, "MOST_WORK", 30_000)
        x = Tensor(np.ones((64, 700), np.float32)).realize()
        assert (x.exp() @ x.T).sum(1).shape == (64,)
        (x.exp() * 2 + 1).realize()
        assert launches.TALLY.sampled == before[0] + 1
        monkeypatch.setattr(evaluation, "MOST_WORK", 3)
        (x.exp() * 3 + 2).realize()
    names = [name for name in launches.TALLY.skipped if "add_" in name]
    assert launches.TALLY.skipped.total() == before[1] + 1
    assert "takes more than 3 elements" in names[-1]
    assert names[-1] in str(launches.TALLY)


def test_an_error_says_which_elements_differ_and_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    true = launches.from_bytes

    def wrong(data: bytes, dtype: DType) -> np.ndarray:
        found = true(data, dtype).copy()
        if found.size == 24:
            found.reshape(4, 6)[2:, 1:5] += 0.5
            found[-1] = np.uint32(launches.UNWRITTEN).view(np.float32)
        return found

    x = Tensor(np.ones(6, np.float32)).realize()
    with override(check=True):
        monkeypatch.setattr(launches, "from_bytes", wrong)
        with pytest.raises(CheckError, match=r"9 of 24 differ") as error:
            (x.expand(4, 6) * 11 - 4).contiguous().realize()
    assert error.value.where == (
        "axis 0: 2 to 3 of 0 to 3; axis 1: 1 to 5 of 0 to 5; differences of 0.5 to 7, median 0.5;"
        " 1 not stored at all"
    )


def test_first_run_alone_is_checked_also_inside_a_captured_function() -> None:
    step = TinyJit(lambda x: (x * 5 - 7).relu().sum(0))
    x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)).realize()
    with override(check=True):
        before = launches.TALLY.kernels
        assert step(x).tolist() == step(x).tolist()
        checked = launches.TALLY.kernels
        step(x).tolist()
    assert checked > before
    assert launches.TALLY.kernels == checked
