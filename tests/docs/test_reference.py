"""The kept reference agrees with the code; the pages of layouts can be made and have every layout."""

from pathlib import Path

from hcq.layout import BitStruct, Struct
from tools import reference


def test_reference_pages_are_current():
    wanted = reference.pages()
    stale = [path.name for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    gone = [path.name for path in reference.PAGES.glob("*.md") if path not in wanted]
    assert (stale, gone) == ([], []), "run: python -m tools.reference"


def test_layout_pages_name_every_layout_of_their_module(tmp_path: Path):
    assert reference.main(["--layouts", str(tmp_path)]) == 0
    written = {path.stem: path.read_text() for path in tmp_path.glob("*.md")}
    assert {"drivers.cpu.layouts", "drivers.nv.layouts.qmd_v04", "drivers.amd.layouts.pm4"} <= set(written)
    for kind in (BitStruct, Struct):
        for layout in kind.__subclasses__():
            if layout.__module__ in written:
                assert layout.__name__ in written[layout.__module__]
