"""One hardware channel in its own channel group: ring memory, notifier, engine objects, doorbell token.

A channel is created in the order of nv.md 2.2, steps 17 to 24, and destroyed in reverse order. After a fault
a channel cannot be used; the device closes it and creates a new one. Buffers and the address space of the
device outlive the channel.

Not here: the contents of the ring (`ring`). Next: `ring`, which writes entries and rings the doorbell.
"""

from __future__ import annotations

import contextlib
import enum
from dataclasses import dataclass
from typing import Final

from drivers.kernel import Mmio
from drivers.nv.layouts.controls import (
    NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS,
    NVA06C_CTRL_PREEMPT_PARAMS,
    NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS,
    Control,
)
from drivers.nv.layouts.fault import NOTIFIER_ENTRIES, NvNotification
from drivers.nv.layouts.gpfifo import (
    BlackwellAControlGPFifo,
    GpfifoEntry,
    HopperAControlGPFifo,
    UsermodeRegister,
)
from drivers.nv.layouts.rm_classes import (
    COPY_ALLOCATION_VERSION,
    GR_ALLOCATION_VERSION,
    NV_CHANNEL_ALLOC_PARAMS,
    NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS,
    NV_CTXSHARE_ALLOCATION_PARAMETERS,
    NV_GR_ALLOCATION_PARAMETERS,
    NVB0B5_ALLOCATION_PARAMETERS,
    USERD_BYTES,
    CtxshareFlags,
    RmClass,
)
from drivers.nv.memory import MappedSpace, NvMemories, NvMemory
from drivers.nv.quirks import NvQuirks
from drivers.nv.rm import Rm
from drivers.nv.topology import Handles, NvGpu
from hcq.errors import DriverError

RING_BYTES: Final = 1 << 21
"""The block of ring entries and user area in video memory has a multiple of this many bytes."""
ENTRIES: Final = 4096
"""The default number of entries of a ring."""
_DOORBELL: Final = int(UsermodeRegister.NOTIFY_CHANNEL_PENDING)
_SYSTEM_RING_BYTES: Final = 1 << 16
"""The block of ring entries and user area in system memory has a multiple of this many bytes."""
_SUBCONTEXTS: Final = {"async": CtxshareFlags.SUBCONTEXT_ASYNC, "sync": CtxshareFlags.SUBCONTEXT_SYNC}


class ChannelKind(enum.Enum):
    """The engines that a channel serves."""

    COMPUTE = "compute"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class ChannelContext:
    """The objects that all channels of a device share."""

    rm: Rm
    space: MappedSpace
    gpu: NvGpu
    handles: Handles
    memories: NvMemories
    vaspace: int
    doorbell: Mmio
    choices: NvQuirks


