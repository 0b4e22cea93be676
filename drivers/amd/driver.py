"""The AMD driver: it lists the GPUs and opens one, on Linux or on an emulated machine.

The driver owns the KFD state that a process has once (`process`). On real hardware it keeps this state until
the process ends; on an emulated machine, until the last device is closed.

Not here: initialising a GPU (`device`), the KFD state (`process`), the quirks that a device's name can set
(`quirks`). Next: `device`; the contract is `hcq.driver.Driver`.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from drivers.kernel import Kernel
from drivers.shared.driver import Linux, absent, opens
from hcq.config import config
from hcq.driver import DeviceInfo, Tool
from hcq.errors import HcqError

if TYPE_CHECKING:  # heavy: a process without such a GPU loads none of it
    from drivers.amd.device import AmdDevice
    from drivers.amd.process import AmdProcess
    from drivers.amd.quirks import AmdQuirks

_NODE = "/dev/kfd"


class AmdDriver:
    """A driver with the given name; see `hcq.driver.Driver`. Thread-safe.

    The variant is the part of a device's name after the colon that is not a number. `make_kernel` receives
    it. With `lasting`, as on real hardware, it sets quirks instead: "amd:order=release" (`quirks.parse`), and
    the KFD state is kept when the last device is closed. `emulated`: see `hcq.driver.Driver`.
    """

    def __init__(
        self,
        name: str = "amd",
        make_kernel: Callable[[str | None], Kernel] | None = None,
        *,
        lasting: bool = True,
        emulated: bool = False,
    ) -> None:
        self.name = name
        """The name by which devices are opened."""
        self.make_kernel = make_kernel or Linux()
        self._lasting = lasting
        self.emulated = emulated
        self.tools: tuple[Tool, ...] = ()
        self._lock = threading.Lock()
        self._processes: dict[int, tuple[AmdProcess, int]] = {}
        """`id` of a kernel -> the KFD state on it, and the number of open devices there."""
        self._owner = 0
        """Id of the operating-system process that filled `_processes`."""

    def enumerate(self) -> list[DeviceInfo]:
        """Return the GPUs that can be opened now; empty if there is no kernel driver or no supported GPU.

        A GPU that cannot be opened is left out, without its reason; `open` raises it.
        """
        kernel = self.make_kernel(None)
        if not opens(kernel, _NODE):
            return []
        from drivers.amd import topology  # noqa: PLC0415 - heavy, and absent hardware needs none of it
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
                    found.append(topology.info(self.name, index, gpu, target, apu=target.apu))
        return found

    def open(self, index: int, variant: str | None, *, choices: AmdQuirks | None = None) -> AmdDevice:
        """Open GPU `index`; the caller closes the result. `choices` replaces the variant's quirks.

        Raises `UsageError` if there is no such GPU or the variant is unknown, `UnsupportedError`,
        `DriverError` or `BringUpError` with a hint if the GPU cannot be opened.
        """
        from drivers.amd import topology  # noqa: PLC0415 - heavy
        from drivers.amd.device import AmdDevice  # noqa: PLC0415 - heavy
        from drivers.amd.quirks import DEFAULT, parse  # noqa: PLC0415 - heavy
        from drivers.amd.refusals import missing  # noqa: PLC0415 - heavy

        if choices is None:
            choices = parse(variant) if variant is not None and self._lasting else DEFAULT
        kernel = self.make_kernel(variant)
        process = self._enter(kernel)
        with contextlib.ExitStack() as stack:
            stack.callback(self._leave, kernel)
            gpus = topology.read(kernel)
            if not 0 <= index < len(gpus):
                hint = "" if gpus else missing(kernel)
                raise absent(f"{self.name}:{index}", "the kernel's topology", len(gpus), hint)
            released = partial(self._leave, kernel)
            stack.pop_all()
            return AmdDevice(
                process,
                gpus[index],
                driver=self.name,
                index=index,
                choices=choices,
                ring_bytes=config().ring_bytes,
                others=gpus,
                released=released,
                emulated=self.emulated,
            )

    def _enter(self, kernel: Kernel) -> AmdProcess:
        """Return the KFD state on a kernel, made with the first device, and count one more device."""
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
        """Drop the state in a forked child: KFD refuses the parent's descriptors there."""
        self._owner = os.getpid()
        for process, _ in self._processes.values():
            process.abandon()
        self._processes.clear()

    def _leave(self, kernel: Kernel) -> None:
        """Count one device less on a kernel."""
        with self._lock:
            process, users = self._processes[id(kernel)]
            if users > 1 or self._lasting:
                self._processes[id(kernel)] = process, users - 1
                return
            del self._processes[id(kernel)]
            process.close()

    def close(self) -> None:
        """Close the KFD state on kernels without open devices.

        On real hardware the kernel keeps a part of it until the process ends (`AmdProcess.close`).
        """
        with self._lock:
            for key, (process, users) in tuple(self._processes.items()):
                if not users:
                    del self._processes[key]
                    process.close()
