"""The ioctls of queues: create, update, destroy, and the mask of compute units.

Each function takes the call in progress and its decoded structure, and refuses with the errno of Linux
(`CallRefused`). Source: docs/sources-amd.md, KFD ioctls.

Not here: dispatch by number (`ioctls`). Next: `queues`, the checks and the state of a queue.
"""

from __future__ import annotations

import errno
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.cwsr import kfd_context_save_area_header
from drivers.amd.layouts.kfd import (
    DOORBELL_BYTES,
    ENOTSUPP,
    MmapOffset,
    MmapType,
    QueueType,
    kfd_ioctl_create_queue_args,
    kfd_ioctl_create_queue_args_1_11,
    kfd_ioctl_destroy_queue_args,
    kfd_ioctl_update_queue_args,
)
from emulator.amd.kfd.queues import COMPUTE, QueueObject, acquire, check_create, check_numbers, whole
from emulator.amd.kfd.refusal import refuse
from hcq.errors import DriverError

if TYPE_CHECKING:
    from drivers.amd.layouts.kfd_unused import kfd_ioctl_set_cu_mask_args
    from emulator.amd.kfd.gpu import KfdGpu
    from emulator.amd.kfd.process import Asked, KfdProcess

_EXCEPTIONS_SINCE: Final = 14
"""The minor version of the interface from which on RUNTIME_ENABLE must precede queues with exceptions."""
_MASK_UNIT: Final = 32
"""The number of bits of a mask is a multiple of this."""
_MOST_MASK_BITS: Final = 1024
"""Bits of a mask above these are ignored."""


def create(ask: Asked, args: kfd_ioctl_create_queue_args | kfd_ioctl_create_queue_args_1_11) -> None:
    """Run CREATE_QUEUE. Answers the queue's id and the mmap offset of its doorbell."""
    process = ask.process
    known = next((gpu for gpu in process.gpus if gpu.gpu_id == args.gpu_id), None)
    ring_bytes = check_create(args, known, process.kernel)
    if int(args.queue_type) not in frozenset(QueueType) or (
        args.queue_type == QueueType.SDMA_BY_ENG_ID and not process.kernel.has("SDMA_BY_ENG_ID")
    ):
        refuse(ENOTSUPP, f"KFD 1.{process.kernel.minor} has no queue type {int(args.queue_type)}")
    gpu, _ = process.bound(args.gpu_id, errno.ESRCH)
    if value := process.hardware.rejections.refuses("queue", args, gpu):
        refuse(errno.EINVAL, f"this machine takes no such queue (quirk {value})")
    kind = QueueType(args.queue_type)
    wanted = _engine(gpu, kind, args.sdma_engine_id if isinstance(args, kfd_ioctl_create_queue_args) else 0)
    queue = QueueObject(
        process.new_queue_number(), gpu, kind, args.ring_base_address, ring_bytes,
        wptr_va=args.write_pointer_address, rptr_va=args.read_pointer_address,
        percentage=args.queue_percentage & 0xFF, priority=args.queue_priority,
        target_xcc=args.queue_percentage >> 8,
        eop_va=args.eop_buffer_address, save_va=args.ctx_save_restore_address,
    )  # fmt: skip
    if len(gpu.queues) >= gpu.profile.queue_limit:
        refuse(errno.ENOSPC, f"the process has {gpu.profile.queue_limit} queues on {gpu.name}")
    with ExitStack() as undo:
        acquire(queue, args, process.kernel)
        if kind in COMPUTE:
            queue.doorbell = gpu.doorbells.compute()
        else:
            queue.doorbell, queue.engine = gpu.doorbells.sdma(kind, wanted)
        undo.callback(gpu.doorbells.give_back, queue.doorbell)
        process.hardware.queue_created(queue)
        undo.pop_all()
    if process.tracks and process.kernel.minor >= _EXCEPTIONS_SINCE and not process.runtime:
        report = process.hardware.lint if process.runtime_asked else process.hardware.report_unverified
        report(
            f"{queue.name} was created before RUNTIME_ENABLE with ENABLE: its exceptions are not delivered"
        )
    if process.runtime and queue.save_va:
        _check_exceptions(process, queue)
    gpu.queues.append(queue)
    token = MmapOffset(OFFSET=queue.doorbell * DOORBELL_BYTES, GPU_ID=gpu.gpu_id, TYPE=MmapType.DOORBELL)
    ask.answer(queue_id=queue.number, doorbell_offset=int(token))


