"""docs/how-to/add-a-chip.md, followed in a copy of the packages: the chips have rows, and kernels compile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.children import ROOT
from tests.docs.followed import before, output_of

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs/how-to/add-a-chip.md").read_text()
NV, NV_TARGET, AMD, AMD_TARGET = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PLACES = {
    "drivers/nv/layouts/chips.py": ("                    NvChip(\n                        sm=100,", NV),
    "compiler/targets/nvptx/target.py": ('    "sm_100a":', NV_TARGET),
    "drivers/amd/layouts/chips.py": ('    AmdChip(\n        name="gfx90a"', AMD),
    "compiler/targets/amdgcn/rows.py": ('    "gfx90a":', AMD_TARGET),
}
"""For each file the text before which the row of the page is put."""
CHECK = """
import struct
from compiler.compile import compile_kernel
from compiler.schedule.scheduler import schedule
from drivers.amd.layouts.chips import by_mach, by_version
from drivers.nv.layouts.chips import CHIPS, GENERATIONS, sm_number
from frontend import Tensor
from frontend.evaluation.expr import uops

assert sm_number(0xA03) == 103
assert GENERATIONS[0xCDC0].chip(0xA03) is CHIPS["sm_103"]
assert by_version(110502).name == "gfx1152"
total = Tensor.zeros(64).contiguous().realize() + 1
(item,) = schedule(uops([(total.expr, tuple(range(len(total.leaves))))]))
(nv,), (amd,) = ([compile_kernel(item.ast, arch)] for arch in ("sm_103a", "gfx1152"))
flags = struct.unpack_from("<I", amd.image.code, 48)[0]
assert by_mach(flags & 0xFF) is by_version(110502), hex(flags)
assert nv.image.arch.startswith("sm_103"), nv.image.arch
"""


@pytest.mark.landing
def test_the_rows_of_the_page_make_chips_that_kernels_compile_for(tmp_path: Path) -> None:
    output_of(CHECK, tmp_path, {name: before(*place) for name, place in PLACES.items()})


def test_the_page_lists_every_file_that_changes() -> None:
    assert set(re.findall(r"^\| `([\w/.]+)`", PAGE, re.MULTILINE)) == PLACES.keys()
