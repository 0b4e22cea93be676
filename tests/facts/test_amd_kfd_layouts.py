"""The driver's layouts of KFD, events, context-save areas, render node and sysfs are those of the facts."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts import cwsr, drm, events, kfd, kfd_unused, topology
from hcq.layout import Struct
from tests.facts import amd_faults, amd_kfd, amd_topology
from tests.facts import amd_kfd_header as header
from tests.facts.layout_probe import Leaf, bit_ranges, c_structs, encoded, integers, leaves

if TYPE_CHECKING:
    from types import ModuleType

MODULES = (kfd, kfd_unused, events, cwsr, drm)
CREATE_QUEUE, OLD_QUEUE = "kfd_ioctl_create_queue_args", "kfd_ioctl_create_queue_args_1_11"
STRUCTS = c_structs(header.STRUCTS)
UNUSED = {
    "kfd_ioctl_get_tile_config_args",
    "kfd_ioctl_alloc_queue_gws_args",
    "kfd_ioctl_criu_args",
    "kfd_ioctl_dbg_trap_args",
    "kfd_ioctl_svm_attribute",
}
"""Structures that no part of the driver has a use for."""


def declared(modules: tuple[ModuleType, ...], base: type) -> dict[str, type]:
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
    }


LAYOUTS: dict[str, type[Struct]] = declared(MODULES, Struct)


def facts_of(name: str) -> tuple[int, dict[str, tuple[int, int]]]:
    """Return size and fields, less padding, by the names of the layouts."""
    if name == "drm_amdgpu_info":
        fields = amd_kfd.DRM_INFO
        return 32, {{"union": "parameters"}.get(field, field): (at, size) for at, size, field in fields}
    if name == "drm_amdgpu_info_device":
        return amd_kfd.DEV_INFO_BYTES, {field: (at, size) for at, size, field in amd_kfd.DEV_INFO}
    if name == OLD_QUEUE:
        (size,) = header.SIZES_BEFORE.values()
        new = {field for struct, field in header.FIELDS_SINCE if struct == CREATE_QUEUE}
        fields = STRUCTS[CREATE_QUEUE].fields
        return size, {field: (at, width) for at, width, field in fields if field not in new}
    struct = STRUCTS[name]
    fields = struct.fields
    found = {field.removeprefix("wave_state."): (at, size) for at, size, field in fields}
    if name == "kfd_event_data":
        found["payload"] = amd_kfd.EVENT_DATA[0][:2]
    return struct.size, {field: place for field, place in found.items() if field not in ("pad", "reserved1")}


@pytest.mark.parametrize("name", LAYOUTS)
def test_structure_has_the_size_and_the_fields_of_the_header(name: str):
    size, fields = facts_of(name)
    assert size == LAYOUTS[name].SIZE
    assert {field: leaf[:2] for field, leaf in leaves(LAYOUTS[name]).items()} == fields


def test_every_structure_of_the_header_is_declared_or_unused():
    extra = {OLD_QUEUE, "drm_amdgpu_info", "drm_amdgpu_info_device"}
    assert set(LAYOUTS) - extra == set(STRUCTS) - UNUSED


def test_every_integer_is_encoded_at_its_offset():
    for name, layout in LAYOUTS.items():
        size, fields = facts_of(name)
        for field, most in integers(layout):
            kind = layout.FIELDS[field].type if field in layout.FIELDS else int
            if isinstance(kind, type) and (issubclass(kind, enum.Enum) or kind is bool):
                continue
            offset, width = fields[field]
            value = most & 0x0807_0605_0403_0201
            block = bytearray(size)
            block[offset : offset + width] = value.to_bytes(width, "little")
            assert encoded(layout, field, value) == bytes(block), (name, field)


@pytest.mark.parametrize("call", amd_kfd.IOCTLS)
def test_call_has_its_number_and_its_request_word(call: str):
    number, word, size = amd_kfd.IOCTLS[call]
    assert kfd.Call[call] == number
    assert kfd.request(kfd.Call[call], size) == word


def test_no_other_calls_are_declared():
    assert {call.name for call in kfd.Call} == set(amd_kfd.IOCTLS)
    assert not {call.value for call in kfd.Call} & {*amd_kfd.OUT_OF_TREE, *header.DEPRECATED_CALLS.values()}


def test_request_of_the_older_create_queue():
    _, word, size = amd_kfd.CREATE_QUEUE_1_11
    assert kfd.request(kfd.Call.CREATE_QUEUE, LAYOUTS[OLD_QUEUE].SIZE) == word
    assert size == LAYOUTS[OLD_QUEUE].SIZE


def test_request_of_svm_grows_with_its_attributes():
    _, word, size = amd_kfd.IOCTLS["SVM"]
    grown = kfd.request(kfd.Call.SVM, size + 3 * kfd_unused.SVM_ATTRIBUTE_BYTES)
    assert grown == word + (3 * amd_kfd.SVM_ATTRIBUTE_BYTES << 16)


def test_versions_at_which_something_came():
    assert dict(kfd.GATES) == amd_kfd.VERSION_GATES
    assert (kfd.MAJOR, kfd.OLDEST_MINOR) == (1, 11)


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        (kfd.QueueType, amd_kfd.QUEUE_TYPES),
        (kfd.MemFlags, {name: 1 << bit for name, bit in amd_kfd.ALLOC_FLAGS.items()}),
        (kfd.RuntimeMode, amd_kfd.RUNTIME_ENABLE_MODES),
        (kfd.MmapType, amd_kfd.MMAP_TYPES),
        (events.EventType, amd_kfd.EVENT_TYPES),
        (events.WaitResult, amd_kfd.WAIT_RESULTS),
        (drm.InfoQuery, amd_kfd.DRM_INFO_QUERIES),
    ],
)
def test_values_have_the_names_and_numbers_of_the_facts(kind: type[enum.Enum], table: dict[str, int]):
    assert {member.name: member.value for member in kind} == table


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (events.MemoryError_, set(amd_kfd.MEMORY_ERROR_TYPES)),
        (events.ResetType, set(amd_kfd.RESET_TYPES)),
        (events.ResetCause, set(amd_kfd.RESET_CAUSES)),
        (events.QueueException, set(amd_faults.QUEUE_EXCEPTIONS)),
        (topology.HeapType, set(amd_topology.HEAP_TYPES)),
        (topology.LinkType, set(amd_topology.LINK_TYPES)),
        (kfd.MmioRemap, set(amd_kfd.MMIO_REMAP.values())),
    ],
)
def test_values_have_the_numbers_of_the_facts(kind: type[enum.Enum], numbers: set[int]):
    assert {member.value for member in kind} == numbers


def test_exceptions_have_the_names_of_the_header():
    prefixes = ("EC_QUEUE_", "EC_")
    names = {}
    for name, (value, _) in header.CONSTANTS.items():
        if name.startswith("EC_"):
            (prefix,) = [p for p in prefixes if name.startswith(p)][:1]
            names[name.removeprefix(prefix)] = value
    assert {code.name: code.value for code in events.QueueException} == names


def test_bit_of_an_exception_is_its_code_less_one():
    for code in events.QueueException:
        assert events.exceptions(1 << code - 1) == [code]


def test_kinds_of_memory_have_the_flags_of_the_facts():
    def flags(kind: str) -> int:
        return sum(1 << amd_kfd.ALLOC_FLAGS[name] for name in amd_kfd.ALLOC_KINDS[kind])

    coherent = flags("system") & ~flags("user pointer") & ~(1 << amd_kfd.ALLOC_FLAGS["GTT"])
    assert {name: int(kind) for name, kind in kfd.MemKind.__members__.items()} == {
        "VRAM": flags("vram"),
        "VISIBLE_VRAM": flags("visible vram"),
        "SYSTEM": flags("system"),
        "USER_POINTER": flags("user pointer") | coherent,
        "DOORBELL": flags("doorbell"),
        "MMIO_REMAP": flags("mmio remap"),
    }


def test_limits_of_queues():
    assert kfd.MAX_QUEUE_PERCENTAGE == amd_kfd.QUEUE_PERCENTAGE_MAX
    assert kfd.MAX_QUEUE_PRIORITY == amd_kfd.QUEUE_PRIORITY_MAX
    assert kfd.QUEUE_PRIORITY == amd_kfd.QUEUE_PRIORITY_DEFAULT
    assert dict(kfd.QUEUE_PRIORITIES) == amd_kfd.QUEUE_PRIORITIES
    assert kfd.MIN_RING_BYTES == amd_kfd.RING_MIN
    assert kfd.RING_ALIGN == amd_kfd.RING_ALIGNMENT
    assert kfd.MIN_EOP_BYTES == amd_kfd.EOP_MIN
    assert kfd.QUEUES_PER_PROCESS == amd_kfd.QUEUES_PER_PROCESS
    assert kfd.QUEUES_PER_PROCESS_9_4_3 == amd_kfd.QUEUES_PER_PROCESS_GFX943
    assert kfd.ENOTSUPP == amd_kfd.ENOTSUPP
    assert bit_ranges(kfd.QueuePercentage) == {
        "PERCENT": amd_kfd.QUEUE_PERCENTAGE_BITS,
        "PM4_TARGET_XCC": amd_kfd.QUEUE_TARGET_XCC_BITS,
    }


def test_address_space():
    assert kfd.LDS_APERTURE == amd_kfd.LDS_APERTURE
    assert kfd.SCRATCH_APERTURE == amd_kfd.SCRATCH_APERTURE
    assert kfd.APERTURE_BYTES == amd_kfd.APERTURE_SPAN
    assert kfd.GPUVM_BASE == amd_kfd.GPUVM_BASE
    assert kfd.GPUVM_RESERVED_TOP == amd_kfd.GPUVM_RESERVED_TOP
    assert kfd.USER_ADDRESS_BITS == amd_kfd.USER_VA_CLEAR_BIT
    assert kfd.SYSTEM_CLOCK_HZ == amd_kfd.SYSTEM_CLOCK_HZ


def test_mmap_offsets_and_doorbells():
    assert bit_ranges(kfd.MmapOffset) == {
        "OFFSET": amd_kfd.MMAP_OFFSET_BITS,
        "GPU_ID": amd_kfd.MMAP_GPU_ID_BITS,
        "TYPE": amd_kfd.MMAP_TYPE_BITS,
    }
    assert kfd.DOORBELL_BYTES == amd_kfd.DOORBELL_BYTES
    assert kfd.DOORBELL_SLICE_BYTES == amd_kfd.DOORBELL_SLICE_BYTES
    assert kfd.DOORBELL_SLICE_BYTES - 1 == amd_kfd.DOORBELL_OFFSET_MASK
    assert kfd.SDMA_DOORBELL_MIRROR == amd_kfd.SDMA_DOORBELL_MIRROR
    assert kfd.MMIO_REMAP_BYTES == amd_kfd.MMIO_REMAP_BYTES
    assert amd_kfd.MMIO_REMAP["HDP memory flush"] == kfd.MmioRemap.HDP_MEM_FLUSH_CNTL


def test_event_page():
    assert events.EVENT_SLOTS == amd_kfd.EVENT_SLOTS
    assert events.EVENT_SLOT_BYTES == amd_kfd.EVENT_SLOT_BYTES
    assert events.EVENT_PAGE_BYTES == amd_kfd.EVENT_PAGE_BYTES
    assert events.UNSIGNALLED == amd_kfd.UNSIGNALLED
    assert events.FIRST_OTHER_EVENT == amd_kfd.OTHER_EVENT_IDS
    assert events.WAIT_FOREVER == amd_kfd.WAIT_FOREVER
    bits = amd_kfd.INTERRUPT_CONTEXT_BITS
    assert bits["end of pipe"] == events.END_OF_PIPE_CONTEXT_BITS
    assert bits["sdma trap"] == events.TRAP_CONTEXT_BITS
    assert bits["s_sendmsg"] == events.MESSAGE_CONTEXT_BITS


@pytest.mark.parametrize("target", amd_kfd.CWSR_VECTORS)
def test_sizes_of_context_save_areas_are_the_worked_ones(target: str):
    vector, node = amd_kfd.CWSR_VECTORS[target], amd_topology.SAMPLE_NODES[target]
    xccs = node["num_xcc"]
    sizes = cwsr.sizes(
        target,
        units=node["simd_count"] // node["simd_per_cu"] // xccs,
        engines=node["array_count"] // node["simd_arrays_per_engine"] // xccs,
        xccs=xccs,
        lds_bytes=node["lds_size_in_kb"] << 10,
    )
    assert sizes.control_stack == vector["ctl_stack"]
    assert sizes.context == vector["cwsr_size"]
    assert sizes.debug == vector["debug"]
    assert sizes.total == vector["total"]


@pytest.mark.parametrize("size", amd_kfd.CWSR_VGPR_BYTES)
def test_register_bytes_of_every_target(size: int):
    unit = size + amd_kfd.CWSR_SGPR_BYTES + amd_kfd.CWSR_LDS_BYTES + amd_kfd.CWSR_HW_BYTES
    for target in amd_kfd.CWSR_VGPR_BYTES[size]:
        lds = amd_kfd.CWSR_LDS_BYTES_GFX950 if target == "gfx950" else amd_kfd.CWSR_LDS_BYTES
        sizes = cwsr.sizes(target, units=1, engines=1, xccs=1, lds_bytes=lds)
        assert sizes.context - sizes.control_stack == unit - amd_kfd.CWSR_LDS_BYTES + lds, target


@pytest.mark.parametrize("target", amd_kfd.CWSR_VGPR_BYTES_BEFORE)
def test_register_bytes_for_a_kernel_that_miscounts_them(target: str):
    shape = {"units": 40, "engines": 2, "xccs": 1, "lds_bytes": amd_kfd.CWSR_LDS_BYTES}
    right = cwsr.sizes(target, **shape)
    missing = 40 * (0x60000 - amd_kfd.CWSR_VGPR_BYTES_BEFORE[target])
    wanted = cwsr.sizes(target, **shape, checked=True)
    assert wanted.context == right.context - missing
    assert wanted.control_stack == right.control_stack
    printed = cwsr.sizes(target, **shape, checked=True, known_context=1 << 24, known_stack=1 << 16)
    assert (printed.context, printed.control_stack) == (1 << 24, 1 << 16)


@pytest.mark.parametrize("target", amd_kfd.CWSR_VECTORS)
def test_sizes_of_other_targets_are_those_that_the_kernel_compares(target: str):
    shape = {"units": 32, "engines": 2, "xccs": 1, "lds_bytes": amd_kfd.CWSR_LDS_BYTES}
    assert cwsr.sizes(target, **shape, checked=True) == cwsr.sizes(target, **shape)


def test_control_stack_of_gfx10_is_capped():
    sizes = cwsr.sizes("gfx1030", units=80, engines=4, xccs=1, lds_bytes=1 << 16)
    assert sizes.control_stack == amd_kfd.CWSR_CTL_CAP_GFX10


def test_waves_of_gfx9_are_limited_by_the_engines():
    few = cwsr.sizes("gfx90a", units=104, engines=1, xccs=1, lds_bytes=1 << 16)
    assert few.debug == amd_kfd.CWSR_WAVES_PER_ARRAY_GFX9 * amd_kfd.CWSR_DEBUG_WAVE_BYTES
    many = cwsr.sizes("gfx90a", units=104, engines=1 << 10, xccs=1, lds_bytes=1 << 16)
    assert many.debug == 104 * amd_kfd.CWSR_WAVES_PER_CU_GFX9 * amd_kfd.CWSR_DEBUG_WAVE_BYTES


def test_requests_of_the_render_node():
    assert amd_kfd.DRM_CALLS == {
        "INFO": drm.DRM_IOCTL_AMDGPU_INFO,
        "GEM_CREATE": drm.DRM_IOCTL_AMDGPU_GEM_CREATE,
        "GEM_MMAP": drm.DRM_IOCTL_AMDGPU_GEM_MMAP,
        "GEM_VA": drm.DRM_IOCTL_AMDGPU_GEM_VA,
    }


def test_sysfs_folders_and_properties():
    assert (topology.ROOT, topology.ALIAS) == amd_topology.ROOTS
    assert topology.PROPERTIES == amd_topology.PROPERTIES
    assert topology.GPU_PROPERTIES == amd_topology.GPU_PROPERTIES


def test_bits_of_properties():
    ranges = bit_ranges(topology.Capability)
    assert ranges["DOORBELL_TYPE"] == amd_topology.CAPABILITY_DOORBELL_TYPE
    assert ranges["ASIC_REVISION"] == amd_topology.CAPABILITY_ASIC_REVISION
    assert ranges["SVMAPI_SUPPORTED"] == (amd_topology.CAPABILITY_SVM_BIT,) * 2
    assert 1 << ranges["AQL_QUEUE_DOUBLE_MAP"][0] == amd_topology.CAPABILITY_AQL_DOUBLE_MAP
    assert topology.DoorbellType.V2_0 == amd_topology.DOORBELL_TYPE_64_BIT
    assert bit_ranges(topology.Location) == {
        "FUNCTION": amd_topology.LOCATION_FUNCTION,
        "SLOT": amd_topology.LOCATION_DEVICE,
        "BUS": amd_topology.LOCATION_BUS,
    }


def test_names_of_targets_follow_from_the_version():
    for version, name in {**amd_topology.TARGETS, **amd_topology.OLD_REVISIONS}.items():
        assert topology.target_name(version) == name


def test_leaf_sizes_of_arrays():
    (whole,) = [leaves(LAYOUTS["kfd_ioctl_get_process_apertures_args"])["process_apertures"]]
    assert whole == Leaf(0, amd_kfd.OLD_APERTURES * amd_kfd.APERTURE_BYTES, amd_kfd.OLD_APERTURES)
