"""Clusters and cooperative grids: descriptors and bank 0, what the image states, how many are resident."""

from __future__ import annotations

import contextlib
import dataclasses
import struct
from typing import TYPE_CHECKING, Any

import pytest

import hcq
from drivers.kernel import view_at
from drivers.nv.layouts.branches import STRUCTS, branch_of
from drivers.nv.layouts.controls import Control
from drivers.nv.layouts.cubin import InfoAttribute
from drivers.nv.quirks import parse
from hcq.device import Device
from hcq.errors import UnsupportedError, UsageError
from hcq.graph import Graph
from hcq.params import Param
from hcq.program import ArgKind, ArgSlot, KernelImage
from hcq.registry import wrap
from tests.facts import nv_cubin, nv_qmd_v04, nv_qmd_v05
from tests.hcq.fake import ADD, FakeDevice
from tests.limits import HANG_S
from tests.support.nv.golden import sample, small_cubin
from tests.support.nv.recorded import RecordedKernel, driver_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drivers.nv.program import NvProgram
    from hcq.program import Program


HOPPER, BLACKWELL, AMPERE = ("sm_90", "sm_90a", 90), ("sm_120", "sm_120a", 120), ("sm_80", "sm_80", 80)
FACTS = {HOPPER: (nv_qmd_v04, "sm_90"), BLACKWELL: (nv_qmd_v05, "sm_100")}
ONE = (1, 1, 1)


def image(arch: str, sm: int, **records: bytes) -> KernelImage:
    """Return a kernel of one pointer argument with records of its info section."""
    named = {InfoAttribute[name]: payload for name, payload in records.items()}
    args = (ArgSlot("out", ArgKind.POINTER, 0, 8, "w"),)
    return KernelImage(
        name="k", arch=arch, code=small_cubin("k", sm, 8, records=named), args=args, kernarg_size=8
    )


@contextlib.contextmanager
def recorded(chip: tuple[str, str, int], choices: str = "") -> Iterator[tuple[RecordedKernel, Device]]:
    """Open an emulated GPU whose calls are recorded."""
    kernel = RecordedKernel(chip[0])
    made = driver_of(kernel).open(0, None, choices=parse(choices or "default"))
    with Device(made) as device:
        yield kernel, device


@contextlib.contextmanager
def opened(chip: tuple[str, str, int], choices: str = "") -> Iterator[Device]:
    with recorded(chip, choices) as (_, device):
        yield device


def loaded(device: Device, chip: tuple[str, str, int], **records: bytes) -> NvProgram:
    program: Any = device.driver.load(image(*chip[1:], **records))
    return program


def field(chip: tuple[str, str, int], block: bytes, name: str) -> int:
    """Return a field of a descriptor by the bit positions of the facts."""
    (lo, hi) = next((lo, hi) for lo, hi, own, *_ in FACTS[chip][0].ROWS if own == name)
    return int.from_bytes(block, "little") >> lo & (1 << hi - lo + 1) - 1


def bank(chip: tuple[str, str, int], program: NvProgram, block: bytes, name: str) -> list[int]:
    """Return one word, or the words along x, y and z, of constant bank 0."""
    words = nv_cubin.BANK0[FACTS[chip][1]]
    places = [words[one] for one in (name, f"{name}.x", f"{name}.y", f"{name}.z") if one in words]
    return [struct.unpack_from("<I", block, program.bank_at + place)[0] for place in places]


