"""The ioctls of /dev/kfd: dispatch by number, and the calls about events, the process or the whole GPU.

Sizes are handled as in Linux kfd_chardev.c (kfd_ioctl). A structure shorter than the kernel's is extended
with zeros; of a longer one the rest is ignored. The structure is copied back even if the call fails. A call
that Linux has and this emulator lacks is refused with its name (`NotEmulated`).

A refused call raises `CallRefused`, with the errno of Linux.

Not here: the other calls (`ioctls_memory`, `ioctls_queues`), the state of events (`events`). Next:
`drivers.amd.layouts.kfd`, the structures.
"""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING, Any, Final

from drivers.amd.layouts import events as event_layouts
from drivers.amd.layouts import kfd, kfd_unused
from drivers.amd.layouts.events import (
    EVENT_PAGE_BYTES,
    EventType,
    WaitResult,
    kfd_event_data,
    kfd_hsa_signal_event_data,
    kfd_ioctl_create_event_args,
    kfd_ioctl_destroy_event_args,
    kfd_ioctl_reset_event_args,
    kfd_ioctl_set_event_args,
    kfd_ioctl_wait_events_args,
)
from drivers.amd.layouts.kfd import Call, MemFlags, Request, RuntimeMode
from emulator.amd.kfd import ioctls_memory, ioctls_queues
from emulator.amd.kfd.gpu import VA_BITS, GpuSpace
from emulator.amd.kfd.process import AmdNode, Asked
from emulator.amd.kfd.refusal import NotEmulated, refuse
from emulator.shared.backing import Backing

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.amd.kfd.events import EventWaiter, KfdEvent
    from emulator.amd.kfd.process import KfdFile, KfdFiles
    from hcq.layout import Struct

_MOST_EVENTS: Final = 4096
"""Events in one wait."""
_FIRED: Final = (EventType.SIGNAL, EventType.HW_EXCEPTION, EventType.MEMORY)
"""The kinds of events that the emulated kernel sets."""
_SIGNAL_LIKE: Final = (EventType.SIGNAL, EventType.DEBUG)


def create(ask: Asked, args: kfd_ioctl_create_event_args) -> None:
    """Run CREATE_EVENT. Answers the event's number, for signal events also as trigger and slot."""
    events = ask.process.events
    if int(args.event_type) not in frozenset(EventType):
        refuse(errno.EINVAL, f"event type {int(args.event_type)} is unknown")
    if args.event_page_offset:
        _take_page(ask, args.event_page_offset)
    if args.event_type not in _FIRED:
        ask.process.hardware.lint(f"nothing fires {EventType(args.event_type).name} events")
    if int(args.auto_reset) > 1:
        ask.process.hardware.report_unverified(f"auto_reset is {int(args.auto_reset):#x}: 0 or 1")
    signal = args.event_type in _SIGNAL_LIKE
    if signal and events.page is None:
        events.set_page(Backing.new(ask.process.linux, EVENT_PAGE_BYTES, "signal page of the kernel"), None)
        ask.process.hardware.report_unverified(
            "a signal event without a signal page: the GPU cannot reach the page that the kernel allocates"
        )
    event = events.create(EventType(args.event_type), auto_reset=bool(args.auto_reset))
    ask.answer(event_id=event.number)
    if signal:
        ask.answer(event_trigger_data=event.number, event_slot_index=event.number)


def _take_page(ask: Asked, handle: int) -> None:
    """Use the caller's buffer as the signal page.

    Refuses a second page, and small or other memory than GTT.
    """
    events = ask.process.events
    if events.page is not None:
        refuse(errno.EINVAL, "the process has a signal page already")
    buffer = ask.process.buffer(handle, errno.EINVAL)
    if buffer.kind is not MemFlags.GTT or buffer.backing is None:
        refuse(errno.EINVAL, f"a signal page lies in GTT, not in {buffer}")
    if buffer.size < EVENT_PAGE_BYTES:
        refuse(errno.EINVAL, f"a signal page has {EVENT_PAGE_BYTES} bytes at least, not {buffer.size}")
    events.set_page(buffer.backing, handle)


