"""The AMD ladder on emulated GPUs: every rung, what a failing one leaves behind, the command line."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from drivers.amd.layouts.chips import CHIPS
from drivers.amd.queues import Packets
from drivers.amd.quirks import ALTERNATIVES, DEFAULT, AmdQuirks
from drivers.kernel_trace import traced
from emulator.amd.profiles import SMALL_BAR
from hcq.errors import DriverError, UnsupportedError
from tests.drivers.amd.opened import PROFILES, emulated
from tools.bringup import command
from tools.bringup.amd.bench import Bench
from tools.bringup.amd.evidence import line, memory
from tools.bringup.amd.kernels import KERNELS, LDS_SIZES, image
from tools.bringup.amd.table import AMD, EXPECTED, RUNGS
from tools.bringup.checks import RungError
from tools.bringup.evidence import Trace
from tools.bringup.rung import FAULT, LAUNCH, NODES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.hooked import HookedKernel
    from tools.bringup.checks import Facts
    from tools.bringup.rung import Rung

BY_NUMBER = {rung.number: rung for rung in RUNGS}


def climb(rung: Rung, kernel: HookedKernel, choices: AmdQuirks = DEFAULT) -> Facts:
    """Run one rung; afterwards nothing is held."""
    bench = Bench(kernel, choices, dry=True, emulate="")
    with bench.stack:
        facts: Facts = rung.run(bench)
    assert kernel.held() == {}
    return facts


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: str(rung.number))
def test_each_rung_passes_on_an_emulated_gpu_and_leaves_nothing(rung: Rung):
    assert climb(rung, emulated())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("gpu", ["gfx942", "gfx942-cpx", "gfx1151", "gfx1201"])
@pytest.mark.parametrize("number", [4, 8, 13, 14, 15, 17, 18, 21, 23])
def test_rungs_that_differ_by_target_pass_on_the_others(gpu: str, number: int):
    assert climb(BY_NUMBER[number], emulated(gpu))


def test_several_dies_are_driven_by_aql_packets():
    facts = climb(BY_NUMBER[16], emulated("gfx942"))
    assert facts["packets"] == Packets.AQL.name
    assert climb(BY_NUMBER[16], emulated())["packets"] == Packets.PM4.name


@pytest.mark.sampled(13)
@pytest.mark.parametrize(
    ("rung", "name", "value"),
    [(rung, name, value) for rung in RUNGS for name in rung.quirks for value in ALTERNATIVES[name][1:]],
    ids=lambda part: str(getattr(part, "number", part)),
)
def test_each_doubtful_value_runs_where_it_is_tried(rung: Rung, name: str, value: Any):
    gpu = "gfx942-cpx" if name in {"single_xcc", "aql_eop", "aql_overlap"} else "gfx1100"
    climb(rung, emulated(gpu), replace(DEFAULT, **{name: value}))


def test_every_doubtful_value_is_tried_at_some_rung():
    assert {name for rung in RUNGS for name in rung.quirks} == set(ALTERNATIVES)
    spelt = {f"{name}={str(value).lower()}" for name, values in ALTERNATIVES.items() for value in values}
    assert set(EXPECTED) <= spelt


def test_every_rung_needs_only_rungs_that_run_before():
    order = [rung.number for rung in RUNGS]
    assert all(order.index(need) < order.index(rung.number) for rung in RUNGS for need in rung.needs)
    assert {NODES, LAUNCH, FAULT} <= set(order)
    assert order[-2:] == [FAULT, 25]


@pytest.mark.parametrize(
    ("number", "call"),
    [(2, "GET_VERSION"), (5, "ACQUIRE_VM"), (7, "GET_CLOCK_COUNTERS"), (8, "ALLOC_MEMORY_OF_GPU"),
     (9, "MAP_MEMORY_TO_GPU"), (11, "CREATE_EVENT"), (12, "CREATE_QUEUE"), (16, "CREATE_QUEUE")],
)  # fmt: skip
def test_a_refused_call_fails_the_rung_that_makes_it_first(number: int, call: str):
    kernel = emulated(table={call: errno.EIO})
    with pytest.raises(DriverError, match=call):
        climb(BY_NUMBER[number], kernel)
    assert kernel.held() == {}


def test_a_gpu_that_is_not_driven_stops_at_its_topology():
    with pytest.raises(UnsupportedError, match="gfx90a"):
        climb(BY_NUMBER[3], emulated("gfx90a"))


def test_a_gpu_that_is_not_there_is_named():
    bench = Bench(emulated(), DEFAULT, index=3, dry=True)
    with bench.stack, pytest.raises(RungError, match="lists 1 GPUs, number 3"):
        BY_NUMBER[3].run(bench)


def test_a_queue_that_does_not_run_leaves_its_ring_decoded():
    kernel = emulated()
    bench = Bench(kernel, DEFAULT, dry=True, signal_s=0.0)
    with bench.stack:
        ring = bench.ring(Packets.SDMA)
        for queue in kernel.process.queues:
            queue.percentage = 0
        from tools.bringup.amd import rungs_queues

        words = rungs_queues.SdmaEncoder(bench.context).fence(bench.slot()[0].va, 0x1234)
        ring.send((*words, 0, 0, 0, 0))
        with pytest.raises(RungError, match="holds 0x0, 0x1234 was expected"):
            bench.reach(ring, bench.slot()[1], 0x1234, "fence")
        seen = memory(bench)
    assert "FENCE" in seen["ladder SDMA: decoded"]
    assert "read 0 of 8 words" in seen["ladder SDMA: progress"]
    assert seen["ladder SDMA: words before the write pointer"].endswith("00000000")
    assert any(name.startswith("slot 0 at ") for name in seen)


@pytest.mark.slow
def test_the_fault_rung_reports_the_address_and_what_recover_says():
    facts = climb(BY_NUMBER[FAULT], emulated())
    assert "another" in str(facts["recovered"])
    kernel = emulated()
    kernel.after["DESTROY_QUEUE"] = lambda _: setattr(kernel.machine.gpus[0], "evicted", "")
    forgiving = climb(BY_NUMBER[FAULT], kernel)
    assert forgiving["recovered"] == "new queues, memory kept"


def test_calls_are_named_in_the_trace(tmp_path: Path):
    path = tmp_path / "trace.txt"
    trace = Trace(path, line)
    bench = Bench(traced(emulated(), trace.note), DEFAULT, dry=True)
    with bench.stack:
        BY_NUMBER[12].run(bench)
    trace.close()
    text = path.read_text()
    for name in ("GET_VERSION", "ACQUIRE_VM", "ALLOC_MEMORY_OF_GPU", "CREATE_EVENT", "CREATE_QUEUE", "drm"):
        assert f" {name}) = " in text


def test_the_command_line_takes_amd_devices(capsys: pytest.CaptureFixture[str]):
    options = command.parse(["--device", "amd:1", "--choices", "order=release"])
    assert (options.vendor, options.device, options.emulate) == (AMD, 1, None)
    assert command.parse(["--device", "amd"]).device == 0
    assert command.parse([]).vendor.name == "nv"
    for wrong in (["--device", "intel:0"], ["--device", "amd:x"], ["--device", "amd", "--choices", "pcas=3"]):
        with pytest.raises(SystemExit):
            command.parse(wrong)
    assert "order=flush|release" in capsys.readouterr().err


def test_a_child_prints_its_result(capsys: pytest.CaptureFixture[str]):
    assert command.run_child(command.parse(["--device", "amd", "--child", "13", "--dry"])) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rung"], told["passed"], told["choices"]) == (13, True, "default")


def test_the_second_process_runs_on_the_same_gpu(tmp_path: Path):
    bench = Bench(emulated(), replace(DEFAULT, order="release"), index=1, kernels=tmp_path)
    options = command.parse(bench.store_again()[3:])
    assert (options.vendor, options.device, options.choices) == (AMD, 1, "order=release")
    assert options.kernels == tmp_path


@pytest.mark.sampled(5)
@pytest.mark.parametrize("arch", [row.name for row in CHIPS.values() if not row.refusal])
def test_every_kernel_is_built_for_every_driven_target(arch: str):
    for name in KERNELS:
        size = LDS_SIZES[0] if name == "shared" else 0
        assert image(name, arch, shared_bytes=size).code.startswith(b"\x7fELF")


@pytest.mark.parametrize(("gpu", "apu"), [("gfx1100", False), ("gfx1103", True)])
def test_the_render_node_says_whether_it_is_an_apu(gpu: str, apu: bool):  # noqa: FBT001 - a parameter
    facts = climb(BY_NUMBER[4], emulated(gpu))
    assert facts["apu"] is apu
    shown = climb(BY_NUMBER[8], emulated(gpu))
    assert str(shown["visible"]).startswith("0x")


@pytest.mark.parametrize("number", [8, 15, 27])
def test_rungs_of_memory_pass_where_the_bar_is_small_and_say_what_is_missing(number: int):
    facts = climb(BY_NUMBER[number], emulated(replace(PROFILES["gfx1100"], visible_bytes=SMALL_BAR)))
    if number in (8, 27):
        assert facts["visible"] == "none: the PCI window is smaller than the memory"
