"""One hardware channel in a channel group of its own: ring memory, notifier, engine objects, doorbell token.

A channel is built in the order of nv.md 2.2, steps 17 to 24, and torn down in reverse. A fault kills a
channel: `close` and a new one is the repair; memory and address space outlive it. Not here: what is put
into the ring (`ring`).
"""

from __future__ import annotations

import contextlib
import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
from hcq.errors import DriverError

if TYPE_CHECKING:
    from drivers.kernel import Mmio
    from drivers.nv.memory import Memories, Memory
    from drivers.nv.quirks import Quirks
    from drivers.nv.rm import Rm
    from drivers.nv.space import Space
    from drivers.nv.topology import Gpu, Handles

RING_BYTES: Final = 1 << 21
"""Ring entries and the user area share one block of video memory."""
ENTRIES: Final = 4096
_BELL: Final = int(UsermodeRegister.NOTIFY_CHANNEL_PENDING)
_SYSTEM_RING_BYTES: Final = 1 << 16
"""Size of the block where ring and user area lie in system memory."""


_SUBCONTEXTS: Final = {"async": CtxshareFlags.SUBCONTEXT_ASYNC, "sync": CtxshareFlags.SUBCONTEXT_SYNC}


class ChannelKind(enum.Enum):
    """Which engines a channel feeds."""

    COMPUTE = "compute"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Context:
    """What all channels of a device share."""

    rm: Rm
    space: Space
    gpu: Gpu
    handles: Handles
    memories: Memories
    vaspace: int
    doorbell: Mmio
    choices: Quirks


class Channel:
    """A scheduled channel. Owns its objects; `close` gives them back."""

    def __init__(
        self, context: Context, kind: ChannelKind, engine: int, *, label: str, entries: int = ENTRIES
    ) -> None:
        self.kind = kind
        self.engine = engine
        self.label = label
        self._context = context
        self.entry_count = entries
        """How many entries the ring has."""
        self._undo = contextlib.ExitStack()
        self._fence = context.rm.kernel.fence
        self.diagnostics = context.rm.kernel.diagnostics
        """What the kernel's side reports of work that does not finish; see `drivers.kernel.Kernel`."""
        self._write = context.doorbell.write32
        self.entry_level = GpfifoEntry.pack(
            ADDRESS=0, LENGTH=0, LEVEL=int(context.choices.gp_level == "subroutine")
        )[0]
        """What the LEVEL of a ring entry adds to it."""
        self.copy_refusal = ""
        """Why a compute channel has no copy engine beside it; empty when it has."""
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
        assert view is not None, "the ring is always mapped"
        assert user is not None, "the user area is always mapped"
        assert errors is not None, "the notifier is always mapped"
        entries = self.entry_count * GpfifoEntry.SIZE
        view[:entries] = bytes(entries)
        userd = user[self.userd_offset : self.userd_offset + USERD_BYTES]
        userd[:] = bytes(USERD_BYTES)
        errors[:] = bytes(len(errors))
        # "L", also 8 bytes: CPython stores to it in two thirds of the time.
        self.entries = view[:entries].cast("L")
        self.userd = userd.cast("I")
        self.put_index = BlackwellAControlGPFifo.offset_of("GPPut") // 4
        self.errors = errors.cast("I")

    def _ring_memory(self, memories: Memories, stack: contextlib.ExitStack) -> tuple[Memory, Memory, int]:
        """Return the memory of ring entries, that of the user area, and where in it that lies."""
        label, where = f"ring of {self.label}", self._context.choices.ring
        behind = self.entry_count * GpfifoEntry.SIZE
        if where == "video":
            memory = memories.vram(RING_BYTES, label=label, host_visible=True, contiguous=True)
        elif where == "system":
            memory = memories.mapped_system(_SYSTEM_RING_BYTES, label=label)
        else:
            memory = memories.host(behind, label=label)
        stack.callback(memories.free, memory)
        if where != "pages":
            return memory, memory, behind
        user = memories.system(USERD_BYTES, label=f"user area of {self.label}")
        stack.callback(memories.free, user)
        return memory, user, 0

    def _make_channel(self, stack: contextlib.ExitStack) -> None:
        context, rm = self._context, self._context.rm
        choices = context.choices
        shared = self.kind is ChannelKind.COMPUTE and choices.context_share
        # A group holds the address space itself, or leaves it to the context share of its channel.
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
            # Kernels run without it; a copy on this queue then raises with what was refused.
            self.copy_refusal = str(error)

    def _register(self, stack: contextlib.ExitStack) -> None:
        context, choices = self._context, self._context.choices
        if self.kind is ChannelKind.COPY and not choices.register_copy_channels:
            return
        base = size = 0
        if self.kind is ChannelKind.COMPUTE:
            # UVM refuses a window that is too small for all of them, each at its own alignment, up to 2 MiB;
            # what is left over costs nothing.
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

    def ring(self, put: int) -> None:
        """Move the put index and write the doorbell; entries and words written before are visible first."""
        fence = self._fence
        fence()
        self.userd[self.put_index] = put
        fence()
        self._write(_BELL, self.token)

    def got(self) -> int | None:
        """Return how far the GPU has fetched the ring, where that is known; it lags.

        None where the class does not report it (since Blackwell), and while the field is 0: firmware that
        runs the channels (GSP) was seen to leave it at 0 all the time.
        """
        if not self._context.gpu.reports_get:
            return None
        return self.userd[HopperAControlGPFifo.offset_of("GPGet") // 4] or None

    def error(self) -> NvNotification | None:
        """Return what the error notifier holds, or None while it is empty."""
        words = self.errors
        if not (words[2] or words[3]):
            return None
        return NvNotification.from_bytes(bytes(words[: NvNotification.SIZE // 4]))

    def stop(self) -> None:
        """Take the channel off the run list, a running kernel too: the first step to end a hang."""
        rm = self._context.rm
        layout = rm.struct(NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS)
        rm.control(self.group, Control.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, layout(bEnable=False))
        rm.control(self.group, Control.NVA06C_CTRL_CMD_PREEMPT, NVA06C_CTRL_PREEMPT_PARAMS(bWait=True))

    def close(self) -> None:
        """Unregister and free everything, the last made first; idempotent."""
        self._undo.close()
