"""The ioctls of /dev/nvidiactl and of the nodes of GPUs (nv.md 1.2, 1.4, 7).

A malformed ioctl raises `DriverError` with an errno. A refusal by the resource manager is in the status word
of the structure. NVIDIA calls the number of such an ioctl an *escape*.

Not here: what RM_ALLOC and RM_CONTROL do (`alloc`, `controls`), /dev/nvidia-uvm (`uvm`). Next: `alloc`.
"""

from __future__ import annotations

import errno
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from drivers.kernel import fail
from drivers.nv.layouts import rm
from drivers.nv.layouts.chips import CLASS_NAMES
from drivers.nv.layouts.controls import CONTROL_STRUCTS, Control
from drivers.nv.layouts.rm import Escape, Request
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.status import NvStatus
from emulator.nv.profiles import SANDBOX_ESCAPES, SANDBOX_REFUSES_CONTROLS
from emulator.nv.reports import RmRefused, wrong
from emulator.nv.rm import alloc, alloc_memory, controls, files
from emulator.nv.rm.controls_channel import ControlCall
from emulator.nv.rm.files import NvNode, RmFile
from emulator.nv.rm.objects import Client, EngineObject, RmChannel, RmDevice, RmObject, find, insert
from emulator.shared.surprises import StatusReply

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.nv.rm.files import RmFiles
    from hcq.layout import Struct

    _Sizes = Callable[[RmFiles], tuple[int, ...]]
    """Returns the sizes that an escape's argument may have in the emulated branch."""
    _Handler = Callable[[RmFiles, RmFile, bytearray], None]
    """Runs an escape on its argument, which it changes."""
    _Answer = Callable[[RmFiles, RmFile, Any], dict[str, Any] | None]
    """Runs an escape on its structure; returns the fields that change, or raises `RmRefused`."""

_NO_FD = -1
_CARD_SIZES = (rm.nv_ioctl_card_info_t.SIZE * 32, rm.nv_ioctl_card_info_t.SIZE * 64)
"""The sizes of CARD_INFO: for 32 or 64 GPUs."""
_ID_SIZES = tuple(range(4, 129, 4))
"""The sizes of ATTACH_GPUS_TO_FD: for 1 to 32 GPUs."""
_ON_GPU: Final = (Escape.NV_ESC_RM_ALLOC_MEMORY, Escape.NV_ESC_REGISTER_FD, Escape.NV_ESC_WAIT_OPEN_COMPLETE)
"""Escapes of the nodes of GPUs only."""
_ON_BOTH: Final = (Escape.NV_ESC_ALLOC_OS_EVENT, Escape.NV_ESC_FREE_OS_EVENT, Escape.NV_ESC_IOCTL_XFER_CMD)
"""Escapes of the nodes of GPUs and of /dev/nvidiactl; others are of /dev/nvidiactl only."""
_VENDOR = 0x10DE
"""NVIDIA's PCI vendor number."""


def ioctl(kernel: RmFiles, file: RmFile, request: int, block: bytearray) -> None:
    """Run one ioctl of a frontend on `block`, which is changed in place.

    Raises `DriverError`: ENOTTY for a request that is none of NVIDIA's, EINVAL for one that is malformed,
    unknown or not allowed in the sandbox, EFAULT for memory that the process does not have, and the errno of
    a surprise.
    """
    word = Request.from_int(request & 0xFFFF_FFFF)
    if word.check() or request >> 32:
        _invalid(
            kernel,
            f"request {request:#x}: {word.check()[0] if word.check() else 'more than 32 bits'}",
            errno.ENOTTY,
        )
    if len(block) != word.SIZE_:
        _invalid(kernel, f"request {request:#x} announces {word.SIZE_} bytes, the argument has {len(block)}")
    _escape(kernel, file, word.NR, block)


def _invalid(kernel: RmFiles, why: str, number: int = errno.EINVAL) -> None:
    """Record why a call is refused, and raise `DriverError` with an errno."""
    kernel.machine.note(why)
    fail("ioctl", number, why)


