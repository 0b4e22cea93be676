"""The client of the resource manager: objects, controls, CPU mappings, by /dev/nvidiactl and /dev/nvidiaN.

It owns the file descriptors and the root client. The caller of `alloc` frees the object; `free` also frees
its children. The client chooses handles, in ascending order, so that traces of two runs are comparable.

Not here: GPU mappings (`uvm`), errors and hints (`refusals`). Next: `topology`, the first queries.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from drivers.kernel import Kernel, Mapping, Mmio, address_of
from drivers.nv.layouts import rm as layouts
from drivers.nv.layouts.branches import STRUCTS, branch_of
from drivers.nv.layouts.chips import CLASS_NAMES
from drivers.nv.layouts.controls import CONTROL_STRUCTS, Control
from drivers.nv.layouts.rm import Escape, request
from drivers.nv.layouts.rm_classes import OsDescriptorFlags, RmClass
from drivers.nv.refusals import escape_error, node_error, refuse, unknown_branch
from hcq.errors import DriverError
from hcq.layout import Struct

_S = TypeVar("_S", bound="Struct")

CTL_NODE = "/dev/nvidiactl"
FIRST_HANDLE = 0x5C00_0001
_NO_WINDOW = (
    "BAR1 is full or too small, or confidential computing is on: close devices, turn on 'Above 4G decoding' "
    "and 'Resizable BAR' in the firmware's settings, or ask for memory of Place.HOST and copy"
)
_NO_PAGES = (
    "pages of this process cannot be pinned: they must be whole, writable, and within the limits of locked "
    "memory (ulimit -l) and of the container's memory; memory of `device.alloc` fulfils this"
)
_VERSION_FILE = "/proc/driver/nvidia/version"


def open_node(kernel: Kernel, path: str) -> int:
    """Open a device node. Raises `DriverError` with a hint."""
    try:
        return kernel.open(path)
    except DriverError as error:
        raise node_error(path, error, kernel) from None


def escape(kernel: Kernel, fd: int, number: Escape, block: bytearray, what: str) -> None:
    """Issue a frontend ioctl, which reads and writes `block`. Raises `DriverError` if the ioctl fails.

    The caller checks the status in the block. `what` names the object in errors.
    """
    try:
        kernel.ioctl(fd, request(number, len(block)), block)
    except DriverError as error:
        name, reason = f"{number.name} ({what})", kernel.refusal()
        raise escape_error(name, len(block), error, reason) from None


def driver_version(kernel: Kernel, ctl: int) -> str:
    """Return the version of the kernel module, from /proc or from a query of the control node.

    Raises `DriverError` if neither can be read.
    """
    with contextlib.suppress(DriverError):
        text = kernel.read_file(_VERSION_FILE).decode(errors="replace")
        for word in text.split():
            if word[:1].isdigit() and word.count(".") >= 1 and word.replace(".", "").isdigit():
                return word
    # In a sandbox /proc/driver/nvidia/version does not exist (nv.md 1.5).
    layout = layouts.nv_ioctl_rm_api_version_t
    block = bytearray(layout.pack(cmd=layouts.VERSION_QUERY))
    escape(kernel, ctl, Escape.NV_ESC_CHECK_VERSION_STR, block, "query")
    return layout.from_bytes(block).versionString


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU in the list of NV_ESC_CARD_INFO."""

    minor: int
    """N of its node /dev/nvidiaN."""
    gpu_id: int
    """The resource manager's id."""
    pci: str
    """PCI address, as "0000:01:00"."""
    device_id: int
    """PCI device id."""


