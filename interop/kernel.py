"""Kernels of other compilers, loaded on one device: arguments are checked, and launches submitted.

Not here: reading images (`interop.load`), arrays (`interop.arrays`). Next: `hcq.commandbuffer`, which records
launches.
"""

from __future__ import annotations

import math
import numbers
import operator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hcq.commandbuffer import CommandBuffer
from hcq.errors import UnsupportedError, UsageError, UsageTypeError
from hcq.memory import Buffer
from hcq.params import Expr, Param
from hcq.program import ArgKind, ArgSlot, KernelImage
from hcq.queue import Queue
from interop import tensors
from interop.arrays import DeviceArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.device import Device
    from hcq.program import Dim3, Program
    from hcq.signal import Point
    from interop.output import OutputRing
    from interop.signature import KernelParameter, Signature

_VARIANTS_KEPT: Final = 16
_POINTER_BYTES: Final = 8
_OPEN: Final = (Buffer, Param, Expr)
_PLAIN: Final = frozenset({Buffer, DeviceArray, int, float, type(None)})
"""Types of arguments that always get the same slots (kind, offset, size), whatever the value."""


class LoadedKernel:
    """One entry of an image on one device; made by `interop.load`.

    `signature` is what the image states. The code is uploaded at the first launch, once for each amount of
    shared memory and each combination of argument slots. It stays loaded until the kernel object is dropped
    and no launch is in flight. Usable from any thread.
    """

    def __init__(
        self, device: Device, code: bytes, signature: Signature, output: OutputRing | None = None
    ) -> None:
        self.device = device
        self._output = output
        if output is not None:
            output.used_by(self)
        self.code = code
        """The ELF file that is uploaded."""
        self.signature = signature
        self._plain: dict[tuple[object, ...], Program] = {}
        """Shared bytes and types of arguments -> the program, where all types are plain."""
        self._programs: dict[tuple[tuple[tuple[ArgKind, int, int], ...], int], Program] = {}

    def launch(
        self,
        *arguments: object,
        groups: int | Sequence[int],
        threads: int | Sequence[int] | None = None,
        shared: int = 0,
        cluster: int | Sequence[int] | None = None,
        cooperative: bool = False,
        after: Sequence[Point] = (),
        queue: Queue | None = None,
    ) -> Point:
        """Submit one launch; return the point that is reached when it is done.

        - `arguments`: one value for each parameter. A pointer takes a `hcq.Buffer`, a `DeviceArray`, a
          `frontend.Tensor` of this device or None; the launch may write it. A number takes an int, a float or
          a NumPy scalar of its size; a structure takes its `bytes`, or a list of parts in order: `bytes`, and
          a pointer for 8 of them.
        - `groups`, `threads`: workgroups, and threads of each, along x, y and z. `threads` may be left out
          where the image requires a size.
        - `shared`: bytes of dynamic shared memory of a workgroup, in addition to what the image declares.
        - `cluster`: workgroups of a cluster along x, y and z, which divide `groups`; None: as the image
          requires, else one.
        - `cooperative`: workgroups wait for each other, so all of them must run at the same time. A grid that
          is too large for that raises `UsageError`.
        - `after`: points that must be reached first; `queue`: by default the first compute queue.

        Raises `UsageError` for another number of arguments, a value that does not fit its parameter, a
        workgroup size that the image excludes, more shared memory than the device has, and for a kernel with
        a barrier of the whole grid that is not launched cooperatively on the first compute queue. Raises
        `UsageTypeError` for no queue and for `shared` that is no int, `UnsupportedError` for clusters on a
        device without clusters. The first launch raises as `Device.load`, each as `Queue.submit`. Nothing is
        submitted then.

            kernel.launch(out, a, b, 1 << 20, groups=1 << 10, threads=1 << 10).wait()
        """
        queue = self.device.compute if queue is None else queue
        if not isinstance(queue, Queue):
            raise UsageTypeError(f"queue: wanted a queue, such as device.computes[1], saw {queue!r}")
        home = self.device.compute
        if self.signature.grid_barrier and not (cooperative and queue is home):
            raise UsageError(
                f"kernel {self.signature.entry} has a barrier of the whole grid, whose state is in the "
                "module: its launches follow each other\n"
                "hint: launch it with cooperative=True on the first compute queue"
            )
        commands = queue.record(label=self.signature.entry)
        self._append(commands, arguments, groups, threads, shared, cluster, cooperative=cooperative)
        if queue is home or not any(map(tensors.is_tensor, arguments)):
            return queue.submit(commands, after=after)
        # Tensors are used in the order of the first compute queue.
        point = queue.submit(commands, after=[*after, home.end()])
        home.prepend(home.record(), after=[point])
        return point

    def record(
        self,
        commands: CommandBuffer,
        *arguments: object,
        groups: int | Sequence[int],
        threads: int | Sequence[int] | None = None,
        shared: int = 0,
        cluster: int | Sequence[int] | None = None,
        cooperative: bool = False,
    ) -> None:
        """Append a launch to a command buffer. Parameters and errors are those of `launch`.

        Raises `UsageTypeError` for no command buffer. Raises `UnsupportedError` for a kernel with a barrier
        of the whole grid: two launches that overlap would share the state of the barrier.
        """
        if commands.__class__ is not CommandBuffer:
            raise UsageTypeError(f"wanted a command buffer, saw {commands!r}\nhint: queue.record() makes one")
        if self.signature.grid_barrier:
            raise UnsupportedError(
                f"kernel {self.signature.entry} has a barrier of the whole grid, and is not recorded\n"
                "hint: use launch(..., cooperative=True)"
            )
        self._append(commands, arguments, groups, threads, shared, cluster, cooperative=cooperative)

    def _append(  # noqa: PLR0917 - the parameters of `record`
        self,
        commands: CommandBuffer,
        arguments: tuple[object, ...],
        groups: int | Sequence[int],
        threads: int | Sequence[int] | None,
        shared: int,
        cluster: int | Sequence[int] | None,
        *,
        cooperative: bool,
    ) -> None:
        shape = self._threads(threads)
        key = (shared, *map(type, arguments))
        program = self._plain.get(key)
        if program is None:
            slots, values = self._bind(arguments)
            program = self._program(slots, self._shared(shared))
            if _PLAIN.issuperset(key[1:]):
                if len(self._plain) >= _VARIANTS_KEPT:
                    self._plain.clear()
                self._plain[key] = program
        else:  # of these types the first launch has checked all that does not depend on values
            values = [
                one.buffer if type(one) is DeviceArray else 0 if one is None else one for one in arguments
            ]
        commands.exec(
            program,
            program.args(*values),
            groups=_three("groups", groups),
            threads=shape,
            cluster=None if cluster is None else _three("cluster", cluster),
            cooperative=cooperative,
        )

    def _threads(self, threads: int | Sequence[int] | None) -> Dim3:
        wanted = self.signature.required_threads
        name = self.signature.entry
        if threads is None:
            if wanted is None:
                raise UsageError(f"kernel {name}: the image requires no workgroup size; pass threads=")
            return wanted
        shape = _three("threads", threads)
        if wanted is not None and shape != wanted:
            raise UsageError(f"kernel {name} was compiled for {wanted} threads a workgroup, saw {shape}")
        if math.prod(shape) > self.signature.max_threads:
            raise UsageError(
                f"kernel {name} was compiled for at most {self.signature.max_threads} threads a workgroup, "
                f"saw {shape}"
            )
        most = self.signature.max_shape
        if most is not None and any(size > limit for size, limit in zip(shape, most, strict=True)):
            raise UsageError(f"kernel {name}: at most {most} threads along x, y and z, saw {shape}")
        return shape

    def _shared(self, dynamic: int) -> int:
        """Return the shared bytes of a workgroup, static and dynamic. Raises `UsageError` above the limit."""
        name, static = self.signature.entry, self.signature.static_shared
        limit = self.device.info.limits.get("max_shared_bytes")
        if not isinstance(dynamic, int):
            raise UsageTypeError(f"kernel {name}, shared: wanted a number of bytes, saw {dynamic!r}")
        if dynamic < 0 or (limit is not None and static + dynamic > limit):
            raise UsageError(
                f"kernel {name}: {static} bytes of static and {dynamic} of dynamic shared memory; "
                f"{self.device.name} has {limit} for a workgroup"
            )
        return static + dynamic

    def _bind(self, values: Sequence[object]) -> tuple[tuple[tuple[ArgKind, int, int], ...], list[Any]]:
        """Return slots (kind, offset, size) and their values.

        Raises `UsageError` for values that do not fit.
        """
        own = self.signature
        if len(values) != len(own.parameters):
            raise UsageError(
                f"kernel {own.entry} takes {len(own.parameters)} arguments, {len(values)} were given\n"
                f"hint: the image has: {own.describe()}"
            )
        slots: list[tuple[ArgKind, int, int]] = []
        out: list[Any] = []
        for parameter, value in zip(own.parameters, values, strict=True):
            for kind, offset, size, number in self._slots(parameter, value):
                slots.append((kind, offset, size))
                out.append(number)
        return tuple(slots), out

    def _slots(self, parameter: KernelParameter, value: object) -> list[tuple[ArgKind, int, int, Any]]:
        """Return (kind, offset, size, value) of each slot that a parameter fills."""
        if isinstance(value, (bytes, bytearray, memoryview)):
            value = [value]
        if isinstance(value, (list, tuple)):
            return self._structure(parameter, value)
        if isinstance(value, DeviceArray):
            value = value.buffer
        elif tensors.is_tensor(value):
            value = tensors.memory(value, self.device)
        kind = self._kind(parameter, value)
        if value is None:
            kind, value = ArgKind.INT, 0
        return [(kind, parameter.offset, parameter.size, value)]

    def _structure(
        self, parameter: KernelParameter, parts: Sequence[object]
    ) -> list[tuple[ArgKind, int, int, Any]]:
        """Return the slots of a structure that is given as `bytes` and pointers, in order.

        Raises `UsageError` unless the parts fill the parameter, with pointers at multiples of 8 bytes.
        """
        out: list[tuple[ArgKind, int, int, Any]] = []
        at = 0
        for part in parts:
            place = parameter.offset + at
            if isinstance(part, (bytes, bytearray, memoryview)):
                out += _numbers(place, bytes(part))
                at += len(bytes(part))
                continue
            address = part.buffer if isinstance(part, DeviceArray) else part
            if not isinstance(address, Buffer) or place % _POINTER_BYTES:
                wanted = "parts that are bytes or, at multiples of 8, a Buffer or a DeviceArray"
                raise self._wrong(parameter, wanted, repr(part))
            out.append((ArgKind.POINTER, place, _POINTER_BYTES, address))
            at += _POINTER_BYTES
        if at != parameter.size or parameter.kind is ArgKind.POINTER:
            raise self._wrong(parameter, f"{parameter.size} bytes", f"{at} bytes")
        return out

    def _kind(self, parameter: KernelParameter, value: object) -> ArgKind:
        """Return the kind of slot for a value. Raises `UsageError` where the image excludes it."""
        wide = parameter.size == 8
        if parameter.size not in {1, 2, 4, 8}:
            raise self._wrong(parameter, f"bytes, {parameter.size} of them", type(value).__name__)
        if isinstance(value, Buffer) or value is None:
            if parameter.kind not in {None, ArgKind.POINTER} or not wide:
                raise self._wrong(parameter, "a number", repr(value))
            return ArgKind.POINTER
        if isinstance(value, np.ndarray) or hasattr(value, "data_ptr"):
            seen = f"a {type(value).__name__} in memory of the host"
            hint = "interop.array(device, value) copies it to the device"
            raise self._wrong(parameter, "a Buffer, a DeviceArray or a number", seen, hint)
        if parameter.kind is ArgKind.POINTER and not isinstance(value, _OPEN):
            raise self._wrong(parameter, "a Buffer, a DeviceArray or None", repr(value))
        size = getattr(getattr(value, "dtype", None), "itemsize", parameter.size)
        if size != parameter.size:
            raise self._wrong(parameter, f"a number of {parameter.size} bytes", f"{value!r} of {size} bytes")
        if parameter.kind is not None:
            return parameter.kind
        whole = isinstance(value, numbers.Integral) or hasattr(value, "__index__")
        if parameter.whole and not whole and not isinstance(value, _OPEN):
            raise self._wrong(parameter, "a Buffer, a DeviceArray, None or an integer", repr(value))
        return ArgKind.INT if whole or isinstance(value, _OPEN) else ArgKind.FLOAT

    def _wrong(self, parameter: KernelParameter, wanted: str, seen: str, hint: str = "") -> UsageError:
        return UsageError(
            f"kernel {self.signature.entry}, {parameter}: wanted {wanted}, saw {seen}\n"
            f"hint: {hint or f'the image has: {self.signature.describe()}'}"
        )

    def _program(self, slots: tuple[tuple[ArgKind, int, int], ...], shared: int) -> Program:
        key = slots, shared
        program = self._programs.get(key)
        if program is None:
            own = self.signature
            names = {one.offset: one.name for one in own.parameters}
            image = KernelImage(
                name=own.entry,
                arch=self.device.info.arch,
                code=self.code,
                args=tuple(ArgSlot(names.get(at, f"bytes_{at}"), *one) for one in slots for at in one[1:2]),
                kernarg_size=own.block_bytes,
                shared_bytes=shared,
                max_threads=own.max_threads,
            )
            program = self.device.load(image)
            if self._output is not None:
                self._output.used_by(program)
            while len(self._programs) >= _VARIANTS_KEPT:
                self._programs.pop(next(iter(self._programs)))
            self._programs[key] = program
        return program

    def __repr__(self) -> str:
        return f"<LoadedKernel {self.signature.entry} on {self.device.name}: {self.signature.describe()}>"


def _numbers(start: int, data: bytes) -> list[tuple[ArgKind, int, int, Any]]:
    """Return slots that hold `data` from offset `start` on."""
    out, at = [], 0
    while at < len(data):
        place, left = start + at, len(data) - at
        size = next(one for one in (8, 4, 2, 1) if one <= left and place % one == 0)
        number = int.from_bytes(data[at : at + size], "little")
        out.append((ArgKind.INT, place, size, number - (1 << 64 if number >> 63 else 0)))
        at += size
    return out


def _three(name: str, value: int | Sequence[int]) -> Dim3:
    """Return three numbers; missing ones are 1.

    Raises `UsageError` unless there are 1 to 3, none negative.
    """
    try:
        parts = tuple(map(operator.index, (value,) if hasattr(value, "__index__") else value))
    except TypeError:
        raise UsageError(f"{name}: wanted 1 to 3 integers, saw {value!r}; try // for a division") from None
    if not 1 <= len(parts) <= 3 or min(parts) < 0:
        raise UsageError(f"{name}: wanted 1 to 3 numbers of at least 1, saw {value!r}")
    x, y, z = (*parts, 1, 1)[:3]
    return x, y, z