def destroy(ask: Asked, args: kfd_ioctl_destroy_event_args) -> None:
    """Run DESTROY_EVENT; waits for the event end with FAIL."""
    ask.process.events.destroy(args.event_id)


def set_(ask: Asked, args: kfd_ioctl_set_event_args) -> None:
    """Run SET_EVENT, for signal events only."""
    events = ask.process.events
    events.set(events.find(args.event_id, signal=True))


def reset(ask: Asked, args: kfd_ioctl_reset_event_args) -> None:
    """Run RESET_EVENT, for signal events only."""
    events = ask.process.events
    events.reset(events.find(args.event_id, signal=True))


def wait(ask: Asked, args: kfd_ioctl_wait_events_args) -> None:
    """Run WAIT_EVENTS; called without the machine's lock, because it sleeps."""
    user, size = ask.process.user, kfd_event_data.SIZE
    if args.num_events > _MOST_EVENTS:
        refuse(errno.ENOMEM, f"{args.num_events} events in one wait")
    with ask.kernel.lock:
        raw = user.read(args.events_ptr, size * args.num_events)
    data = [kfd_event_data.from_bytes(raw, at * size) for at in range(args.num_events)]
    aged = ask.process.kernel.has("event_age")
    wanted = [
        (one.event_id, kfd_hsa_signal_event_data.from_bytes(one.payload).last_event_age if aged else 0)
        for one in data
    ]
    _check_wait(ask, [number for number, _ in wanted])
    result, fired = ask.process.events.wait(wanted, every=bool(args.wait_for_all), timeout_ms=args.timeout)
    with ask.kernel.lock:
        for at, found in enumerate(fired):
            if found is not None:
                user.write(args.events_ptr + at * size, _payload(*found))
    ask.answer(wait_result=int(result))
    if result is WaitResult.FAIL:
        ask.process.hardware.advise("an event was destroyed while it was waited for")


def _check_wait(ask: Asked, numbers: list[int]) -> None:
    """Report a wait for signals that a fault does not end, and a repeated wait for a set signal."""
    events, report = ask.process.events, ask.process.hardware.report_unverified
    with ask.kernel.lock, events.changed:
        found = [events.table[number] for number in numbers if number in events.table]
        kinds = {event.kind for event in found}
        if EventType.SIGNAL not in kinds:
            return
        missing = [kind.name for kind in (EventType.MEMORY, EventType.HW_EXCEPTION) if kind not in kinds]
        if missing:
            report(f"a wait without the {' and the '.join(missing)} event, which ends it at a fault")
        for event in found:
            stays = event.kind is EventType.SIGNAL and event.signalled and not event.auto_reset
            if stays and event.stays:
                report(f"event {event.number:#x} stays signalled: nothing resets it, and waits do not sleep")
            event.stays = stays


def _payload(event: KfdEvent, waiter: EventWaiter) -> bytes:
    """Return the bytes that the kernel writes for an event that fired; b"" if it leaves the caller's."""
    if event.kind is not EventType.SIGNAL:
        return event.payload
    return kfd_hsa_signal_event_data.pack(last_event_age=event.age) if waiter.asks_age else b""


_HIGHEST_1_11: Final = Call.AVAILABLE_MEMORY
"""The last call of interface 1.11."""
_HIGHEST: Final = Call.DBG_TRAP
_OLD_DEBUGGER: Final = range(0x0D, 0x11)
NUMBERS: Final = frozenset(Call)
_KFD_TYPE: Final = 0x4B
"""The type byte of every request: "K"."""
_POLICIES: Final = 2
_OLD_APERTURES: Final = 7
"""The most entries of GET_PROCESS_APERTURES."""
_KNOWN_MODES: Final = int(RuntimeMode.ENABLE | RuntimeMode.TTMP_SAVE)