def _escape(kernel: RmFiles, file: RmFile, number: int, block: bytearray) -> None:
    """Check the node and the size of an escape, and run it. Raises `DriverError` (EINVAL)."""
    machine = kernel.machine
    if machine.filtered and number not in SANDBOX_ESCAPES:
        _invalid(kernel, f"escape {number:#x} does not pass the sandbox")
    if number not in _HANDLERS:
        _invalid(kernel, f"escape {number:#x} is unknown or not emulated")
    escape = Escape(number)
    machine.surprises.call(escape.name)
    wanted = (
        (NvNode.GPU,)
        if escape in _ON_GPU
        else (NvNode.GPU, NvNode.CTL)
        if escape in _ON_BOTH
        else (NvNode.CTL,)
    )
    if file.node not in wanted:
        _invalid(kernel, f"{escape.name} goes to {wanted[0].value}, not to {file.path}")
    sizes, handler = _HANDLERS[escape]
    if len(block) not in sizes(kernel):
        _invalid(kernel, f"{escape.name}: {len(block)} bytes, this branch has {sizes(kernel)}")
    handler(kernel, file, block)


def _answered(kind: type[Struct], run: _Answer, *, status: str = "status") -> _Handler:
    """Return a handler that runs `run` on a structure, and stores the fields that it returns and the status.

    `status` is the name of the status field.
    """

    def handle(kernel: RmFiles, file: RmFile, block: bytearray) -> None:
        try:
            params = kind.from_bytes(block)
            _surprise(kernel, params)
            values = run(kernel, file, params) or {}
            outcome = int(NvStatus.OK)
        except RmRefused as refusal:
            kernel.machine.note(f"{kind.__name__}: {refusal}")
            values, outcome = {}, refusal.status
        kind.store(block, **values, **{status: outcome})

    return handle


def _surprise(kernel: RmFiles, params: Struct) -> None:
    """Raise `RmRefused` or `DriverError` if the machine's table of surprises says so for this call."""
    match params:
        case rm.NVOS64_PARAMETERS() | rm.NVOS21_PARAMETERS():
            known = {**CLASS_NAMES, **{int(one): one.name for one in RmClass}}
            name = f"RM_ALLOC {known.get(params.hClass, hex(params.hClass))}"
        case rm.NVOS54_PARAMETERS():
            name = (
                f"RM_CONTROL {Control(params.cmd).name if params.cmd in tuple(Control) else hex(params.cmd)}"
            )
        case _:
            name = type(params).__name__
    found = kernel.machine.surprises.call(name)
    if isinstance(found, StatusReply):
        raise RmRefused(found.code, f"{name}: a surprise")


def _alloc(kernel: RmFiles, file: RmFile, params: Any) -> dict[str, Any]:
    if isinstance(params, rm.NVOS64_PARAMETERS) and (params.pRightsRequested or params.flags):
        raise RmRefused(NvStatus.INVALID_FLAGS, "neither rights nor flags are known")
    handle = alloc.allocate(
        kernel.machine,
        file.fd,
        params.hRoot,
        params.hObjectParent,
        params.hObjectNew,
        params.hClass,
        params.pAllocParms,
        params.paramsSize,
    )
    root = {"hRoot": handle} if params.hClass in (RmClass.NV01_ROOT, RmClass.NV01_ROOT_CLIENT) else {}
    return {"hObjectNew": handle, **root}


def _alloc_sized(kernel: RmFiles, file: RmFile, block: bytearray) -> None:
    wide = len(block) == rm.NVOS64_PARAMETERS.SIZE
    _answered(rm.NVOS64_PARAMETERS if wide else rm.NVOS21_PARAMETERS, _alloc)(kernel, file, block)


def _free(kernel: RmFiles, file: RmFile, params: rm.NVOS00_PARAMETERS) -> None:
    client = kernel.machine.client(params.hRoot, file.fd)
    old = find(client, params.hObjectOld, RmObject, "hObjectOld")
    above = old.parent.handle if old.parent is not None else 0
    if params.hObjectParent != above and not isinstance(old, Client):
        raise RmRefused(
            NvStatus.INVALID_OBJECT_PARENT,
            f"{old} lies under {above:#x}, not under {params.hObjectParent:#x}",
        )
    _advise(kernel, old)
    kernel.machine.free(client, old)


