"""A scripted kernel under the NVIDIA driver: it checks and answers RM and UVM calls, and computes nothing.

The doorbell executes semaphore releases only (`scripted_doorbell`), so that waits end. The replies to
controls come from a `Script` (`script`). Every call is recorded as a decoded line; every object, descriptor
and mapping is counted. For tests and golden streams.

Not here: an emulated GPU (`emulator.nv`). Next: `scripted_doorbell`, `script`, `scripted_host`.
"""

# ruff: noqa: D102 - methods are those of `drivers.kernel.Kernel` and `Mmio`

from __future__ import annotations

import errno
import itertools
from typing import TYPE_CHECKING, Any

from drivers.kernel import Mapping, view_at
from drivers.nv.decode import fields_text
from drivers.nv.layouts import rm as rm_layouts
from drivers.nv.layouts.branches import STRUCTS, branch_of
from drivers.nv.layouts.chips import CLASS_NAMES, USERMODE_WITH_PARAMS
from drivers.nv.layouts.controls import CONTROL_STRUCTS, Control
from drivers.nv.layouts.fault import NOTIFIER_POSTED, NvNotification
from drivers.nv.layouts.rm import Escape, Request
from drivers.nv.layouts.rm_classes import ALLOC_STRUCTS, RmClass, VaspaceFlags
from drivers.nv.layouts.status import NvStatus
from drivers.nv.layouts.uvm import COMMAND_STRUCTS, UvmCommand
from hcq.errors import DriverError
from tests.support.nv.script import ControlReplies, Script, uuid_of
from tests.support.nv.scripted_doorbell import Doorbell, Registers
from tests.support.nv.scripted_host import HostCalls, RefusedError

if TYPE_CHECKING:
    from hcq.layout import Struct

_CTL, _UVM = "/dev/nvidiactl", "/dev/nvidia-uvm"


