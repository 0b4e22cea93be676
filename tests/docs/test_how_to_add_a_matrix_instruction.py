"""docs/how-to/add-a-matrix-instruction.md, followed in a copy of the compiler: products use what it adds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.children import ROOT
from tests.docs.followed import after, before, output_of

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs/how-to/add-a-matrix-instruction.md").read_text()
ROW, MAPS, TILE, MADE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CHECK = """
import numpy as np
from compiler.targets import target_of
from frontend import Tensor

op = target_of("gfx942").matrix[0]
assert op.name == "v_mfma_f32_32x32x8_f16"
for lanes, shape in ((op.a, (32, 4)), (op.b, (32, 4)), (op.d, (32, 32))):
    at = {lanes.at(lane, register) for lane in range(64) for register in range(lanes.registers)}
    assert at == {(row, column) for row in range(shape[0]) for column in range(shape[1])}
rng = np.random.default_rng(0)
x, y = (rng.integers(-9, 10, shape).astype(np.float16) for shape in ((128, 32), (32, 96)))
product = Tensor(x, device="amd-emu:gfx942") @ Tensor(y, device="amd-emu:gfx942")
assert (product.numpy() == x.astype(np.int64) @ y.astype(np.int64)).all()
"""
STAGED = """
import numpy as np
from compiler.pipeline import planned
from compiler.schedule.scheduler import schedule
from compiler.targets import target_of
from frontend import Tensor
from frontend.evaluation.expr import uops

rng = np.random.default_rng(0)
for m, n, k in ((33, 40, 100), (64, 64, 16)):
    x, y = (rng.integers(-9, 10, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    product = Tensor(x, device="amd-emu") @ Tensor(y, device="amd-emu")
    items = schedule(uops([(product.expr, tuple(range(len(product.leaves))))]))
    stages = planned(items[-1].ast, target_of("gfx1100"))[1].shared_stages()
    assert [stage.mechanism for stage in stages] == ["late loads", "late loads"]
    assert (product.numpy() == x @ y).all()
"""


@pytest.mark.landing
def test_the_row_of_the_page_makes_exact_products(tmp_path: Path) -> None:
    old = re.compile(r'        MatrixOp\("v_mfma_f32_16x16x16_f16".*\n.*\n')
    maps = before("_SHAPE =", MAPS)
    output_of(CHECK, tmp_path, {"compiler/targets/amdgcn/matrix.py": lambda text: maps(old.sub(ROW, text))})


@pytest.mark.landing
def test_the_stage_mechanism_of_the_page_makes_exact_products(tmp_path: Path) -> None:
    planned = '                    value, axis.range, (p.k,), "vector loads"'
    edits = {
        "compiler/nest/loop_nest.py": after('Literal["panels", ', '"late loads", '),
        "compiler/plan/shared_product.py": lambda text: text.replace(
            planned, planned.replace("vector", "late")
        ),
        "compiler/emit/staged_sum.py": lambda text: before("    return SharedTile(", MADE)(
            before("def tile_of(", f"{TILE}\n\n")(text)
        ),
    }
    output_of(STAGED, tmp_path, edits)


def test_the_page_lists_every_file_that_names_mechanisms() -> None:
    name = re.compile(r"[\"']panels[\"']|vector loads[\"']|[\"']asynchronous copies[\"']")
    files = [p for p in (ROOT / "compiler").rglob("*.py") if name.search(p.read_text())]
    table = "".join(re.findall(r"^\| `compiler.*", PAGE, re.MULTILINE))
    listed = {ROOT / file for file in re.findall(r"`(compiler/[\w/]+\.py)`", table)}
    assert listed == set(files)