@pytest.mark.parametrize("chip", [HOPPER, BLACKWELL])
def test_the_descriptor_and_bank_0_state_the_cluster(chip: tuple[str, str, int]):
    with opened(chip) as device:
        program = loaded(device, chip)
        block = program.shape((4, 6, 5), (32, 1, 1), (2, 3, 1)).block.tobytes()
        assert field(chip, block, "QMD_TYPE") == 3
        names = ("GPC_CGA_WIDTH", "GPC_CGA_HEIGHT", "GPC_CGA_DEPTH")
        assert [field(chip, block, name) for name in names] == [2, 3, 1]
        assert [field(chip, block, name) for name in ("GPU_CGA_WIDTH", "CGA_CTA_DISTRIBUTION_MODE")] == [0, 0]
        grid = ("GRID_WIDTH", "GRID_HEIGHT", "GRID_DEPTH")
        assert [field(chip, block, name) for name in grid] == [4, 6, 5]
        assert bank(chip, program, block, "cluster nctaid") == [2, 3, 1]
        assert bank(chip, program, block, "nclusterid") == [2, 2, 5]
        assert bank(chip, program, block, "cluster nctarank") == [6]
        device.driver.unload(program)


@pytest.mark.parametrize("chip", [HOPPER, BLACKWELL])
def test_a_launch_without_clusters_has_the_same_bytes_as_one_with_clusters_of_one(chip: tuple[str, str, int]):
    with opened(chip) as device:
        program = loaded(device, chip)
        plain = program.shape((4, 6, 5), (32, 1, 1)).block.tobytes()
        assert plain == program.shape((4, 6, 5), (32, 1, 1), ONE).block.tobytes()
        assert field(chip, plain, "QMD_TYPE") == 2
        assert [field(chip, plain, f"GPC_CGA_{side}") for side in ("WIDTH", "HEIGHT", "DEPTH")] == [0, 0, 0]
        assert bank(chip, program, plain, "nclusterid") == [4, 6, 5]
        device.driver.unload(program)


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ("cluster_type=2", {"QMD_TYPE": 2, "GPC_CGA_WIDTH": 2}),
        ("cluster_size=both", {"QMD_TYPE": 3, "GPC_CGA_WIDTH": 2, "GPU_CGA_WIDTH": 2, "GPU_CGA_DEPTH": 1}),
        ("cluster_spread=multicast", {"QMD_TYPE": 3, "CGA_CTA_DISTRIBUTION_MODE": 1}),
    ],
)
def test_a_choice_sets_the_doubtful_fields(choices: str, expected: dict[str, int]):
    with opened(HOPPER, choices) as device:
        program = loaded(device, HOPPER)
        block = program.shape((4, 1, 1), (32, 1, 1), (2, 1, 1)).block.tobytes()
        assert {name: field(HOPPER, block, name) for name in expected} == expected
        plain = program.shape((4, 1, 1), (32, 1, 1)).block.tobytes()
        assert field(HOPPER, plain, "QMD_TYPE") == 2
        device.driver.unload(program)


def test_a_required_cluster_is_the_default_and_excludes_others():
    with opened(HOPPER) as device:
        program = loaded(device, HOPPER, CTA_PER_CLUSTER=struct.pack("<3I", 2, 1, 1))
        block = program.shape((4, 1, 1), (32, 1, 1)).block.tobytes()
        assert block == program.shape((4, 1, 1), (32, 1, 1), (2, 1, 1)).block.tobytes()
        assert field(HOPPER, block, "GPC_CGA_WIDTH") == 2
        with pytest.raises(UsageError, match=r"compiled for clusters of \(2, 1, 1\)"):
            program.shape((4, 1, 1), (32, 1, 1), ONE)
        with pytest.raises(UsageError, match="no multiple"):
            program.shape((3, 1, 1), (32, 1, 1))
        with pytest.raises(UsageError, match="which is open"):
            program.shape((Param("n", 32), 1, 1), (32, 1, 1))
        assert program.shape((4, Param("n", 32), 1), (32, 1, 1))
        device.driver.unload(program)


