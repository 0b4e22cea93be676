"""The topology in sysfs as kernels of different age, containers and hotplug show it."""

from __future__ import annotations

import errno

import pytest

from drivers.amd import topology
from drivers.amd.layouts.topology import ALIAS, ROOT
from drivers.kernel import LinuxKernel
from hcq.errors import BringUpError, DriverError


class Files(LinuxKernel):
    """A kernel that has these files and no others; an int is the errno of reading one."""

    def __init__(self, files: dict[str, str | int]) -> None:
        self.files = files
        self.reads: list[str] = []

    def read_file(self, path: str) -> bytes:
        self.reads.append(path)
        content = self.files.get(path, errno.ENOENT)
        if isinstance(content, int):
            raise DriverError("read", content, errno.errorcode[content], arguments=path)
        return content.encode()

    def list_dir(self, path: str) -> list[str]:
        found = {name[len(path) + 1 :].split("/")[0] for name in self.files if name.startswith(f"{path}/")}
        if not found:
            raise DriverError("listdir", errno.ENOENT, "ENOENT", arguments=path)
        return sorted(found)


OLD = """cpu_cores_count 0
simd_count 192
array_count 12
simd_arrays_per_engine 2
simd_per_cu 2
max_slots_scratch_cu 32
gfx_target_version 110000
location_id 768
domain 1
drm_render_minor 129
a_name_of_the_future 18446744073709551615
a line without a number
"""


def nodes(root: str = ROOT, **more: str | int) -> dict[str, str | int]:
    """Return a CPU node and a GPU node with the properties of an old kernel."""
    return {
        f"{root}/generation_id": "2\n",
        f"{root}/nodes/0/gpu_id": "0\n",
        f"{root}/nodes/0/properties": "cpu_cores_count 8\n",
        f"{root}/nodes/1/gpu_id": "4711\n",
        f"{root}/nodes/1/properties": OLD,
        f"{root}/nodes/1/mem_banks/0/properties": "heap_type 1\nsize_in_bytes 256\nflags 0\n",
        f"{root}/nodes/1/mem_banks/1/properties": "heap_type 2\nsize_in_bytes 1024\n",
        **more,
    }


def test_a_gpu_is_read_with_missing_and_unknown_properties():
    (gpu,) = topology.read(Files(nodes()))
    assert (gpu.node, gpu.gpu_id, gpu.arch, gpu.render_minor) == (1, 4711, "gfx1100", 129)
    assert (gpu.visible_bytes, gpu.private_bytes, gpu.vram_bytes) == (256, 1024, 1280)
    assert gpu.name == "gfx1100 at 0001:03:00.0"
    geometry = gpu.geometry()
    assert (geometry.xccs, geometry.compute_units, geometry.engines, geometry.scratch_slots) == (1, 96, 6, 32)
    assert gpu.links == {}


def test_nodes_are_in_the_order_of_their_numbers():
    files = nodes()
    for node in (2, 10):
        files[f"{ROOT}/nodes/{node}/gpu_id"] = f"{node}\n"
        files[f"{ROOT}/nodes/{node}/properties"] = OLD
    assert [gpu.gpu_id for gpu in topology.read(Files(files))] == [4711, 2, 10]


@pytest.mark.parametrize("path", ["gpu_id", "properties"])
def test_a_node_that_the_device_cgroup_hides_is_left_out(path: str):
    assert topology.read(Files(nodes(**{f"{ROOT}/nodes/1/{path}": errno.EPERM}))) == []


def test_the_other_path_of_sysfs_is_taken_where_the_first_is_hidden():
    assert len(topology.read(Files(nodes(ALIAS)))) == 1


def test_an_absent_topology_names_the_module():
    with pytest.raises(DriverError, match="modprobe amdgpu"):
        topology.read(Files({}))


def test_a_scan_during_which_the_topology_changed_is_done_again():
    class Changing(Files):
        def read_file(self, path: str) -> bytes:
            content = super().read_file(path)
            if path.endswith("nodes/1/properties") and self.files[f"{ROOT}/generation_id"] == "2\n":
                self.files[f"{ROOT}/generation_id"] = "3\n"
                self.files[f"{ROOT}/nodes/1/gpu_id"] = "4712\n"
            return content

    kernel = Changing(nodes())
    assert [gpu.gpu_id for gpu in topology.read(kernel)] == [4712]


def test_a_node_removed_during_a_scan_is_no_error():
    class Going(Files):
        def read_file(self, path: str) -> bytes:
            if path.endswith("nodes/1/properties"):
                self.files[f"{ROOT}/generation_id"] = "3\n"
                for name in [name for name in self.files if "nodes/1" in name]:
                    del self.files[name]
            return super().read_file(path)

    assert topology.read(Going(nodes())) == []


def test_a_topology_that_keeps_changing_is_an_error():
    class Restless(Files):
        def read_file(self, path: str) -> bytes:
            if path.endswith("generation_id"):
                self.files[path] = str(int(str(self.files[path])) + 1)
            return super().read_file(path)

    with pytest.raises(BringUpError, match="changed during each"):
        topology.read(Restless(nodes()))


def test_a_file_that_cannot_be_read_is_an_error_where_nothing_changed():
    with pytest.raises(DriverError, match="EIO"):
        topology.read(Files(nodes(**{f"{ROOT}/nodes/1/properties": errno.EIO})))


def test_a_file_without_a_number_is_named_in_the_error():
    with pytest.raises(BringUpError, match=r"nodes/1/gpu_id: wanted a number, saw 'x'"):
        topology.read(Files(nodes(**{f"{ROOT}/nodes/1/gpu_id": "x\n"})))


@pytest.mark.parametrize("name", ["simd_count", "simd_per_cu", "array_count", "max_slots_scratch_cu"])
def test_a_geometry_that_cannot_be_true_is_refused_with_what_was_read(name: str):
    lines = [line for line in OLD.splitlines() if not line.startswith(f"{name} ")]
    (gpu,) = topology.read(Files(nodes(**{f"{ROOT}/nodes/1/properties": "\n".join(lines)})))
    with pytest.raises(BringUpError, match=f"cannot be true: .*{name} 0"):
        gpu.geometry()


@pytest.mark.parametrize("folder", ["io_links", "p2p_links"])
def test_links_say_whether_peers_reach_each_other(folder: str):
    for flags, carries in ((1, True), (0x11, False)):
        link = f"type 11\nnode_from 1\nnode_to 2\nweight 13\nflags {flags}\n"
        (gpu,) = topology.read(Files(nodes(**{f"{ROOT}/nodes/1/{folder}/0/properties": link})))
        assert gpu.links[2].carries_peers() == carries
        assert str(gpu.links[2]) == "XGMI"
