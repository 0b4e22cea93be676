"""Launches in clusters of workgroups: descriptors and constant bank 0, and what the image states about them.

The positions of fields and words are those of `tests.facts`, not of the layouts.
"""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING, Any

import pytest

from drivers.kernel import view_at
from drivers.nv import cubin
from drivers.nv.layouts.cubin import InfoAttribute
from drivers.nv.quirks import parse
from hcq.device import Device
from hcq.errors import UnsupportedError, UsageError
from hcq.graph import Graph
from hcq.params import Param
from hcq.program import ArgKind, ArgSlot, KernelImage
from tests.facts import nv_cubin, nv_qmd_v04, nv_qmd_v05
from tests.limits import HANG_S
from tests.support.nv.golden import small_cubin
from tests.support.nv.recorded import RecordedKernel, driver_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.nv.program import NvProgram

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


def test_the_image_states_the_cluster():
    three = struct.pack("<3I", 2, 1, 2)
    _, _, own = cubin.read(image("sm_90a", 90, CTA_PER_CLUSTER=three).code, "k")
    assert (own.cluster, own.explicit_cluster, own.max_cluster) == ((2, 1, 2), False, 0)
    _, _, own = cubin.read(image("sm_90a", 90, MAX_CLUSTER_RANK=struct.pack("<I", 4)).code, "k")
    assert (own.cluster, own.explicit_cluster, own.max_cluster) == (None, False, 4)


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
