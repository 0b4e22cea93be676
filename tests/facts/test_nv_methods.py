"""NVIDIA push-buffer words and methods are those of the class headers, in declaration and in encoding."""

import enum
from typing import Any

import pytest

from drivers.nv.layouts import compute, dma, gpfifo, host
from hcq.layout import BitStruct
from tests.facts import nv_methods as facts
from tests.facts.layout_probe import bit_range, bit_ranges


def offsets(methods: dict[int, gpfifo.Method]) -> dict[str, int]:
    return {method.name: address for address, method in methods.items()}


def values(kind: type[enum.IntEnum]) -> dict[str, int]:
    return {member.name: member.value for member in kind}


def test_ring_entry_match_the_vendor_headers():
    bits = facts.GPFIFO_ENTRY
    assert bit_ranges(gpfifo.GpfifoEntry) == {
        **{name: bits[name] for name in ("FETCH", "LEVEL", "LENGTH", "SYNC")},
        "ADDRESS": (bits["GET"][0], bits["GET_HI"][1]),
    }
    assert bit_ranges(gpfifo.GpfifoControl) == {
        "OPERAND": facts.EXTENDED_BASE_OPERAND,
        "OPCODE": facts.GPFIFO_OPCODE,
    }
    assert values(gpfifo.GpfifoOpcode) == facts.GPFIFO_OPCODES


def test_control_entry_has_length_0():
    (length,) = gpfifo.GpfifoControl.FIXED.values()
    assert (bit_range(length), length.default) == (facts.GPFIFO_ENTRY["LENGTH"], 0)


@pytest.mark.parametrize(("address", "words", "level", "sync", "entry"), facts.GPFIFO_EXAMPLES)
def test_ring_entry_encodes_as_worked_out_by_hand(
    address: int, words: int, level: int, sync: int, entry: int
):
    layout = gpfifo.GpfifoEntry(ADDRESS=address, LENGTH=words, LEVEL=level, SYNC=bool(sync))
    assert int(layout) == entry


def test_method_header_match_the_vendor_headers():
    assert bit_ranges(gpfifo.MethodHeader) == facts.HEADER
    assert values(gpfifo.SecOp) == facts.OPCODES
    assert sorted(values(gpfifo.Subchannel).values()) == sorted(facts.SUBCHANNELS.values())
    assert facts.SUBCHANNELS["compute"] == gpfifo.Subchannel.COMPUTE
    assert facts.SUBCHANNELS["copy"] == gpfifo.Subchannel.COPY


@pytest.mark.parametrize(("opcode", "subchannel", "count", "method", "word"), facts.HEADER_EXAMPLES)
def test_method_header_encodes_as_worked_out_by_hand(
    opcode: str, subchannel: int, count: int, method: int, word: int
):
    header = gpfifo.MethodHeader(
        ADDRESS=method,
        SUBCHANNEL=gpfifo.Subchannel(subchannel),
        COUNT=count,
        OPCODE=gpfifo.SecOp[opcode],
    )
    assert int(header) == word


@pytest.mark.parametrize(
    ("methods", "table", "extra"),
    [
        (host.METHODS, facts.HOST, {}),
        (host.METHODS_AMPERE, facts.HOST, {}),
        (compute.METHODS, facts.COMPUTE, {}),
        (compute.METHODS_AMPERE, facts.COMPUTE, {}),
        (dma.METHODS, facts.COPY, {"SET_OBJECT": 0}),
        (dma.METHODS_AMPERE, facts.COPY, {"SET_OBJECT": 0}),
    ],
)
def test_methods_match_the_vendor_headers(
    methods: dict[int, gpfifo.Method], table: dict[str, int], extra: dict[str, int]
):
    assert offsets(methods) == {**table, **extra}


@pytest.mark.parametrize(
    ("layout", "bits"),
    [
        (host.SetObject, {"CLASS": facts.SET_OBJECT_CLASS, "ENGINE": facts.SET_OBJECT_ENGINE}),
        (host.SemExecute, facts.SEM_EXECUTE),
        (host.MemOpD, {"OPERATION": facts.MEM_OP_D_OPERATION}),
        (host.SemAddrLo, {"OFFSET": facts.SEM_ADDR_LO}),
        (dma.LaunchDma, facts.LAUNCH_DMA),
        (dma.RemapComponents, facts.REMAP_COMPONENTS),
    ],
)
def test_fields_of_a_word_match_the_vendor_headers(layout: type[BitStruct], bits: dict[str, tuple[int, int]]):
    assert bit_ranges(layout) == bits


def full_word(bits: dict[str, tuple[int, int]]) -> bool:
    return set(bits.values()) == {(0, 31)}


@pytest.mark.parametrize("method", facts.COMPUTE_FIELDS)
def test_fields_of_a_compute_method_match_the_vendor_headers(method: str):
    bits = facts.COMPUTE_FIELDS[method]
    data = compute.METHODS[facts.COMPUTE[method]].data
    if data is None:
        assert full_word(bits)
    else:
        assert sorted(bit_ranges(data).values()) == sorted(bits.values())


@pytest.mark.parametrize("method", ["REPORT_SEMAPHORE_EXECUTE", "SET_REPORT_SEMAPHORE_D"])
def test_fields_of_a_report_semaphore_have_the_vendors_names(method: str):
    data = compute.METHODS[facts.COMPUTE[method]].data
    assert data is not None
    assert bit_ranges(data) == facts.COMPUTE_FIELDS[method]


