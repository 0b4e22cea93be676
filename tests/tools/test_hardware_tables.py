"""Tables made from kept hardware reports: what counts as proof, and that the pages have them."""

from __future__ import annotations

from typing import Any

import pytest

from tools.hardware import tables
from tools.hardware.stage import REPOSITORY

HEAD = "| NVIDIA generation | hardware |\n|---|---|\n"


def report(*, ladder: str = "passed", generation: str = "Hopper GH100", **more: Any) -> dict[str, Any]:
    """Return a report of an NVIDIA H7 or `model`, under driver 1.2.3; rows by device in `measured`."""
    seen = {"5 default": {"gpu": f"Gpu(generation=Generation(name='{generation}', sm=1))"}}
    model = more.get("model", "NVIDIA H7 80GB")
    version = {"/proc/driver/nvidia/version": "1.2.3", "information": f"Model: {model}"}
    found = [
        {"case": case, "unit": unit, "median": median, "device": device, "note": note}
        for device, case, unit, median, note in more.get("measured", ())
    ]
    return {
        "dry": False,
        "device": "nv:0",
        "stages": [
            {"name": "box", "status": "passed", "facts": {"files": version}},
            {"name": "ladder", "status": ladder, "facts": {"seen": seen}},
            {"name": "benchmarks", "status": "passed", "facts": {"rows": found}},
        ],
    }


@pytest.mark.parametrize("page", tables.PAGES)
def test_pages_have_the_tables_of_the_kept_reports(page: str):
    text = (REPOSITORY / page).read_text()
    assert tables.made(text, tables.reports()) == text


def test_a_generation_without_a_passing_ladder_is_unproved():
    kept = {"a.json": report(ladder="failed"), "b.json": report(generation="Ada AD10x")}
    made = tables.proofs(HEAD + "| Hopper GH100 | H100 |\n| Ada AD10x | no |", kept)
    assert made == HEAD + f"| Hopper GH100 | {tables.UNPROVED} |\n| Ada AD10x | H7, 1.2.3 |"


def test_a_target_is_proved_by_a_ladder_that_saw_it_and_never_by_a_rehearsal():
    kept = report(model="AMD Instinct MI300X (A)")
    kept["stages"][1]["facts"] = {"seen": {"3 default": {"target": "gfx1101"}}}
    table = "| target | hardware |\n|---|---|\n| `gfx1101`, `gfx1102` | no |\n| `gfx942` | no |"
    made = tables.proofs(table, {"a.json": kept})
    assert made.splitlines()[2:] == [
        "| `gfx1101`, `gfx1102` | Instinct MI300X, 1.2.3 |", f"| `gfx942` | {tables.UNPROVED} |",
    ]  # fmt: skip
    for change in ({"device": "amd-emu:gfx1101"}, {"dry": True}):
        assert tables.proofs(table, {"a.json": {**kept, **change}}).count(tables.UNPROVED) == 2


def test_figures_leave_out_scripted_devices_and_give_ratios_above_one_where_ours_is_better():
    measured = [
        ("nv:0 NVIDIA H7", "gap", "ns", 50.0, ""),
        ("nv:0 NVIDIA H7", "add", "GB/s", 3000.0, f"1 kernel(s), {tables.CHECKED}"),
        ("nv:0 Scripted Hopper GH100, scripted", "launch", "us", 1.0, ""),
        ("cuda:0 NVIDIA H7", "gap", "ns", 100.0, ""),
        ("cuda:0 NVIDIA H7", "add", "GB/s", 1500.0, ""),
        ("cuda:0 NVIDIA H7", "launch", "us", 9.0, ""),
    ]
    assert tables.figures(report(measured=measured)).splitlines()[2:] == [
        "| gap | ns | 50 | 100 | 2.00 | no |",
        "| add | GB/s | 3,000 | 1,500 | 2.00 | yes |",
    ]


def test_a_part_without_a_maker_is_refused():
    for name in ("figures none.json", "figures"):
        with pytest.raises(ValueError, match=f"saw '{name}'"):
            tables.made(f"<!-- made: {name} -->\n<!-- end -->", {"a.json": report()})