def ioctl(kernel: KfdFiles, file: KfdFile, request: int, block: bytearray) -> None:
    """Run one ioctl of /dev/kfd; `block` is the caller's structure, changed in place.

    Raises `CallRefused` with the errno of Linux, and `NotEmulated` for a call that this emulator lacks.
    """
    number, size = request & 0xFF, request >> 16 & 0x3FFF
    process = kernel.process
    highest = _HIGHEST if process.kernel.has("EXPORT_DMABUF") else _HIGHEST_1_11
    if number in _OLD_DEBUGGER:
        refuse(errno.EPERM, f"ioctl {number:#x} is the removed debugger interface")
    if request >> 8 & 0xFF != _KFD_TYPE or number not in NUMBERS or number > highest:
        refuse(errno.ENOTTY, f"KFD 1.{process.kernel.minor} has no ioctl {number:#x} (request {request:#x})")
    call = Call(number)
    if call not in _CALLS:
        raise NotEmulated(errno.EOPNOTSUPP, f"{call.name} is not emulated; hardware may support it")
    layout, run = _CALLS[call]
    if call is Call.CREATE_QUEUE and not process.kernel.has("SDMA_BY_ENG_ID"):
        layout = kfd.kfd_ioctl_create_queue_args_1_11
    if len(block) < size:
        refuse(errno.EFAULT, f"{call.name} encodes {size} bytes, the caller gave {len(block)}")
    own = bytearray(block[: min(size, layout.SIZE)].ljust(layout.SIZE, b"\0"))
    kept = kfd.request(call, layout.SIZE)
    if request >> 30 != kept >> 30:
        process.hardware.advise(f"{call.name}: request {request:#x} has another direction than {kept:#x}")
    if call is not Call.GET_VERSION:
        for violation in layout.from_bytes(own).check():
            if violation.field.startswith("byte "):
                process.hardware.advise(f"{call.name}: {violation}")
    try:
        run(Asked(kernel, process, file, call, layout, own), layout.from_bytes(own))
    finally:
        if Request.from_int(kept).DIRECTION & kfd.Direction.READ:
            block[: min(size, layout.SIZE)] = own[:size]


def _get_version(ask: Asked, _args: object) -> None:
    ask.answer(major_version=kfd.MAJOR, minor_version=ask.process.kernel.minor)


def _entries(ask: Asked) -> list[bytes]:
    """Return the packed apertures of each GPU that is not masked."""
    limit = (1 << VA_BITS) - 1
    return [
        kfd.kfd_process_device_apertures.pack(
            lds_base=kfd.LDS_APERTURE,
            lds_limit=kfd.LDS_APERTURE | kfd.APERTURE_BYTES - 1,
            scratch_base=kfd.SCRATCH_APERTURE,
            scratch_limit=kfd.SCRATCH_APERTURE | kfd.APERTURE_BYTES - 1,
            gpuvm_base=kfd.GPUVM_BASE,
            gpuvm_limit=limit,
            gpu_id=gpu.gpu_id,
        )
        for gpu in ask.process.gpus
        if not gpu.masked
    ]


def _get_process_apertures(ask: Asked, _args: object) -> None:
    found = _entries(ask)[:_OLD_APERTURES]
    ask.block[: kfd.kfd_process_device_apertures.SIZE * len(found)] = b"".join(found)
    ask.answer(num_of_nodes=len(found))


def _get_process_apertures_new(ask: Asked, args: kfd.kfd_ioctl_get_process_apertures_new_args) -> None:
    found = _entries(ask)
    if args.num_of_nodes == 0:
        ask.answer(num_of_nodes=len(found))
        return
    if args.num_of_nodes > len(ask.process.gpus) + 1:
        refuse(errno.EINVAL, f"{args.num_of_nodes} entries, there are {len(ask.process.gpus) + 1} nodes")
    found = found[: args.num_of_nodes]
    ask.process.user.write(args.kfd_process_device_apertures_ptr, b"".join(found))
    ask.answer(num_of_nodes=len(found))


