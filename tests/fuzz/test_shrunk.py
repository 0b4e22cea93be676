"""`tests.fuzz.shrunk`: which graphs it makes, and that it finds a mistake that a program's own sizes hide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from compiler.dtype import dtypes
from compiler.ir import graph
from compiler.ir.ops import Ops
from compiler.ir.serialize import postorder
from frontend.check import launches
from frontend.check.interpreter import Bounded
from frontend.device import Device
from tests.children import python
from tests.fuzz import shrunk

if TYPE_CHECKING:
    from pathlib import Path

    from compiler.ir.uop import UOp

PROGRAM = """
import numpy as np
from frontend import Tensor
def a(*shape):
    return Tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32)).realize()
s, x, p, o = a(2, 6, 5), a(2, 5, 7), a(7, 8), a(8, 4)
((s @ (x @ p)) @ o).realize()
"""
PLANTED = """
import sys
from tests.frontend import planted
sys.meta_path.insert(0, planted.Finder(planted.MISTAKES["chain of rows of one matrix"].changes))
from tests.fuzz.shrunk import main
sys.exit(main())
"""


def sizes_of(*outputs: UOp, seed: int = 0) -> list[tuple[int, ...]]:
    """Return the shapes of the parameters of the shrunk graph, by slot, then those of its outputs."""
    made = shrunk.shrunk(outputs, np.random.default_rng(seed))
    assert made is not None
    params = sorted([n.arg for n in postorder(made) if n.op is Ops.PARAM])
    return [shape for _, shape in params] + [x.shape for x in made]


@pytest.mark.parametrize("seed", range(8))
def test_equal_sizes_stay_equal_and_products_stay_products(seed: int) -> None:
    x, w = graph.param(0, (100, 64), dtypes.float32), graph.param(1, (64, 48), dtypes.float32)
    rows = graph.expand(graph.reshape(x, (100, 1, 64)), (100, 48, 64))
    columns = graph.expand(graph.reshape(graph.permute(w, (1, 0)), (1, 48, 64)), (100, 48, 64))
    y = graph.reduce(graph.binary(Ops.MUL, rows, columns), Ops.ADD, (2,))
    heads = graph.permute(graph.reshape(y, (100, 4, 12)), (1, 0, 2))
    (m, k), (also, n), (four, rest, twelve) = sizes_of(heads, seed=seed)
    assert also == k
    assert rest == m
    assert four * twelve == n
    assert {m, k, four, twelve} <= {1, 2, 3}


@pytest.mark.parametrize("seed", range(8))
def test_windows_and_borders_keep_their_width(seed: int) -> None:
    x = graph.param(0, (8, 28), dtypes.float32)
    taps = graph.window(graph.pad(x, ((0, 0), (1, 1))), (1,), (3,), (1,), (1,))
    same = graph.binary(Ops.ADD, graph.reduce(taps, Ops.MAX, (2,)), x)
    part = graph.shrink(same, ((0, 8), (2, 27)))
    before, after = sizes_of(part, seed=seed)
    assert before[0] == after[0]
    assert 1 <= after[1] <= before[1] <= 3


def test_a_size_that_fits_no_other_leaves_the_graph_out() -> None:
    x = graph.param(0, (8, 28), dtypes.float32)
    flat = graph.reshape(x, (224,))
    other = graph.reshape(graph.param(1, (14, 16), dtypes.float32), (224,))
    found = [shrunk.shrunk([graph.binary(Ops.ADD, flat, other)], np.random.default_rng(k)) for k in range(20)]
    assert None in found


def test_differences_are_counted_and_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    x = graph.param(0, (5, 7), dtypes.float32)
    outputs = [graph.reduce(graph.binary(Ops.MUL, x, x), Ops.ADD, (1,)), graph.unary(Ops.NEG, x)]
    tally = shrunk.Tally(seed=0, rounds=2)
    tally("frontend.plan", (outputs, [], "cpu", Device["cpu"].arch))
    assert (tally.plans, tally.compared, tally.wrong) == (1, 2, 0)
    monkeypatch.setattr(
        launches, "evaluate", lambda root, *_: (Bounded(np.full(root.shape, 9, np.float32)), None)
    )
    tally("frontend.plan", (outputs, [], "cpu", Device["cpu"].arch))
    assert (tally.plans, tally.compared, tally.wrong) == (2, 4, 2)
    assert capsys.readouterr().err.count("with all sizes shrunk: kernel ") == 2


@pytest.mark.slow
def test_a_mistake_that_the_sizes_of_a_program_hide_is_found(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    settings = {"HCQ_CACHE": str(tmp_path), "HCQ_CHECK": "1", "HCQ_DEVICE": "cpu"}
    done = python("-c", PLANTED, "--rounds", "30", program, status=1, **settings)
    assert "Traceback" not in done.stderr
    assert "with all sizes shrunk: kernel " in done.stderr