def test_an_image_may_limit_the_cluster_or_demand_one():
    with opened(HOPPER) as device:
        few = loaded(device, HOPPER, MAX_CLUSTER_RANK=struct.pack("<I", 2))
        with pytest.raises(UsageError, match="at most 2 workgroups"):
            few.shape((4, 1, 1), (32, 1, 1), (4, 1, 1))
        explicit = loaded(device, HOPPER, EXPLICIT_CLUSTER=b"")
        with pytest.raises(UsageError, match="pass cluster="):
            explicit.shape((4, 1, 1), (32, 1, 1))
        block = explicit.shape((4, 1, 1), (32, 1, 1), ONE).block.tobytes()
        assert field(HOPPER, block, "QMD_TYPE") == 3
        device.driver.unload(few)
        device.driver.unload(explicit)


def test_a_cluster_is_checked_against_device_and_grid():
    with opened(HOPPER) as device:
        program = device.load(image(*HOPPER[1:]))
        out = device.alloc(64)
        args = program.args(out)

        def launch(groups: Any, cluster: Any) -> None:
            device.compute.record().exec(program, args, groups=groups, threads=ONE, cluster=cluster)

        for groups, cluster, words in (
            ((4, 1, 1), (16, 1, 1), "1 to 8"),
            ((4, 1, 1), (0, 1, 1), "cluster, wanted at least 1"),
            ((4, 3, 1), (1, 2, 1), "no multiple"),
            ((Param("n", 32), 1, 1), (2, 1, 1), "which is open"),
            ((4, 1, 1), 2, "cluster=2"),
        ):
            with pytest.raises(UsageError, match=words):
                launch(groups, cluster)
        launch((4, 1, 1), (2, 1, 1))
    with opened(AMPERE) as device:
        program = device.load(image(*AMPERE[1:]))
        args = program.args(device.alloc(64))
        with pytest.raises(UnsupportedError, match="sm_90"):
            launch((4, 1, 1), (2, 1, 1))
        launch((4, 1, 1), ONE)


def test_replays_of_a_graph_carry_the_cluster():
    with recorded(HOPPER) as (kernel, device):
        program = device.load(image(*HOPPER[1:]))
        graph = Graph()
        out, rows = graph.param("out", size=64), graph.param("rows", bits=16)
        commands = device.compute.record().exec(
            program, program.args(out), groups=(4, rows, 1), threads=(32, 1, 1), cluster=(2, 1, 1)
        )
        graph.add(device.compute, commands)
        executable = graph.compile()
        for count in (7, 9):
            kernel.doorbells.streams.clear()
            executable.replay([device.alloc(64), count]).wait(timeout_s=HANG_S)
            line = next(one for stream in kernel.doorbells.streams for one in stream if "SEND_PCAS_A" in one)
            block = bytes(view_at(int(line.rsplit("=", 1)[1], 16), 384))
            names = ("QMD_TYPE", "GPC_CGA_WIDTH", "GRID_WIDTH", "GRID_HEIGHT")
            assert [field(HOPPER, block, name) for name in names] == [3, 2, 4, count]
            at = field(HOPPER, block, "CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6") << 6
            assert list(view_at(at + 0x15C, 12).cast("I")) == [2, count, 1]


SHAPE = (256, 1, 1)
WHOLE = (1024, 1, 1)
"""A workgroup that fills half of an SM; with 64 registers a thread all of it."""
H100 = ((0, 0, 16), (1, 1, 16), (2, 2, 16), (3, 3, 16), (4, 4, 18), (5, 5, 18), (6, 6, 18), (7, 7, 14))
"""GPC, virtual GPC and SMs of each part: 132 SMs, as many as an H100 has."""
SINGLETONS = (*((gpc, gpc, 16) for gpc in range(8)), (4, 8, 2), (5, 9, 2))
"""The same number, where two GPCs have a TPC that is a virtual GPC of its own."""