def _acquire_vm(ask: Asked, args: kfd.kfd_ioctl_acquire_vm_args) -> None:
    gpu = ask.process.gpu(args.gpu_id)
    file = ask.kernel.files.get(args.drm_fd)
    if file is None or file.node is not AmdNode.RENDER:
        refuse(errno.EINVAL, f"drm_fd {args.drm_fd} is no render node of amdgpu")
    if gpu.drm_fd is not None and gpu.drm_fd != args.drm_fd:
        refuse(errno.EBUSY, f"{gpu.name} has the address space of descriptor {gpu.drm_fd}")
    if file.gpu is not gpu:
        refuse(errno.EINVAL, f"drm_fd {args.drm_fd} is {file.path}, which is not {gpu.name}")
    if gpu.space is None:
        gpu.drm_fd, gpu.space = args.drm_fd, GpuSpace()


def _get_clock_counters(ask: Asked, args: kfd.kfd_ioctl_get_clock_counters_args) -> None:
    gpu = next((one for one in ask.process.gpus if one.gpu_id == args.gpu_id), None)
    ask.answer(
        gpu_clock_counter=0 if gpu is None else ask.process.hardware.clock(gpu),
        cpu_clock_counter=time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW),
        system_clock_counter=time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        system_clock_freq=kfd.SYSTEM_CLOCK_HZ,
    )


def _set_memory_policy(ask: Asked, args: kfd_unused.kfd_ioctl_set_memory_policy_args) -> None:
    if args.default_policy >= _POLICIES or args.alternate_policy >= _POLICIES:
        refuse(errno.EINVAL, f"memory policies {args.default_policy} and {args.alternate_policy}: 0 or 1")
    ask.process.bound(args.gpu_id, errno.ESRCH)


def _set_scratch_backing_va(ask: Asked, args: kfd_unused.kfd_ioctl_set_scratch_backing_va_args) -> None:
    gpu, _ = ask.process.bound(args.gpu_id, errno.ENODEV)
    gpu.scratch_va = args.va_addr


def _set_trap_handler(ask: Asked, args: kfd_unused.kfd_ioctl_set_trap_handler_args) -> None:
    gpu, _ = ask.process.bound(args.gpu_id, errno.ESRCH)
    gpu.trap_handler = args.tba_addr, args.tma_addr


def _set_xnack_mode(ask: Asked, args: kfd_unused.kfd_ioctl_set_xnack_mode_args) -> None:
    if args.xnack_enabled < 0:
        ask.answer(xnack_enabled=ask.process.xnack)
        return
    if ask.process.queues:
        refuse(errno.EBUSY, "the XNACK mode changes before the first queue only")
    if args.xnack_enabled:
        refuse(errno.EPERM, "no emulated GPU retries page faults")


def _runtime_enable(ask: Asked, args: kfd.kfd_ioctl_runtime_enable_args) -> None:
    """Run RUNTIME_ENABLE; with ENABLE it must precede the first queue."""
    mode = int(args.mode_mask)
    if mode & ~_KNOWN_MODES:
        refuse(errno.EINVAL, f"mode_mask {mode:#x} has unknown bits")
    if value := ask.process.hardware.rejections.refuses("runtime", mode):
        refuse(errno.EPERM, f"this machine takes no mode_mask {mode:#x} (quirk {value})")
    if mode == RuntimeMode.TTMP_SAVE:
        ask.process.hardware.lint("RUNTIME_ENABLE with TTMP_SAVE alone enables nothing: ENABLE is missing")
    ask.process.runtime_asked = True
    if not mode & RuntimeMode.ENABLE:
        ask.process.runtime = False
        return
    if ask.process.runtime:
        refuse(errno.EBUSY, "the runtime is enabled already")
    if ask.process.queues:
        refuse(errno.EEXIST, "RUNTIME_ENABLE comes before the first queue")
    ask.process.runtime = True


def _svm(_ask: Asked, args: kfd_unused.kfd_ioctl_svm_args) -> None:
    """Refuse SVM, with EINVAL for a bad range as Linux does."""
    page = os.sysconf("SC_PAGESIZE")
    if args.start_addr % page or args.size % page or not args.size:
        refuse(errno.EINVAL, f"SVM range [{args.start_addr:#x}, +{args.size:#x}) is empty or not of pages")
    raise NotEmulated(errno.EOPNOTSUPP, "SVM is not emulated; hardware may support it")


