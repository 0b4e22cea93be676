"""NVIDIA ioctl, control, class and status numbers are those of the vendor's headers."""

import pytest

from drivers.nv.layouts import branches, chips, controls, debugger, gpfifo, rm, rm_classes, status, uvm
from tests.facts import nv_classes, nv_controls, nv_escapes, nv_status, nv_structs, nv_uvm
from tests.facts.layout_probe import bit_ranges, leaves

MODERN = {
    chip: roles for chip, roles in nv_classes.BY_ROLE.items() if roles["compute"][0] in chips.GENERATIONS
}


def test_escapes_match_the_vendor_headers():
    assert {e.name: e.value for e in rm.Escape} == {n: row[0] for n, row in nv_escapes.ESCAPES.items()}


@pytest.mark.parametrize(("name", "size"), nv_escapes.REQUESTS)
def test_request_word(name: str, size: int):
    assert rm.request(rm.Escape[name], size) == nv_escapes.REQUESTS[name, size]


@pytest.mark.parametrize(("struct", "size"), [row[1:] for row in nv_escapes.ESCAPES.values() if row[1]])
def test_struct_of_an_escape_has_the_vendors_size(struct: str, size: int | None):
    assert size in (None, branches.STRUCTS[580][struct].SIZE)


def test_version_query_and_its_reply():
    assert rm.VERSION_QUERY == nv_escapes.VERSION_QUERY
    assert rm.VERSION_RECOGNISED == nv_escapes.VERSION_RECOGNISED


def test_card_info_takes_all_records_at_once():
    assert rm.CARD_INFO_RECORDS * nv_structs.CARD_INFO_RECORD_BYTES == nv_structs.CARD_INFO_BUFFER_BYTES


def test_uvm_commands_match_the_vendor_headers():
    facts = {name: row[0] for name, row in nv_uvm.COMMANDS.items()}
    assert {c.name: c.value for c in uvm.UvmCommand} == {
        **facts,
        "UVM_MAP_EXTERNAL_SPARSE": nv_uvm.MAP_EXTERNAL_SPARSE,
    }


@pytest.mark.parametrize("command", uvm.COMMAND_STRUCTS)
def test_uvm_command_has_the_vendors_size_and_status_place(command: int):
    _, size, where = nv_uvm.COMMANDS[uvm.UvmCommand(command).name]
    layout = uvm.COMMAND_STRUCTS[command]
    assert (layout.SIZE, leaves(layout)["rmStatus"].offset) == (size, where)


@pytest.mark.parametrize("name", nv_uvm.COMMANDS_590)
@pytest.mark.parametrize("branch", [590, 595])
def test_uvm_command_of_590_has_the_vendors_size_and_status_place(name: str, branch: int):
    _, size, where = nv_uvm.COMMANDS_590[name]
    layout = branches.STRUCTS[branch][f"{name}_PARAMS"]
    assert (layout.SIZE, leaves(layout)["rmStatus"].offset) == (size, where)


def test_uvm_values_match_the_vendor_headers():
    assert {v.value: v.name.lower().replace("_", "-") for v in uvm.UvmGpuMappingType} == nv_uvm.MAPPING_TYPES
    assert {v.value: v.name.lower().replace("_", " ") for v in uvm.UvmGpuCachingType} == nv_uvm.CACHING_TYPES
    assert {f.name: f.value for f in uvm.UvmInitFlags} == nv_uvm.INITIALIZE_FLAGS


def test_control_numbers_match_the_vendor_headers():
    assert {c.name: c.value for c in controls.Control} == nv_controls.COMMANDS


@pytest.mark.parametrize("control", controls.CONTROL_STRUCTS)
def test_control_has_parameters_of_its_own_name(control: int):
    struct = controls.CONTROL_STRUCTS[control]
    name = controls.Control(control).name
    assert struct.removesuffix("_PARAMS").replace("_CMD_", "_") == name.replace("_CMD_", "_")
    assert struct in branches.STRUCTS[580]


def test_indices_match_the_vendor_headers():
    assert {i.name: i.value for i in controls.GrInfo} == nv_controls.GR_INFO_INDICES
    assert [i.value for i in controls.FbInfo] == list(nv_controls.FB_INFO_INDICES.values())


def test_values_of_controls_match_the_vendor_headers():
    assert {
        "minimal": controls.PERF_BOOST_TO_MAX_CUDA,
        "with CUDA_PRIORITY_HIGH": controls.PERF_BOOST_TO_MAX_CUDA_PRIORITY_HIGH,
    } == nv_controls.PERF_BOOST_FLAGS
    assert controls.PERF_BOOST_FOREVER == nv_controls.PERF_BOOST_FOREVER
    assert controls.GID_BINARY_SHA1 == nv_controls.GID_FLAGS_BINARY
    assert {
        "RC_ERROR": controls.EVENT_RC_ERROR,
        "FIFO_EVENT_MTHD": controls.EVENT_FIFO_MTHD,
        "GR_DEBUG_INTR": controls.EVENT_GR_DEBUG_INTR,
    } == nv_controls.EVENTS
    assert controls.EVENT_ACTION_REPEAT == nv_controls.EVENT_ACTION_REPEAT
    assert debugger.MAX_SMS_PER_READ == nv_controls.SM_ERROR_ENTRIES