@contextlib.contextmanager
def with_order(parts: Sequence[tuple[int, int, int]], version: str = "580.159.03") -> Iterator[Device]:
    """Open a Hopper whose kernel driver states where its SMs lie."""
    branch = branch_of(version)
    assert branch is not None
    entry = STRUCTS[branch]["NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS"].FIELDS["globalSmId"].type
    places = [(gpc, virtual) for gpc, virtual, sms in parts for _ in range(sms)]
    records = tuple(entry(gpcId=gpc, virtualGpcId=virtual) for gpc, virtual in places)
    order: dict[str, Any] = {"globalSmId": records, "numSm": len(places), "numTpc": len(places) // 2}
    replies = {Control.NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER: lambda: order}
    kernel = RecordedKernel(driver=version[:3], replies=replies)
    with wrap(driver_of(kernel).open(0, None)) as device:
        yield device


def filling(device: Device, registers: int) -> Program:
    """Load a kernel with so many registers a thread."""
    return device.load(sample("sm_90a", 90, registers=registers))


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "expected"),
    [
        (40, 0, 256, 6),  # 65536 / 1280 = 51 warps, 48 in multiples of 4; 8 warps a workgroup
        (16, 0, 256, 8),  # 64 warps
        (16, 0, 32, 32),  # 32 workgroups
        (32, 100 << 10, 256, 2),  # 101 of 228 KiB, with the system's reserve
        (255, 0, 32, 8),  # 8 warps
    ],
)
def test_figures_follow_from_the_published_limits(registers: int, shared: int, threads: int, expected: int):
    with opened(HOPPER) as device:
        kernel = dataclasses.replace(sample("sm_90a", 90, registers=registers), shared_bytes=shared)
        found = device.load(kernel).residency((threads, 1, 1))
        assert (found.per_unit, found.units) == (expected, device.info.compute_units)