def _advise(kernel: RmFiles, old: RmObject) -> None:
    """Advise about what should precede the freeing of an object and did not.

    Not if a whole client is freed.
    """
    for one in () if isinstance(old, Client) else old.walk():
        if isinstance(one, RmChannel) and one.registered:
            kernel.machine.advise(f"{one} was freed before UVM_UNREGISTER_CHANNEL")
    if isinstance(old, EngineObject) and isinstance(old.parent, RmChannel) and old.parent.run.busy:
        run = old.parent.run
        kernel.machine.advise(f"{old} was freed while {run.name} has work left: {run.at}")


def _control(kernel: RmFiles, file: RmFile, params: rm.NVOS54_PARAMETERS) -> None:
    machine = kernel.machine
    client = machine.client(params.hClient, file.fd)
    target = find(client, params.hObject, RmObject, "hObject")
    if params.flags:
        raise RmRefused(NvStatus.INVALID_FLAGS, f"control flags {params.flags:#x}")
    number = params.cmd
    if number not in tuple(Control) or (machine.filtered and number in SANDBOX_REFUSES_CONTROLS):
        raise RmRefused(
            NvStatus.NOT_SUPPORTED,
            f"control {number:#x} is unknown" + (" to the sandbox" if machine.filtered else ""),
        )
    kind = machine.structs[CONTROL_STRUCTS[number]]
    text = f"{Control(number).name}: paramsSize {params.paramsSize}, this branch has {kind.SIZE}"
    if params.paramsSize != kind.SIZE and machine.filtered:
        _invalid(kernel, text)  # by the sandbox, which ignores the object
    controls.check_owner(target, Control(number))
    if params.paramsSize != kind.SIZE:
        raise RmRefused(NvStatus.INVALID_PARAM_STRUCT, text)
    inner = bytearray(machine.user.read(params.params, kind.SIZE))
    controls.control(Control(number), ControlCall(machine, client, target, kind, inner))
    machine.user.write(params.params, inner)


def _alloc_memory(kernel: RmFiles, file: RmFile, block: bytearray) -> None:
    whole = rm.nv_ioctl_nvos02_parameters_with_fd
    outer = whole.from_bytes(block)
    machine, inner = kernel.machine, bytearray(outer.params.to_bytes())

    def call(kernel: RmFiles, file: RmFile, params: rm.NVOS02_PARAMETERS) -> dict[str, Any]:
        client = machine.client(params.hRoot, file.ctl_fd)
        device = find(client, params.hObjectParent, RmDevice, "hObjectParent")
        if params.hObjectNew in client.objects:
            raise RmRefused(NvStatus.INVALID_OBJECT_HANDLE, f"handle {params.hObjectNew:#x} is taken")
        handle = params.hObjectNew or machine.new_handle(client)
        if params.hClass == RmClass.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR:
            if outer.fd != _NO_FD:
                raise wrong(f"a descriptor of user pages has fd -1, not {outer.fd}")
            made = alloc_memory.make_descriptor(machine, handle, params.flags, params.pMemory, params.limit)
        elif params.hClass == RmClass.NV01_MEMORY_SYSTEM:
            made = alloc_memory.make_system(machine, handle, params.flags, params.limit)
        else:
            raise RmRefused(NvStatus.INVALID_CLASS, f"class {params.hClass:#x} does not go through this call")
        insert(client, made, device)
        if made.cls == RmClass.NV01_MEMORY_SYSTEM:
            with ExitStack() as undo:
                undo.callback(machine.free, client, made)
                files.attach(kernel, made, 0, made.size, outer.fd)
                undo.pop_all()
        return {"hObjectNew": handle}

    _answered(rm.NVOS02_PARAMETERS, call)(kernel, file, inner)
    whole.store(block, params=rm.NVOS02_PARAMETERS.from_bytes(inner))