class ScriptedKernel(HostCalls):
    """The NVIDIA kernel driver, scripted."""

    def __init__(self, script: Script | None = None) -> None:
        super().__init__()
        self.script = script or Script()
        self._contexts: dict[int, int] = {}
        """Descriptor -> the object that its one mapping will show."""
        self.objects: dict[int, tuple[int, int, dict[str, Any]]] = {}
        """Handle -> class, parent and allocation parameters."""
        self._ranges: dict[int, int] = {}
        """Device address -> bytes of each external range of UVM."""
        self._uvm: set[str] = set()
        self._peers: set[bytes] = set()
        """UUIDs of the GPUs whose memory this one may map."""
        self.others: list[ScriptedKernel] = []
        """The kernels of the machine's other GPUs."""
        self._dma: dict[int, int] = {}
        """Device address -> the memory that RM_MAP_MEMORY_DMA mapped there."""
        self._shown: dict[int, tuple[int, int]] = {}
        """Device address -> size and the host address behind it."""
        self._roots = itertools.count(0xC1D0_0001 + 0x1000 * self.script.index)
        self._tokens: dict[int, int] = {}
        """Work submit token -> channel."""
        self._views: dict[int, int] = {}
        """Memory object -> where this process maps it."""
        self.doorbell = Doorbell(self.script, self.objects, self._tokens, self._shown, self._views)
        self._structs = STRUCTS[branch_of(self.script.version) or 580]

    def leaks(self) -> list[str]:
        """Return a line for each descriptor, object, range and mapping that is still held."""
        held = super().leaks()
        held += [f"object {h:#x} of class {c:#x}" for h, (c, _, _) in self.objects.items()]
        held += [f"range {va:#x}+{size:#x}" for va, size in self._ranges.items()]
        held += [f"mapping for the GPU {va:#x} of {memory:#x}" for va, memory in self._dma.items()]
        return held + [f"uvm registration {name}" for name in sorted(self._uvm)]

    def open_errno(self, path: str) -> int:
        known = path in {_CTL, _UVM} or (
            path.startswith("/dev/nvidia") and path.removeprefix("/dev/nvidia").isdigit()
        )
        if not known:
            raise RefusedError(f"open {path}")
        return self.script.missing_errno if path in self.script.missing else 0

    def closed(self, fd: int) -> None:
        self._contexts.pop(fd, None)

    def read_file(self, path: str) -> bytes:
        if path == "/proc/driver/nvidia/version" and self.script.proc_version:
            return f"NVRM version: NVIDIA UNIX Kernel Module  {self.script.version}  Release\n".encode()
        raise DriverError("read", errno.ENOENT, "ENOENT", arguments=path)

    def list_dir(self, path: str) -> list[str]:
        if not path.startswith(("/dev", "/sys/bus/pci/")):
            raise RefusedError(f"listdir {path}")
        raise DriverError("listdir", errno.ENOENT, "ENOENT", arguments=path)

    def map_file(self, fd: int, size: int, *, offset: int, va: int, prot: int, flags: int | None) -> Mapping:
        if offset:
            raise RefusedError(f"mmap at offset {offset:#x}")
        self.calls.append(f"mmap {self._fds[fd]} {size:#x} at {va:#x}")
        self._views[self._contexts[fd]] = va
        return self.anonymous(size, va=va, prot=prot, flags=flags)

    def mmio(self, fd: int, size: int, offset: int) -> Registers:
        self.calls.append(f"mmio {self._fds[fd]} {size:#x} at {offset:#x}")
        _, _, values = self.objects[self._contexts[fd]]
        return Registers(self.doorbell, self.calls, readable=not values.get("bBar1Mapping"))

    def fence(self) -> None:
        """Do nothing: no other processor reads the stores."""

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        if not isinstance(argument, bytearray):
            raise RefusedError(f"ioctl {request:#x} with a number")
        if self._fds[fd] == _UVM:
            return self._uvm_call(request, argument)
        word = Request.from_int(request)
        number = Escape(word.NR)
        if len(argument) != word.SIZE_:
            raise RefusedError(f"{number.name}: {word.SIZE_} bytes announced, {len(argument)} given")
        getattr(self, f"_{number.name.lower()}")(fd, argument)
        return 0

    def _reply(self, layout: type[Struct], block: bytearray, what: str, **fields: Any) -> None:
        status = self.script.refuse.get(what, 0)
        if status:
            fields = {"status": status}
        layout.store(block, **fields)

    def _ok(self, block: bytearray, layout: type[Struct]) -> bool:
        at = layout.offset_of("status")
        return not any(block[at : at + 4])

    def _nv_esc_check_version_str(self, _fd: int, block: bytearray) -> None:
        layout = rm_layouts.nv_ioctl_rm_api_version_t
        layout.store(block, reply=rm_layouts.VERSION_RECOGNISED, versionString=self.script.version)
        self.calls.append(f"CHECK_VERSION_STR -> {self.script.version}")

    def _nv_esc_card_info(self, _fd: int, block: bytearray) -> None:
        layout = rm_layouts.nv_ioctl_card_info_t
        for i in range(self.script.gpus):
            pci = rm_layouts.nv_pci_info_t(bus=i + 1, vendor_id=0x10DE, device_id=0x2335)
            layout.store(
                block, i * layout.SIZE, valid=True, pci_info=pci, gpu_id=0x100 * (i + 1), minor_number=i
            )
        self.calls.append(f"CARD_INFO -> {self.script.gpus} GPUs")

    def _nv_esc_register_fd(self, fd: int, block: bytearray) -> None:
        if "nvidiactl" in self._fds[fd] or self._fds.get(int.from_bytes(block, "little")) != _CTL:
            raise RefusedError("REGISTER_FD belongs on the GPU's node, with the control node's descriptor")
        self.calls.append(f"REGISTER_FD {self._fds[fd]}")

    def _nv_esc_rm_alloc(self, _fd: int, block: bytearray) -> None:
        layout = rm_layouts.NVOS64_PARAMETERS
        call = layout.from_bytes(block)
        name = _name_of(call.hClass)
        shape = self._alloc_layout(call.hClass)
        if call.pAllocParms and (shape is None or call.paramsSize != shape.SIZE):
            raise RefusedError(f"RM_ALLOC {name} with {call.paramsSize} bytes")
        params = (
            shape.from_bytes(view_at(call.pAllocParms, call.paramsSize))
            if call.pAllocParms and shape
            else None
        )
        self.calls.append(
            f"RM_ALLOC {name} parent={call.hObjectParent:#x} new={call.hObjectNew:#x}"
            + (f" {fields_text(params)}" if params is not None else "")
        )
        if call.hClass != RmClass.NV01_ROOT_CLIENT and call.hObjectParent not in self.objects:
            raise RefusedError(f"RM_ALLOC {name} under {call.hObjectParent:#x}, which does not exist")
        if call.hClass == self.script.generation.copy[0] and not self.script.graphics_copy and params is None:
            layout.store(block, status=NvStatus.INVALID_ARGUMENT)
            return
        handle = call.hObjectNew or next(self._roots)
        self._reply(layout, block, name, hObjectNew=handle)
        if self._ok(block, layout):
            values = {n: getattr(params, n) for n in type(params).FIELDS} if params is not None else {}
            self.objects[handle] = (call.hClass, call.hObjectParent, values)

    def _alloc_layout(self, class_: int) -> type[Struct] | None:
        row = self.script.generation
        known = ALLOC_STRUCTS.get(class_)
        if known is not None:
            return self._structs[known.__name__]
        engine = {
            **dict.fromkeys(row.gpfifo, "NV_CHANNEL_ALLOC_PARAMS"),
            **dict.fromkeys(row.usermode, "NV_HOPPER_USERMODE_A_PARAMS"),
            row.compute: "NV_GR_ALLOCATION_PARAMETERS",
            row.copy[0]: "NVB0B5_ALLOCATION_PARAMETERS",
        }
        if class_ not in engine:
            raise RefusedError(f"RM_ALLOC of class {class_:#x}")
        if class_ in row.usermode and class_ < USERMODE_WITH_PARAMS:
            return None
        return self._structs[engine[class_]]

    def _nv_esc_rm_free(self, _fd: int, block: bytearray) -> None:
        call = rm_layouts.NVOS00_PARAMETERS.from_bytes(block)
        if call.hObjectOld not in self.objects:
            raise RefusedError(f"RM_FREE {call.hObjectOld:#x}, which does not exist")
        self.calls.append(f"RM_FREE {_name_of(self.objects[call.hObjectOld][0])} {call.hObjectOld:#x}")
        self._reply(rm_layouts.NVOS00_PARAMETERS, block, "RM_FREE")
        if self._ok(block, rm_layouts.NVOS00_PARAMETERS):
            self._drop(call.hObjectOld)

    def _drop(self, handle: int) -> None:
        for child in [h for h, (_, parent, _) in self.objects.items() if parent == handle]:
            if child in self.objects:
                self._drop(child)
        self.objects.pop(handle, None)

    def _nv_esc_rm_alloc_memory(self, fd: int, block: bytearray) -> None:
        layout = rm_layouts.nv_ioctl_nvos02_parameters_with_fd
        call = layout.from_bytes(block).params
        if call.hClass != RmClass.NV01_MEMORY_SYSTEM_OS_DESCRIPTOR or "nvidiactl" in self._fds[fd]:
            raise RefusedError(f"RM_ALLOC_MEMORY {call!r} on {self._fds[fd]}")
        if call.pMemory % 4096 or (call.limit + 1) % 4096:
            raise RefusedError(f"OS descriptor of part of a page: {call!r}")
        self.calls.append(f"RM_ALLOC_MEMORY OS_DESCRIPTOR {call.hObjectNew:#x} {fields_text(call)}")
        inner = bytearray(call.to_bytes())
        self._reply(rm_layouts.NVOS02_PARAMETERS, inner, "OS_DESCRIPTOR")
        if self._ok(inner, rm_layouts.NVOS02_PARAMETERS):
            self.objects[call.hObjectNew] = (call.hClass, call.hObjectParent, {"pMemory": call.pMemory})
        layout.store(block, params=rm_layouts.NVOS02_PARAMETERS.from_bytes(inner))

    def _nv_esc_rm_map_memory(self, _fd: int, block: bytearray) -> None:
        layout = rm_layouts.nv_ioctl_nvos33_parameters_with_fd
        call = layout.from_bytes(block)
        memory = self.objects.get(call.params.hMemory)
        if memory is None:
            raise RefusedError(f"RM_MAP_MEMORY of {call.params.hMemory:#x}, which does not exist")
        on_ctl = self._fds[call.fd] == _CTL
        if on_ctl != (memory[0] == RmClass.NV01_MEMORY_SYSTEM):
            raise RefusedError(f"RM_MAP_MEMORY of {_name_of(memory[0])} through {self._fds[call.fd]}")
        self.calls.append(
            f"RM_MAP_MEMORY {_name_of(memory[0])} {call.params.hMemory:#x} {call.params.length:#x}"
        )
        inner = bytearray(call.params.to_bytes())
        if call.fd in self._contexts:
            raise RefusedError(f"RM_MAP_MEMORY for {self._fds[call.fd]}, which has a mapping context")
        self._reply(rm_layouts.NVOS33_PARAMETERS, inner, "RM_MAP_MEMORY", pLinearAddress=0x1000)
        self._contexts[call.fd] = call.params.hMemory
        layout.store(block, params=rm_layouts.NVOS33_PARAMETERS.from_bytes(inner))

    def _nv_esc_rm_map_memory_dma(self, _fd: int, block: bytearray) -> None:
        layout = self._structs[rm_layouts.NVOS46_PARAMETERS.__name__]
        call: Any = layout.from_bytes(block)
        space = self.objects.get(call.hDma)
        if space is None or space[0] != RmClass.NV01_MEMORY_VIRTUAL or call.hMemory not in self.objects:
            raise RefusedError(f"RM_MAP_MEMORY_DMA {call!r}")
        owned = self.objects.get(space[2]["hVASpace"])
        if owned is None or owned[2]["flags"] & VaspaceFlags.IS_EXTERNALLY_OWNED:
            raise RefusedError("RM_MAP_MEMORY_DMA into an address space that UVM owns")
        self.calls.append(f"RM_MAP_MEMORY_DMA {call.hMemory:#x} {call.length:#x} at {call.dmaOffset:#x}")
        self._reply(layout, block, "RM_MAP_MEMORY_DMA", dmaOffset=call.dmaOffset + self.script.dma_moves)
        if self._ok(block, layout):
            where = self.objects[call.hMemory][2].get("pMemory", call.dmaOffset)
            self._dma[call.dmaOffset + self.script.dma_moves] = call.hMemory
            self._shown[call.dmaOffset] = (call.length, where)

    def _nv_esc_rm_unmap_memory_dma(self, _fd: int, block: bytearray) -> None:
        layout = rm_layouts.NVOS47_PARAMETERS
        call = layout.from_bytes(block)
        if self._dma.get(call.dmaOffset) != call.hMemory:
            raise RefusedError(f"RM_UNMAP_MEMORY_DMA of {call.dmaOffset:#x}, where nothing is mapped")
        self.calls.append(f"RM_UNMAP_MEMORY_DMA {call.hMemory:#x} at {call.dmaOffset:#x}")
        self._reply(layout, block, "RM_UNMAP_MEMORY_DMA")
        if self._ok(block, layout):
            del self._dma[call.dmaOffset]
            self._shown.pop(call.dmaOffset, None)

    def _nv_esc_rm_control(self, _fd: int, block: bytearray) -> None:
        layout = rm_layouts.NVOS54_PARAMETERS
        call = layout.from_bytes(block)
        command = Control(call.cmd)
        shape = self._structs[CONTROL_STRUCTS[command]]
        if call.paramsSize != shape.SIZE:
            layout.store(block, status=NvStatus.INVALID_PARAM_STRUCT)
            return
        inner = view_at(call.params, call.paramsSize)
        asked = shape.from_bytes(inner)
        short = command.name.replace("_CTRL_CMD_", " ").replace("_CTRL_", " ")
        replies = ControlReplies(self.script, self._tokens)
        self.calls.append(f"RM_CONTROL {short} object={call.hObject:#x} {_no_pointers(fields_text(asked))}")
        if self.script.mig and command == Control.NV2080_CTRL_CMD_GR_GET_INFO:
            layout.store(block, status=NvStatus.NOT_SUPPORTED)
            return
        reply = replies.reply(command, call.hObject, asked)
        if reply is None:
            layout.store(block, status=NvStatus.NOT_SUPPORTED)
            return
        self._reply(layout, block, command.name)
        if self._ok(block, layout):
            shape.store(inner, **reply)

    def _uvm_call(self, request: int, block: bytearray) -> int:
        command = UvmCommand(request)
        shape = self._structs[COMMAND_STRUCTS[command].__name__]
        if len(block) != shape.SIZE:
            raise RefusedError(f"{command.name} with {len(block)} bytes")
        asked: Any = shape.from_bytes(block)
        self.calls.append(f"{command.name} {fields_text(asked)}".rstrip())
        status = self.script.refuse.get(command.name, 0)
        if not status:
            status = self._uvm_state(command, asked)
        shape.store(block, rmStatus=status)
        return 0

    def _uvm_state(self, command: UvmCommand, asked: Any) -> int:
        name = command.name
        if command is UvmCommand.UVM_MM_INITIALIZE:
            return NvStatus.WARN_NOTHING_TO_DO
        if command is UvmCommand.UVM_CREATE_EXTERNAL_RANGE:
            self._ranges[asked.base] = asked.length
        elif command is UvmCommand.UVM_FREE:
            if asked.base not in self._ranges:
                raise RefusedError(f"{name} of {asked.base:#x}, which is not a range")
            del self._ranges[asked.base]
            self._shown.pop(asked.base, None)
        elif command is UvmCommand.UVM_MAP_EXTERNAL_ALLOCATION:
            owner = self if asked.hClient in self.objects else self._owner(asked.hClient)
            if asked.hMemory not in owner.objects:
                raise RefusedError(f"{name} of memory {asked.hMemory:#x}, which does not exist")
            if owner is not self and uuid_of(owner.script.index) not in self._peers:
                return NvStatus.INVALID_DEVICE
            where = owner.objects[asked.hMemory][2].get("pMemory", asked.base)
            self._shown[asked.base] = (asked.length, where)
        elif command is UvmCommand.UVM_ENABLE_PEER_ACCESS:
            return self._enable_peer(asked.gpuUuidA.uuid, asked.gpuUuidB.uuid)
        elif name.startswith("UVM_REGISTER_"):
            self._uvm.add(self._registration(name.removeprefix("UVM_REGISTER_"), asked))
        elif name.startswith("UVM_UNREGISTER_"):
            self._uvm.remove(self._registration(name.removeprefix("UVM_UNREGISTER_"), asked))
            if command is UvmCommand.UVM_UNREGISTER_GPU:
                self._peers.discard(asked.gpu_uuid.uuid)
        return NvStatus.OK

    def _owner(self, client: int) -> ScriptedKernel:
        for other in self.others:
            if client in other.objects:
                return other
        raise RefusedError(f"memory of client {client:#x}, which does not exist")

    def _enable_peer(self, one: bytes, other: bytes) -> int:
        if not {f"GPU {uuid.hex()}" for uuid in (one, other)} <= self._uvm or other in self._peers:
            return NvStatus.INVALID_DEVICE
        if not self.script.link:
            return NvStatus.NOT_SUPPORTED
        self._peers.add(other)
        # Those that NVLink joins are peers already.
        return NvStatus.INVALID_DEVICE if self.script.link == "nvlink" else NvStatus.OK

    def _registration(self, name: str, asked: Any) -> str:
        if name == "GPU":
            return f"GPU {asked.gpu_uuid.uuid.hex()}"
        return f"{name} {asked.hChannel:#x}" if name == "CHANNEL" else name

    def post_error(self, code: int) -> None:
        """Write a robust-channel error (`code`) to the error notifier of every channel."""
        for class_, _, values in list(self.objects.values()):
            if class_ in self.script.generation.gpfifo and values["hObjectError"]:
                va = self._notifier_va(values["hObjectError"])
                view_at(va, NvNotification.SIZE)[:] = NvNotification(
                    info32=code, status=NOTIFIER_POSTED
                ).to_bytes()

    def _notifier_va(self, handle: int) -> int:
        line = next(
            i for i, c in enumerate(self.calls) if c.startswith("RM_MAP_MEMORY") and f"{handle:#x}" in c
        )
        mapped = next(c for c in self.calls[line:] if c.startswith("mmap /dev/nvidiactl"))
        return int(mapped.rsplit(" ", 1)[1], 16)


def _name_of(class_: int) -> str:
    try:
        return RmClass(class_).name
    except ValueError:
        return CLASS_NAMES.get(class_, f"class {class_:#x}")


def _no_pointers(text: str) -> str:
    """Remove the fields that hold host addresses, which differ between runs, from a golden line."""
    return " ".join(part for part in text.split(" ") if not part.startswith(("grInfoList=", "classList=")))
