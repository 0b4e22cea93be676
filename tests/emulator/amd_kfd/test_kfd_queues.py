"""CREATE_QUEUE with its geometry, doorbells, faults, exceptions."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from drivers.amd.layouts import events as ev
from drivers.amd.layouts import kfd, kfd_unused
from drivers.amd.layouts.cwsr import kfd_context_save_area_header
from drivers.amd.layouts.events import EventType, QueueException, WaitResult
from drivers.amd.layouts.kfd import Call, MmapOffset, MmapType, QueueType, RuntimeMode
from drivers.kernel import address_of
from emulator.amd.reports import FindingKind, MemoryFault, QueueFault
from emulator.shared.scheduler import StepOutcome
from hcq.errors import DriverError
from tests.emulator.amd_kfd.caller import PAGE, SYSTEM, VRAM
from tests.facts import amd_errnos

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from emulator.amd.kfd.gpu import KfdBuffer
    from emulator.amd.kfd.queues import QueueObject
    from emulator.amd.machine.machine import AmdMachine
    from emulator.amd.machine.runs import QueueRun
    from tests.emulator.amd_kfd.caller import Caller

CREATE = Call.CREATE_QUEUE, kfd.kfd_ioctl_create_queue_args
UPDATE = Call.UPDATE_QUEUE, kfd.kfd_ioctl_update_queue_args
ERRNOS = amd_errnos.ERRNOS["CREATE_QUEUE"]
GEOMETRY = amd_errnos.ERRNOS["CREATE_QUEUE geometry"]


class Run:
    """Notes what the machine tells it; a step does what the test says."""

    def __init__(self, queue: QueueObject, notes: list[str]) -> None:
        self.queue, self.notes = queue, notes
        self.values: list[int] = []
        self.busy = self.yielded = self.stuck = self.computing = False
        self.unfinished = True
        self.at = ""
        self.error: Exception | None = None

    def step(self) -> StepOutcome:
        if self.error is not None:
            raise self.error
        self.busy = False
        return StepOutcome.PROGRESS

    def rung(self, value: int) -> None:
        self.values.append(value)

    def changed(self) -> None:
        self.notes.append("changed")

    def memory_gone(self, buffer: KfdBuffer) -> None:
        self.notes.append(f"gone {buffer.va:#x}")

    def stopped(self, error: Exception) -> None:
        self.busy = False
        self.notes.append(f"stopped {type(error).__name__}")

    def close(self) -> None:
        self.notes.append("close")


class Noted:
    """Engines that only take notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.runs: list[Run] = []

    def make(self, _machine: AmdMachine, queue: QueueObject) -> QueueRun:
        self.runs.append(Run(queue, self.notes))
        return self.runs[-1]

    def close(self) -> None:
        """Nothing is kept."""

    def endless_waits(self, _stuck: Sequence[QueueRun]) -> Mapping[QueueRun, str]:
        return {}


@pytest.mark.parametrize("name", ["gfx1100", "gfx1201", "gfx942"])
@pytest.mark.parametrize("linux", ["6.1", "6.12", "6.12.107"])
def test_legal_queues_of_every_kind(machine: Callable[..., Caller], name: str, linux: str) -> None:
    caller = machine(name, linux=linux)
    kinds = [QueueType.COMPUTE, QueueType.COMPUTE_AQL, QueueType.SDMA]
    got = [caller.queue(kind) for kind in kinds]
    assert [one.queue_id for one in got] == [0, 1, 2]
    tokens = [MmapOffset.from_int(one.doorbell_offset) for one in got]
    assert {(t.TYPE, t.GPU_ID) for t in tokens} == {(MmapType.DOORBELL, caller.id)}
    assert len({t.OFFSET for t in tokens}) == 3
    assert all(t.OFFSET % 8 == 0 and t.OFFSET < 8192 for t in tokens)
    assert caller.machine.reports == []


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"queue_percentage": 101}, ERRNOS["percentage above 100"]),
        ({"queue_percentage": 1 << 16}, errno.EINVAL),
        ({"queue_percentage": 100 | 1 << 8}, errno.EINVAL),
        ({"queue_priority": 16}, ERRNOS["priority above 15"]),
        ({"ring_size": 0x3000}, ERRNOS["ring size no power of two"]),
        ({"ring_base_address": 1 << 47}, ERRNOS["pointer not accessible"]),
        ({"write_pointer_address": 1 << 48}, ERRNOS["pointer not accessible"]),
        ({"read_pointer_address": 1 << 63}, ERRNOS["pointer not accessible"]),
        ({"read_pointer_address": 0}, errno.EINVAL),
        ({"queue_type": 5}, ERRNOS["unknown type"]),
        ({"gpu_id": 3}, ERRNOS["unknown gpu_id"]),
        ({"queue_type": 4, "sdma_engine_id": 2}, ERRNOS["SDMA engine above the last"]),
        ({"queue_type": 3}, ERRNOS["no SDMA queue left"]),
        ({"eop_buffer_size": 2048}, ERRNOS["EOP below 4096"]),
    ],
)
def test_queues_that_are_refused(caller: Caller, change: dict[str, int], wanted: int) -> None:
    assert caller.refused(*CREATE, **caller.queue_args() | change) == wanted
    assert caller.machine.process.queues == []
    caller.queue()


