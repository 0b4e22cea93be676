"""The page of performance: its table, and that the command runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.children import python
from tools.performance import products
from tools.performance.__main__ import page
from tools.performance.steps import Count
from tools.performance.worker import SHAPES, with_hcq, with_numpy

if TYPE_CHECKING:
    from pathlib import Path


def test_the_ratio_is_that_of_the_faster_peer() -> None:
    times = {"a": {"hcq": 0.002, "NumPy": 0.006, "PyTorch": 0.003}, "b": {"hcq": 0.001, "PyTorch": 0.0005}}
    text = page(times, {"step": Count(3, 1_000_000)}, about="here", command="it")
    assert "| a | 2.000 | 6.000 | 3.000 | 1.50 |" in text
    assert "| b | 1.000 |  | 0.500 | 0.50 |" in text
    assert "| step | 3 | 1,000,000 |" in text


def test_products_have_a_table_of_their_own() -> None:
    case = next(iter(products.CASES))
    times = {case: {"hcq": 0.002, "NumPy": 0.001}}
    text = page(times, {}, about="here", command="it", kind="Least times")
    assert f"| {case} | 2.000 | 1.000 | 0.50 |" in text
    assert "Least times in milliseconds" in text
    assert "## Times on the cpu device" not in text


@pytest.mark.parametrize(
    "case",
    [
        products.Product(m=3, n=5, k=7, batch=(2, 4)),
        products.Product(m=3, n=5, k=7, layout="A'B"),
        products.Product(m=3, n=5, k=7, layout="AB'"),
        products.Product(m=3, n=5, k=7, layout="A'B'"),
        products.Product(m=3, n=5, k=7, gradients=True),
    ],
)
def test_a_product_is_that_of_numpy(case: products.Product) -> None:
    other = products.with_numpy(case)
    assert other is not None
    for ours, theirs in zip(products.with_hcq(case)(), other(), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.sampled(9)
@pytest.mark.parametrize("case", [*SHAPES, *products.CASES])
def test_every_case_runs(case: str) -> None:
    with_hcq(case)()
    other = with_numpy(case)
    assert other is None or other() is not None


@pytest.mark.slow
def test_the_command_makes_the_page(tmp_path: Path) -> None:
    output = tmp_path / "page.md"
    python("-m", "tools.performance", "--quick", "--output", output)
    assert "| matmul 512 |" in output.read_text()
    assert "| layer norm 512x768, three gradients | 2 |" in output.read_text()