def _map_memory(kernel: RmFiles, file: RmFile, block: bytearray) -> None:
    whole = rm.nv_ioctl_nvos33_parameters_with_fd
    outer = whole.from_bytes(block)
    inner = bytearray(outer.params.to_bytes())

    def call(kernel: RmFiles, file: RmFile, params: rm.NVOS33_PARAMETERS) -> dict[str, Any]:
        return {"pLinearAddress": files.map_memory(kernel, file, params, outer.fd)}

    _answered(rm.NVOS33_PARAMETERS, call)(kernel, file, inner)
    whole.store(block, params=rm.NVOS33_PARAMETERS.from_bytes(inner))


def _map_dma(kernel: RmFiles, file: RmFile, block: bytearray) -> None:
    kind = kernel.machine.structs["NVOS46_PARAMETERS"]
    _answered(kind, lambda *call: {"dmaOffset": alloc_memory.map_dma(*call)})(kernel, file, block)


def _register_fd(kernel: RmFiles, file: RmFile, block: bytearray) -> None:
    ctl = kernel.files.get(rm.nv_ioctl_register_fd_t.from_bytes(block).ctl_fd)
    if ctl is None or ctl.node is not NvNode.CTL:
        _invalid(kernel, "REGISTER_FD: ctl_fd is no /dev/nvidiactl")
    elif file.ctl_fd is not None:
        _invalid(kernel, f"REGISTER_FD: descriptor {file.fd} is registered already")
    else:
        file.ctl_fd = ctl.fd


def _card_info(kernel: RmFiles, _file: RmFile, block: bytearray) -> None:
    size = rm.nv_ioctl_card_info_t.SIZE
    for gpu in kernel.machine.gpus:
        pci = rm.nv_pci_info_t(bus=gpu.gpu_id >> 8, vendor_id=_VENDOR, device_id=gpu.profile.device_id)
        card = rm.nv_ioctl_card_info_t(
            valid=True,
            pci_info=pci,
            gpu_id=gpu.gpu_id,
            reg_size=16 << 20,
            fb_size=gpu.profile.vram_bytes,
            minor_number=gpu.index,
        )
        block[gpu.index * size : (gpu.index + 1) * size] = card.to_bytes()
    end = len(kernel.machine.gpus) * size
    block[end:] = bytes(len(block) - end)


def _version(kernel: RmFiles, _file: RmFile, block: bytearray) -> None:
    kind = rm.nv_ioctl_rm_api_version_t
    params = kind.from_bytes(block)
    if params.cmd == rm.VERSION_QUERY:
        kind.store(block, reply=rm.VERSION_RECOGNISED, versionString=kernel.machine.version)
    elif params.cmd in (0, 0x31):
        kind.store(block, reply=int(params.versionString == kernel.machine.version))
    else:
        _invalid(kernel, f"CHECK_VERSION_STR command {params.cmd:#x}")


def _sys_params(_kernel: RmFiles, _file: RmFile, block: bytearray) -> None:
    rm.nv_ioctl_sys_params_t.store(block, memblock_size=128 << 20)


def _attach(kernel: RmFiles, _file: RmFile, block: bytearray) -> None:
    ids = {int.from_bytes(block[at : at + 4], "little") for at in range(0, len(block), 4)}
    if not ids <= {0, 0xFFFF_FFFF, *(gpu.gpu_id for gpu in kernel.machine.gpus)}:
        _invalid(kernel, f"ATTACH_GPUS_TO_FD: {sorted(ids)} are not all GPUs")


def _os_event(kernel: RmFiles, _file: RmFile, params: Any) -> None:
    add = not isinstance(params, rm.nv_ioctl_free_os_event_t)  # which derives from the other
    target = kernel.files.get(params.fd)
    if (
        params.hClient not in kernel.machine.clients
        or target is None
        or target.node not in (NvNode.CTL, NvNode.GPU)
    ):
        raise wrong(f"client {params.hClient:#x} or descriptor {params.fd} is wrong")
    event = params.hClient, params.fd
    if add and event in kernel.machine.os_events:
        raise RmRefused(NvStatus.INSUFFICIENT_RESOURCES, f"descriptor {params.fd} is an event already")
    if not add and event not in kernel.machine.os_events:
        raise wrong(f"descriptor {params.fd} is not an event")
    kernel.machine.os_events ^= {event}