@pytest.mark.parametrize("name", ["eop_buffer_address", "ctx_save_restore_address"])
def test_addresses_whose_low_bits_hardware_drops(caller: Caller, name: str) -> None:
    args = caller.queue_args()
    assert caller.refused(*CREATE, **args | {name: args[name] + 1}) == errno.EINVAL


def test_pointers_are_two_words(caller: Caller) -> None:
    args = caller.queue_args()
    same = {"read_pointer_address": args["write_pointer_address"]}
    assert caller.refused(*CREATE, **args | same) == errno.EINVAL


def test_a_doorbell_of_an_inactive_queue_is_remarked(machine: Callable[..., Caller]) -> None:
    engines = Noted()
    caller = machine(engines=engines)
    at = caller.queue(queue_percentage=0).doorbell_offset & 0x1FFF
    caller.doorbells().write64(at, 3)
    assert engines.runs[0].values == [3]
    assert any("inactive" in report.message for report in caller.kernel.reports)


def test_a_doorbell_of_an_inactive_queue_is_reported_where_all_is_checked(
    machine: Callable[..., Caller],
) -> None:
    """Facts 1.5: a percentage of 0 keeps a queue off the hardware, where nothing takes the store."""
    caller = machine(engines=Noted(), tracks=True)
    caller.call(Call.RUNTIME_ENABLE, kfd.kfd_ioctl_runtime_enable_args, mode_mask=kfd.RuntimeMode.ENABLE)
    doorbells = caller.doorbells()
    doorbells.write64(caller.queue(QueueType.SDMA).doorbell_offset & 0x1FFF, 3)
    assert caller.machine.fatal == []
    doorbells.write64(caller.queue(QueueType.SDMA, queue_percentage=0).doorbell_offset & 0x1FFF, 3)
    assert any("percentage of 0" in report.message for report in caller.machine.fatal)


def test_bounds_of_numbers_are_taken(caller: Caller) -> None:
    caller.queue(queue_percentage=100, queue_priority=15)
    caller.queue(queue_percentage=0, queue_priority=0)


def _offset(name: str, by: int) -> Callable[[Caller, dict[str, int]], dict[str, int]]:
    return lambda _, args: {name: args[name] + by}


def _other(name: str, size: int, flags: int = SYSTEM) -> Callable[[Caller, dict[str, int]], dict[str, int]]:
    return lambda caller, _: {name: caller.memory(size, flags).va}


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("ring is no whole mapping", _offset("ring_base_address", 256)),
        ("ring is no whole mapping", _other("ring_base_address", 0x8000)),
        ("ring is no whole mapping", lambda _, args: {"ring_size": args["ring_size"] // 2}),
        ("pointer page is not a mapping of one page", _other("read_pointer_address", 2 * PAGE)),
        ("pointer page is not a mapping of one page", lambda *_: {"write_pointer_address": 0x7000_0000}),
        ("EOP size not 4096", lambda *_: {"eop_buffer_size": 2 * PAGE}),
        ("EOP buffer of another size", _other("eop_buffer_address", 2 * PAGE)),
        ("control stack size not equal", _offset("ctl_stack_size", PAGE)),
        ("save size below cwsr_size", _offset("ctx_save_restore_size", -PAGE)),
        ("save size above cwsr_size, from 6.12 to 6.17.8", _offset("ctx_save_restore_size", PAGE)),
        ("save buffer of another size", _other("ctx_save_restore_address", 1 << 20)),
        ("write pointer not in GTT under MES", _other("write_pointer_address", PAGE, VRAM)),
    ],
)
def test_geometry_is_checked_since_6_12(
    machine: Callable[..., Caller],
    rule: str,
    change: Callable[[Caller, dict[str, int]], dict[str, int]],
) -> None:
    caller = machine()
    args = caller.queue_args()
    assert caller.refused(*CREATE, **args | change(caller, args)) == GEOMETRY[rule]
    old = machine(linux="6.1")
    args = old.queue_args()
    old.call(*CREATE, **args | change(old, args))


