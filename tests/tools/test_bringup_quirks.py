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
from tools.bringup.quirks import LEFT_OUT, find
from tools.bringup.run import run_rung

if TYPE_CHECKING:
    from tools.bringup.rung import Result
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


def run(vendor: Vendor[Any], gpu: str, number: int, choices: str = "default") -> Result:
    """Run one rung on a new emulated GPU."""
    arguments = options(vendor)
    arguments.emulate = gpu
    kernel: Any = vendor.make_kernel(emulate=gpu)
    try:
        rung = next(rung for rung in vendor.rungs if rung.number == number)
        return run_rung(rung, vendor.parse(choices), arguments, kernel)
    finally:
        kernel.shut()


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


EARLY = {"runtime", "system_uncached", "ring_bytes", "copy_pieces", "copy_order", "cwsr_sizes"}
EARLY |= {"doorbell_owner", "pitch_kind", "vaspace", "notifier", "ring"}
"""Quirks that every run has; the landing run has all."""


def rows(vendor: Vendor[Any]) -> list[Any]:
    """The rows of the vendor's page: quirk, emulated GPU, rung that fails, what works."""
    text = (
        (DOCS / f"{vendor.name}.md").read_text().partition("\n| refused default of |")[2].partition("\n\n")[0]
    )
    found = re.findall(r"^\| `(\w+)` \| `(.+?)` \| (.+?) \| `(.+?)` \|$", text, re.MULTILINE)
    marks = {True: (), False: pytest.mark.landing}
    return [pytest.param(vendor, *row, id=row[0], marks=marks[row[0] in EARLY]) for row in found]


@pytest.mark.skipif(not assembler.available(), reason="neither nvJitLink nor ptxas is installed")
@pytest.mark.parametrize(("vendor", "value", "gpu", "rung", "works"), [*rows(AMD), *rows(NV)])
def test_the_ladder_finds_the_other_choice_that_the_page_names(
    vendor: Vendor[Any], value: str, gpu: str, rung: str, works: str
) -> None:
    found = find(options(vendor, "--to", rung.partition(" ")[0]), value)
    assert found.device == f"{vendor.name}-emu:{gpu}+other={value}"
    assert (found.rung, found.working) == (rung, works)
    assert found.right, found


@pytest.mark.landing
@pytest.mark.skipif(not assembler.available(), reason="neither nvJitLink nor ptxas is installed")
@pytest.mark.parametrize(("vendor", "gpu"), [(AMD, "gfx1100"), (AMD, "gfx942"), (NV, "sm_90+native")])
def test_all_other_choices_together_pass_every_rung(vendor: Vendor[Any], gpu: str) -> None:
    """The ladder takes a choice that it found to all later rungs. Rings of 16 MiB do not wrap in a test."""
    works = dict.fromkeys(row.values[4] for row in rows(vendor) if row.id != "ring_bytes")
    for rung in (rung for rung in vendor.rungs if rung.number not in LEFT_OUT):
        result = run(vendor, gpu, rung.number, "+".join(works))
        assert result.passed, (rung.number, result.error)


@pytest.mark.landing
@pytest.mark.parametrize("gpu", ["gfx1100", "gfx942"])
def test_read_pointers_that_wrap_and_that_count_are_both_read(gpu: str) -> None:
    result = run(AMD, f"{gpu}+other=read_pointer", 28)
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
    result = run(NV, "sm_90+other=arguments_in_vram", 18)
    assert not result.passed
    assert "BAR1" in result.error
