"""tinygrad's drivers on the emulated GPUs; `python -m tests.foreign` has the whole product."""

import pytest

pytest.importorskip("tinygrad", reason="tinygrad is not installed: pip install 'hcq[test]'")

from tests.foreign.__main__ import run_cell
from tests.foreign.cases import CASES, QUICK
from tests.foreign.product import Cell, cells

FULL = ("sm_86+580", "sm_89+580", "sm_120+580", "gfx1100+6.12 pm4", "gfx1201+6.12 aql", "gfx942+6.12 aql")
ALL = [cell for vendor in ("nv", "amd") for cell in cells(vendor)]


def named(text: str) -> Cell:
    return next(cell for cell in ALL if text in cell.label.replace("+native", "") and not cell.empty)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["sm_86+580", "gfx1100+6.12 pm4"])
def test_another_driver_passes_quick_cases(text: str):
    result = run_cell(named(text), QUICK)
    assert result["right"], result["said"]
    assert result["passed"] == len(QUICK)


@pytest.mark.landing
@pytest.mark.parametrize("text", FULL)
def test_another_driver_passes_all_cases(text: str):
    result = run_cell(named(text), tuple(CASES))
    assert result["right"], result["said"]


@pytest.mark.landing
@pytest.mark.parametrize("cell", [cell for cell in ALL if cell.empty], ids=lambda cell: cell.label)
def test_an_empty_cell_fails_for_the_reason_it_names(cell: Cell):
    result = run_cell(cell, QUICK)
    assert result["right"], result["said"]


def test_every_emulated_gpu_has_a_cell():
    assert {cell.gpu for cell in ALL} == {
        *("sm_80", "sm_86", "sm_89", "sm_90", "sm_120"),
        *("gfx1100", "gfx1151", "gfx1200", "gfx1201", "gfx942", "gfx942-cpx", "gfx950"),
    }
    assert len({cell.label for cell in ALL}) == len(ALL)
