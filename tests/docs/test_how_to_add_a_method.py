"""docs/how-to/add-a-tensor-method.md, followed in a copy of the package: the method works and is listed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.children import ROOT
from tests.docs.followed import after, output_of

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs/how-to/add-a-tensor-method.md").read_text()
FUNCTION, ROW, USE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(SHOWN,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
CHECK = """
from frontend.methods import METHODS
from tests.frontend import test_elementwise_methods, test_gradient_rules
from tools import tensor_reference

row = next(row for row in METHODS if "entr" in row.plain)
test_elementwise_methods.test_an_elementwise_method_gives_what_its_oracle_gives(row, "float")
test_gradient_rules.test_gradients_of_an_elementwise_method(row)
assert "    entr = entr_ = functions.entr\\n" in tensor_reference.stub()
assert "| `entr()` | Return -self * log(self)" in tensor_reference.page()
"""
EDITS = {
    "frontend/ops/functions.py": lambda text: f"{text}\n\n{FUNCTION}",
    "frontend/methods.py": after("METHODS: Final = (\n", ROW),
}


def test_the_steps_of_the_page_make_a_method(tmp_path: Path) -> None:
    assert output_of(USE + CHECK, tmp_path, EDITS) == SHOWN


def test_the_page_lists_every_file_that_changes() -> None:
    rows = re.findall(r"^\| `([\w/.]+)`.*\| (hand|`python -m tools.reference`) \|$", PAGE, re.MULTILINE)
    assert {name for name, how in rows if how == "hand"} == EDITS.keys()
    assert {name for name, how in rows if how != "hand"} == {
        "frontend/tensor_methods.pyi",
        "docs/reference/tensor.md",
    }