def test_a_later_kernel_takes_a_larger_save_area(machine: Callable[..., Caller]) -> None:
    caller = machine("gfx1201", linux="6.12.107")
    args = caller.queue_args()
    size = args["ctx_save_restore_size"] + PAGE
    area = caller.memory(size + 65536)
    args |= {"ctx_save_restore_size": size, "ctx_save_restore_address": area.va}
    caller.call(*CREATE, **args)


def test_the_structure_of_an_older_driver_is_extended(caller: Caller) -> None:
    layout = kfd.kfd_ioctl_create_queue_args_1_11
    got = caller.call(Call.CREATE_QUEUE, layout, **caller.queue_args())
    assert got.queue_id == 0
    assert caller.machine.reports == []


def test_an_older_kernel_has_no_queues_by_engine(machine: Callable[..., Caller]) -> None:
    caller = machine(linux="6.1")
    args = caller.queue_args(QueueType.SDMA) | {"queue_type": 4}
    assert caller.refused(*CREATE, **args) == amd_errnos.ENOTSUPP


def test_sdma_queues_spread_over_engines_and_end(caller: Caller) -> None:
    engines = [caller.queue(QueueType.SDMA) for _ in range(12)]
    used = [queue.engine for queue in caller.gpus[0].queues]
    assert used.count(0) == used.count(1) == 6
    assert len({one.doorbell_offset for one in engines}) == 12
    args = caller.queue_args(QueueType.SDMA)
    assert caller.refused(*CREATE, **args) == ERRNOS["no SDMA queue left"]
    caller.call(Call.DESTROY_QUEUE, kfd.kfd_ioctl_destroy_queue_args, queue_id=3)
    again = caller.call(*CREATE, **args | {"queue_type": 4, "sdma_engine_id": used[3]})
    assert (again.queue_id, again.doorbell_offset) == (3, engines[3].doorbell_offset)


@pytest.mark.parametrize(("name", "limit"), [("gfx1100", 127), ("gfx942", 255)])
def test_a_process_has_so_many_queues_on_a_gpu(machine: Callable[..., Caller], name: str, limit: int) -> None:
    caller = machine(name)
    args = caller.queue_args()
    for _ in range(limit):
        caller.call(*CREATE, **args)
    assert caller.refused(*CREATE, **args) == ERRNOS["too many queues"]


def test_memory_of_a_queue_stays_mapped(caller: Caller) -> None:
    args = caller.queue_args()
    queue = caller.call(*CREATE, **args)
    ring = next(b for b in caller.gpus[0].handles.values() if b.va == args["ring_base_address"])
    ids = caller.ids((0,))
    unmap = {"handle": ring.handle, "device_ids_array_ptr": address_of(ids), "n_devices": 1}
    layout = kfd.kfd_ioctl_unmap_memory_from_gpu_args
    assert caller.refused(Call.UNMAP_MEMORY_FROM_GPU, layout, **unmap) == errno.EBUSY
    caller.call(Call.DESTROY_QUEUE, kfd.kfd_ioctl_destroy_queue_args, queue_id=queue.queue_id)
    caller.call(Call.UNMAP_MEMORY_FROM_GPU, layout, **unmap)
    bad = caller.refused(Call.DESTROY_QUEUE, kfd.kfd_ioctl_destroy_queue_args, queue_id=queue.queue_id)
    assert bad == amd_errnos.ERRNOS["DESTROY_QUEUE"]["unknown queue"]


def test_update_moves_stops_and_starts_a_queue(machine: Callable[..., Caller]) -> None:
    engines = Noted()
    caller = machine(engines=engines)
    wanted = amd_errnos.ERRNOS["UPDATE_QUEUE"]
    args = caller.queue_args()
    number = caller.call(*CREATE, **args).queue_id
    queue = caller.gpus[0].queues[0]
    ring = {"ring_base_address": args["ring_base_address"], "ring_size": args["ring_size"]}
    caller.call(*UPDATE, queue_id=number, queue_percentage=0, **ring)
    assert not queue.active
    caller.call(*UPDATE, queue_id=number, queue_percentage=100, **ring)
    assert queue.active
    other = caller.memory(0x8000)
    caller.call(*UPDATE, queue_id=number, queue_percentage=100, ring_base_address=other.va, ring_size=0x8000)
    assert (queue.ring_va, queue.ring_bytes) == (other.va, 0x8000)
    assert engines.notes == ["changed"] * 3
    bad = {"queue_id": number, "queue_percentage": 100, **ring}
    assert caller.refused(*UPDATE, **bad | {"queue_id": 9}) == wanted["unknown queue"]
    assert caller.refused(*UPDATE, **bad | {"queue_percentage": 101}) == wanted["percentage above 100"]
    assert caller.refused(*UPDATE, **bad | {"ring_size": 3 * PAGE}) == wanted["ring size no power of two"]
    assert caller.refused(*UPDATE, **bad | {"ring_size": 2 * PAGE}) == wanted["ring is no whole mapping"]