class Rm:
    """One client of the resource manager, with the node of one GPU, or of none to list the GPUs.

    Raises `UnsupportedError` for an unknown driver branch, `DriverError` if a node cannot be opened. Methods
    raise `DriverError` or `OutOfMemoryError` with the status if the resource manager refuses a call.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._undo = contextlib.ExitStack()
        self._next_handle = FIRST_HANDLE
        self._parents: dict[int, int] = {}
        self.node = ""
        """Path of the GPU's node; "" before `open_gpu`."""
        self.gpu_fd = -1
        """Descriptor of the GPU's node; -1 before `open_gpu`."""
        with contextlib.ExitStack() as stack:
            self.ctl = open_node(kernel, CTL_NODE)
            stack.callback(kernel.close, self.ctl)
            self.version = driver_version(kernel, self.ctl)
            branch = branch_of(self.version)
            if branch is None:
                raise unknown_branch(self.version)
            self.branch = branch
            self.structs = STRUCTS[branch]
            self.root = self._alloc_root()
            stack.callback(self.free, self.root)
            self._undo = stack.pop_all()

    def close(self) -> None:
        """Free the client with all its objects and close the descriptors; idempotent."""
        self._undo.close()

    def struct(self, layout: type[_S]) -> type[_S]:
        """Return the layout on this branch that corresponds to a layout of branch 580."""
        # The layouts of all branches have the fields that the driver uses.
        return self.structs[layout.__name__]  # type: ignore[return-value]  # see above

    def cards(self) -> list[Card]:
        """Return the GPUs that this process can open; empty if the kernel driver lists none.

        A single GPU is returned without a test. Raises `DriverError` with a hint if the kernel driver lists
        several GPUs and none can be opened.
        """
        layout = layouts.nv_ioctl_card_info_t
        block = bytearray(layout.SIZE * layouts.CARD_INFO_RECORDS)
        escape(self.kernel, self.ctl, Escape.NV_ESC_CARD_INFO, block, "all")
        records = [layout.from_bytes(block, i * layout.SIZE) for i in range(layouts.CARD_INFO_RECORDS)]
        listed = [
            Card(r.minor_number, r.gpu_id, _slot(r.pci_info), r.pci_info.device_id)
            for r in records
            if r.valid
        ]
        if len(listed) == 1:
            return listed
        usable = [card for card in listed if self._usable(card)]
        if listed and not usable:
            self.kernel.close(open_node(self.kernel, f"/dev/nvidia{listed[0].minor}"))  # raises the reason
        return usable

    def _usable(self, card: Card) -> bool:
        # A container lists all GPUs of the host, but has nodes only for its own.
        try:
            self.kernel.close(self.kernel.open(f"/dev/nvidia{card.minor}"))
        except DriverError as error:
            return error.status not in (errno.ENOENT, errno.ENXIO, errno.EPERM, errno.EACCES)
        return True

    def open_gpu(self, minor: int) -> None:
        """Open the node of a GPU, which initialises the GPU, and register it with this client."""
        self.node = f"/dev/nvidia{minor}"
        self.gpu_fd = open_node(self.kernel, self.node)
        self._undo.callback(self.kernel.close, self.gpu_fd)
        self._register(self.gpu_fd)

    def _register(self, fd: int) -> None:
        block = bytearray(layouts.nv_ioctl_register_fd_t.pack(ctl_fd=self.ctl))
        escape(self.kernel, fd, Escape.NV_ESC_REGISTER_FD, block, self.node)

    def _alloc_root(self) -> int:
        layout = layouts.NVOS64_PARAMETERS
        block = bytearray(layout.pack(hClass=RmClass.NV01_ROOT_CLIENT))
        escape(self.kernel, self.ctl, Escape.NV_ESC_RM_ALLOC, block, "NV01_ROOT_CLIENT")
        reply = layout.from_bytes(block)
        if reply.status:
            refuse("RM_ALLOC NV01_ROOT_CLIENT", reply.status, self.kernel, arguments=repr(reply))
        return reply.hObjectNew

    def new_handle(self) -> int:
        """Return a handle that this client has not used."""
        self._next_handle += 1
        return self._next_handle - 1

    def alloc(self, parent: int, class_: int, params: Struct | None = None, *, hint: str = "") -> int:
        """Allocate an object under `parent` and return its handle.

        `params` None: its class has no parameters. Raises as `refusals.refuse`, which adds `hint`.
        """
        return self._alloc(parent, class_, params, hint)[0]

    def _alloc(self, parent: int, class_: int, params: Struct | None, hint: str) -> tuple[int, bytearray]:
        inner = bytearray(params.to_bytes() if params is not None else b"")
        layout = layouts.NVOS64_PARAMETERS
        handle = self.new_handle()
        block = bytearray(
            layout.pack(
                hRoot=self.root,
                hObjectParent=parent,
                hObjectNew=handle,
                hClass=class_,
                pAllocParms=address_of(inner) if inner else 0,
                paramsSize=len(inner),
            )
        )
        name = class_name(class_)
        escape(self.kernel, self.ctl, Escape.NV_ESC_RM_ALLOC, block, name)
        reply = layout.from_bytes(block)
        if reply.status:
            refuse(
                f"RM_ALLOC {name}", reply.status, self.kernel, arguments=f"{reply!r} {params!r}", hint=hint
            )
        self._parents[reply.hObjectNew] = parent
        return reply.hObjectNew, inner

    def free(self, handle: int) -> None:
        """Free an object and its children."""
        layout = layouts.NVOS00_PARAMETERS
        parent = self._parents.pop(handle, handle)
        block = bytearray(layout.pack(hRoot=self.root, hObjectParent=parent, hObjectOld=handle))
        escape(self.kernel, self.ctl, Escape.NV_ESC_RM_FREE, block, f"{handle:#x}")
        reply = layout.from_bytes(block)
        if reply.status:
            refuse("RM_FREE", reply.status, self.kernel, arguments=repr(reply))

    def control(self, target: int, command: Control, params: _S) -> _S:
        """Issue a control on an object; return its parameters as the kernel driver returned them."""
        inner = bytearray(params.to_bytes())
        self.control_block(target, command, inner, repr(params))
        return type(params).from_bytes(inner)

    def control_block(self, target: int, command: Control, inner: bytearray, shown: str = "") -> None:
        """Issue a control with packed parameters, which are changed in place.

        `shown` describes them in errors.
        """
        layout = layouts.NVOS54_PARAMETERS
        block = bytearray(
            layout.pack(
                hClient=self.root,
                hObject=target,
                cmd=command,
                params=address_of(inner),
                paramsSize=len(inner),
            )
        )
        name = f"RM_CONTROL {command.name}"
        escape(self.kernel, self.ctl, Escape.NV_ESC_RM_CONTROL, block, command.name)
        status = layout.from_bytes(block).status
        if status:
            refuse(name, status, self.kernel, arguments=f"object {target:#x}, {len(inner)} bytes; {shown}")

    def query(self, target: int, command: Control, **fields: object) -> Struct:
        """Issue a control with parameters of its branch's layout, found by the command; return them."""
        layout = self.structs[CONTROL_STRUCTS[command]]
        return self.control(target, command, layout(**fields))

    def map_dma(self, device: int, space: int, memory: int, va: int, size: int) -> int:
        """Map RM memory into an address space that the resource manager owns; return its address.

        `space` is the NV01_MEMORY_VIRTUAL of the address space, `va` the requested address. The call also
        requests 4 KiB pages: otherwise the kernel driver may silently align the address down to a larger
        page.
        """
        layout = self.struct(layouts.NVOS46_PARAMETERS)
        flags = layouts.MapDmaFlags(CACHE_SNOOP=True, PAGE_SIZE=1, DMA_OFFSET_FIXED=True)
        params = layout(
            hClient=self.root, hDevice=device, hDma=space, hMemory=memory, length=size, flags=int(flags),
            dmaOffset=va,
        )  # fmt: skip
        block = bytearray(params.to_bytes())
        escape(self.kernel, self.ctl, Escape.NV_ESC_RM_MAP_MEMORY_DMA, block, f"{memory:#x}")
        reply = layout.from_bytes(block)
        if reply.status:
            refuse("RM_MAP_MEMORY_DMA", reply.status, self.kernel, arguments=repr(reply),
                   hint="sandboxes filter it: use vaspace=uvm")  # fmt: skip
        return reply.dmaOffset

    def unmap_dma(self, device: int, space: int, memory: int, va: int, size: int) -> None:
        """Undo `map_dma`."""
        layout = layouts.NVOS47_PARAMETERS
        params = layout(
            hClient=self.root, hDevice=device, hDma=space, hMemory=memory, dmaOffset=va, size=size
        )
        block = bytearray(params.to_bytes())
        escape(self.kernel, self.ctl, Escape.NV_ESC_RM_UNMAP_MEMORY_DMA, block, f"{memory:#x}")
        reply = layout.from_bytes(block)
        if reply.status:
            refuse("RM_UNMAP_MEMORY_DMA", reply.status, self.kernel, arguments=repr(reply))

    def alloc_os_descriptor(self, device: int, va: int, size: int) -> int:
        """Create an object for this process's pages [va, va + size); they are pinned until it is freed."""
        inner = layouts.NVOS02_PARAMETERS
        layout = layouts.nv_ioctl_nvos02_parameters_with_fd
        flags = OsDescriptorFlags(PHYSICALITY=1, COHERENCY=1, MAPPING=1)
        params = inner(
            hRoot=self.root,
            hObjectParent=device,
            hObjectNew=self.new_handle(),
            hClass=RmClass.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR,
            flags=int(flags),
            pMemory=va,
            limit=size - 1,
        )
        block = bytearray(layout.pack(params=params, fd=-1))
        # This escape is issued on the GPU's node (nv.md 1.2).
        escape(self.kernel, self.gpu_fd, Escape.NV_ESC_RM_ALLOC_MEMORY, block, "OS descriptor")
        reply = layout.from_bytes(block).params
        if reply.status:
            refuse("RM_ALLOC_MEMORY NV01_MEMORY_SYSTEM_OS_DESCRIPTOR", reply.status, self.kernel,
                   arguments=repr(reply), hint=_NO_PAGES)  # fmt: skip
        self._parents[reply.hObjectNew] = device
        return reply.hObjectNew

    @contextlib.contextmanager
    def _mapping_fd(self, owner: int, memory: int, size: int, *, on_gpu: bool) -> Iterator[int]:
        # A descriptor holds exactly one mapping context, so each mapping uses a new one (nv.md 1.4).
        fd = open_node(self.kernel, self.node if on_gpu else CTL_NODE)
        try:
            if on_gpu:
                self._register(fd)
            inner = layouts.NVOS33_PARAMETERS
            layout = layouts.nv_ioctl_nvos33_parameters_with_fd
            params = inner(hClient=self.root, hDevice=owner, hMemory=memory, length=size)
            block = bytearray(layout.pack(params=params, fd=fd))
            escape(self.kernel, self.ctl, Escape.NV_ESC_RM_MAP_MEMORY, block, f"{memory:#x}")
            reply = layout.from_bytes(block).params
            if reply.status:
                hint = _NO_WINDOW if on_gpu else ""
                refuse("RM_MAP_MEMORY", reply.status, self.kernel, arguments=repr(reply), hint=hint)
            yield fd
        finally:
            self.kernel.close(fd)

    def map_memory(self, owner: int, memory: int, size: int, *, va: int, on_gpu: bool, flags: int) -> Mapping:
        """Map RM memory into this process at `va`; the caller owns the mapping.

        `owner` is the parent object of the memory. `on_gpu` is True for video memory, False for system
        memory.
        """
        with self._mapping_fd(owner, memory, size, on_gpu=on_gpu) as fd:
            return self.kernel.mmap(size, fd=fd, va=va, flags=flags)

    def map_registers(self, owner: int, memory: int, size: int) -> Mmio:
        """Map a page of registers; the caller closes the result."""
        with self._mapping_fd(owner, memory, size, on_gpu=True) as fd:
            return self.kernel.mmio(fd, size, 0)


def _slot(pci: layouts.nv_pci_info_t) -> str:
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.slot:02x}"


def class_name(class_: int) -> str:
    """Return the name of an RM or engine class."""
    try:
        return RmClass(class_).name
    except ValueError:
        return CLASS_NAMES.get(class_, f"class {class_:#x}")
