"""The ladder on emulated GPUs that refuse the default of a quirk finds the other choice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compiler.targets.nvptx import assembler
from drivers.amd.quirks import ALTERNATIVES as AMD_VALUES
from drivers.nv.quirks import ALTERNATIVES as NV_VALUES
from emulator.shared.surprises import Rejection, Rejections
from hcq.errors import UsageError
from tools.bringup import command
from tools.bringup.amd.rejections import REJECTIONS as AMD_REJECTIONS
from tools.bringup.amd.table import AMD
from tools.bringup.emulated import split
from tools.bringup.nv.rejections import REJECTIONS as NV_REJECTIONS
from tools.bringup.nv.table import NV
from tools.bringup.quirks import find
from tools.bringup.run import run_rung

if TYPE_CHECKING:
    from tools.bringup.vendor import Vendor

DOCS = Path(__file__).parents[2] / "docs"
NO_CHOICE = {"read_pointer"}
"""Values of which the driver reads both: it has no choice."""
REST = {
    "amd": {"aql_overlap": "the default orders all kernels, which is right on every GPU"},
    "nv": {
        "graphics_copy": "a channel without its copy object works, and says so",
        "qmd_type": "a descriptor of type 0 is a fault in the emulated GPU",
        "cluster_type": "a descriptor of type GRID_CTA has no clusters in the emulated GPU",
        "host_memory": "signals are pages of this process in any case",
        "plausible": "a check of replies, not a value that the GPU reads",
    },
}
"""Quirks whose default no emulated GPU refuses, with the reason."""


def options(vendor: Vendor[Any], *rest: str) -> Any:
    return command.parse(["--device", f"{vendor.name}-emu", *rest])


@pytest.mark.parametrize(
    ("vendor", "rows", "values"), [(AMD, AMD_REJECTIONS, AMD_VALUES), (NV, NV_REJECTIONS, NV_VALUES)]
)
def test_every_quirk_has_a_refused_default_or_says_why_not(
    vendor: Vendor[Any], rows: Any, values: Any
) -> None:
    assert set(vendor.quirks) == set(rows) - NO_CHOICE
    assert set(vendor.quirks) | set(REST[vendor.name]) == set(values)
    assert not set(vendor.quirks) & set(REST[vendor.name])
    assert len(vendor.quirks) >= 25


@pytest.mark.parametrize(
    ("page", "rows"), [("sources-amd.md", AMD_REJECTIONS), ("sources.md", NV_REJECTIONS)]
)
def test_every_row_follows_the_text_of_a_doubt(page: str, rows: Any) -> None:
    text = (DOCS / page).read_text()
    table = text.split("## Values that a driver chooses", 1)[1].split("\n## ", 1)[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(rows)


@pytest.mark.parametrize(
    ("value", "last", "works"),
    [
        ("runtime", 6, "runtime=setup"),
        ("system_uncached", 9, "system_uncached=false"),
        ("ring_bytes", 12, "ring_bytes=large"),
        ("copy_pieces", 15, "copy_pieces=small"),
        ("copy_order", 15, "copy_order=fence"),
        ("cwsr_sizes", 16, "cwsr_sizes=formula"),
    ],
)
def test_the_ladder_finds_the_other_choice_on_amd(value: str, last: int, works: str) -> None:
    found = find(options(AMD, "--to", str(last)), value)
    assert (found.rung.split()[0], found.working) == (str(last), works), found
    assert found.right


@pytest.mark.parametrize(
    ("value", "last", "works"),
    [
        ("doorbell_owner", 6, "doorbell_owner=device"),
        ("pitch_kind", 7, "pitch_kind=false"),
        ("vaspace", 9, "vaspace=rm"),
        ("notifier", 11, "notifier=false"),
        ("ring", 11, "ring=system"),
    ],
)
def test_the_ladder_finds_the_other_choice_on_nvidia(value: str, last: int, works: str) -> None:
    found = find(options(NV, "--to", str(last)), value)
    assert (found.rung.split()[0], found.working) == (str(last), works), found


@pytest.mark.landing
@pytest.mark.parametrize("value", AMD.quirks)
def test_every_other_choice_is_found_on_amd(value: str) -> None:
    found = find(options(AMD), value)
    assert found.right, found


@pytest.mark.landing
@pytest.mark.skipif(not assembler.available(), reason="neither nvJitLink nor ptxas is installed")
@pytest.mark.parametrize("value", NV.quirks)
def test_every_other_choice_is_found_on_nvidia(value: str) -> None:
    found = find(options(NV), value)
    assert found.right, found


@pytest.mark.landing
@pytest.mark.parametrize("gpu", ["gfx1100", "gfx942"])
def test_read_pointers_that_wrap_and_that_count_are_both_read(gpu: str) -> None:
    arguments = options(AMD, "--from", "28", "--to", "28")
    arguments.emulate = f"{gpu}+other=read_pointer"
    kernel: Any = AMD.make_kernel(emulate=arguments.emulate)
    try:
        rung = next(rung for rung in AMD.rungs if rung.number == 28)
        result = run_rung(rung, AMD.parse("default"), arguments, kernel)
    finally:
        kernel.shut()
    assert result.passed, result.error


def test_the_table_is_printed_and_an_unknown_value_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--device", "amd-emu", "--to", "6", "--quirks", "runtime"]) == 0
    said = capsys.readouterr()
    assert "| `runtime` | `amd-emu:gfx1100` | 6 exceptions of queues | `runtime=setup` |" in said.out
    assert "1 of 1 found" in said.err
    assert command.main(["--device", "amd-emu", "--to", "6", "--quirks", "order"]) == 1
    assert command.main(["--device", "amd-emu", "--quirks", "bogus"]) == 2
    assert "cwsr_sizes" in capsys.readouterr().err


def test_a_name_says_what_is_taken_the_other_way() -> None:
    rest, other = split("gfx942+other=aql_eop+checked", AMD_REJECTIONS)
    assert rest == "gfx942+checked"
    assert other is not None
    with pytest.raises(UsageError, match="there are: order"):
        split("other=bogus", AMD_REJECTIONS)
    assert split("gfx942", AMD_REJECTIONS) == ("gfx942", None)


def test_a_row_is_asked_at_its_place_alone() -> None:
    other = Rejections({"even": Rejection("number", lambda one: one % 2 == 0)})
    assert [other.refuses("number", n) for n in (1, 2)] == ["", "even"]
    assert other.refuses("elsewhere", 2) == ""
    assert Rejections().refuses("number", 2) == ""


def test_a_rung_whose_device_does_not_open_keeps_its_error() -> None:
    """The evidence of such a device would be read from memory that was unmapped."""
    arguments = options(NV)
    kernel: Any = NV.make_kernel(emulate="sm_90+other=arguments_in_vram")
    try:
        rung = next(rung for rung in NV.rungs if rung.number == 18)
        result = run_rung(rung, NV.parse("default"), arguments, kernel)
    finally:
        kernel.shut()
    assert not result.passed
    assert "BAR1" in result.error
