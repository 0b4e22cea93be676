"""Devices as tensors see them: opened by name at first use, one for the whole process.

`Device["cpu"]` gives the open device, `Device.DEFAULT` the name of the one that new tensors go to.
Reading and writing memory goes through the copy queue where the host cannot reach it; kernels run on the
first compute queue, in order.

Not here: opening hardware (`hcq.registry`), moving tensors (`transfer`).
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Final

from frontend import expr
from frontend.parameters import shown
from hcq.errors import HcqError, UsageError, UsageTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    import hcq

LOCK: Final = threading.RLock()
"""Held, before locks of `hcq`, by a thread that plans, launches, differentiates or assigns: `realize`."""
_hooked: Final[list[bool]] = []


def _hook_forks() -> None:
    """See to it that no fork happens while another thread holds `LOCK`: the child would wait for ever."""
    if not _hooked:
        _hooked.append(True)
        os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)


class OpenDevice:
    """One open device and what the frontend keeps for it."""

    def __init__(self, name: str, device: hcq.Device) -> None:
        from hcq.driver import BufferSpec, Place  # noqa: PLC0415 - nothing of the queue layer before a device is opened

        self.name = name
        self.hcq = device
        self.queue = device.compute
        self.arch = device.info.arch
        self.direct = device.info.host_addressable
        """The host reads and writes device memory itself."""
        self.programs: weakref.WeakValueDictionary[object, hcq.Program] = weakref.WeakValueDictionary()
        """Loaded kernels by image, as long as a plan or a captured function has them."""
        self._scratch: hcq.Buffer | None = None
        self._scratches: weakref.WeakSet[hcq.Buffer] = weakref.WeakSet()
        """All of them: plans keep those that were outgrown."""
        visible = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)
        self._visible = BufferSpec() if self.direct else visible

    def alloc(self, nbytes: int, *, label: str = "") -> hcq.Buffer:
        """Return unused device memory; its contents are undefined."""
        return self.hcq.alloc(nbytes or 1, label=label)

    def scratch(self, nbytes: int) -> hcq.Buffer:
        """Return memory for temporaries of one launch.

        All launches of the device share it: its queue runs them in turn.
        """
        if self._scratch is None or self._scratch.size < nbytes:
            self._scratch = self.hcq.alloc(1 << max(16, (nbytes - 1).bit_length()), label="scratch")
            self._scratches.add(self._scratch)
        return self._scratch

    def program(self, image: hcq.KernelImage) -> hcq.Program:
        """Return a kernel, loaded once."""
        found = self.programs.get(image.code)
        if found is None:
            found = self.programs[image.code] = self.hcq.load(image)
        return found

    def write(self, data: bytes | memoryview, *, label: str = "") -> hcq.Buffer:
        """Return new device memory that holds `data` for all later submissions."""
        size = len(data)
        buffer = self.alloc(size, label=label)
        if not size:
            return buffer
        if self.direct:
            buffer.host()[:size] = data
            return buffer
        staging = self.hcq.alloc(size, self._visible, label="staging")
        staging.host()[:size] = data
        queue = self.hcq.copies[0] if self.hcq.copies else self.queue
        point = queue.submit(queue.record(label="upload").copy(buffer, staging, size))
        self.queue.submit(self.queue.record(label="after upload"), after=[point])
        return buffer

    def write_small(self, data: bytes) -> hcq.Buffer:
        """Return memory that the host writes and the device reads where it lies: for single numbers."""
        buffer = self.hcq.alloc(len(data), self._visible)
        buffer.host()[: len(data)] = data
        return buffer

    def read(self, buffer: hcq.Buffer, nbytes: int) -> memoryview:
        """Return the first bytes of a buffer once everything submitted so far is done.

        Good only until the buffer is written again or dropped: copy them at once.
        """
        if self.direct or not nbytes:
            self.queue.end().wait()
            return buffer.host()[:nbytes] if nbytes else memoryview(b"")
        staging = self.hcq.alloc(nbytes, self._visible, label="staging")
        queue = self.hcq.copies[0] if self.hcq.copies else self.queue
        queue.submit(
            queue.record(label="download").copy(staging, buffer, nbytes), after=[self.queue.end()]
        ).wait()
        return memoryview(bytes(staging.host()[:nbytes]))

    def copied(self, buffer: hcq.Buffer) -> hcq.Buffer:
        """Return new memory with the same contents, copied in the order of launches."""
        new = self.alloc(buffer.size)
        self.queue.submit(self.queue.record(label="copy on write").copy(new, buffer))
        return new

    def synchronize(self) -> None:
        """Wait until everything submitted so far is done."""
        self.hcq.sync()

    def recover(self) -> None:
        """Recover from a fault of the device; see `hcq.Device.recover`.

        Tensors keep their values, but for those that were being computed, or stored to, when the fault came:
        they raise it from then on, until they are assigned to. Captured functions still work.
        """
        with LOCK:
            self.hcq.poll_driver()
            reason = self.hcq.refusal
            for buffer in self.hcq.recover():
                if buffer not in self._scratches:
                    buffer.close(reason=reason)
            for told in Device.recovered:
                told(self.name)

    def close(self) -> None:
        """Close the device. Tensors on it raise `UsageError` from then on; the name opens a new one."""
        self._scratch = None
        self.programs.clear()
        Device.forget(self)
        self.hcq.close()

    def __repr__(self) -> str:
        return f"<Device {self.name}: {self.hcq.info.name}, {self.arch}>"


class Devices:
    """The devices of this process by name; its only instance is `Device`."""

    def __init__(self) -> None:
        self._open: dict[str, OpenDevice] = {}
        self._names: dict[str, str] = {}
        self._default = ""
        self._lock = threading.RLock()
        self.closing: list[Callable[[str], None]] = []
        """Called with a device's name when it is closed: plans made for it are void."""
        self.recovered: list[Callable[[str], None]] = []
        """Called with a device's name when it recovered from a fault: memory of lost work is closed."""

    @property
    def DEFAULT(self) -> str:  # noqa: N802 - the field's name for it
        """The device of new tensors: what `HCQ_DEVICE` names, else the first GPU, else "cpu"; may be set."""
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
        """Return the one name of a device: "cpu:0" is "cpu". Raises `UsageError` that lists what exists.

        What is no string is a `UsageTypeError`.
        """
        if not isinstance(name, str):
            raise UsageTypeError(f"a device is named, as in 'cpu' or 'nv:1', saw {shown(name)}")
        found = self._names.get(name)
        if found is None:
            from hcq.registry import parse  # noqa: PLC0415 - as above

            if name == "auto":
                return self.DEFAULT
            try:
                entry, index, variant = parse(name)
            except UsageError as error:
                raise UsageError(f"{error}\nhint: this machine has {self.available()}") from None
            found = entry.name + (f":{variant}" if variant else "") + (f":{index}" if index else "")
            self._names[name] = found
        return found

    def named(self, name: str | None) -> str:
        """Return the one name of a device; of the default one for None."""
        return (self._default or self._find_default()) if name is None else self.canonical(name)

    def available(self) -> str:
        """Return the names of the devices that could be opened now, in one line."""
        from hcq.registry import devices  # noqa: PLC0415 - as above

        names = [d.driver + (f":{d.index}" if d.index else "") for d in devices()]
        return ", ".join(dict.fromkeys(names)) or "no device"

    def __getitem__(self, name: str) -> OpenDevice:
        """Return a device, opened at first use."""
        try:
            found = self._open.get(name)
        except TypeError:  # no name: it cannot even be hashed
            found = None
        if found is not None:
            return found
        with self._lock:
            return self._opened(name)

    def _opened(self, name: str) -> OpenDevice:
        import hcq  # noqa: PLC0415 - as above

        _hook_forks()
        if not isinstance(name, str) or name != "auto":
            name = self.canonical(name)
            if name in self._open:
                return self._open[name]
        elif self._default:
            return self[self._default]
        try:
            device = hcq.open(name)
        except HcqError as error:
            error.add_note(f"hint: this machine has {self.available()}")
            raise
        if name == "auto":
            info = device.info
            name = info.driver + (f":{info.index}" if info.index else "")
            self._default = name  # under the lock: threads that ask at once find one device
            if name in self._open:
                device.close()
                return self._open[name]
        found = self._open[name] = OpenDevice(name, device)
        return found

    def forget(self, device: OpenDevice) -> None:
        """Take a device that is being closed out of the table."""
        if self._open.get(device.name) is device:
            del self._open[device.name]
            for told in self.closing:
                told(device.name)

    def __repr__(self) -> str:
        return (
            f"<Device: default {self._default or 'not yet chosen'}, open: {', '.join(self._open) or 'none'}>"
        )


Device: Final = Devices()


def _void_plans(name: str) -> None:
    """Drop the launches of a closed device's expressions."""
    for found in (*expr.TABLE.values(), *expr.LEAVES.values()):
        if found.__class__ is expr.Expr and found.device == name:
            found.run = None


Device.closing.append(_void_plans)