def test_classes_of_all_generations_match_the_vendor_headers():
    assert {c.name: c.value for c in rm_classes.RmClass} == nv_classes.CLASSES


def test_every_generation_after_turing_is_there():
    assert len(MODERN) == len(chips.GENERATIONS) == 6


@pytest.mark.parametrize("version", nv_classes.ARCHITECTURES)
def test_an_sm_version_names_the_architecture_that_the_gpu_runs(version: int):
    assert chips.sm_number(version) == nv_classes.ARCHITECTURES[version]


def test_turing_is_known_by_name_and_refused():
    (compute,) = nv_classes.BY_ROLE["TU10x"]["compute"]
    assert {compute: "Turing"} == chips.UNSUPPORTED_COMPUTE


@pytest.mark.parametrize("chip", MODERN)
def test_classes_of_a_generation_match_the_vendor_headers(chip: str):
    roles = MODERN[chip]
    row = chips.GENERATIONS[roles["compute"][0]]
    assert row.gpfifo == roles["gpfifo"]
    assert row.copy == roles["copy"]
    assert set(row.usermode) >= set(roles["usermode"])
    assert row.architecture == nv_classes.MC_ARCHITECTURE[chip]
    assert row.sm_version == nv_classes.SM_VERSION[chip]
    assert row.qmd == f"V{nv_classes.QMD_VERSIONS[row.compute]:02}"
    assert row.wide_addresses == (chip in ("GH100", "GB100", "GB20x"))


@pytest.mark.parametrize(
    ("role", "classes"),
    [
        ("gpfifo", chips.GPFIFO_CLASSES),
        ("usermode", chips.USERMODE_CLASSES),
        ("compute", chips.COMPUTE_CLASSES),
        ("copy", chips.COPY_CLASSES),
    ],
)
def test_classes_to_look_for_are_those_of_the_generations(role: str, classes: tuple[int, ...]):
    assert len(classes) == len(set(classes))
    assert set(classes) == {number for roles in MODERN.values() for number in roles[role]}


def test_every_engine_class_has_a_name():
    assert set(chips.CLASS_NAMES) == {
        number for roles in nv_classes.BY_ROLE.values() for numbers in roles.values() for number in numbers
    }


def test_engine_types_match_the_vendor_headers():
    assert rm_classes.EngineType.GR0 == nv_classes.ENGINE_GR0
    assert {i: rm_classes.copy_engine(i) for i in nv_classes.COPY_ENGINES} == nv_classes.COPY_ENGINES


def test_usermode_registers_match_the_vendor_headers():
    assert {r.name: r.value for r in gpfifo.UsermodeRegister} == nv_classes.USERMODE
    assert gpfifo.USERMODE_BYTES == nv_classes.USERMODE_BYTES
    assert bit_ranges(gpfifo.WorkSubmitToken) == {
        "CHANNEL": nv_classes.TOKEN_CHANNEL,
        "RUNLIST": nv_classes.TOKEN_RUNLIST,
        "RUNLIST_DOORBELL": nv_classes.TOKEN_RUNLIST_DOORBELL,
    }


@pytest.mark.parametrize(
    ("layout", "facts"),
    [(rm_classes.MemAttr, nv_classes.MEMORY_ATTR), (rm_classes.MemAttr2, nv_classes.MEMORY_ATTR2)],
)
def test_memory_attributes_match_the_vendor_headers(
    layout: type[rm_classes.MemAttr], facts: dict[str, tuple[int, int, dict[str, int]]]
):
    assert bit_ranges(layout) == {name: row[:2] for name, row in facts.items()}


@pytest.mark.parametrize("field", nv_classes.MEMORY_ATTR)
def test_values_of_memory_attributes_match_the_vendor_headers(field: str):
    values = set(nv_classes.MEMORY_ATTR[field][2].values())
    assert {int(v) for v in rm_classes.MemAttr.FIELDS[field].type} - {0} == values - {0}


def test_memory_flags_and_types_match_the_vendor_headers():
    assert {f.name: f.value for f in rm_classes.MemFlags} == nv_classes.MEMORY_FLAGS
    assert {t.name: t.value for t in rm_classes.MemType} == nv_classes.MEMORY_TYPES
    assert rm_classes.PITCH_KIND == nv_classes.FORMAT_GENERIC_KIND


def test_flags_of_objects_match_the_vendor_headers():
    starts = {name: lo for name, (lo, _) in bit_ranges(rm_classes.OsDescriptorFlags).items()}
    assert starts == {name: lo for name, (lo, _) in nv_classes.OS_DESCRIPTOR_FLAGS.items()}
    assert {**bit_ranges(rm.MapDmaFlags)} == {n: row[:2] for n, row in nv_classes.MAP_DMA_FLAGS.items()}
    assert {f.value for f in rm_classes.VaspaceFlags} == set(nv_classes.VASPACE_FLAGS.values())
    channel = {lo for lo, _ in bit_ranges(rm_classes.ChannelFlags).values()}
    assert channel == {*nv_classes.CHANNEL_FLAG_BITS.values(), 28}
    assert rm_classes.USERD_BYTES == nv_structs.USERD_SIZE
    assert nv_classes.GR_OBJECT_PARAMETERS[0] == rm_classes.GR_ALLOCATION_VERSION


def test_status_codes_match_the_vendor_headers():
    assert {s.value: s.name for s in status.NvStatus} == nv_status.STATUS
