"""The `cpu` driver: the state that all its devices in this process share.

There is one device, `cpu:0`, of all cores, or with HCQ_CPU_DEVICES=N there are N, which divide cores and
memory among them: they stand for N GPUs wherever a program for several devices is tried.

Not here: one open device (`device`), the cores that it may use (`machine`). Next: `device`; the contract is
`hcq.driver.Driver`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

from drivers.cpu.control import control_bytes, stack_at
from drivers.cpu.device import CpuDevice
from drivers.cpu.image import HostCode, processor_code
from drivers.cpu.machine import cores, identify, memory_bytes
from drivers.cpu.threads import Libc
from drivers.kernel import PAGE, PROT_NONE, Kernel, LinuxKernel, Mapping
from hcq.config import config
from hcq.driver import DeviceInfo, Tool
from hcq.errors import UsageError
from hcq.hostpool import SIGNALS

COMPUTE_QUEUES = 2
COPY_QUEUES = 1


class CpuDriver:
    """The driver of the host's devices, each of which can be open any number of times at once.

    One table for the process counts the waiters of signals, so that each device can wake waiters of the
    others.
    """

    name = "cpu"
    emulated = False
    tools: tuple[Tool, ...] = ()

    def __init__(self, kernel: Kernel | None = None) -> None:
        self._kernel = kernel
        self._free: list[Mapping] = []
        self._process = os.getpid()

    @cached_property
    def kernel(self) -> Kernel:
        """The interface to the operating system."""
        return self._kernel or LinuxKernel()

    @cached_property
    def code(self) -> HostCode:
        """The compiled command processor."""
        return processor_code(self.kernel)

    @cached_property
    def libc(self) -> Libc:
        """The C library of this process."""
        return Libc()

    @cached_property
    def waiters(self) -> int:
        """The address of the counters of sleeping waiters, which all devices share."""
        return self.kernel.mmap(PAGE).va

    @cached_property
    def _machine(self) -> DeviceInfo:
        """This machine as one device."""
        name, arch = identify(self.kernel)
        memory = memory_bytes(self.kernel)
        return DeviceInfo(
            driver=self.name,
            index=0,
            name=name,
            arch=arch,
            vram_bytes=memory,
            compute_queues=COMPUTE_QUEUES,
            copy_queues=COPY_QUEUES,
            compute_units=cores(self.kernel),
            word_bits=64,
            host_addressable=True,
            limits={
                "max_threads": 1,
                "max_groups_x": (1 << 31) - 1,
                "max_groups_y": (1 << 16) - 1,
                "max_groups_z": (1 << 16) - 1,
                "max_shared_bytes": 0,
            },
        )

    def enumerate(self) -> list[DeviceInfo]:
        """Return this machine, as `Config.cpu_devices` devices of equal parts of its cores and memory.

        A device has at least one core, so that more devices than cores share them.
        """
        whole, count = self._machine, config().cpu_devices
        if count == 1:
            return [whole]
        units, memory = max(1, whole.compute_units // count), whole.vram_bytes // count
        return [replace(whole, index=i, compute_units=units, vram_bytes=memory) for i in range(count)]

    def open(self, index: int, variant: str | None) -> CpuDevice:
        """Open a device. Raises `UsageError` unless there is one of that index, and for a variant.

        Raises as `processor_code`, `Kernel.mmap` and `Libc.start` if it cannot start.
        """
        infos = self.enumerate()
        if index >= len(infos) or variant:
            seen = f"there are {len(infos)} cpu devices"
            if len(infos) == 1:
                seen = "there is one cpu device, cpu:0,"
            raise UsageError(
                f"{seen} and not cpu:{variant or index}\nhint: HCQ_CPU_DEVICES is how many there are"
            )
        wanted = config().workers
        workers = infos[index].compute_units - 1 if wanted is None else wanted
        self._forget_parent()
        self.waiters, self.code, self.libc  # noqa: B018 - create them here, where `hcq.open` holds a lock
        return CpuDevice(self, infos[index], workers)

    def _forget_parent(self) -> None:
        """In a forked child, drop the parent's state: its counters count threads that do not exist here."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._free.clear()
            self.__dict__.pop("waiters", None)

    def take_control(self) -> Mapping:
        """Return control memory for a device, from a closed device or newly mapped."""
        with suppress(IndexError):  # no check first: another thread may take the last one in between
            return self._free.pop()
        memory = self.kernel.mmap(control_bytes(COMPUTE_QUEUES + COPY_QUEUES))
        self.kernel.mprotect(memory.va + stack_at(COMPUTE_QUEUES + COPY_QUEUES), PAGE, PROT_NONE)
        return memory

    def give_control(self, memory: Mapping) -> None:
        """Take back the control memory of a closed device, for reuse."""
        if self._process == os.getpid():
            self._free.append(memory)

    def foreign(self, owner: object) -> bool:
        """Return whether anything other than a cpu device or the host may set signals of `owner`.

        Any queue may set any signal, so this is true as soon as a device of another driver is open.
        """
        info = getattr(owner, "info", None)
        if info is not None and info.driver != self.name:
            return True
        return any(device.__class__ is not CpuDevice for device in SIGNALS.devices())


DRIVER = CpuDriver()
