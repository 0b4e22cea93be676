"""Devices of tensors: each is opened by name at its first use, once for the whole process.

`Device["cpu"]` is the open device, `Device.DEFAULT` the name of the device of new tensors. Device memory that
the host cannot access is read and written through a copy queue. Kernels run in order on the first compute
queue.

Not here: opening hardware (`hcq.registry`), moving tensors (`transfer`). Next: `hcq.device`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final, Self

from compiler.dtype import dtypes
from frontend.arguments.conversion import shown
from frontend.later import later
from hcq.errors import HcqError, UsageError, UsageTypeError

if TYPE_CHECKING:
    import hcq

_mesh = later("frontend.distributed.mesh")
LOCK: Final = threading.RLock()
"""Held by a thread that plans, launches, differentiates or assigns. Acquired before locks of `hcq`."""
SMALL: Final = 64
"""The most bytes of host data that are uploaded to a GPU as stores in front of its next launch."""
_LOOK: Final = "`python -m hcq` says what others need"
_hooked: Final[list[bool]] = []


def _hook_forks() -> None:
    """Acquire `LOCK` around each fork: a child could never acquire a lock that another thread held."""
    if not _hooked:
        _hooked.append(True)
        os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)


class TensorDevice:
    """An open device, and the programs and temporary memory that the frontend keeps for it."""

    devices: tuple[TensorDevice, ...] = ()
    """The devices of a mesh (`frontend.distributed.mesh`); () for a device."""

    def __init__(self, name: str, device: hcq.Device) -> None:
        from hcq.driver import BufferSpec, Place  # noqa: PLC0415 - nothing of the queue layer before a device is opened

        self.name = name
        self.hcq = device
        self.queue = device.compute
        self.direct = device.info.host_addressable
        """Whether the host can access device memory directly."""
        self.programs: weakref.WeakValueDictionary[object, hcq.Program] = weakref.WeakValueDictionary()
        """Code of a kernel -> its program, as long as a plan or a captured function references it."""
        self._scratch: hcq.Buffer | None = None
        self.scratches: weakref.WeakSet[hcq.Buffer] = weakref.WeakSet()
        """All scratch buffers, also the smaller ones that older plans still use."""
        self.paths: dict[str, object] = {}
        """Name of another device -> the copies from it (`frontend.distributed.transport`)."""
        visible = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)
        self._visible = BufferSpec() if self.direct else visible

    @property
    def closed(self) -> bool:
        """Whether the device was closed."""
        return self.hcq.closed

    @cached_property
    def arch(self) -> str:
        """The name of the device's target for the compiler (`compiler.targets.arch_for`)."""
        from compiler.targets import arch_for  # noqa: PLC0415 - nothing of the compiler before a kernel is wanted

        return arch_for(self.hcq.info)

    def alloc(self, nbytes: int, *, label: str = "") -> hcq.Buffer:
        """Return a new buffer of at least `nbytes` bytes with undefined contents.

        Raises as `hcq.Device.alloc`.
        """
        return self.hcq.alloc(nbytes or 1, label=label)

    def alloc_partial(self, nbytes: int, *, label: str = "") -> hcq.Buffer:
        """Return a new buffer in which kernels may leave elements unwritten that others load and discard.

        It counts as written, so that no check for uninitialised reads reports it. Raises as
        `hcq.Device.alloc`.
        """
        buffer = self.hcq.alloc(nbytes or 1, label=label)
        buffer.count_as_written()
        return buffer

    def scratch(self, nbytes: int) -> hcq.Buffer:
        """Return at least `nbytes` bytes for the temporaries of one launch.

        All launches of the device share it, as its queue runs them in order. Raises as `hcq.Device.alloc`.
        """
        if self._scratch is None or self._scratch.size < nbytes:
            self._scratch = self.hcq.alloc(1 << max(16, (nbytes - 1).bit_length()), label="scratch")
            self.scratches.add(self._scratch)
        return self._scratch

    def program(self, image: hcq.KernelImage) -> hcq.Program:
        """Return the loaded program of a kernel image, loaded once per code. Raises as `hcq.Device.load`."""
        found = self.programs.get(image.code)
        if found is None:
            found = self.programs[image.code] = self.hcq.load(image)
        return found

    def write(self, data: bytes | memoryview, *, label: str = "") -> hcq.Buffer:
        """Return new device memory that contains `data` for all later submissions to the compute queue.

        The caller may reuse `data` at once. Raises as `hcq.Device.alloc`.
        """
        size, queue = len(data), self.queue
        if 0 < size <= SMALL and not self.direct:
            data = bytes(data).ljust(-(-size // 8) * 8, b"\0")
            buffer, stores = self.alloc(len(data), label=label), queue.record(label="upload")
            for at in range(0, size, 8):
                stores.write(
                    buffer.view(at) if at else buffer, int.from_bytes(data[at : at + 8], "little"), bits=64
                )
            queue.prepend(stores)
            return buffer
        buffer = self.alloc(size, label=label)
        if self.direct and data:
            buffer.borrow()[: len(data)] = data
        else:
            self.write_into(buffer, 0, data)
        return buffer

    def write_into(self, buffer: hcq.Buffer, at: int, data: bytes | memoryview) -> None:
        """Copy `data` to byte `at` of a buffer that no submission uses yet, for all later ones.

        The caller may reuse `data` at once. Raises as `hcq.Device.alloc`.
        """
        size, queue = len(data), self.queue
        if not size:
            return
        if self.direct:
            buffer.borrow()[at : at + size] = data
            return
        staging = self.hcq.alloc(size, self._visible, label="staging")
        staging.borrow()[:size] = data
        copies = self.hcq.copies[0] if self.hcq.copies else queue
        part = buffer.view(at, size) if at else buffer
        point = copies.submit(copies.record(label="upload").copy(part, staging, size))
        queue.prepend(queue.record(label="after upload"), after=[point])

    def write_small(self, data: bytes) -> hcq.Buffer:
        """Return new host-visible memory that contains `data`, for a few bytes that kernels read in place.

        Raises as `hcq.Device.alloc`.
        """
        buffer = self.hcq.alloc(len(data), self._visible)
        buffer.borrow()[: len(data)] = data
        return buffer

    def read(self, buffer: hcq.Buffer, nbytes: int) -> memoryview:
        """Wait for all submissions so far; return the first `nbytes` bytes of a buffer.

        The result may be the memory itself, valid until the buffer is written again or freed: the caller
        copies it immediately. Raises as `hcq.Point.wait`.
        """
        if self.direct or not nbytes:
            self.queue.end().wait()
            return buffer.borrow()[:nbytes] if nbytes else memoryview(b"")
        staging = self.hcq.alloc(nbytes, self._visible, label="staging")
        queue = self.hcq.copies[0] if self.hcq.copies else self.queue
        queue.submit(
            queue.record(label="download").copy(staging, buffer, nbytes), after=[self.queue.end()]
        ).wait()
        return memoryview(bytes(staging.borrow()[:nbytes]))

    def copied(self, buffer: hcq.Buffer) -> hcq.Buffer:
        """Return a new buffer with the same contents. The copy runs in order with the launches.

        Raises as `hcq.Device.alloc` and `hcq.Queue.submit`.
        """
        new = self.alloc(buffer.size)
        self.queue.submit(self.queue.record(label="copy on write").copy(new, buffer))
        return new

    def synchronize(self) -> None:
        """Wait until all submissions so far are complete. Raises as `hcq.Device.sync`."""
        self.hcq.sync()

    def fault(self) -> Callable[[], HcqError] | None:
        """Return the error of a fault, also of another device whose lost work a queue waits for, or None."""
        from hcq.faults.recovery import waits_on_lost  # noqa: PLC0415 - only after a fault

        self.hcq.poll_driver()
        waiting = [waits_on_lost(queue) for queue in self.hcq.queues]
        return next((reason for reason in [self.hcq.refusal, *waiting] if reason is not None), None)

    def recover(self) -> None:
        """Recover from a fault of the device; see `hcq.Device.recover`.

        Tensors keep their values. A tensor that was being computed or written when the fault occurred raises
        the fault's error until it is assigned to. Captured functions can be used again. Raises as
        `hcq.Device.recover`.
        """
        with LOCK:
            reason = self.fault()
            known = [device.scratches for device in Device.opened() if not device.devices]
            for buffer in self.hcq.recover():  # lost work may have copied from another device's
                if not any(buffer in scratches for scratches in known):
                    buffer.close(reason=reason)
            for callback in Device.recovered:
                callback(self.name)

    def close(self) -> None:
        """Close the device. Tensors on it raise `UsageError` afterwards; the name opens a new device."""
        self._scratch = None
        self.programs.clear()
        Device.forget(self)
        self.hcq.close()

    def __repr__(self) -> str:
        return f"<Device {self.name}: {self.hcq.info.name}, {self.hcq.info.arch}>"


class Devices:
    """The devices of this process by name; its only instance is `Device`."""

    def __init__(self) -> None:
        self._open: dict[str, TensorDevice] = {}
        self._names: dict[str, str] = {}
        self._default = ""
        self._gpu_number = 0
        self._lock = threading.RLock()
        self.closing: list[Callable[[str], None]] = []
        """Callbacks with the name of a device that is being closed, to drop its plans."""
        self.recovered: list[Callable[[str], None]] = []
        """Callbacks with the name of a device that recovered, after the memory of lost work was closed."""

    @property
    def DEFAULT(self) -> str:  # noqa: N802 - the field's name for it
        """The name of the device of new tensors; may be set.

        Initially `HCQ_DEVICE` if that is set and not "auto", else the first GPU, else "cpu". Reading it
        raises `UsageError` for a wrong `HCQ_DEVICE`; setting it raises `UsageError` and `UsageTypeError` as
        `canonical`.
        """
        return self._default or self._find_default()

    @DEFAULT.setter
    def DEFAULT(self, name: str) -> None:  # noqa: N802 - as above
        self._default = self.canonical(name)

    def _find_default(self) -> str:
        from hcq.config import config  # noqa: PLC0415 - nothing of the queue layer before a device is needed

        chosen = config().device
        if chosen and chosen != "auto":
            self._default = self.canonical(chosen)
        else:
            self._default = self["auto"].name
        return self._default

    def canonical(self, name: str) -> str:
        """Return the canonical name of a device: "cpu" for "cpu:0".

        "auto" is the default device. Raises `UsageError`, which lists the devices, for an unknown name,
        `UsageTypeError` for no string. The name of a mesh is the names of its devices, separated by commas.
        """
        if not isinstance(name, str):
            raise UsageTypeError(f"a device is named, as in 'cpu' or 'nv:1', saw {shown(name)}")
        found = self._names.get(name)
        if found is None and "," in name:
            parts = [self.canonical(part) for part in name.split(",")]
            if len(set(parts)) < len(parts):
                raise UsageError(f"{name!r}: wanted different devices, saw one of them twice")
            found = self._names[name] = ",".join(parts)
        if found is None:
            from hcq.registry import parse  # noqa: PLC0415 - as above

            if name == "auto":
                return self.DEFAULT
            try:
                entry, index, variant = parse(self._gpu(name))
            except UsageError as error:
                if name in vars(dtypes):
                    hint = f"hint: .to(dtype={name!r})"
                    raise UsageError(f"wanted a device, saw the dtype {name!r}\n{hint}") from None
                raise UsageError(f"{error}\nhint: this machine has {self.available()}; {_LOOK}") from None
            found = entry.name + (f":{variant}" if variant else "") + (f":{index}" if index else "")
            self._names[name] = found
        return found

    def gpus(self) -> list[str]:
        """Return the names of the GPUs that can be opened now; no emulated ones."""
        from hcq.registry import drivers  # noqa: PLC0415 - as above

        real = [e.driver() for e in drivers() if e.hardware and e.present()]
        return [f"{d.name}:{info.index}" for d in real for info in d.enumerate()]

    def lacks(self, name: str) -> bool:
        """Return whether a name is that of a GPU in other frameworks, "cuda:1", which is not here."""
        from hcq.registry import GPU_NAMES  # noqa: PLC0415 - as above

        kind, _, number = name.partition(":")
        return kind in GPU_NAMES and (not number or number.isdigit()) and int(number or 0) >= len(self.gpus())

    def _gpu(self, name: str) -> str:
        """Return the name of the GPU that other frameworks call "cuda" or "gpu:1"; else the name itself."""
        kind, _, number = name.partition(":")
        from hcq.registry import GPU_NAMES  # noqa: PLC0415 - as above

        if kind not in GPU_NAMES:
            return name
        if number and not number.isdigit():
            raise UsageError(f"{name!r}: wanted a GPU's number, as in 'cuda:0', saw {number!r}")
        gpus, wanted = self.gpus(), int(number) if number else self._gpu_number
        if wanted < len(gpus):
            return gpus[wanted]
        seen = ", ".join(gpus) or "no GPU"
        raise UsageError(f"{name!r}: wanted GPU {wanted}, saw {seen}; GPUs are called nv or amd")

    def choose_gpu(self, name: str) -> None:
        """Let "cuda" mean a GPU of `gpus`; it is the default device from now on if that was a GPU.

        Raises `UsageError` for another device, and as `canonical`.
        """
        gpus = [self.canonical(gpu) for gpu in self.gpus()]
        if self.canonical(name) not in gpus:
            raise UsageError(f"wanted a GPU, saw {name!r}; there are {', '.join(gpus) or 'none'}")
        from hcq.registry import GPU_NAMES  # noqa: PLC0415 - as above

        with self._lock:
            self._gpu_number = gpus.index(self.canonical(name))
            for gpu in GPU_NAMES:
                self._names.pop(gpu, None)
            if self._default in gpus:
                self._default = gpus[self._gpu_number]

    def named(self, name: str | None) -> str:
        """Return the canonical name of a device; None: of the default device.

        Raises as `canonical` and `DEFAULT`.
        """
        return (self._default or self._find_default()) if name is None else self.canonical(name)

    def available(self) -> str:
        """Return the names of the devices that can be opened now, as text: "cpu, nv:1", or "no device"."""
        from hcq.registry import devices  # noqa: PLC0415 - as above

        names = [d.driver + (f":{d.index}" if d.index else "") for d in devices()]
        return ", ".join(dict.fromkeys(names)) or "no device"

    def __getitem__(self, name: str) -> TensorDevice:
        """Return the device of a name, opened at its first use; it stays open until `TensorDevice.close`.

        Raises as `hcq.open` and `canonical`.
        """
        try:
            found = self._open.get(name)
        except TypeError:  # not hashable, so no name
            found = None
        if found is not None:
            return found
        with self._lock:
            return self._opened(name)

    def _opened(self, name: str) -> TensorDevice:
        import hcq  # noqa: PLC0415 - as above

        _hook_forks()
        if not isinstance(name, str) or name != "auto":
            name = self.canonical(name)
            if name in self._open:
                return self._open[name]
        elif self._default:
            return self[self._default]
        if "," in name:
            mesh: TensorDevice = _mesh.Mesh(name, [self[part] for part in name.split(",")])
            self._open[name] = mesh
            return mesh
        try:
            device = hcq.open(name)
        except HcqError as error:
            error.add_note(f"hint: this machine has {self.available()}; {_LOOK}")
            raise
        if name == "auto":
            info = device.info
            name = info.driver + (f":{info.index}" if info.index else "")
            self._default = name  # under the lock, so that concurrent threads get one device
            if name in self._open:
                device.close()
                return self._open[name]
        found = self._open[name] = TensorDevice(name, device)
        return found

    def opened(self) -> list[TensorDevice]:
        """Return the open devices and meshes."""
        return list(self._open.values())

    def forget(self, device: TensorDevice) -> None:
        """Remove a device that is being closed from the table and from others' paths; call `closing`."""
        if self._open.get(device.name) is device:
            del self._open[device.name]
            for other in self._open.values():
                other.paths.pop(device.name, None)
            for callback in self.closing:
                callback(device.name)

    def __repr__(self) -> str:
        return (
            f"<Device: default {self._default or 'not yet chosen'}, open: {', '.join(self._open) or 'none'}>"
        )


class DeviceName(str):
    """The name of a device, "cpu" or "nv:1": a string with PyTorch's `type` and `index`."""

    __slots__ = ()

    def __new__(cls, type: object = "cpu", index: int | None = None) -> Self:
        """Make the name of a device that this machine has; "cuda" and "gpu" are the GPU here.

        Without that GPU the name stays, as in PyTorch, and so do "meta" and "mps"; their use is an error.
        Raises `UsageError` for an unknown device.
        """
        name = str(type) if index is None else f"{type}:{index}"
        stays = name in {"meta", "mps"} or Device.lacks(name)
        return str.__new__(cls, name if stays else Device.canonical(name))

    @property
    def type(self) -> str:
        """The name without its number, of a mesh that of its first device: "nv"."""
        return self.partition(",")[0].partition(":")[0]

    @property
    def index(self) -> int | None:  # type: ignore[override]  # PyTorch's name, of str's method for substrings
        """The number of the device; None where the name has none, and for a mesh."""
        number = self.rpartition(":")[2]
        return int(number) if number.isdigit() and "," not in self else None

    def __reduce__(self) -> tuple[Callable[[str], DeviceName], tuple[str]]:
        """Copy and pickle the name itself, also where there is no such device."""
        return device_name, (str(self),)


@cache
def device_name(name: str) -> DeviceName:
    """Return a canonical name with PyTorch's `type` and `index`."""
    return str.__new__(DeviceName, name)


Device: Final = Devices()
