"""The process's connection to /dev/kfd: typed calls, with decoded errors and hints.

Every method is one ioctl, or two to get a size first, and may be called from any thread.

Not here: the state that a process has once (`process`), the errors' text (`refusals`). Next: `process`.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Sequence
from typing import Final, TypeVar

from drivers.amd.layouts import events as events_
from drivers.amd.layouts import kfd as layouts
from drivers.amd.layouts.kfd import Call, MemFlags, QueuePercentage, QueueType, request
from drivers.amd.layouts.topology import KFD_NODE
from drivers.amd.refusals import node_error, old_kernel, refused
from drivers.kernel import Kernel, address_of
from hcq.errors import BringUpError, DriverError, size_text
from hcq.layout import Struct

_S = TypeVar("_S", bound="Struct")

_RUNTIME_SINCE: Final = (1, 14)
"""The first KFD version for which ROCr uses RUNTIME_ENABLE; the call came with 1.13."""


def open_node(kernel: Kernel, path: str) -> int:
    """Open a device node. Raises `DriverError` with a hint."""
    try:
        return kernel.open(path)
    except DriverError as error:
        raise node_error(path, error, kernel) from None


class Kfd:
    """An open /dev/kfd. It owns the descriptor.

    Raises `DriverError` if the node cannot be opened, `UnsupportedError` for another version of the
    interface. Methods raise `DriverError` or `OutOfMemoryError` with a hint if the kernel refuses a call.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.fd = open_node(kernel, KFD_NODE)
        try:
            self.version = self._version()
            """(major, minor) of the interface."""
        except BaseException:
            kernel.close(self.fd)
            raise

    def _version(self) -> tuple[int, int]:
        reply = self._call(Call.GET_VERSION, layouts.kfd_ioctl_get_version_args())
        if reply.major_version != layouts.MAJOR or reply.minor_version < layouts.OLDEST_MINOR:
            raise old_kernel(reply.major_version, reply.minor_version)
        return reply.major_version, reply.minor_version

    def has(self, what: str) -> bool:
        """Return whether this version of the interface has a feature of `layouts.kfd.GATES`."""
        return self.version >= layouts.GATES[what]

    def close(self) -> None:
        """Close the descriptor."""
        self.kernel.close(self.fd)

    def _call(self, call: Call, argument: _S, *, mes: bool = False, hint: str = "", note: str = "") -> _S:
        block = bytearray(argument.to_bytes())
        try:
            self.kernel.ioctl(self.fd, request(call, len(block)), block)
        except DriverError as error:
            seen = type(argument).from_bytes(block)
            reason = self.kernel.refusal()
            raise refused(call, error, f"{seen!r}{note}", reason=reason, mes=mes, hint=hint) from None
        return type(argument).from_bytes(block)

    def apertures(self) -> list[layouts.kfd_process_device_apertures]:
        """Return the address ranges of every GPU; empty if there is none."""
        entry = layouts.kfd_process_device_apertures
        ask = layouts.kfd_ioctl_get_process_apertures_new_args
        count = self._call(Call.GET_PROCESS_APERTURES_NEW, ask()).num_of_nodes
        if not count:
            return []
        room = bytearray(count * entry.SIZE)
        filled = self._call(
            Call.GET_PROCESS_APERTURES_NEW,
            ask(kfd_process_device_apertures_ptr=address_of(room), num_of_nodes=count),
        ).num_of_nodes
        return [entry.from_bytes(room, i * entry.SIZE) for i in range(min(count, filled))]

    def acquire_vm(self, gpu_id: int, drm_fd: int) -> None:
        """Tie the process to a GPU, whose address space is that of the render node's descriptor."""
        self._call(Call.ACQUIRE_VM, layouts.kfd_ioctl_acquire_vm_args(drm_fd=drm_fd, gpu_id=gpu_id))

    def enable_runtime(self, *, reports: bool = True) -> str:
        """Enable reports of queue exceptions; return the reason why there will be none, or "".

        A process enables them once; EBUSY means that they are enabled. `reports` False makes the call without
        reports.
        """
        if self.version < _RUNTIME_SINCE:
            return f"KFD {self.version[0]}.{self.version[1]} reports none, 1.14 does"
        mode = layouts.RuntimeMode.ENABLE if reports else 0
        try:
            self._call(Call.RUNTIME_ENABLE, layouts.kfd_ioctl_runtime_enable_args(mode_mask=mode))
        except DriverError as error:
            if error.status == errno.EBUSY:
                return ""
            if error.status == errno.EEXIST:
                return "another library of this process made queues before they could be enabled"
            raise
        return "" if reports else "none were asked for (choice runtime=setup)"

    def clock_counters(self, gpu_id: int) -> layouts.kfd_ioctl_get_clock_counters_args:
        """Read the GPU's clock counter and the host's clocks at the same time.

        Raises `BringUpError` for a reply of 0: Linux returns it for a GPU that `acquire_vm` has not bound.
        """
        ask = layouts.kfd_ioctl_get_clock_counters_args(gpu_id=gpu_id)
        reply = self._call(Call.GET_CLOCK_COUNTERS, ask)
        if not reply.gpu_clock_counter or reply.system_clock_freq != layouts.SYSTEM_CLOCK_HZ:
            raise BringUpError(
                f"GET_CLOCK_COUNTERS of gpu_id {gpu_id:#x} replied {reply!r}: wanted a counter that is "
                f"not 0, and clocks of {layouts.SYSTEM_CLOCK_HZ} Hz"
            )
        return reply

    def available(self, gpu_id: int) -> int:
        """Return the bytes of video memory that can still be allocated."""
        ask = layouts.kfd_ioctl_get_available_memory_args(gpu_id=gpu_id)
        return self._call(Call.AVAILABLE_MEMORY, ask).available

    def alloc(self, gpu_id: int, va: int, size: int, flags: MemFlags, *, host: int = 0) -> tuple[int, int]:
        """Allocate memory at device address `va`; return its handle and the offset for mmap.

        `host` is the host address of a user pointer; 0 for other memory. The caller frees the handle.
        """
        argument = layouts.kfd_ioctl_alloc_memory_of_gpu_args(
            va_addr=va, size=size, mmap_offset=host, gpu_id=gpu_id, flags=flags
        )
        reply = self._call(Call.ALLOC_MEMORY_OF_GPU, argument, note=f", {size_text(size)}")
        return reply.handle, reply.mmap_offset

    def free(self, handle: int) -> None:
        """Free memory that no GPU maps."""
        self._call(Call.FREE_MEMORY_OF_GPU, layouts.kfd_ioctl_free_memory_of_gpu_args(handle=handle))

    def map(self, handle: int, gpus: Sequence[int]) -> None:
        """Map memory into the GPUs with these ids; on error into none of them."""
        ids = array("I", gpus)
        at, _ = ids.buffer_info()
        block = bytearray(
            layouts.kfd_ioctl_map_memory_to_gpu_args(
                handle=handle, device_ids_array_ptr=at, n_devices=len(ids)
            ).to_bytes()
        )
        try:
            self.kernel.ioctl(self.fd, request(Call.MAP_MEMORY_TO_GPU, len(block)), block)
        except DriverError as error:
            seen = layouts.kfd_ioctl_map_memory_to_gpu_args.from_bytes(block)
            done = gpus[: min(seen.n_success, len(gpus))]
            shown, reason = f"{seen!r}, GPUs {list(gpus)}", self.kernel.refusal()
            refusal = refused(Call.MAP_MEMORY_TO_GPU, error, shown, reason=reason)
            if done:
                self.unmap(handle, done)
            raise refusal from None

    def unmap(self, handle: int, gpus: Sequence[int]) -> None:
        """Undo `map`."""
        ids = array("I", gpus)
        at, _ = ids.buffer_info()
        self._call(
            Call.UNMAP_MEMORY_FROM_GPU,
            layouts.kfd_ioctl_unmap_memory_from_gpu_args(
                handle=handle, device_ids_array_ptr=at, n_devices=len(ids)
            ),
            note=f", GPUs {list(gpus)}",
        )

    def create_queue(
        self,
        gpu_id: int,
        kind: QueueType,
        *,
        ring: tuple[int, int],
        write_pointer: int,
        read_pointer: int,
        eop: tuple[int, int] = (0, 0),
        context: tuple[int, int] = (0, 0),
        control_stack: int = 0,
        mes: bool = False,
        level: int = 0,
    ) -> tuple[int, int]:
        """Create a queue; return its id and its doorbell's offset (`layouts.kfd.MmapOffset`).

        `ring`, `eop` (end-of-pipe buffer) and `context` (context-save area of one XCC) are (address, bytes);
        (0, 0): none. `control_stack` is in bytes. `level` is a key of
        `layouts.QUEUE_PRIORITIES`. `mes`: the firmware MES schedules queues, for the hint of
        an error. Raises `BringUpError` for a context-save area without a control stack, which Linux refuses
        without a reason.
        """
        if context[1] and not control_stack:
            raise BringUpError(
                f"CREATE_QUEUE with ctl_stack_size 0 beside a context-save area of {context[1]} bytes: the "
                "control stack of all waves is a part of it"
            )
        old = layouts.kfd_ioctl_create_queue_args_1_11(
            ring_base_address=ring[0],
            write_pointer_address=write_pointer,
            read_pointer_address=read_pointer,
            ring_size=ring[1],
            gpu_id=gpu_id,
            queue_type=kind,
            queue_percentage=int(QueuePercentage(PERCENT=layouts.MAX_QUEUE_PERCENTAGE)),
            queue_priority=layouts.QUEUE_PRIORITIES[level],
            eop_buffer_address=eop[0],
            eop_buffer_size=eop[1],
            ctx_save_restore_address=context[0],
            ctx_save_restore_size=context[1],
            ctl_stack_size=control_stack,
        )
        if not self.has("SDMA_BY_ENG_ID"):
            answer = self._call(Call.CREATE_QUEUE, old, mes=mes)
            return answer.queue_id, answer.doorbell_offset
        layout = layouts.kfd_ioctl_create_queue_args
        reply = self._call(
            Call.CREATE_QUEUE, layout.from_bytes(old.to_bytes().ljust(layout.SIZE, b"\0")), mes=mes
        )
        return reply.queue_id, reply.doorbell_offset

    def update_queue(
        self, queue: int, *, ring: tuple[int, int], active: bool, mes: bool = False, level: int = 0
    ) -> None:
        """Deactivate a queue, which saves its waves, or activate it again; set its priority.

        `ring` is (address, bytes), `level` a key of `layouts.QUEUE_PRIORITIES`.
        """
        percent = layouts.MAX_QUEUE_PERCENTAGE if active else 0
        self._call(
            Call.UPDATE_QUEUE,
            layouts.kfd_ioctl_update_queue_args(
                ring_base_address=ring[0],
                queue_id=queue,
                ring_size=ring[1],
                queue_percentage=int(QueuePercentage(PERCENT=percent)),
                queue_priority=layouts.QUEUE_PRIORITIES[level],
            ),
            mes=mes,
        )

    def destroy_queue(self, queue: int, *, mes: bool = False) -> None:
        """Destroy a queue, even if kernels run; a hung wave may lead to a reset of the GPU."""
        self._call(Call.DESTROY_QUEUE, layouts.kfd_ioctl_destroy_queue_args(queue_id=queue), mes=mes)

    def create_event(self, kind: events_.EventType, *, page: int = 0) -> int:
        """Create an event that a wait resets; return its id.

        `page` is the handle of the event page in the first call of a process, and 0 in later calls.
        """
        argument = events_.kfd_ioctl_create_event_args(
            event_page_offset=page, event_type=kind, auto_reset=True
        )
        return self._call(Call.CREATE_EVENT, argument).event_id

    def destroy_event(self, event: int) -> None:
        """Destroy an event; threads that wait for it get `WaitResult.FAIL`."""
        self._call(Call.DESTROY_EVENT, events_.kfd_ioctl_destroy_event_args(event_id=event))

    def set_event(self, event: int) -> None:
        """Wake the threads that wait for a SIGNAL event."""
        self._call(Call.SET_EVENT, events_.kfd_ioctl_set_event_args(event_id=event))

    def wait_events(self, data: bytearray, timeout_ms: int) -> events_.WaitResult:
        """Wait up to `timeout_ms` until one of the events in `data`, an array of `kfd_event_data`, fires.

        A time limit of 0 polls. Afterwards `data` has the payloads of the events that fired. Raises
        `DriverError` if an event does not exist.
        """
        argument = events_.kfd_ioctl_wait_events_args(
            events_ptr=address_of(data),
            num_events=len(data) // events_.kfd_event_data.SIZE,
            timeout=timeout_ms,
        )
        return self._call(Call.WAIT_EVENTS, argument).wait_result