def test_masks_of_compute_units(caller: Caller) -> None:
    number = caller.queue().queue_id
    layout, wanted = kfd_unused.kfd_ioctl_set_cu_mask_args, amd_errnos.ERRNOS["SET_CU_MASK"]
    mask = bytearray(b"\xff" * 12)
    args = {"queue_id": number, "cu_mask_ptr": address_of(mask)}
    caller.call(Call.SET_CU_MASK, layout, num_cu_mask=96, **args)
    assert caller.gpus[0].queues[0].cu_mask == mask
    assert caller.refused(Call.SET_CU_MASK, layout, num_cu_mask=0, **args) == wanted["no bits"]
    got = caller.refused(Call.SET_CU_MASK, layout, num_cu_mask=33, **args)
    assert got == wanted["bits no multiple of 32"]
    assert caller.refused(Call.SET_CU_MASK, layout, num_cu_mask=32, **args | {"queue_id": 9}) == errno.EFAULT


def test_doorbells_reach_their_queue(machine: Callable[..., Caller]) -> None:
    engines = Noted()
    caller = machine(engines=engines)
    offsets = [caller.queue(kind).doorbell_offset & 0x1FFF for kind in (QueueType.COMPUTE, QueueType.SDMA)]
    bells = caller.doorbells()
    bells.write64(offsets[1], 5)
    bells.write64(offsets[0], 7)
    assert [run.values for run in engines.runs] == [[7], [5]]
    assert bells.read64(offsets[0]) == 0
    bells.close()
    with pytest.raises(ValueError, match="unmapped"):
        bells.write64(offsets[0], 8)


@pytest.mark.parametrize("aligned", [True, False])
def test_a_doorbell_takes_one_aligned_store_of_64_bits(
    machine: Callable[..., Caller], *, aligned: bool
) -> None:
    engines = Noted()
    caller = machine(engines=engines)
    at = caller.queue().doorbell_offset & 0x1FFF
    bells = caller.doorbells()
    if aligned:
        bells.write32(at, 7)
    else:
        bells.write64(at + 4, 7)
    assert [report.kind for report in caller.machine.fatal] == [FindingKind.HOST]
    assert engines.notes == ["stopped QueueFault"]
    bells.write64(at, 8)
    assert engines.runs[0].values == []


def test_a_doorbell_of_no_queue_is_reported(caller: Caller) -> None:
    caller.doorbells().write64(64, 1)
    assert "no queue" in caller.machine.fatal[0].message


@pytest.mark.parametrize(
    ("change", "size"),
    [({}, 4096), ({}, 16384), ({"OFFSET": 8192}, 8192), ({"GPU_ID": 1}, 8192), ({"TYPE": 1}, 8192)],
)
def test_mappings_of_doorbells_that_are_refused(caller: Caller, change: dict[str, int], size: int) -> None:
    token = int(MmapOffset(**{"TYPE": MmapType.DOORBELL, "GPU_ID": caller.id} | change))
    with pytest.raises(DriverError) as caught:
        caller.kernel.mmio(caller.fd, size, token)
    assert caught.value.status == errno.EINVAL


def test_doorbells_belong_to_the_kfd_node(caller: Caller) -> None:
    token = int(MmapOffset(TYPE=MmapType.DOORBELL, GPU_ID=caller.id))
    with pytest.raises(DriverError):
        caller.kernel.mmio(caller.renders[0], 8192, token)


def test_without_engines_a_doorbell_is_unsupported(caller: Caller) -> None:
    caller.doorbells().write64(caller.queue().doorbell_offset & 0x1FFF, 1)
    assert [report.kind for report in caller.machine.fatal] == [FindingKind.UNSUPPORTED]


def _faulty(caller: Caller, engines: Noted, error: Exception, at: int = 0) -> None:
    run = engines.runs[at]
    run.busy, run.error, run.at = True, error, "a packet"
    with caller.machine.lock:
        caller.machine.failed(run, error)


