"""docs/how-to/add-a-compiler-target.md, followed in a copy of the compiler: a kernel compiles for the target."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.children import ROOT, search_path
from tests.limits import CHILD_S

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs/how-to/add-a-compiler-target.md").read_text()
LEVEL, PROCESSOR = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CHECK = """
import struct
from compiler.compile import compile_kernel
from compiler.schedule.scheduler import schedule
from frontend import Tensor
from frontend.evaluation.expr import uops
from hcq.errors import UnsupportedError

x = Tensor.zeros(64, 64).contiguous().realize()
total = (x.exp() + 1).sum(1)
(item,) = schedule(uops([(total.expr, tuple(range(len(total.leaves))))]))
kernel = compile_kernel(item.ast, "riscv64-rva22")
(machine,) = struct.unpack_from("<H", kernel.image.code, 18)
assert (machine, kernel.image.arch) == (243, "riscv64-rva22"), machine  # EM_RISCV
assert kernel.image.name.encode() in kernel.image.code
try:
    compile_kernel(item.ast, "riscv64-rva23")
except UnsupportedError as error:
    assert "riscv64-rva22" in str(error), error
else:
    raise AssertionError("an unknown level was taken")
"""


@pytest.mark.landing
def test_a_kernel_compiles_for_the_target_of_the_page(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "compiler", tmp_path / "compiler", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "compiler/targets/host/target.py"
    text = file.read_text()
    for before, row in ((("LEVELS = {\n"), LEVEL), ("_PROCESSORS = {", PROCESSOR.strip())):
        assert text.count(before) == 1, before
        text = text.replace(before, before + row)
    file.write_text(text)
    (tmp_path / "used.py").write_text(CHECK)
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


def test_the_tables_that_the_page_names_for_a_machine_exist() -> None:
    """Every file of the cpu driver with a table by machine is on the page, and the page names no other."""
    keyed = re.compile(r"[\"']aarch64[\"']: ")
    files = {p for p in (ROOT / "drivers").rglob("*.py") if keyed.search(p.read_text())}
    named = {ROOT / file for file in re.findall(r"`(drivers/[\w/]+\.py)`", PAGE)}
    assert named == files