class Channel:
    """A scheduled channel. It owns its objects and memory, which `close` frees.

    `engine` is the NV2080 engine type, `label` names the channel in errors and in the map of memory.
    `entries` is the number of entries of the ring. Raises `DriverError` or `OutOfMemoryError` if the kernel
    driver refuses a step; then nothing is left allocated.
    """

    def __init__(
        self, context: ChannelContext, kind: ChannelKind, engine: int, *, label: str, entries: int = ENTRIES
    ) -> None:
        self.kind = kind
        self.engine = engine
        self.label = label
        self._context = context
        self.entry_count = entries
        """The number of entries of the ring."""
        self._undo = contextlib.ExitStack()
        self._fence = context.rm.kernel.fence
        self.diagnostics = context.rm.kernel.diagnostics
        """Returns the kernel's reports on work that does not finish; see `drivers.kernel.Kernel`."""
        self._write = context.doorbell.write32
        self.entry_level = GpfifoEntry.pack(
            ADDRESS=0, LENGTH=0, LEVEL=int(context.choices.gp_level == "subroutine")
        )[0]
        """The LEVEL field of this channel's ring entries, in place: it is added to the other fields."""
        self.copy_refusal = ""
        """The reason why a compute channel has no copy engine object; empty if it has one."""
        with contextlib.ExitStack() as stack:
            self._make_memory(stack)
            self._make_channel(stack)
            self._make_engines(stack)
            self._register(stack)
            self._schedule()
            self._undo = stack.pop_all()

    def _make_memory(self, stack: contextlib.ExitStack) -> None:
        memories = self._context.memories
        self.notifier = memories.notifier(NOTIFIER_ENTRIES * NvNotification.SIZE)
        stack.callback(memories.free, self.notifier)
        self.memory, self.userd_memory, self.userd_offset = self._ring_memory(memories, stack)
        view, user, errors = self.memory.view, self.userd_memory.view, self.notifier.view
        assert view is not None, "the ring is mapped"
        assert user is not None, "the user area is mapped"
        assert errors is not None, "the notifier is mapped"
        entries = self.entry_count * GpfifoEntry.SIZE
        view[:entries] = bytes(entries)
        userd = user[self.userd_offset : self.userd_offset + USERD_BYTES]
        userd[:] = bytes(USERD_BYTES)
        errors[:] = bytes(len(errors))
        # "L" and not "Q", which also has 8 bytes: a store takes CPython two thirds of the time.
        self.entries = view[:entries].cast("L")
        self.userd = userd.cast("I")
        self.put_index = BlackwellAControlGPFifo.offset_of("GPPut") // 4
        self.errors = errors.cast("I")

    def _ring_memory(
        self, memories: NvMemories, stack: contextlib.ExitStack
    ) -> tuple[NvMemory, NvMemory, int]:
        """Return the memory of ring entries, the memory of the user area, and the area's offset in it."""
        label, where = f"ring of {self.label}", self._context.choices.ring
        entry_bytes = self.entry_count * GpfifoEntry.SIZE
        if where == "video" and not memories.spares_bar1(RING_BYTES):
            where = "system"
        if where == "video":
            size = -(-(entry_bytes + USERD_BYTES) // RING_BYTES) * RING_BYTES
            memory = memories.vram(size, label=label, host_visible=True, contiguous=True)
        elif where == "system":
            size = -(-(entry_bytes + USERD_BYTES) // _SYSTEM_RING_BYTES) * _SYSTEM_RING_BYTES
            memory = memories.mapped_system(size, label=label)
        else:
            memory = memories.host(entry_bytes, label=label)
        stack.callback(memories.free, memory)
        if where != "pages":
            return memory, memory, entry_bytes
        user = memories.system(USERD_BYTES, label=f"user area of {self.label}")
        stack.callback(memories.free, user)
        return memory, user, 0

    def _make_channel(self, stack: contextlib.ExitStack) -> None:
        context, rm = self._context, self._context.rm
        choices = context.choices
        shared = self.kind is ChannelKind.COMPUTE and choices.context_share
        # The address space is given to the group, or to the context share of its channel.
        self.group = rm.alloc(
            context.handles.device,
            RmClass.KEPLER_CHANNEL_GROUP_A,
            NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS(
                hVASpace=0 if shared else context.vaspace, engineType=self.engine
            ),
        )
        stack.callback(rm.free, self.group)
        share = 0
        if shared:
            share = rm.alloc(
                self.group,
                RmClass.FERMI_CONTEXT_SHARE_A,
                NV_CTXSHARE_ALLOCATION_PARAMETERS(
                    hVASpace=context.vaspace, flags=_SUBCONTEXTS[choices.subcontext]
                ),
            )
            stack.callback(rm.free, share)
        self.handle = rm.alloc(
            self.group,
            context.gpu.gpfifo_class,
            NV_CHANNEL_ALLOC_PARAMS(
                hObjectError=self.notifier.handle if choices.notifier else 0,
                hObjectBuffer=self.memory.handle if choices.object_buffer else 0,
                gpFifoOffset=self.memory.va,
                gpFifoEntries=self.entry_count,
                hContextShare=share,
                hUserdMemory=(self.userd_memory.handle,),
                userdOffset=(self.userd_offset,),
                engineType=self.engine,
            ),
        )
        stack.callback(rm.free, self.handle)

    def _make_engines(self, stack: contextlib.ExitStack) -> None:
        rm, gpu = self._context.rm, self._context.gpu
        self.compute_object = 0
        if self.kind is ChannelKind.COPY:
            params = NVB0B5_ALLOCATION_PARAMETERS(version=COPY_ALLOCATION_VERSION, engineType=self.engine)
            stack.callback(rm.free, rm.alloc(self.handle, gpu.copy_class, params))
            return
        compute = NV_GR_ALLOCATION_PARAMETERS(
            version=GR_ALLOCATION_VERSION, size=NV_GR_ALLOCATION_PARAMETERS.SIZE
        )
        given = compute if self._context.choices.gr_parameters else None
        self.compute_object = rm.alloc(self.handle, gpu.compute_class, given)
        stack.callback(rm.free, self.compute_object)
        if not self._context.choices.graphics_copy:
            self.copy_refusal = "the device was opened with graphics_copy=False"
            return
        try:
            # No parameters: the copy engine that shares the graphics run list (nv.md 2.2 step 21).
            stack.callback(rm.free, rm.alloc(self.handle, gpu.copy_class))
        except DriverError as error:
            # Kernels run without it; a copy on this queue raises an error with this reason.
            self.copy_refusal = str(error)

    def _register(self, stack: contextlib.ExitStack) -> None:
        context, choices = self._context, self._context.choices
        if self.kind is ChannelKind.COPY and not choices.register_copy_channels:
            return
        base = size = 0
        if self.kind is ChannelKind.COMPUTE:
            # UVM refuses a window that is too small for all buffers, each at an alignment of up to 2 MiB.
            # Unused addresses cost nothing.
            size = choices.context_window << 20
            window = context.memories.window(size, label=f"context buffers of {self.label}")
            stack.callback(context.memories.free, window)
            base, size = window.va, window.size
        context.space.register_channel(self.handle, base, size)
        stack.callback(context.space.unregister_channel, self.handle)

    def _schedule(self) -> None:
        rm = self._context.rm
        command = Control.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN
        reply = rm.control(self.handle, command, NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS())
        self.token = reply.workSubmitToken
        layout = rm.struct(NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS)
        rm.control(self.group, Control.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, layout(bEnable=True))

    def ring_doorbell(self, put: int) -> None:
        """Store the put index, then the doorbell, each after a fence that makes earlier stores visible."""
        fence = self._fence
        fence()
        self.userd[self.put_index] = put
        fence()
        self._write(_DOORBELL, self.token)

    def fetched(self) -> int | None:
        """Return the get index: the ring entry that the GPU fetches next. The value may lag the GPU.

        None if the channel class does not report it (since Blackwell), or while the field is 0: the GSP
        firmware was observed to leave it at 0.
        """
        if not self._context.gpu.reports_get:
            return None
        return self.userd[HopperAControlGPFifo.offset_of("GPGet") // 4] or None

    def error(self) -> NvNotification | None:
        """Return the contents of the error notifier, or None while it is empty."""
        words = self.errors
        if not (words[2] or words[3]):
            return None
        return NvNotification.from_bytes(bytes(words[: NvNotification.SIZE // 4]))

    def stop(self) -> None:
        """Remove the channel from the run list and preempt its work: the first step to end a hang.

        Raises `DriverError` if the kernel driver refuses it.
        """
        rm = self._context.rm
        layout = rm.struct(NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS)
        rm.control(self.group, Control.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, layout(bEnable=False))
        rm.control(self.group, Control.NVA06C_CTRL_CMD_PREEMPT, NVA06C_CTRL_PREEMPT_PARAMS(bWait=True))

    def close(self) -> None:
        """Unregister the channel and free its objects in reverse order of creation; idempotent."""
        self._undo.close()