def test_a_cooperative_grid_must_fit():
    with opened(HOPPER) as device:
        program = device.load(sample("sm_90a", 90, registers=40))
        args = program.args(device.alloc(64), device.alloc(64), 1)
        most = 6 * device.info.compute_units
        commands = device.compute.record()
        commands.exec(program, args, groups=(most // 2, 2, 1), threads=SHAPE, cooperative=True)
        with pytest.raises(UsageError, match=rf"grid of {most + 1} .* runs {most} at once, 6 on each"):
            commands.exec(program, args, groups=(most + 1, 1, 1), threads=SHAPE, cooperative=True)
        with pytest.raises(UsageError, match="cannot be open"):
            commands.exec(program, args, groups=(Param("n", 31), 1, 1), threads=SHAPE, cooperative=True)


def test_clusters_of_a_gpu_that_does_not_state_its_gpcs_are_not_counted():
    with with_order(((0, 0, 132),)) as device:
        program = filling(device, 64)
        with pytest.raises(UnsupportedError, match="how many clusters of 2 workgroups"):
            program.residency(WHOLE, (2, 1, 1))


@pytest.mark.parametrize("version", ["570.211.01", "580.159.03", "595.45.04"])
def test_clusters_fit_in_whole_gpcs(version: str):
    with with_order(H100, version) as device:
        program = filling(device, 64)
        sizes = ((2, 1, 1), (2, 2, 1), (2, 2, 2), (1, 7, 1))
        found = [program.residency(WHOLE, size) for size in sizes]
        # 132 / 2; 4 in each GPC of 16 or 18 SMs and 3 in that of 14; 2 and 1; 7 take the SMs of 8
        assert [(one.per_unit, one.units, one.kind) for one in found] == [
            (2, 66, "clusters"), (4, 31, "clusters"), (8, 15, "clusters"), (7, 15, "clusters"),
        ]  # fmt: skip
        assert [one.groups for one in found] == [132, 124, 120, 105]
        alone = program.residency(WHOLE)
        assert (alone.per_unit, alone.units, alone.kind) == (1, 132, "units")
        assert program.residency(WHOLE, ONE) == alone


def test_a_second_workgroup_of_an_sm_counts_as_if_the_first_ones_lay_badly():
    """Two workgroups an SM, clusters of 8: of 16 SMs two clusters may fill 8, the third fits then."""
    with with_order(H100) as device:
        assert filling(device, 32).residency(WHOLE, (8, 1, 1)).units == 4 * 3 + 3 * 3 + 2


def test_tpcs_that_are_virtual_gpcs_hold_clusters_of_two_alone():
    with with_order(SINGLETONS) as device:
        program = filling(device, 64)
        assert program.residency(WHOLE, (2, 1, 1)).units == 66
        assert program.residency(WHOLE, (4, 1, 1)).units == 8 * 4


def test_a_cooperative_grid_of_clusters_must_fit():
    with with_order(H100) as device:
        program = filling(device, 64)
        args = program.args(device.alloc(64), device.alloc(64), 1)
        commands = device.compute.record()
        commands.exec(program, args, groups=(120, 1, 1), threads=WHOLE, cooperative=True, cluster=(8, 1, 1))
        assert commands.commands[-1].cluster == (8, 1, 1)  # type: ignore[attr-defined]  # an Exec
        told = (
            r"grid of 128 workgroups of 1024 threads; \S+ runs 120 at once, 8 on each of 15 clusters: .*SMs"
        )
        with pytest.raises(UsageError, match=told):
            commands.exec(
                program, args, groups=(128, 1, 1), threads=WHOLE, cooperative=True, cluster=(8, 1, 1)
            )
        with pytest.raises(UsageError, match="wanted 1 to 8 in all"):
            commands.exec(
                program, args, groups=(32, 1, 1), threads=WHOLE, cooperative=True, cluster=(16, 1, 1)
            )
        assert len(commands) == 1


def test_the_cluster_that_an_image_requires_counts():
    with with_order(H100) as device:
        program = device.load(image(*HOPPER[1:], CTA_PER_CLUSTER=struct.pack("<3I", 4, 1, 1)))
        assert program.residency(WHOLE).per_unit == 4
        assert program.residency(WHOLE, (4, 1, 1)) == program.residency(WHOLE)
        with pytest.raises(UsageError, match="compiled for clusters of"):
            program.residency(WHOLE, (2, 1, 1))


def test_a_gpu_without_clusters_refuses_them():
    with opened(AMPERE) as device:
        program = device.load(sample(*AMPERE[1:]))
        with pytest.raises(UnsupportedError, match="launches none"):
            program.residency(SHAPE, (2, 1, 1))


@pytest.mark.parametrize(
    ("threads", "cluster", "told"),
    [
        ((0, 1, 1), None, r"threads: wanted three ints of at least 1, seen \(0, 1, 1\)"),
        ("abc", None, "threads: wanted three ints of at least 1, seen 'abc'"),
        ((1.5, 1, 1), None, "threads: wanted three ints"),
        (SHAPE, (2, 1), "cluster: wanted three ints"),
        (SHAPE, (-2, -1, 1), "cluster: wanted three ints"),
    ],
)
def test_shapes_that_are_none_are_refused(threads: Any, cluster: Any, told: str):
    with opened(HOPPER) as device, pytest.raises(UsageError, match=told):
        filling(device, 32).residency(threads, cluster)


def test_the_emulated_gpu_states_its_gpcs():
    with hcq.open("nv-emu") as device:
        program = filling(device, 64)
        assert program.residency(WHOLE, (2, 1, 1)).units == 66
        assert 0 < program.residency(WHOLE, (8, 1, 1)).units <= 16


def test_a_device_that_states_nothing_refuses():
    device = wrap(FakeDevice())
    program = device.load(ADD)
    args = program.args(*[device.alloc(64) for _ in range(3)])
    with pytest.raises(UnsupportedError, match="how many workgroups"):
        device.compute.record().exec(program, args, groups=ONE, threads=ONE, cooperative=True)
    with pytest.raises(UnsupportedError, match="clusters"):
        device.compute.record().exec(program, args, groups=(2, 1, 1), threads=ONE, cluster=(2, 1, 1))
    device.close()