_CALLS: Final[dict[Call, tuple[type[Struct], Callable[[Asked, Any], None]]]] = {
    Call.GET_VERSION: (kfd.kfd_ioctl_get_version_args, _get_version),
    Call.GET_PROCESS_APERTURES: (kfd_unused.kfd_ioctl_get_process_apertures_args, _get_process_apertures),
    Call.GET_PROCESS_APERTURES_NEW: (
        kfd.kfd_ioctl_get_process_apertures_new_args,
        _get_process_apertures_new,
    ),
    Call.ACQUIRE_VM: (kfd.kfd_ioctl_acquire_vm_args, _acquire_vm),
    Call.GET_CLOCK_COUNTERS: (kfd.kfd_ioctl_get_clock_counters_args, _get_clock_counters),
    Call.SET_MEMORY_POLICY: (kfd_unused.kfd_ioctl_set_memory_policy_args, _set_memory_policy),
    Call.SET_SCRATCH_BACKING_VA: (kfd_unused.kfd_ioctl_set_scratch_backing_va_args, _set_scratch_backing_va),
    Call.SET_TRAP_HANDLER: (kfd_unused.kfd_ioctl_set_trap_handler_args, _set_trap_handler),
    Call.SET_XNACK_MODE: (kfd_unused.kfd_ioctl_set_xnack_mode_args, _set_xnack_mode),
    Call.RUNTIME_ENABLE: (kfd.kfd_ioctl_runtime_enable_args, _runtime_enable),
    Call.SVM: (kfd_unused.kfd_ioctl_svm_args, _svm),
    Call.ALLOC_MEMORY_OF_GPU: (kfd.kfd_ioctl_alloc_memory_of_gpu_args, ioctls_memory.allocate),
    Call.FREE_MEMORY_OF_GPU: (kfd.kfd_ioctl_free_memory_of_gpu_args, ioctls_memory.free),
    Call.MAP_MEMORY_TO_GPU: (kfd.kfd_ioctl_map_memory_to_gpu_args, ioctls_memory.map_to_gpus),
    Call.UNMAP_MEMORY_FROM_GPU: (kfd.kfd_ioctl_unmap_memory_from_gpu_args, ioctls_memory.unmap_from_gpus),
    Call.AVAILABLE_MEMORY: (kfd.kfd_ioctl_get_available_memory_args, ioctls_memory.available),
    Call.EXPORT_DMABUF: (kfd_unused.kfd_ioctl_export_dmabuf_args, ioctls_memory.export),
    Call.IMPORT_DMABUF: (kfd_unused.kfd_ioctl_import_dmabuf_args, ioctls_memory.import_),
    Call.GET_DMABUF_INFO: (kfd_unused.kfd_ioctl_get_dmabuf_info_args, ioctls_memory.describe),
    Call.CREATE_QUEUE: (kfd.kfd_ioctl_create_queue_args, ioctls_queues.create),
    Call.UPDATE_QUEUE: (kfd.kfd_ioctl_update_queue_args, ioctls_queues.update),
    Call.DESTROY_QUEUE: (kfd.kfd_ioctl_destroy_queue_args, ioctls_queues.destroy),
    Call.SET_CU_MASK: (kfd_unused.kfd_ioctl_set_cu_mask_args, ioctls_queues.set_cu_mask),
    Call.CREATE_EVENT: (event_layouts.kfd_ioctl_create_event_args, create),
    Call.DESTROY_EVENT: (event_layouts.kfd_ioctl_destroy_event_args, destroy),
    Call.SET_EVENT: (event_layouts.kfd_ioctl_set_event_args, set_),
    Call.RESET_EVENT: (event_layouts.kfd_ioctl_reset_event_args, reset),
    Call.WAIT_EVENTS: (event_layouts.kfd_ioctl_wait_events_args, wait),
}
"""Call -> its structure, and the function that runs it."""
UNLOCKED: Final = frozenset({int(Call.WAIT_EVENTS)})
"""Numbers of the calls that sleep, and so run without the machine's lock."""
