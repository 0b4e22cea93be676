"""docs/how-to/add-a-compiler-target.md, followed in a copy of the compiler: a kernel compiles for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.children import ROOT
from tests.docs.followed import after, output_of

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
    level, name = after("LEVELS = {\n", LEVEL), after("_PROCESSORS = {", PROCESSOR.strip())
    output_of(CHECK, tmp_path, {"compiler/targets/host/target.py": lambda text: name(level(text))})


def test_the_tables_that_the_page_names_for_a_machine_exist() -> None:
    """Every file of the cpu driver with a table by machine is on the page, and the page names no other."""
    keyed = re.compile(r"[\"']aarch64[\"']: ")
    files = {p for p in (ROOT / "drivers").rglob("*.py") if keyed.search(p.read_text())}
    named = {ROOT / file for file in re.findall(r"`(drivers/[\w/]+\.py)`", PAGE)}
    assert named == files
