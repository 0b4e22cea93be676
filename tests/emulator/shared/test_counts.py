"""Occupancy and least times of kernels, by published limits and rates; the report of what is not exact."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hcq
from emulator.amd.profiles import GPUS
from emulator.devices import boards
from emulator.nv.profiles import PROFILES
from emulator.shared.accuracy import AccuracyLedger
from emulator.shared.counts import Resources, estimates, occupancy
from hcq.config import override
from hcq.counters import KernelCounters
from tests.conformance.kernels import image

PAGE = Path(__file__).resolve().parents[3] / "docs" / "counters.md"


@pytest.mark.parametrize(
    ("arch", "lanes", "threads", "registers", "shared", "groups", "limits"),
    [
        ("sm_80", 32, 256, 32, 0, 8, ("warps", "registers")),
        ("sm_80", 32, 256, 255, 0, 1, ("registers",)),
        ("sm_80", 32, 128, 64, 48 << 10, 3, ("shared memory",)),
        ("sm_80", 32, 32, 16, 0, 32, ("workgroups",)),
        ("sm_89", 32, 256, 32, 0, 6, ("warps",)),
        ("sm_90", 32, 384, 168, 227 << 10, 1, ("registers", "shared memory")),
        ("sm_120", 32, 1024, 32, 0, 1, ("warps",)),
        ("gfx942", 64, 256, 64, 0, 8, ("warps", "registers")),
        ("gfx942", 64, 256, 128, 16 << 10, 4, ("registers", "shared memory")),
        ("gfx1100", 32, 256, 96, 0, 8, ("warps", "registers")),
        ("gfx1100", 32, 256, 100, 0, 6, ("registers",)),
        ("gfx1100", 64, 256, 96, 0, 8, ("registers",)),
        ("gfx1201", 32, 128, 24, 40 << 10, 3, ("shared memory",)),
    ],
)  # fmt: skip
def test_workgroups_of_a_multiprocessor(  # noqa: PLR0917 - the columns of the table
    arch: str, lanes: int, threads: int, registers: int, shared: int, groups: int, limits: tuple[str, ...]
):
    limits_ = (PROFILES.get(arch) or GPUS[arch]).limits
    what = Resources(
        kernel="k", arch=arch, limits=limits_, boards=(), lanes=lanes, registers=registers,
        shared_bytes=shared,
    )  # fmt: skip
    found = occupancy(what, threads)
    assert (found.groups, found.limits) == (groups, limits)
    assert found.warps == groups * threads // lanes


def counts(**values: int) -> KernelCounters:
    return KernelCounters(kernel="k", arch="sm_80", lanes=32, unit=32, launches=1, **values)


def test_each_time_is_the_work_at_its_rate():
    one = counts(groups=108, read=1_000_000, written=1_039_000)
    one.flops["f32"], one.matrix["f16"] = 19_500_000, 312_000_000
    one.global_["load"].units, one.shared["load"].units = 4 * 108 * 1000, 108 * 410
    (found,) = estimates(boards()["sm_80"], one)
    assert found.chip == "A100"
    assert found.parts == pytest.approx({
        "compute": 1e-6, "matrix": 1e-6, "memory": 1e-6, "on-chip": 1e-6,
    })  # fmt: skip
    one.flops["f32"] *= 3
    (found,) = estimates(boards()["sm_80"], one)
    assert (found.bound, found.seconds) == ("compute", pytest.approx(3e-6))


@pytest.mark.parametrize(("groups", "rounds"), [(1, 1), (108, 1), (109, 2), (216, 2)])
def test_the_fullest_multiprocessor_decides(groups: int, rounds: int):
    one = counts(groups=groups)
    one.flops["f32"] = groups * 1000
    (found,) = estimates(boards()["sm_80"], one)
    assert found.seconds == pytest.approx(rounds * 1000 / (19.5e12 / 108))


def test_the_page_lists_every_gpu_and_rate():
    found = [cells for line in PAGE.read_text().splitlines() if len(cells := line.split(" | ")) > 6]
    rows = {cells[0].removeprefix("| "): cells for cells in found}
    named = [(arch, board) for arch, found in boards().items() for board in found]
    for name, chip in named:
        _, arch, parts, bandwidth, vector, matrix, source = rows[chip.name][:7]
        assert (arch, parts) == (name, f"{chip.parts}, {chip.clock_mhz:,}")
        assert bandwidth == f"{chip.bandwidth:,}"
        assert vector == ", ".join(f"{name} {rate:g}" for name, rate in chip.vector.items())
        assert matrix == ", ".join(f"{name} {rate:g}" for name, rate in chip.matrix.items())
        assert source.startswith(chip.source)


@pytest.mark.parametrize(
    ("name", "kind", "operations"),
    [
        ("MI300X", "vector", {"f64": 128, "f32": 256}),
        (
            "MI300X",
            "matrix",
            {"f64": 256, "f32": 256, "xf32": 1024, "f16": 2048, "bf16": 2048, "fp8": 4096, "i8": 4096},
        ),
        ("RX 7900 XTX", "matrix", {"f16": 512, "bf16": 512, "i8": 512}),
        ("RX 9070 XT", "matrix", {"f16": 1024, "bf16": 1024, "i8": 2048}),
        ("RTX 5090", "vector", {"f32": 256}),
    ],
)
def test_rates_follow_from_published_operations_a_cycle(name: str, kind: str, operations: dict[str, int]):
    (chip,) = (one for found in boards().values() for one in found if one.name == name)
    rates = {one: getattr(chip, kind)[one] for one in operations}
    wanted = {one: count * chip.parts * chip.clock_mhz / 1e6 for one, count in operations.items()}
    assert rates == pytest.approx(wanted, rel=3e-3)


def test_a_ledger_counts_launches_by_bound(tmp_path: Path) -> None:
    ledger = AccuracyLedger("gpu")
    ledger.write(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    for _ in range(2):
        ledger.launched("k", {"exact": {"add": 3}, "1 ulp": {"rcp": 1}})
    ledger.launched("l", {"exact": {"add": 1}})
    ledger.refused("k+0x8: v_new: not supported")
    ledger.write(tmp_path / "report")
    report = json.loads((tmp_path / "report").read_text())
    assert report["instructions"] == {"exact": {"add": 3}, "1 ulp": {"rcp": 2}}
    assert report["unsupported"] == ["k+0x8: v_new: not supported"]


@pytest.mark.parametrize(("name", "end"), [("nv-emu sm_90", "ret"), ("amd-emu gfx1201", "s_endpgm")])
def test_a_machine_writes_its_report_when_it_closes(tmp_path: Path, name: str, end: str) -> None:
    path = tmp_path / "report"
    with override(emu_report=path), hcq.open(name.replace(" ", ":")) as device:
        program = device.load(image("count", device.info))
        args = program.args(device.alloc(4))
        for _ in range(2):
            commands = device.compute.record().exec(program, args, groups=(1, 1, 1), threads=(1, 1, 1))
            device.compute.submit(commands).wait()
    (line,) = path.read_text().splitlines()
    report = json.loads(line)
    assert (report["device"], list(report["launches"].values())) == (name, [2])
    assert report["instructions"]["exact"][end] == 2
    assert report["unsupported"] == []