UPPER = [
    (module, table[name], generation, width)
    for module, table, widths in (
        (host, facts.HOST, {"SEM_ADDR_HI": facts.SEM_ADDR_HI_BITS}),
        (compute, facts.COMPUTE, facts.COMPUTE_UPPER_BITS),
        (dma, facts.COPY, facts.COPY_UPPER_BITS),
    )
    for name, by_generation in widths.items()
    for generation, width in by_generation.items()
]


@pytest.mark.parametrize(("module", "address", "generation", "width"), UPPER)
def test_upper_half_of_an_address_has_the_width_of_the_generation(
    module: object, address: int, generation: str, width: int
):
    table = vars(module)["METHODS_AMPERE" if generation == "ampere" else "METHODS"]
    assert list(bit_ranges(table[address].data).values()) == [(0, width - 1)]


def test_values_of_host_methods_match_the_vendor_headers():
    assert values(host.SemOperation) == facts.SEM_OPERATIONS
    assert values(host.SemReduction) == facts.SEM_REDUCTIONS
    assert sorted(values(host.MemOperation).values()) == sorted(facts.MEM_OPERATIONS.values())
    assert host.SEMAPHORE_RECORD_BYTES == facts.SEM_RELEASE_BYTES
    assert host.SEMAPHORE_TIME_OFFSET == facts.SEM_RELEASE_TIMESTAMP_OFFSET


def test_values_of_compute_methods_match_the_vendor_headers():
    assert facts.PCAS_ACTIONS.items() <= values(compute.PcasAction).items()
    assert values(compute.ReportOperation) == facts.REPORT_SEMAPHORE_OPERATIONS
    assert compute.QMD_VERSION_HOPPER == facts.QMD_VERSION_HOPPER
    assert facts.WINDOW_SPANS["shared"] == compute.SHARED_WINDOW_ALIGN
    assert facts.WINDOW_SPANS["local"] == compute.LOCAL_WINDOW_BYTES
    assert {
        "thread": compute.LOCAL_THREAD_ALIGN,
        "warp": compute.LOCAL_WARP_ALIGN,
        "tpc": compute.LOCAL_TPC_ALIGN,
        "total": compute.LOCAL_TOTAL_ALIGN,
    } == facts.SLM_ROUNDING


def test_values_of_copy_methods_match_the_vendor_headers():
    transfer = values(dma.DataTransferType)
    assert facts.LAUNCH_DMA_VALUES["DATA_TRANSFER_TYPE"].items() <= transfer.items()
    semaphores = sorted(facts.LAUNCH_DMA_VALUES["SEMAPHORE_TYPE"].values())
    assert sorted(values(dma.DmaSemaphoreType).values()) == semaphores
    assert values(dma.DmaReduction) == facts.LAUNCH_DMA_VALUES["SEMAPHORE_REDUCTION"]
    assert values(dma.RemapSource) == facts.REMAP_SOURCES
    assert dma.MAX_COPY_BYTES == facts.COPY_PIECE_LIMIT


def test_acquire_word_of_the_source():
    word = host.SemExecute(
        OPERATION=host.SemOperation.ACQ_CIRC_GEQ, ACQUIRE_SWITCH_TSG=True, PAYLOAD_SIZE=True
    )
    assert int(word) == facts.SEM_ACQUIRE_CIRCULAR_64_SWITCH


def test_release_word_of_the_source():
    word = host.SemExecute(
        OPERATION=host.SemOperation.RELEASE, RELEASE_WFI=True, PAYLOAD_SIZE=True, RELEASE_TIMESTAMP=True
    )
    assert int(word) == facts.SEM_RELEASE_64_TIMESTAMP_WFI


@pytest.mark.parametrize("word", facts.LAUNCH_RECIPES)
def test_copy_recipe_of_the_source(word: int):
    fields: dict[str, Any] = {**facts.LAUNCH_RECIPES[word]}
    assert int(dma.LaunchDma(**fields)) == word


def test_fill_recipe_of_the_source():
    fields: dict[str, Any] = {**facts.FILL_32_REMAP_FIELDS}
    assert int(dma.RemapComponents(**fields)) == facts.FILL_32_REMAP


def test_inline_upload_recipe_of_the_source():
    word = compute.LaunchDmaInline(DST_MEMORY_LAYOUT=True, SYSMEMBAR_DISABLE=True)
    assert int(word) == facts.INLINE_LAUNCH_PITCH_NO_SYSMEMBAR


@pytest.mark.parametrize("address", [0x1234_5600, 0xFF_FFFF_FF00])
def test_descriptor_address_is_sent_in_units_of_256_bytes(address: int):
    assert int(compute.SendPcasA(QMD_ADDRESS_SHIFTED8=address)) == address >> facts.PCAS_ADDRESS_SHIFT


@pytest.mark.parametrize("chip", facts.SPA_VERSIONS)
def test_spa_version_of_the_source(chip: str):
    word = facts.SPA_VERSIONS[chip]
    assert int(compute.SetSpaVersion(MAJOR=word >> 8, MINOR=word & 0xFF)) == word
