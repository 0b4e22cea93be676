"""docs/how-to/add-a-tensor-method.md, followed in a copy of the package: the method works and is listed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.children import ROOT, search_path
from tests.limits import CHILD_S

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
    "frontend/methods.py": lambda text: text.replace("METHODS: Final = (\n", f"METHODS: Final = (\n{ROW}"),
}


def test_the_steps_of_the_page_make_a_method(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "frontend", tmp_path / "frontend", ignore=shutil.ignore_patterns("__pycache__"))
    for name, edit in EDITS.items():
        before = (tmp_path / name).read_text()
        (tmp_path / name).write_text(edit(before))
        assert edit(before) != before
    (tmp_path / "used.py").write_text(USE + CHECK)
    done = subprocess.run(
        [sys.executable, "-W", "error", "used.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=CHILD_S,
        env={
            "PYTHONPATH": f"{tmp_path}:{search_path()}",
            "HCQ_DEVICE": "cpu",
            "HCQ_CACHE": str(tmp_path / "cache"),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == SHOWN


def test_the_page_lists_every_file_that_changes() -> None:
    rows = re.findall(r"^\| `([\w/.]+)`.*\| (hand|`python -m tools.reference`) \|$", PAGE, re.MULTILINE)
    assert {name for name, how in rows if how == "hand"} == EDITS.keys()
    assert {name for name, how in rows if how != "hand"} == {
        "frontend/tensor_methods.pyi",
        "docs/reference/tensor.md",
    }
