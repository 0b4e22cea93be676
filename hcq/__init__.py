"""The vendor-neutral model of a hardware command queue.

    import hcq
    with hcq.open("cpu") as device:
        source, target = device.alloc(4096), device.alloc(4096)
        point = device.compute.submit(device.compute.record().copy(target, source))
        point.wait()

Names are loaded when first used, so that importing the package costs next to nothing.

Not here: drivers of vendors (`drivers`), the compiler (`compiler`), tensors (`frontend`). Next:
docs/concepts.md; `hcq.device`, `hcq.queue`, `hcq.commands`; for a driver `hcq.driver`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frontend import Tensor as Tensor
    from frontend import nn as nn
    from hcq.commandbuffer import CommandBuffer
    from hcq.commands import (
        Barrier,
        Command,
        Copy,
        Exec,
        Fill,
        Indirect,
        Scope,
        SetSignal,
        Timestamp,
        Wait,
        WaitMemory,
        Write,
    )
    from hcq.config import Config
    from hcq.counters import Counters, KernelCounters, counting
    from hcq.device import Device
    from hcq.errors import (
        BringUpError,
        CheckError,
        CompileError,
        DeviceFault,
        DriverError,
        FaultKind,
        FaultReport,
        HcqError,
        OutOfMemoryError,
        SignalTimeout,
        UnsupportedError,
        UsageError,
        UsageIndexError,
        UsageNameError,
        UsageTypeError,
        UsageZeroDivisionError,
    )
    from hcq.graph import Executable, Graph, Node
    from hcq.hardware import BufferSpec, DeviceInfo, Place, QueueKind
    from hcq.memory import Buffer
    from hcq.params import Expr, Param, Patch, Word
    from hcq.profile import Clock, Span
    from hcq.program import ArgKind, ArgSlot, Dim3, KernArgs, KernelImage, Program
    from hcq.queue import Queue
    from hcq.registry import devices, drivers, open  # noqa: A004 - hcq.open is what users type
    from hcq.signal import Point, Signal, Stamp, Timeline

__all__ = [
    "ArgKind",
    "ArgSlot",
    "Barrier",
    "BringUpError",
    "Buffer",
    "BufferSpec",
    "CheckError",
    "Clock",
    "Command",
    "CommandBuffer",
    "CompileError",
    "Config",
    "Copy",
    "Counters",
    "Device",
    "DeviceFault",
    "DeviceInfo",
    "Dim3",
    "DriverError",
    "Exec",
    "Executable",
    "Expr",
    "FaultKind",
    "FaultReport",
    "Fill",
    "Graph",
    "HcqError",
    "Indirect",
    "KernArgs",
    "KernelCounters",
    "KernelImage",
    "Node",
    "OutOfMemoryError",
    "Param",
    "Patch",
    "Place",
    "Point",
    "Program",
    "Queue",
    "QueueKind",
    "Scope",
    "SetSignal",
    "Signal",
    "SignalTimeout",
    "Span",
    "Stamp",
    "Timeline",
    "Timestamp",
    "UnsupportedError",
    "UsageError",
    "UsageIndexError",
    "UsageNameError",
    "UsageTypeError",
    "UsageZeroDivisionError",
    "Wait",
    "WaitMemory",
    "Word",
    "Write",
    "counting",
    "devices",
    "drivers",
    "open",
]

_HOMES = {
    "commandbuffer": "CommandBuffer",
    "commands": "Barrier Command Copy Exec Fill Indirect Scope SetSignal Timestamp Wait WaitMemory Write",
    "config": "Config",
    "counters": "Counters KernelCounters counting",
    "device": "Device",
    "errors": "BringUpError CheckError CompileError DeviceFault DriverError FaultKind FaultReport HcqError "
    "OutOfMemoryError SignalTimeout UnsupportedError UsageError UsageIndexError UsageNameError "
    "UsageTypeError UsageZeroDivisionError",
    "graph": "Executable Graph Node",
    "hardware": "BufferSpec DeviceInfo Place QueueKind",
    "memory": "Buffer",
    "params": "Expr Param Patch Word",
    "profile": "Clock Span",
    "program": "ArgKind ArgSlot Dim3 KernArgs KernelImage Program",
    "queue": "Queue",
    "registry": "devices drivers open",
    "signal": "Point Signal Stamp Timeline",
}
_HOME = {name: f"hcq.{home}" for home, names in _HOMES.items() for name in names.split()}
_HOME |= {"Tensor": "frontend", "nn": "frontend.nn"}
"""Name -> its module. `hcq.Tensor` and `hcq.nn` are the frontend's; `import *` leaves them out."""

if not TYPE_CHECKING:  # type checkers know all names

    def __getattr__(name: str) -> object:
        from hcq.names import lazy  # noqa: PLC0415 - importing this package loads no module of it

        return lazy(__name__, _HOME, _HOME)[0](name)

    def __dir__() -> list[str]:
        return sorted(_HOME)
