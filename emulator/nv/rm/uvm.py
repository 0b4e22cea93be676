"""/dev/nvidia-uvm: its commands, and its registered GPUs and channels (nv.md 1.2, 2.5, 7.1).

Each open file manages addresses of its own. A function in `_FUNCTIONS` executes a command. It takes the
kernel, the state of the open file and the command's structure. It returns the fields that change, a status,
or None for OK, and raises `RmRefused`.

Not here: the state of an open file, its ranges and what is mapped in them (`uvm_space`). Next: `uvm_space`.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Final

from drivers.kernel import fail
from drivers.nv.layouts import uvm as layout
from drivers.nv.layouts.fault import RcCode
from drivers.nv.layouts.rm_classes import EngineType
from drivers.nv.layouts.status import NvStatus
from drivers.nv.layouts.uvm import UvmCommand, UvmInitFlags
from emulator.nv.profiles import SANDBOX_REFUSES_UVM, Link
from emulator.nv.reports import ChannelError, FindingKind, RmRefused, wrong
from emulator.nv.rm import uvm_space
from emulator.nv.rm.files import NvNode, RmFile
from emulator.nv.rm.objects import Client, EngineObject, RmChannel, VaSpaceObject, find
from emulator.nv.rm.uvm_space import RegisteredGpu, check_pages, find_gpu
from emulator.shared.surprises import StatusReply

if TYPE_CHECKING:
    from emulator.nv.machine.machine import NvMachine
    from emulator.nv.rm.files import RmFiles
    from emulator.nv.rm.uvm_space import UvmSpace

_STATE = NvStatus.INVALID_STATE
_DEVICE = NvStatus.INVALID_DEVICE
"""The status of what is registered twice, or not at all (docs/sources.md, "By reading")."""


def ioctl(kernel: RmFiles, file: RmFile, request: int, block: bytearray) -> None:
    """Run one UVM command on `block`, which is changed in place; a refusal is in its status word.

    Raises `DriverError` (EINVAL) for an unknown command, one that the sandbox refuses, or a wrong size.
    """
    machine = kernel.machine
    if request == UvmCommand.UVM_DEINITIALIZE:
        return  # a command without parameters and status: all goes with the descriptor
    if request not in _HANDLERS or (machine.filtered and request in SANDBOX_REFUSES_UVM):
        machine.note(f"UVM command {request:#x} is unknown, filtered or not emulated")
        fail("ioctl", errno.EINVAL, f"UVM command {request:#x}")
    handler, name = _HANDLERS[request]
    kind: Any = machine.structs[name]
    if len(block) != kind.SIZE:
        machine.note(f"{name}: {len(block)} bytes, this branch has {kind.SIZE}")
        fail("ioctl", errno.EINVAL, f"{name}: {len(block)} bytes, this branch has {kind.SIZE}")
    uvm = file.uvm
    assert uvm is not None
    found = machine.surprises.call(UvmCommand(request).name)
    try:
        _in_order(uvm, request, found)
        answer = handler(kernel, uvm, kind.from_bytes(block))
        values = answer if isinstance(answer, dict) else {"rmStatus": int(answer or NvStatus.OK)}
        kind.store(block, **{"rmStatus": int(NvStatus.OK)} | values)
    except RmRefused as refusal:
        machine.note(f"{UvmCommand(request).name}: {refusal}")
        kind.store(block, rmStatus=refusal.status)


def _in_order(uvm: UvmSpace, request: int, surprise: object) -> None:
    """Raise `RmRefused` if a surprise has a status, or if UVM_INITIALIZE is missing."""
    if isinstance(surprise, StatusReply):
        raise RmRefused(surprise.code, "a surprise")
    if uvm.flags is None and request not in (UvmCommand.UVM_INITIALIZE, UvmCommand.UVM_MM_INITIALIZE):
        raise RmRefused(NvStatus.ILLEGAL_ACTION, "UVM_INITIALIZE comes first")


def _initialize(_kernel: RmFiles, uvm: UvmSpace, params: layout.UVM_INITIALIZE_PARAMS) -> None:
    flags = int(params.flags)
    if flags & ~sum(UvmInitFlags):
        raise wrong(f"flags {flags:#x} are not known")
    if uvm.mm_of is not None:
        raise wrong("the descriptor is that of UVM_MM_INITIALIZE")
    if uvm.flags not in (None, flags):
        raise wrong(f"the descriptor was initialized with flags {uvm.flags:#x}")
    uvm.flags = flags


def _mm_initialize(kernel: RmFiles, uvm: UvmSpace, params: layout.UVM_MM_INITIALIZE_PARAMS) -> int:
    first = kernel.files.get(params.uvmFd)
    if first is None or first.uvm is None or first.uvm is uvm or first.uvm.flags is None:
        raise wrong(f"uvmFd {params.uvmFd} is no other, initialized descriptor of UVM")
    if kernel.machine.filtered or first.uvm.shared:  # a sandbox forces the sharing mode (nv.md 7.1)
        return NvStatus.WARN_NOTHING_TO_DO
    if uvm.flags is not None or uvm.mm_of is not None:
        raise RmRefused(NvStatus.IN_USE, "the descriptor is in use already: MM_INITIALIZE takes a fresh one")
    if first.uvm.lost_mm:
        raise RmRefused(NvStatus.PAGE_TABLE_NOT_AVAIL, f"descriptor {params.uvmFd} has lost its second one")
    if first.uvm.has_mm:
        raise RmRefused(_STATE, f"descriptor {params.uvmFd} has its second one already")
    uvm.mm_of = first
    first.uvm.has_mm = True
    return NvStatus.OK


def lose_mm(machine: NvMachine, first: UvmSpace) -> None:
    """Stop the registered channels of `first`, because its second descriptor was closed.

    The descriptor of UVM_MM_INITIALIZE must remain open (nv.md 1.2).
    """
    first.has_mm, first.lost_mm = False, True
    for channel in [one for one in first.channels if one.live]:
        machine.stop(
            channel.run,
            ChannelError(
                RcCode.RESET_CHANNEL,
                FindingKind.LIFETIME,
                "the descriptor of UVM_MM_INITIALIZE was closed in use",
            ),
        )


def _client(kernel: RmFiles, fd: int, handle: int) -> Client:
    """Return the client `handle` of a descriptor that was passed to UVM.

    Raises `RmRefused`, or in the sandbox `DriverError` (EINVAL) for a wrong descriptor.
    """
    file = kernel.files.get(fd)
    if file is None or file.node is not NvNode.CTL:
        if kernel.machine.filtered and fd >= 0:
            fail("ioctl", errno.EINVAL, f"rmCtrlFd {fd} is no frontend descriptor")
        raise wrong(f"rmCtrlFd {fd} is no /dev/nvidiactl")
    return kernel.machine.client(handle, fd)


def _register_gpu(kernel: RmFiles, uvm: UvmSpace, params: layout.UVM_REGISTER_GPU_PARAMS) -> dict[str, int]:
    gpu = find_gpu(kernel.machine, params.gpu_uuid, NvStatus.GPU_UUID_NOT_FOUND)
    file = kernel.files.get(params.rmCtrlFd)
    if params.rmCtrlFd >= 0 and (file is None or file.node not in (NvNode.CTL, NvNode.GPU)):
        text = f"rmCtrlFd {params.rmCtrlFd} is no frontend descriptor"
        if kernel.machine.filtered:
            fail("ioctl", errno.EINVAL, text)
        raise wrong(text)
    if params.hSmcPartRef or params.hClient:
        raise wrong("hClient and hSmcPartRef are for MIG")
    if gpu in uvm.gpus:
        raise RmRefused(_DEVICE, "the GPU is registered already")
    if kernel.machine.link is Link.NVLINK:
        uvm.peers.update(frozenset((gpu, other)) for other in uvm.gpus)
    uvm.gpus[gpu] = RegisteredGpu()
    return {"numaEnabled": False, "numaNodeId": 0xFFFF_FFFF}


def _unregister_gpu(kernel: RmFiles, uvm: UvmSpace, params: layout.UVM_UNREGISTER_GPU_PARAMS) -> None:
    gpu, _ = uvm.space_of(kernel.machine, params.gpu_uuid)
    uvm.close(gpu)
    for pair in [pair for pair in uvm.peers if gpu in pair]:
        uvm.part(pair, "by UVM_UNREGISTER_GPU")
    del uvm.gpus[gpu]


def _register_vaspace(kernel: RmFiles, uvm: UvmSpace, params: layout.UVM_REGISTER_GPU_VASPACE_PARAMS) -> None:
    client = _client(kernel, params.rmCtrlFd, params.hClient)
    gpu, here = uvm.space_of(kernel.machine, params.gpuUuid)
    if not (uvm.has_mm or uvm.shared or kernel.machine.filtered):
        raise RmRefused(NvStatus.PAGE_TABLE_NOT_AVAIL, "UVM_MM_INITIALIZE was left out, or its file closed")
    space = find(client, params.hVaSpace, VaSpaceObject, "hVaSpace")
    if not space.externally_owned:
        raise RmRefused(NvStatus.INVALID_FLAGS, f"{space} was not made externally owned")
    if space.gpu is not gpu:
        raise RmRefused(_DEVICE, f"{space} is one of {space.gpu}, not of {gpu}")
    if space.registered or here.vaspace is not None:
        raise RmRefused(_DEVICE, "an address space is registered already")
    here.vaspace = space
    space.registered = True


def _unregister_vaspace(
    kernel: RmFiles, uvm: UvmSpace, params: layout.UVM_UNREGISTER_GPU_VASPACE_PARAMS
) -> None:
    uvm.close(uvm.space_of(kernel.machine, params.gpuUuid, with_space=True)[0])


def _map_external(kernel: RmFiles, uvm: UvmSpace, params: layout.UVM_MAP_EXTERNAL_ALLOCATION_PARAMS) -> None:
    client = _client(kernel, params.rmCtrlFd, params.hClient)
    uvm_space.map_external(kernel, uvm, params, client)


def _register_channel(kernel: RmFiles, uvm: UvmSpace, params: layout.UVM_REGISTER_CHANNEL_PARAMS) -> None:
    client = _client(kernel, params.rmCtrlFd, params.hClient)
    gpu, here = uvm.space_of(kernel.machine, params.gpuUuid, with_space=True)
    channel = find(client, params.hChannel, RmChannel, "hChannel")
    if here.vaspace is None or channel.run.space is not here.vaspace.space:
        raise RmRefused(NvStatus.INVALID_CHANNEL, "the channel's address space is not registered here")
    if channel.registered:
        raise RmRefused(NvStatus.INVALID_CHANNEL, f"{channel} is registered already")
    bound = any(isinstance(child, EngineObject) for child in channel.children)
    if channel.group.alive().engine == EngineType.GR0 and not bound:
        raise RmRefused(_STATE, f"{channel} is not bound to an engine: allocate its engine object first")
    if value := kernel.machine.rejections.refuses("registered channel", channel, params):
        raise RmRefused(NvStatus.INVALID_CHANNEL, f"{channel} with {params} (quirk {value})")
    window = None
    if channel.has(gpu.profile.generation.compute):  # others have no buffers: theirs is ignored
        window = _window(kernel.machine, uvm, channel, (params.base, params.length))
    channel.registered = True
    uvm.channels[channel] = window


def _window(machine: NvMachine, uvm: UvmSpace, channel: RmChannel, asked: tuple[int, int]) -> tuple[int, int]:
    """Return the window (base, length) of a channel's context buffers, which all channels of a group share.

    `asked` is the window in the call. Raises `RmRefused` if it overlaps something else or is too small.
    """
    base, length = asked
    profile = channel.gpu.profile
    check_pages(machine, base, length, channel.gpu)
    bits = profile.generation.window_bits
    if base + length > 1 << bits:
        raise RmRefused(NvStatus.OUT_OF_RANGE, f"the window ends above {bits} bits")
    for one, window in uvm.channels.items():
        if one.group is channel.group and window is not None:
            return window
    uvm.claim(base, length, uvm.ranges, uvm.owned)
    uvm.claim(base, length, {at: size for at, size in uvm.windows.items() if (at, size) != asked})
    groups = {id(one.group) for one, other in uvm.channels.items() if other == asked} | {id(channel.group)}
    needed = len(groups) * profile.context_bytes
    if length < needed:
        raise RmRefused(NvStatus.INVALID_ADDRESS, f"a window of {length:#x} bytes, needed are {needed:#x}")
    return asked


def _unregister_channel(_kernel: RmFiles, uvm: UvmSpace, params: Any) -> None:
    asked = params.hClient, params.hChannel
    channel = next((one for one in uvm.channels if (one.client.handle, one.handle) == asked), None)
    if channel is None:
        raise RmRefused(
            NvStatus.INVALID_CHANNEL,
            f"channel {params.hChannel:#x} of client {params.hClient:#x} is not registered",
        )
    uvm.drop_channel(channel)


def _pageable(*_: object) -> dict[str, int]:
    return {"pageableMemAccess": False}


_C = UvmCommand
_FUNCTIONS: Final[dict[int, Any]] = {
    _C.UVM_INITIALIZE: _initialize,
    _C.UVM_MM_INITIALIZE: _mm_initialize,
    _C.UVM_REGISTER_GPU: _register_gpu,
    _C.UVM_UNREGISTER_GPU: _unregister_gpu,
    _C.UVM_REGISTER_GPU_VASPACE: _register_vaspace,
    _C.UVM_UNREGISTER_GPU_VASPACE: _unregister_vaspace,
    _C.UVM_REGISTER_CHANNEL: _register_channel,
    _C.UVM_UNREGISTER_CHANNEL: _unregister_channel,
    _C.UVM_CREATE_EXTERNAL_RANGE: uvm_space.create_range,
    _C.UVM_MAP_EXTERNAL_ALLOCATION: _map_external,
    _C.UVM_UNMAP_EXTERNAL: uvm_space.unmap_external,
    _C.UVM_FREE: uvm_space.free,
    _C.UVM_VALIDATE_VA_RANGE: uvm_space.validate,
    _C.UVM_PAGEABLE_MEM_ACCESS: _pageable,
    _C.UVM_ALLOC_SEMAPHORE_POOL: uvm_space.semaphore_pool,
    _C.UVM_ENABLE_PEER_ACCESS: uvm_space.enable_peer,
    _C.UVM_DISABLE_PEER_ACCESS: uvm_space.disable_peer,
}
"""Command -> the function that executes it."""
_HANDLERS: Final[dict[int, tuple[Any, str]]] = {
    command: (function, layout.COMMAND_STRUCTS[command].__name__) for command, function in _FUNCTIONS.items()
}
"""Command -> its function, and the name of its structure."""


def size_of(machine: NvMachine, request: int) -> int:
    """Return the size of a command's parameters in bytes; 0 for an unknown command."""
    known = _HANDLERS.get(request)
    return machine.structs[known[1]].SIZE if known else 0
