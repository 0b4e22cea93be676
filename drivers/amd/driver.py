"""The AMD driver: it lists the GPUs and opens one, on Linux or on an emulated machine.

A driver holds what a process has once of KFD (`process`): as long as the process lives on real hardware, as
long as a device is open on a kernel that stands in for Linux.

Not here: bringing a GPU up (`device`), what a process has once (`process`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from functools import partial
from typing import TYPE_CHECKING

from hcq.config import config
from hcq.errors import HcqError

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.amd.device import AmdDevice
    from drivers.amd.process import AmdProcess
    from drivers.amd.quirks import AmdQuirks
    from drivers.kernel import Kernel
    from hcq.driver import DeviceInfo, Tool

_NODE = "/dev/kfd"


class Linux:
    """Makes the kernel of this machine, once."""

    def __init__(self) -> None:
        self._kernel: Kernel | None = None

    def __call__(self, variant: str | None) -> Kernel:
        """Return the kernel; a variant is ignored."""
        from drivers.kernel import LinuxKernel  # noqa: PLC0415 - opened only when asked for

        del variant
        if self._kernel is None:
            self._kernel = LinuxKernel()
        return self._kernel


class AmdDriver:
    """See `hcq.driver.Driver`. Thread-safe.

    `make_kernel` gets the variant, the text after the colon that is no number. On real hardware (`lasting`)
    it names choices instead: "amd:order=release" (`quirks.parse`). `emulated` as in `hcq.driver.Driver`.
    """

    def __init__(
        self,
        name: str = "amd",
        make_kernel: Callable[[str | None], Kernel] | None = None,
        *,
        lasting: bool = True,
        emulated: bool = False,
    ) -> None:
        self._name = name
        self.make_kernel = make_kernel or Linux()
        self._lasting = lasting
        self.emulated = emulated
        self.tools: tuple[Tool, ...] = ()
        self._lock = threading.Lock()
        self._processes: dict[int, tuple[AmdProcess, int]] = {}
        """Identity of a kernel -> the process on it, and how many devices are open there."""
        self._owner = 0
        """The process that opened those."""

    @property
    def name(self) -> str:
        """The name devices are opened by."""
        return self._name

    def enumerate(self) -> list[DeviceInfo]:
        """Return the GPUs that could be opened now; nothing where there is no driver or no supported GPU."""
        kernel = self.make_kernel(None)
        try:
            # Without the node there is nothing to import the driver for; "auto" asks at every open.
            kernel.close(kernel.open(_NODE))
        except HcqError:
            return []
        from drivers.amd import topology  # noqa: PLC0415 - heavy, and absent hardware needs none of it
        from drivers.amd.info import device_info  # noqa: PLC0415 - the same
        from drivers.amd.kfd import Kfd, open_node  # noqa: PLC0415 - the same
        from drivers.amd.layouts.chips import by_version  # noqa: PLC0415 - the same
        from drivers.amd.layouts.topology import RENDER_NODE  # noqa: PLC0415 - the same

        found: list[DeviceInfo] = []
        with contextlib.suppress(HcqError):
            Kfd(kernel).close()  # raises where the interface is too old
            for index, gpu in enumerate(topology.read(kernel)):
                with contextlib.suppress(HcqError):
                    target = by_version(gpu.version).open_or_refuse()
                    kernel.close(open_node(kernel, RENDER_NODE.format(minor=gpu.render_minor)))
                    found.append(device_info(self._name, index, gpu, target, apu=target.apu))
        return found

    def open(self, index: int, variant: str | None, *, choices: AmdQuirks | None = None) -> AmdDevice:
        """Open GPU `index`. Raises `UnsupportedError` or `DriverError` with a hint."""
        from drivers.amd import topology  # noqa: PLC0415 - heavy
        from drivers.amd.device import AmdDevice  # noqa: PLC0415 - heavy
        from drivers.amd.quirks import DEFAULT, parse  # noqa: PLC0415 - heavy
        from drivers.amd.refusals import absent  # noqa: PLC0415 - heavy

        if choices is None:
            choices = parse(variant) if variant is not None and self._lasting else DEFAULT
        kernel = self.make_kernel(variant)
        process = self._enter(kernel)
        with contextlib.ExitStack() as stack:
            stack.callback(self._leave, kernel)
            gpus = topology.read(kernel)
            if not 0 <= index < len(gpus):
                raise absent(self._name, index, len(gpus), kernel)
            released = partial(self._leave, kernel)
            stack.pop_all()
            return AmdDevice(
                process,
                gpus[index],
                driver=self._name,
                index=index,
                choices=choices,
                ring_bytes=config().ring_bytes,
                others=gpus,
                released=released,
                emulated=self.emulated,
            )

    def _enter(self, kernel: Kernel) -> AmdProcess:
        from drivers.amd.process import AmdProcess  # noqa: PLC0415 - heavy

        with self._lock:
            if self._owner != os.getpid():
                self._forget()
            process, users = self._processes.get(id(kernel), (None, 0))
            if process is None:
                process = AmdProcess(kernel)
            self._processes[id(kernel)] = process, users + 1
            return process

    def _forget(self) -> None:
        """Start anew in a forked child: KFD refuses it the descriptors of its parent."""
        self._owner = os.getpid()
        for process, _ in self._processes.values():
            process.abandon()
        self._processes.clear()

    def _leave(self, kernel: Kernel) -> None:
        with self._lock:
            process, users = self._processes[id(kernel)]
            if users > 1 or self._lasting:
                self._processes[id(kernel)] = process, users - 1
                return
            del self._processes[id(kernel)]
            process.close()

    def close(self) -> None:
        """End the processes on kernels without open devices; one on real hardware is never quite ended."""
        with self._lock:
            for key, (process, users) in tuple(self._processes.items()):
                if not users:
                    del self._processes[key]
                    process.close()
