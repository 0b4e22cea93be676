"""The emulated NVIDIA machine, driven call by call from the fact sheet: bring-up, copies, launches, and what it refuses."""

# ruff: noqa: ARG005, E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from drivers.nv.layouts import compute, dma, host
from drivers.nv.layouts.status import NvStatus
from hcq.errors import DriverError

sys.path.insert(0, str(Path(__file__).parent))
from machine_client import Client, cubin

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 add) {
.reg .b32 %r<8>; .reg .b64 %rd<4>;
mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.s32 %r3, %r0, %r1, %r2;
ld.param.u64 %rd0, [out]; ld.param.u32 %r4, [add]; mad.wide.u32 %rd1, %r3, 4, %rd0; add.u32 %r5, %r3, %r4; st.global.u32 [%rd1], %r5; ret; }
"""
VARIANTS = ["sm_80", "sm_80+570", "sm_86+590", "sm_90", "sm_90+595+native", "sm_120", "sm_120+595"]


@pytest.fixture
def client(request: Any):
    one = Client(getattr(request, "param", None))
    one.bring_up()
    assert one.status == 0, one.kernel.complaints
    yield one
    one.close()


@pytest.mark.parametrize("client", VARIANTS, indirect=True)
def test_bring_up_reaches_a_semaphore_on_every_generation_and_branch(client: Any):
    client.channel()
    assert client.kernel.complaints == []
    client.submit(client.release(client.arena.va + 0x3000, 42))
    assert client.wait(0x3000, 42)
    assert client.word(0x3008) > 0


@pytest.mark.parametrize("client", VARIANTS, indirect=True)
def test_a_grid_runs_with_parameters_and_shape_from_the_constant_bank(client: Any):
    client.channel()
    image = cubin(PTX, "k", client.profile.arch, 12)
    place, bank, out = 0x40000, 0x50000, 0x60000
    client.arena.view[place : place + len(image)] = image
    program = client.arena.va + place + image.index(bytes((7 * i + len(PTX)) % 251 for i in range(256)))
    params = struct.pack("<QI", client.arena.va + out, 1000)
    raw = client.bank0(3, 64, params)
    client.arena.view[bank : bank + len(raw)] = raw
    launch = client.descriptor(program, client.arena.va + bank, len(raw), 3, 64)
    client.arena.view[0x51000 : 0x51000 + launch.SIZE] = launch.to_bytes()
    client.submit(
        client.bind()
        + client.windows()
        + client.launch(client.arena.va + 0x51000)
        + client.release(client.arena.va + 0x3000, 1)
    )
    assert client.wait(0x3000, 1), client.kernel.complaints
    assert struct.unpack_from("<192I", client.arena.view, out) == tuple(1000 + i for i in range(192))


@pytest.fixture
def launched(client: Any):
    """A channel with an image uploaded; launches one grid with some fields changed and gives the error that was posted."""
    client.channel()
    image = cubin(PTX, "k", client.profile.arch, 12)
    client.arena.view[0x40000 : 0x40000 + len(image)] = image
    program = client.arena.va + 0x40000 + image.index(bytes((7 * i + len(PTX)) % 251 for i in range(256)))

    def run(
        *,
        grid: Any = 1,
        block: Any = 64,
        target: Any = None,
        size: Any = None,
        before: Any = (),
        bank_offset: Any = 0x50000,
        **fields: Any,
    ) -> Any:
        raw = client.bank0(
            grid, block, struct.pack("<QI", client.arena.va + 0x60000 if target is None else target, 0)
        )
        client.arena.view[0x50000 : 0x50000 + len(raw)] = raw
        values = {"program": program, **fields}
        launch = client.descriptor(
            values.pop("program"),
            client.arena.va + bank_offset,
            len(raw) if size is None else size,
            grid,
            block,
            **values,
        )
        client.arena.view[0x51000 : 0x51000 + launch.SIZE] = launch.to_bytes()
        words = (
            client.bind()
            + (client.windows() if not before else list(before))
            + client.launch(client.arena.va + 0x51000)
        )
        client.submit(words + client.release(client.arena.va + 0x3000, 1))
        client.wait(0x3000, 1)
        return client.error()

    run.client = client
    return run


def complaint(run: Any) -> str:
    return run.client.kernel.complaints[-1]


def test_a_right_launch_posts_no_error(launched: Any):
    assert launched() == 0


def test_a_wild_store_is_an_mmu_fault_with_thread_and_address(launched: Any):
    assert launched(target=0x1234_5678_0000) == 31
    assert "st.global.u32" in complaint(launched)
    assert "0x123456780000" in complaint(launched)


@pytest.mark.parametrize(
    ("fields", "code", "word"),
    [
        ({"REGISTER_COUNT": 8}, 13, "registers"),
        ({"BARRIER_COUNT": 0}, 13, "barriers"),
        ({"QMD_TYPE": 0}, 13, "QMD_TYPE"),
        ({"QMD_MAJOR_VERSION": 3}, 13, "version"),
        ({"SASS_VERSION": 0x80}, 13, "SASS"),
        ({"CORRELATION_ID": 5}, 13, "CORRELATION_ID"),
        ({"program": 0x1000}, 31, "not mapped"),
        ({"size": 0x20}, 13, "constant bank 0"),
        ({"CONSTANT_BUFFER_VALID": ()}, 13, "not bound"),
        ({"shared": 0}, 13, "shared memory"),
        ({"block": 2000}, 13, "blocks"),
        ({"TARGET_SM_CONFIG_SHARED_MEM_SIZE": 2}, 13, "configuration"),
        ({"GPC_CGA_WIDTH": 2}, 13, "GPC_CGA_WIDTH"),
    ],
)
def test_a_wrong_launch_descriptor_is_refused_by_name(launched: Any, fields: Any, code: Any, word: Any):
    assert launched(**fields) == code
    assert word in complaint(launched)


def test_the_shared_window_must_be_set_on_hopper(launched: Any):
    c = compute.ComputeMethod
    assert launched(before=launched.client.methods(1, c.NO_OPERATION, 0)) == 13
    assert "shared window" in complaint(launched)


def test_code_that_was_damaged_on_its_way_is_not_run(launched: Any):
    client = launched.client
    client.kernel.gpu.images.tell(cubin(PTX, "k", client.profile.arch, 12))
    at = bytes(client.arena.view[0x40000:0x44000]).index(bytes((7 * i + len(PTX)) % 251 for i in range(16)))
    client.arena.view[0x40000 + at + 20] ^= 1
    assert launched() == 13
    assert "no image" in complaint(launched)


def test_a_reused_descriptor_needs_invalidation(launched: Any):
    assert launched() == 0
    client = launched.client
    client.arena.view[0x3000:0x3008] = bytes(8)
    assert launched(grid=2) == 13
    assert "without invalidation" in complaint(launched)


# ---- methods and the ring


@pytest.mark.parametrize(
    ("words", "code", "word"),
    [
        (lambda c: c.methods(3, 0x100, 0), 32, "nothing is bound"),
        (lambda c: c.methods(0, 0x54, 0), 32, "unknown"),
        (lambda c: c.bind() + c.methods(1, 0x104, 0), 13, "unknown"),
        (lambda c: c.bind() + c.methods(4, 0x104, 0), 39, "unknown"),
        (lambda c: c.methods(1, 0, 0xC7C0), 32, "SET_OBJECT"),
        (lambda c: [0x2000_0017 | 8000 << 16], 32, "wants"),
        (lambda c: c.methods(0, 0x34, int(host.MemOpD(OPERATION=9))), 32, "privileged"),
        (lambda c: c.release(c.arena.va + 0x3004, 1), 32, "misaligned"),
        (lambda c: c.release(0x7000_0000_0000, 1), 31, "nearest"),
        (lambda c: c.bind() + c.methods(4, 0x300, 1 << 29), 39, "no field"),
        (lambda c: [2 << 29], 32, "MethodHeader"),
    ],
)
def test_what_a_channel_does_not_know_ends_it(client: Any, words: Any, code: Any, word: Any):
    client.channel()
    client.submit([*words(client), *client.release(client.arena.va + 0x3000, 1)])
    assert not client.wait(0x3000, 1)
    assert client.error() == code
    assert word in client.kernel.complaints[-1]


def test_copies_and_fills(client: Any):
    client.channel(engine=10)
    va, m = client.arena.va, dma.DmaMethod
    client.arena.view[0x80000:0x80100] = bytes(range(256))
    copy = client.methods(
        4, m.OFFSET_IN_UPPER, va >> 32, va + 0x80000 & 0xFFFF_FFFF, va >> 32, va + 0x90000 & 0xFFFF_FFFF
    )
    copy += client.methods(4, m.LINE_LENGTH_IN, 256) + client.methods(4, m.LAUNCH_DMA, 0x182)
    fill = client.methods(4, m.SET_REMAP_CONST_A, 0xA5A5_0001) + client.methods(
        4, m.SET_REMAP_COMPONENTS, 0x3_0004
    )
    fill += client.methods(4, m.OFFSET_OUT_UPPER, va >> 32, va + 0xA0000 & 0xFFFF_FFFF)
    fill += client.methods(4, m.LINE_LENGTH_IN, 64) + client.methods(4, m.LAUNCH_DMA, 0x586)
    signal = client.methods(4, m.SET_SEMAPHORE_A, va >> 32, va + 0x3000 & 0xFFFF_FFFF, 7) + client.methods(
        4, m.LAUNCH_DMA, 0x14
    )
    client.submit(client.methods(4, 0, client.row.copy[0]) + copy + fill + signal)
    assert client.wait(0x3000, 7), client.kernel.complaints
    assert bytes(client.arena.view[0x90000:0x90100]) == bytes(range(256))
    assert struct.unpack_from("<64I", client.arena.view, 0xA0000) == (0xA5A5_0001,) * 64


def test_nothing_runs_inside_the_doorbell_and_an_acquire_waits(client: Any):
    client.channel()
    word = host.SemExecute(OPERATION=3, ACQUIRE_SWITCH_TSG=1, PAYLOAD_SIZE=1)
    va = client.arena.va + 0x3100
    client.submit(
        client.methods(0, 0x5C, va & 0xFFFF_FFFF, va >> 32, 5, 0, int(word))
        + client.release(client.arena.va + 0x3000, 1)
    )
    with pytest.raises(TimeoutError):
        client.wait(0x3000, 1, seconds=0.05)
    client.arena.view[0x3100:0x3108] = struct.pack("<Q", 5)
    assert client.wait(0x3000, 1)


# ---- the resource manager


def test_a_filter_refuses_what_a_sandbox_refuses(client: Any):
    assert client.profile.filtered
    client.alloc(client.device, 0x70)
    assert client.status == NvStatus.INVALID_CLASS
    client.control(client.root, 0x13E, client.layout["NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS"]())
    assert client.status == NvStatus.NOT_SUPPORTED
    with pytest.raises(DriverError, match="EINVAL"):
        client.kernel.ioctl(client.ctl, 0xC000_4657 | 64 << 16, bytearray(64))
    with pytest.raises(DriverError):
        client.kernel.read_file("/proc/driver/nvidia/version")


def test_sizes_parents_handles_and_order_are_checked(client: Any):
    l = client.layout  # noqa: E741
    client.control(client.subdevice, 0x2080014A, l["NV2080_CTRL_GPU_GET_GID_INFO_PARAMS"](flags=2), size=100)
    assert client.status == NvStatus.INVALID_PARAM_STRUCT
    client.alloc(client.subdevice, 0x90F1, l["NV_VASPACE_ALLOCATION_PARAMETERS"](flags=8))
    assert client.status == NvStatus.INVALID_OBJECT_PARENT
    client.alloc(0xDEAD, 0x90F1, l["NV_VASPACE_ALLOCATION_PARAMETERS"](flags=8))
    assert client.status == NvStatus.INVALID_OBJECT_HANDLE
    client.channel()
    assert client.status == 0
    second = client.alloc(
        client.group,
        client.row.gpfifo[0],
        l["NV_CHANNEL_ALLOC_PARAMS"](gpFifoOffset=0x5000, gpFifoEntries=1024),
    )
    assert client.status == NvStatus.INVALID_ADDRESS, second


def test_a_graphics_channel_is_not_scheduled_before_uvm_knows_it(client: Any):
    group = client.alloc(
        client.device,
        0xA06C,
        client.layout["NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS"](hVASpace=client.vaspace, engineType=1),
    )
    arena, item = client.memory()
    client.alloc(
        group,
        client.row.gpfifo[0],
        client.layout["NV_CHANNEL_ALLOC_PARAMS"](
            gpFifoOffset=arena.va, gpFifoEntries=1024, hUserdMemory=(item,), userdOffset=(0x2000,)
        ),
    )
    assert client.status == 0, client.kernel.complaints
    client.control(group, 0xA06C0101, client.layout["NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS"](bEnable=1))
    assert client.status == NvStatus.INVALID_STATE


def test_a_range_cannot_be_mapped_twice(client: Any):
    from drivers.nv.layouts import uvm

    mapping, _ = client.memory()
    client.uvm_call(uvm.UvmCommand.UVM_CREATE_EXTERNAL_RANGE, base=mapping.va, length=4096)
    assert client.status == NvStatus.UVM_ADDRESS_IN_USE


def test_wrong_doorbell_tokens_and_registers(client: Any):
    client.channel()
    client.bell.write32(0x90, 0x7F_0000)
    assert "token" in client.kernel.complaints[-1]
    with pytest.raises(ValueError, match="0x94"):
        client.bell.write32(0x94, 1)
    assert client.bell.read32(0x80) % 32 == 0