def _wait_open(_kernel: RmFiles, _file: RmFile, block: bytearray) -> None:
    rm.nv_ioctl_wait_open_complete_t.store(block, rc=0, adapterStatus=NvStatus.OK)


def _xfer(kernel: RmFiles, file: RmFile, block: bytearray) -> None:
    params = rm.nv_ioctl_xfer_t.from_bytes(block)
    if params.cmd == Escape.NV_ESC_IOCTL_XFER_CMD:
        _invalid(kernel, "IOCTL_XFER_CMD inside itself")
    inner = bytearray(kernel.machine.user.read(params.ptr, params.size))
    _escape(kernel, file, params.cmd, inner)
    kernel.machine.user.write(params.ptr, inner)


def _exactly(*kinds: type[Struct]) -> _Sizes:
    """Return a function that returns the sizes of these structures."""
    sizes = tuple(kind.SIZE for kind in kinds)
    return lambda _: sizes


def _own(kind: type[Struct], run: _Answer, *, status: str = "status") -> tuple[_Sizes, _Handler]:
    """Return the sizes and the handler of an escape whose argument is a structure `kind`, by `_answered`."""
    return _exactly(kind), _answered(kind, run, status=status)


_HANDLERS: Final[dict[int, tuple[_Sizes, _Handler]]] = {
    Escape.NV_ESC_RM_ALLOC: (_exactly(rm.NVOS64_PARAMETERS, rm.NVOS21_PARAMETERS), _alloc_sized),
    Escape.NV_ESC_RM_FREE: _own(rm.NVOS00_PARAMETERS, _free),
    Escape.NV_ESC_RM_CONTROL: _own(rm.NVOS54_PARAMETERS, _control),
    Escape.NV_ESC_RM_ALLOC_MEMORY: (_exactly(rm.nv_ioctl_nvos02_parameters_with_fd), _alloc_memory),
    Escape.NV_ESC_RM_MAP_MEMORY: (_exactly(rm.nv_ioctl_nvos33_parameters_with_fd), _map_memory),
    Escape.NV_ESC_RM_UNMAP_MEMORY: _own(rm.NVOS34_PARAMETERS, files.unmap_memory),
    Escape.NV_ESC_RM_MAP_MEMORY_DMA: (lambda k: (k.machine.structs["NVOS46_PARAMETERS"].SIZE,), _map_dma),
    Escape.NV_ESC_RM_UNMAP_MEMORY_DMA: _own(rm.NVOS47_PARAMETERS, alloc_memory.unmap_dma),
    Escape.NV_ESC_REGISTER_FD: (_exactly(rm.nv_ioctl_register_fd_t), _register_fd),
    Escape.NV_ESC_CARD_INFO: (lambda _: _CARD_SIZES, _card_info),
    Escape.NV_ESC_CHECK_VERSION_STR: (_exactly(rm.nv_ioctl_rm_api_version_t), _version),
    Escape.NV_ESC_SYS_PARAMS: (_exactly(rm.nv_ioctl_sys_params_t), _sys_params),
    Escape.NV_ESC_ATTACH_GPUS_TO_FD: (lambda _: _ID_SIZES, _attach),
    Escape.NV_ESC_ALLOC_OS_EVENT: _own(rm.nv_ioctl_alloc_os_event_t, _os_event, status="Status"),
    Escape.NV_ESC_FREE_OS_EVENT: _own(rm.nv_ioctl_free_os_event_t, _os_event, status="Status"),
    Escape.NV_ESC_WAIT_OPEN_COMPLETE: (_exactly(rm.nv_ioctl_wait_open_complete_t), _wait_open),
    Escape.NV_ESC_IOCTL_XFER_CMD: (_exactly(rm.nv_ioctl_xfer_t), _xfer),
}
