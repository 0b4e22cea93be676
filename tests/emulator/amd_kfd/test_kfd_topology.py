"""sysfs of the emulated machine."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from hcq.errors import DriverError, UnsupportedError
from tests.facts import amd_topology

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.amd_kfd.caller import Caller

ROOT, ALIAS = amd_topology.ROOTS


def properties(caller: Caller, node: int, root: str = ROOT, what: str = "") -> dict[str, int]:
    text = caller.kernel.read_file(f"{root}/nodes/{node}/{what}properties").decode()
    return {name: int(value) for name, value in (line.split() for line in text.splitlines())}


@pytest.mark.parametrize("name", ["gfx1100", "gfx1151", "gfx1200", "gfx1201", "gfx942", "gfx950"])
def test_nodes_are_the_samples_of_the_facts(machine: Callable[..., Caller], name: str) -> None:
    got = properties(machine(name), 1)
    sample = amd_topology.SAMPLE_NODES[name]
    assert {key: got[key] for key in sample} == sample
    assert amd_topology.TARGETS[got["gfx_target_version"]] == name
    per_xcc = got["simd_count"] // got["simd_per_cu"] // got["num_xcc"]
    assert per_xcc == amd_topology.COMPUTE_UNITS_PER_XCC[name]
    low, high = amd_topology.CAPABILITY_DOORBELL_TYPE
    assert got["capability"] >> low & (1 << high - low + 1) - 1 == amd_topology.DOORBELL_TYPE_64_BIT


@pytest.mark.parametrize(("linux", "printed"), [("6.1", False), ("6.12", False), ("6.12.107", True)])
def test_newer_kernels_print_the_sizes_of_the_save_area(
    machine: Callable[..., Caller], linux: str, *, printed: bool
) -> None:
    got = properties(machine("gfx1201", linux=linux), 1)
    order = [one for one in (*amd_topology.PROPERTIES, *amd_topology.GPU_PROPERTIES) if one in got]
    assert list(got) == order
    assert ("cwsr_size" in got) is printed
    if printed:
        assert (got["cwsr_size"], got["ctl_stack_size"]) == (30699520, 28672)


def test_the_first_node_is_the_cpu_and_the_alias_shows_the_same(caller: Caller) -> None:
    assert caller.kernel.read_file(f"{ROOT}/nodes/0/gpu_id") == b"0\n"
    assert properties(caller, 0)["cpu_cores_count"] > 0
    assert properties(caller, 1) == properties(caller, 1, ALIAS)
    assert caller.kernel.list_dir(f"{ROOT}/nodes") == ["0", "1"]
    assert int(caller.kernel.read_file(f"{ROOT}/nodes/1/gpu_id")) == caller.id
    assert int(caller.kernel.read_file(f"{ROOT}/generation_id")) > 0


def test_video_memory_is_the_sum_of_its_banks(caller: Caller) -> None:
    assert properties(caller, 1)["local_mem_size"] == amd_topology.LOCAL_MEM_SIZE
    banks = caller.kernel.list_dir(f"{ROOT}/nodes/1/mem_banks")
    found = [properties(caller, 1, what=f"mem_banks/{bank}/") for bank in banks]
    assert sum(bank["size_in_bytes"] for bank in found if bank["heap_type"] in (1, 2)) == 24 << 30
    assert tuple(found[0]) == amd_topology.MEM_BANK_PROPERTIES


def test_a_small_bar_makes_all_video_memory_private_and_leaves_no_link_to_it(
    machine: Callable[..., Caller],
) -> None:
    """kfd_crat.c, kfd_create_vcrat_image_gpu: one private heap of public and private memory together."""
    caller = machine("gfx1100", "gfx1100", small_bar=True)
    for node in (1, 2):
        assert caller.kernel.list_dir(f"{ROOT}/nodes/{node}/mem_banks") == ["0"]
        bank = properties(caller, node, what="mem_banks/0/")
        assert (bank["heap_type"], bank["size_in_bytes"]) == (2, 24 << 30)
        assert properties(caller, node)["mem_banks_count"] == 1
        assert properties(caller, node)["p2p_links_count"] == 0
    assert properties(caller, 0)["io_links_count"] == 0
    assert properties(machine("gfx1100"), 0)["io_links_count"] == 1
    with pytest.raises(UnsupportedError, match="an APU's is the host's"):
        machine("gfx1151", small_bar=True)


@pytest.mark.parametrize(("linux", "size"), [("6.1", 512 << 20), ("6.12", 32 << 30)])
def test_an_apu_has_its_carve_out_or_half_of_the_hosts_memory(
    machine: Callable[..., Caller], linux: str, size: int
) -> None:
    bank = properties(machine("gfx1151", linux=linux), 1, what="mem_banks/0/")
    assert (bank["heap_type"], bank["size_in_bytes"]) == (1, size)


def test_an_apu_of_one_sdma_engine_has_one_in_its_discovery(machine: Callable[..., Caller]) -> None:
    folder = amd_topology.IP_DISCOVERY.format(minor=128, die=0, block="GC", instance=0).rsplit("/GC/", 1)[0]
    assert "SDMA1" not in machine("gfx1151").kernel.list_dir(folder)
    assert "SDMA1" in machine("gfx1200").kernel.list_dir(folder)


def test_render_nodes_have_the_minors_of_the_topology(machine: Callable[..., Caller]) -> None:
    caller = machine("gfx1100", "gfx1201", first_minor=130)
    minors = [properties(caller, node)["drm_render_minor"] for node in (1, 2)]
    assert minors == [130, 131]
    assert caller.kernel.list_dir("/dev/dri") == ["renderD130", "renderD131"]
    with pytest.raises(DriverError) as caught:
        caller.kernel.open("/dev/dri/renderD128")
    assert caught.value.status == errno.ENOENT


def test_peers_are_linked(machine: Callable[..., Caller]) -> None:
    caller = machine("gfx1100", "gfx1100")
    link = properties(caller, 1, what="p2p_links/0/")
    assert (link["node_from"], link["node_to"], link["type"]) == (1, 2, 2)
    assert tuple(link) == amd_topology.LINK_PROPERTIES
    assert properties(machine("gfx1100", "gfx1100", peers=False), 1)["p2p_links_count"] == 0
    hive = machine("gfx942", "gfx942")
    assert properties(hive, 1)["hive_id"] == properties(hive, 2)["hive_id"] != 0
    assert properties(hive, 1, what="io_links/1/")["type"] == 11


def test_a_hidden_gpu_cannot_be_read_opened_or_used(machine: Callable[..., Caller]) -> None:
    caller = machine("gfx1100", "gfx1201", masked=(1,), acquire=False)
    wanted = {errno.EPERM}
    for call in (
        lambda: caller.kernel.read_file(f"{ROOT}/nodes/2/gpu_id"),
        lambda: caller.kernel.open("/dev/dri/renderD129"),
    ):
        with pytest.raises(DriverError) as caught:
            call()
        assert caught.value.status in wanted
    assert caller.kernel.read_file(f"{ROOT}/nodes/1/gpu_id")


@pytest.mark.parametrize(
    ("name", "count"), [("gfx1100", 1), ("gfx1151", 1), ("gfx1200", 1), ("gfx942", 8), ("gfx950", 8)]
)
def test_ip_discovery_names_blocks_and_versions(
    machine: Callable[..., Caller], name: str, count: int
) -> None:
    kernel = machine(name).kernel
    folder = amd_topology.IP_DISCOVERY.format(minor=128, die=0, block="GC", instance=0)
    version = tuple(int(kernel.read_file(f"{folder}{part}")) for part in ("major", "minor", "revision"))
    assert amd_topology.TARGETS[amd_topology.TARGET_OF_GC[version]] == name
    assert len(kernel.list_dir(folder.rsplit("/", 2)[0])) == count
    assert kernel.list_dir(folder) == sorted(amd_topology.IP_DISCOVERY_FILES)


def test_files_that_are_not_there(caller: Caller) -> None:
    for call in (caller.kernel.read_file, caller.kernel.list_dir):
        with pytest.raises(DriverError) as caught:
            call(f"{ROOT}/nodes/9/gpu_id")
        assert caught.value.status == errno.ENOENT