def test_a_page_fault_evicts_the_gpu_for_good_and_fires_memory_events(machine: Callable[..., Caller]) -> None:
    engines = Noted()
    caller = machine("gfx1100", "gfx1201", engines=engines)
    queues = [caller.queue(gpu=gpu) for gpu in (0, 0, 1)]
    event = caller.event(EventType.MEMORY).event_id
    _faulty(caller, engines, MemoryFault(0x1234_5678, "a kernel writes nothing", writes=True))
    result, (payload,) = caller.wait((event, 0))
    got = ev.kfd_hsa_memory_exception_data.from_bytes(payload)
    assert result == WaitResult.COMPLETE
    assert (got.va, got.gpu_id, got.ErrorType) == (0x1234_5000, caller.id, 0)
    assert (got.failure.NotPresent, got.failure.ReadOnly, got.failure.NoExecute) == (True, True, False)
    assert engines.notes == ["stopped MemoryFault"] * 2
    caller.queue()
    assert [run.queue.active for run in engines.runs] == [False, False, True, False]
    assert len(queues) == 3
    assert "a kernel writes nothing" in caller.kernel.diagnostics()[0]
    assert caller.kernel.diagnostics() == ()
    caller.kernel.close(caller.fd)
    assert not caller.gpus[0].evicted


@pytest.mark.parametrize("enabled", [True, False])
def test_queue_exceptions_reach_a_process_that_enabled_the_runtime(
    machine: Callable[..., Caller], *, enabled: bool
) -> None:
    engines = Noted()
    caller = machine(engines=engines)
    page = caller.memory(ev.EVENT_PAGE_BYTES)
    event = caller.event(page=page.handle).event_id
    word = bytearray(8)
    word[0] = 1
    if enabled:
        mode = int(RuntimeMode.ENABLE)
        caller.call(Call.RUNTIME_ENABLE, kfd.kfd_ioctl_runtime_enable_args, mode_mask=mode)
    args = caller.queue_args()
    area = next(b for b in caller.gpus[0].handles.values() if b.va == args["ctx_save_restore_address"])
    shown = caller.kernel.mmap(
        area.size, fd=caller.renders[0], offset=area.mmap_offset, va=area.va, flags=0x11
    )
    kfd_context_save_area_header.store(shown.view, err_payload_addr=address_of(word), err_event_id=event)
    caller.call(*CREATE, **args)
    fault = QueueFault(FindingKind.METHOD, "opcode 0x77 is unknown", QueueException.PACKET_UNSUPPORTED)
    _faulty(caller, engines, fault)
    assert caller.wait((event, 0))[0] == (WaitResult.COMPLETE if enabled else WaitResult.TIMEOUT)
    wanted = 1 | (1 << 19 if enabled else 0)
    assert int.from_bytes(word, "little") == wanted
    report = caller.machine.fatal[0]
    assert (report.code, report.at) == (20, "a packet")
    assert "PACKET_UNSUPPORTED" in str(report)
    assert engines.notes == ["stopped QueueFault"]


def test_a_hang_resets_the_gpu_and_fires_hw_exception_events(machine: Callable[..., Caller]) -> None:
    engines = Noted()
    caller = machine(engines=engines)
    caller.queue()
    event = caller.event(EventType.HW_EXCEPTION).event_id
    caller.machine.hung(engines.runs[0], "it waits for a value that never comes")
    result, (payload,) = caller.wait((event, 0))
    got = ev.kfd_hsa_hw_exception_data.from_bytes(payload)
    assert result == WaitResult.COMPLETE
    assert (got.reset_type, got.reset_cause, got.memory_lost, got.gpu_id) == (0, 0, False, caller.id)
    assert caller.machine.fatal[0].kind is FindingKind.DEADLOCK


@pytest.mark.parametrize(
    ("error", "kind"),
    [(DriverError("a", 1, "b"), FindingKind.UNSUPPORTED), (KeyError("x"), FindingKind.DEFECT)],
)
def test_errors_of_the_emulator_stop_the_queue_too(
    machine: Callable[..., Caller], error: Exception, kind: FindingKind
) -> None:
    engines = Noted()
    caller = machine(engines=engines)
    caller.queue()
    _faulty(caller, engines, error)
    assert [report.kind for report in caller.machine.fatal] == [kind]


def test_a_queue_learns_that_memory_goes_and_that_it_is_destroyed(machine: Callable[..., Caller]) -> None:
    engines = Noted()
    caller = machine(engines=engines)
    number = caller.queue().queue_id
    memory = caller.memory(PAGE)
    caller.unmap(memory)
    caller.call(Call.DESTROY_QUEUE, kfd.kfd_ioctl_destroy_queue_args, queue_id=number)
    assert engines.notes == [f"gone {memory.va:#x}", "close"]
    assert any("work left" in report.message for report in caller.kernel.reports)
