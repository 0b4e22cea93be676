"""Queues of the emulated kernel driver: the state of each queue, and the checks of CREATE_QUEUE.

The rules are those of Linux kfd_chardev.c (set_queue_properties_from_user) and, for kernels since 6.12, of
kfd_queue.c (kfd_queue_acquire_buffers). All checks refuse with the errno of Linux (`CallRefused`).

Not here: the calls (`ioctls_queues`), the execution of a queue (`emulator.amd.engines`). Next: `events`.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from drivers.amd.layouts.kfd import (
    MAX_QUEUE_PERCENTAGE,
    MAX_QUEUE_PRIORITY,
    MIN_EOP_BYTES,
    MIN_RING_BYTES,
    RING_ALIGN,
    USER_ADDRESS_BITS,
    MemFlags,
    QueueType,
)
from emulator.amd.kfd.refusal import refuse
from emulator.shared.backing import PAGE, page_up

if TYPE_CHECKING:
    from drivers.amd.layouts.kfd import kfd_ioctl_create_queue_args, kfd_ioctl_create_queue_args_1_11
    from emulator.amd.kfd.gpu import KfdBuffer, KfdGpu
    from emulator.amd.profiles import KernelProfile

    CreateArgs = kfd_ioctl_create_queue_args | kfd_ioctl_create_queue_args_1_11

COMPUTE: Final = (QueueType.COMPUTE, QueueType.COMPUTE_AQL)
_TASK_SIZE: Final = (1 << USER_ADDRESS_BITS) - PAGE
"""The first address after user space."""
_PERCENT_BITS: Final = 0xFF
_XCC_BITS: Final = 0xFF00
_POINTER_BYTES: Final = 8


@dataclass(slots=True, eq=False)
class QueueObject:
    """One queue; its addresses are device addresses."""

    number: int
    """The queue_id."""
    gpu: KfdGpu
    kind: QueueType
    ring_va: int
    ring_bytes: int
    wptr_va: int
    rptr_va: int
    percentage: int
    """0 to 100; a queue of 0 does not run."""
    priority: int
    """0 to 15, the highest last."""
    target_xcc: int = 0
    """The XCC that runs a PM4 queue."""
    eop_va: int = 0
    """The end-of-pipe buffer; 0 for none."""
    save_va: int = 0
    """The context-save area; 0 for none."""
    engine: int = 0
    """Index of its SDMA engine; 0 for compute queues."""
    doorbell: int = 0
    """Number of its doorbell in the process's slice."""
    cu_mask: bytes = b""
    """The mask of compute units from SET_CU_MASK; b"" before."""
    buffers: list[KfdBuffer] = field(default_factory=list)
    """The buffers that the queue keeps from being unmapped (Linux since 6.12)."""
    ring_buffer: KfdBuffer | None = None
    """The one of `buffers` that holds the ring; None on older kernels."""

    @property
    def active(self) -> bool:
        """Whether the queue may run."""
        return bool(self.percentage and self.ring_va and not self.gpu.evicted)

    @property
    def compute(self) -> bool:
        """Whether it is a compute queue."""
        return self.kind in COMPUTE

    @property
    def name(self) -> str:
        """The queue's name in reports."""
        return f"{self.kind.name} queue {self.number} of {self.gpu.name}"


def check_numbers(percentage: int, priority: int, ring_va: int, ring_size: int, gpu: KfdGpu | None) -> int:
    """Check the arguments common to CREATE_QUEUE and UPDATE_QUEUE; return the ring's size in bytes.

    `percentage` also has the XCC, in bits 15:8. Without a `gpu` the XCC is not checked.
    """
    if percentage & _PERCENT_BITS > MAX_QUEUE_PERCENTAGE:
        refuse(errno.EINVAL, f"a percentage of {percentage & _PERCENT_BITS}, at most {MAX_QUEUE_PERCENTAGE}")
    if percentage & ~(_PERCENT_BITS | _XCC_BITS):
        refuse(errno.EINVAL, f"queue_percentage {percentage:#x} has unknown bits")
    if gpu is not None and (percentage & _XCC_BITS) >> 8 >= gpu.profile.xccs:
        refuse(errno.EINVAL, f"XCC {(percentage & _XCC_BITS) >> 8} of {gpu.profile.xccs}")
    if priority > MAX_QUEUE_PRIORITY:
        refuse(errno.EINVAL, f"priority {priority}, at most {MAX_QUEUE_PRIORITY}")
    if ring_va:
        accessible("ring_base_address", ring_va)
    if ring_size & (ring_size - 1):
        refuse(errno.EINVAL, f"a ring of {ring_size:#x} bytes is no power of two")
    if ring_va % RING_ALIGN:
        refuse(errno.EINVAL, f"the ring at {ring_va:#x} is not aligned to {RING_ALIGN} bytes")
    return max(ring_size, MIN_RING_BYTES)


def accessible(what: str, va: int, size: int = _POINTER_BYTES) -> None:
    """Refuse with EFAULT unless [va, va + size) lies in user space, as access_ok does."""
    if va + size > _TASK_SIZE:
        refuse(errno.EFAULT, f"{what} {va:#x} is no address of user space")


