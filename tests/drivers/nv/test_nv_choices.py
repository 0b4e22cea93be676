"""Doubtful values: their text, the calls and words that each changes, and a run with every value."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from drivers.nv.layouts.chips import GENERATIONS
from drivers.nv.layouts.gpfifo import GpfifoEntry
from drivers.nv.layouts.rm import Escape, Request
from drivers.nv.layouts.status import NvStatus
from drivers.nv.quirks import ALTERNATIVES, DEFAULT, PRESETS, parse
from drivers.shared.choices import changes, describe, value_text
from emulator.shared.surprises import StatusReply
from hcq.device import Device
from hcq.driver import BufferSpec, Place, QueueKind
from hcq.errors import BringUpError, DriverError, UnsupportedError, UsageError
from hcq.graph import Graph
from tests.limits import HANG_S
from tests.support.nv.golden import sample
from tests.support.nv.recorded import RecordedKernel, driver_of

if TYPE_CHECKING:
    from drivers.nv.device import NvDevice

HOPPER, BLACKWELL = "sm_90", "sm_120"
VALUES = [f"{name}={value_text(value)}" for name, values in ALTERNATIVES.items() for value in values[1:]]
HOPPER_LACKS = {"channel_class=c96f"}


def opened(kernel: RecordedKernel, text: str) -> NvDevice:
    return driver_of(kernel).open(0, None, choices=parse(text))


def use(kernel: RecordedKernel, text: str) -> None:
    """Open a device, run a copy on each kind of queue, map host memory, close."""
    made = opened(kernel, text)
    with contextlib.closing(made):
        program = made.load(sample(made.info.arch, int(made.gpu.sm[3:]), stack=64))
        for kind in QueueKind:
            made.ring(kind, 0)
        made.free(made.alloc(1 << 22, BufferSpec()))
        made.free(made.alloc(8192, BufferSpec(host_visible=True)))
        made.free(made.alloc(8192, BufferSpec(place=Place.HOST)))
        made.unload(program)


@pytest.mark.sampled(53)
@pytest.mark.parametrize("text", VALUES)
def test_every_value_opens_runs_and_leaves_nothing(text: str) -> None:
    kernel = RecordedKernel(filtered=False)
    if text in HOPPER_LACKS:
        with pytest.raises(UnsupportedError, match="it lists c86f, c56f"):
            use(kernel, text)
    else:
        use(kernel, text)
    assert kernel.held() == {}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_opens_where_it_is_known_to_work(name: str) -> None:
    preset = PRESETS[name]
    for compute in preset.computes:
        kernel = RecordedKernel(f"sm_{GENERATIONS[compute].chips[0].sm}", filtered=False)
        use(kernel, name)
        assert kernel.held() == {}
    assert changes(parse(name)) == dict(preset.values)
    assert set(preset.values) <= set(ALTERNATIVES)


def test_a_preset_may_be_changed_and_is_written_as_its_values() -> None:
    choices = parse("hopper-launch+context_share=true+stack=low")
    assert describe(choices) == "stack=low+full_descriptor=false+carveout=none+graphics_copy=false"
    assert parse(describe(choices)) == choices
    for text in VALUES:
        assert describe(parse(text)) == text
        assert parse(text) != DEFAULT


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bogus=1", ("bogus", "options are: stack=high|low", "hopper-launch")),
        ("stak=low", ("Did you mean 'stack'?",)),
        ("stack=middle", ("stack takes high, low",)),
        ("hoper-launch", ("Did you mean 'hopper-launch'?",)),
        ("", ("not an option",)),
    ],
)
def test_an_unknown_choice_is_refused_with_the_known_ones(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as raised:
        parse(text)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def lines(kernel: RecordedKernel, start: str) -> list[str]:
    return [line for line in kernel.lines if line.startswith(start)]


@pytest.mark.sampled(13)
@pytest.mark.parametrize(
    ("text", "chip", "start", "words"),
    [
        ("channel_class=c56f", HOPPER, "RM_ALLOC AMPERE_CHANNEL_GPFIFO_A", ()),
        ("channel_class=c86f", BLACKWELL, "RM_ALLOC HOPPER_CHANNEL_GPFIFO_A", ()),
        ("channel_class=c96f", BLACKWELL, "RM_ALLOC BLACKWELL_CHANNEL_GPFIFO_A", ()),
        ("doorbell_class=c461", HOPPER, "RM_ALLOC TURING_USERMODE_A", ()),
        ("doorbell_class=c361", HOPPER, "RM_ALLOC VOLTA_USERMODE_A", ()),
        ("doorbell_class=c661", BLACKWELL, "RM_ALLOC HOPPER_USERMODE_A", ("bBar1Mapping=1",)),
        ("small_pages=64k", HOPPER, "RM_ALLOC NV01_MEMORY_LOCAL_USER", ("alignment=0x10000",)),
        ("subcontext=sync", HOPPER, "RM_ALLOC FERMI_CONTEXT_SHARE_A", ()),
        ("gr_parameters=false", HOPPER, "RM_ALLOC HOPPER_COMPUTE_A", ()),
        ("context_window=64", HOPPER, "UVM_REGISTER_CHANNEL", ("length=0x4000000",)),
        ("vaspace=rm", HOPPER, "RM_ALLOC NV01_MEMORY_VIRTUAL", ("limit=0x1ffffffffffff", "hVASpace=")),
        ("copy_engine=last", HOPPER, "RM_ALLOC HOPPER_DMA_COPY_A", ("engineType=0xe",)),
    ],
)  # fmt: skip
def test_a_value_follows_the_calls(text: str, chip: str, start: str, words: tuple[str, ...]) -> None:
    kernel, plain = (RecordedKernel(chip, filtered=False) for _ in range(2))
    for one, how in ((kernel, text), (plain, "default")):
        with contextlib.closing(opened(one, how)) as made:
            made.ring(QueueKind.COMPUTE, 0)
            made.memories.vram(8192, label="small")
    found = lines(kernel, start)
    assert any(all(word in line for word in words) for line in found), found
    assert found != lines(plain, start)


def test_an_address_space_of_the_resource_manager_needs_no_uvm() -> None:
    kernel = RecordedKernel(filtered=False)
    use(kernel, "vaspace=rm")
    assert not [line for line in kernel.lines if "UVM" in line or "nvidia-uvm" in line]
    maps, unmaps = lines(kernel, "RM_MAP_MEMORY_DMA"), lines(kernel, "RM_UNMAP_MEMORY_DMA")
    assert len(maps) == len(unmaps) > 8


class Moving(RecordedKernel):
    """A kernel that maps memory elsewhere than was asked for."""

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        if Request.from_int(request).NR == Escape.NV_ESC_RM_MAP_MEMORY_DMA:
            assert isinstance(argument, bytearray)
            layout: Any = self.machine.structs["NVOS46_PARAMETERS"]
            layout.store(argument, dmaOffset=layout.from_bytes(argument).dmaOffset - (1 << 21))
        return super().ioctl(fd, request, argument)


def test_a_mapping_that_was_moved_is_undone_and_refused() -> None:
    kernel = Moving(filtered=False)
    with pytest.raises(BringUpError, match="instead of"):
        opened(kernel, "vaspace=rm")
    assert kernel.held() == {}


def test_a_sandbox_that_filters_the_mapping_is_named() -> None:
    refused = {"NVOS46_PARAMETERS*": StatusReply(NvStatus.NOT_SUPPORTED)}
    kernel = RecordedKernel(filtered=False, surprises=refused)
    with pytest.raises(DriverError, match=r"(?s)RM_MAP_MEMORY_DMA.*vaspace=uvm"):
        opened(kernel, "vaspace=rm")
    assert kernel.held() == {}


@pytest.mark.parametrize(("ring", "same"), [("video", True), ("system", True), ("pages", False)])
def test_ring_entries_and_user_area_lie_where_it_was_chosen(ring: str, same: bool) -> None:  # noqa: FBT001 - a table's column
    made = opened(RecordedKernel(filtered=False), f"ring={ring}")
    with contextlib.closing(made):
        channel = made.ring(QueueKind.COMPUTE, 0).channel
        assert (channel.memory is channel.userd_memory) is same
        assert channel.userd[channel.put_index] == 1, "its first words were rung for"


def test_entries_of_a_subroutine_are_marked_prebuilt_ones_too() -> None:
    made = opened(RecordedKernel(filtered=False), "gp_level=subroutine")
    with contextlib.closing(Device(made)) as device:
        queue, buffer = device.copies[0], device.alloc(4096)
        graph = Graph()
        graph.add(queue, queue.record().fill(buffer, 7))
        executable = graph.compile()
        for _ in range(2):
            executable.submit().wait(timeout_s=HANG_S)
        ring = made.ring(QueueKind.COPY, 0)
        entries = [GpfifoEntry.from_int(word) for word in ring.channel.entries if word]
        assert any(not 0 <= e.ADDRESS - ring.memory.va < ring.memory.size for e in entries), "a prebuilt one"
    assert {entry.LEVEL for entry in entries} == {1}


def test_a_channel_of_an_older_class_finds_signals_below_forty_bits() -> None:
    """The host engine of class c56f has 40 address bits, also on Hopper."""
    with contextlib.closing(opened(RecordedKernel(filtered=False), "channel_class=c56f")) as made:
        pool = made.rm.kernel.mmap(65536, flags=0x21)
        made.map_host(pool.va, 65536)
        assert pool.va >> 40
        assert made.shared.semaphore_va(pool.va + 16) < 1 << 40
        made.unmap_host(pool.va, 65536)
        made.rm.kernel.munmap(pool.va, 65536)
    with contextlib.closing(opened(RecordedKernel(filtered=False), "default")) as made:
        assert made.shared.semaphore_va(1 << 46) == 1 << 46


@pytest.mark.parametrize("told", [0, 5])
def test_a_fetched_index_of_zero_is_not_assumed(told: int) -> None:
    """GSP firmware was observed to leave the field at 0."""
    kernel = RecordedKernel(filtered=False)
    with contextlib.closing(opened(kernel, "default")) as made:
        ring = made.ring(QueueKind.COPY, 0)
        kernel.settle()
        kernel.doorbells.stalled = True
        ring.send((0x2000_0000,))
        ring.channel.userd[34] = told
        assert ring.channel.fetched() == (told or None)
        assert ("fetched up to" in ring.stuck()) is bool(told)