def _check_exceptions(process: KfdProcess, queue: QueueObject) -> None:
    """Report a context-save header that names no word or no event for the queue's exceptions."""
    try:
        raw = process.user.read(queue.save_va, kfd_context_save_area_header.SIZE)
    except DriverError as error:
        process.hardware.report_unverified(f"the context-save header of {queue.name} cannot be read: {error}")
        return
    header = kfd_context_save_area_header.from_bytes(raw)
    if not header.err_payload_addr:
        process.hardware.report_unverified(
            f"the context-save header of {queue.name} at {queue.save_va:#x} names no word for exceptions: "
            "err_payload_addr is 0"
        )
    elif header.err_event_id not in process.events.table:
        process.hardware.report_unverified(
            f"the context-save header of {queue.name} names event {header.err_event_id:#x} for exceptions, "
            "which does not exist: err_event_id"
        )


def _engine(gpu: KfdGpu, kind: QueueType, engine: int) -> int | None:
    """Return the SDMA engine that a queue asks for; None if the kernel chooses it."""
    if kind is not QueueType.SDMA_BY_ENG_ID:
        return None
    last = gpu.profile.sdma_engines + gpu.profile.xgmi_engines - 1
    if engine > last:
        refuse(errno.EINVAL, f"SDMA engine {engine}, the last of {gpu.name} is {last}")
    return engine


def update(ask: Asked, args: kfd_ioctl_update_queue_args) -> None:
    """Run UPDATE_QUEUE: ring, percentage, priority and XCC.

    Since Linux 6.12 a new ring is checked and held.
    """
    process = ask.process
    known = next((one for one in process.queues if one.number == args.queue_id), None)
    size = check_numbers(
        args.queue_percentage, args.queue_priority, args.ring_base_address, args.ring_size,
        None if known is None else known.gpu,
    )  # fmt: skip
    queue = process.queue(args.queue_id, errno.EFAULT)
    moved = (args.ring_base_address, size) != (queue.ring_va, queue.ring_bytes)
    if moved and args.ring_base_address and process.kernel.geometry:
        ring = whole(queue.gpu, "the ring", args.ring_base_address, size, errno.EFAULT)
        if queue.ring_buffer is not None:
            queue.buffers.remove(queue.ring_buffer)
        queue.buffers.append(ring)
        queue.ring_buffer = ring
    queue.ring_va, queue.ring_bytes = args.ring_base_address, size
    queue.percentage, queue.priority = args.queue_percentage & 0xFF, args.queue_priority
    queue.target_xcc = args.queue_percentage >> 8
    process.hardware.queue_changed(queue)


def destroy(ask: Asked, args: kfd_ioctl_destroy_queue_args) -> None:
    """Run DESTROY_QUEUE: stop the queue, and release its doorbell and memory."""
    queue = ask.process.queue(args.queue_id, errno.EINVAL)
    ask.process.hardware.queue_destroyed(queue)
    queue.gpu.queues.remove(queue)
    queue.gpu.doorbells.give_back(queue.doorbell)


def set_cu_mask(ask: Asked, args: kfd_ioctl_set_cu_mask_args) -> None:
    """Run SET_CU_MASK. The mask is kept, and has no effect on the emulated queue."""
    bits = args.num_cu_mask
    if not bits or bits % _MASK_UNIT:
        refuse(errno.EINVAL, f"a mask of {bits} bits, wanted a multiple of {_MASK_UNIT} and not 0")
    mask = ask.process.user.read(args.cu_mask_ptr, min(bits, _MOST_MASK_BITS) // 8)
    queue = ask.process.queue(args.queue_id, errno.EFAULT)
    if not any(mask):
        refuse(errno.EINVAL, f"the mask leaves {queue.name} no compute unit")
    queue.cu_mask = mask