def check_create(args: CreateArgs, gpu: KfdGpu | None, kernel: KernelProfile) -> int:
    """Check the arguments of CREATE_QUEUE that need no mapped memory; return the ring's size in bytes."""
    size = check_numbers(
        args.queue_percentage, args.queue_priority, args.ring_base_address, args.ring_size, gpu
    )
    pointers = {
        "write_pointer_address": args.write_pointer_address,
        "read_pointer_address": args.read_pointer_address,
    }
    for name, va in pointers.items():
        accessible(name, va)
    if args.read_pointer_address == args.write_pointer_address:
        refuse(errno.EINVAL, f"read and write pointer both lie at {args.read_pointer_address:#x}")
    for name, va, unit in (
        ("eop_buffer_address", args.eop_buffer_address, RING_ALIGN),
        ("ctx_save_restore_address", args.ctx_save_restore_address, PAGE),
    ):
        if va:
            accessible(name, va)
        if va % unit:
            refuse(
                errno.EINVAL, f"{name} {va:#x} is not aligned to {unit} bytes: hardware ignores the low bits"
            )
    for name, va in pointers.items():
        if not va or va % _POINTER_BYTES:
            refuse(errno.EINVAL, f"{name} {va:#x} is not aligned to {_POINTER_BYTES} bytes, or zero")
    if args.eop_buffer_address and args.eop_buffer_size < MIN_EOP_BYTES and not kernel.geometry:
        refuse(errno.EINVAL, f"an EOP buffer of {args.eop_buffer_size} bytes, at least {MIN_EOP_BYTES}")
    return size


def whole(gpu: KfdGpu, what: str, va: int, size: int, number: int = errno.EINVAL) -> KfdBuffer:
    """Return the buffer that begins at the page of `va` and has `size`, rounded up to pages; else refuse.

    `what` names the memory in the reason, `number` is the errno.
    """
    assert gpu.space is not None
    buffer = gpu.space.buffer_at(va)
    if buffer is None:
        refuse(number, f"{what} {va:#x} is not mapped to {gpu.name}; nearest: {gpu.space.map.nearest(va)}")
    if buffer.va != va // PAGE * PAGE or page_up(buffer.size) != page_up(size):
        refuse(number, f"{what} [{va:#x}, +{page_up(size):#x}) is not a whole mapping: it lies in {buffer}")
    return buffer


def acquire(queue: QueueObject, args: CreateArgs, kernel: KernelProfile) -> None:
    """Check that the queue's memory consists of whole buffers, and hold them.

    Does nothing before Linux 6.12.
    """
    if not kernel.geometry:
        return
    gpu = queue.gpu
    held: list[KfdBuffer] = []
    for name, va in (("write pointer", queue.wptr_va), ("read pointer", queue.rptr_va)):
        buffer = whole(gpu, f"the page of the {name}", va, PAGE)
        if name == "write pointer" and gpu.profile.mes:
            _check_mes(gpu, buffer)
        held.append(buffer)
    ring = whole(gpu, "the ring of ring_size", queue.ring_va, queue.ring_bytes)
    if queue.ring_va != ring.va:
        refuse(errno.EINVAL, f"the ring {queue.ring_va:#x} does not begin with its mapping {ring}")
    held.append(ring)
    if queue.compute:
        held += _save_area(queue, args, kernel)
    queue.buffers += held
    queue.ring_buffer = ring


def _check_mes(gpu: KfdGpu, buffer: KfdBuffer) -> None:
    if buffer.kind is not MemFlags.GTT or buffer.owner is not gpu:
        refuse(errno.EINVAL, f"MES wants the write pointer in GTT of {gpu.name}, it lies in {buffer}")


def _save_area(queue: QueueObject, args: CreateArgs, kernel: KernelProfile) -> list[KfdBuffer]:
    """Check the sizes of the end-of-pipe buffer and the context-save area; return their buffers."""
    gpu, held = queue.gpu, []
    if args.eop_buffer_address:
        if args.eop_buffer_size != MIN_EOP_BYTES:
            refuse(errno.EINVAL, f"an EOP buffer of {args.eop_buffer_size} bytes, wanted {MIN_EOP_BYTES}")
        held.append(whole(gpu, "the EOP buffer", args.eop_buffer_address, args.eop_buffer_size))
    area = gpu.profile.save_area(kernel)
    if args.ctl_stack_size != area.control_stack:
        refuse(errno.EINVAL, f"ctl_stack_size {args.ctl_stack_size:#x}, wanted {area.control_stack:#x}")
    said = args.ctx_save_restore_size
    if said < area.context or (kernel.equal_save_area and said != area.context):
        than = "" if kernel.equal_save_area else "at least "
        refuse(errno.EINVAL, f"ctx_save_restore_size {said:#x}, wanted {than}{area.context:#x}")
    total = page_up((said + area.debug) * area.xccs)
    held.append(whole(gpu, "the context-save area", args.ctx_save_restore_address, total))
    return held
