"""Kernel images, loaded programs and their argument blocks.

Not here: making images (`compiler.compile`, docs/kernel-by-hand.md), packing arguments (`kernargs`).
"""

from __future__ import annotations

import enum
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from operator import attrgetter
from typing import Any, Literal, Protocol, runtime_checkable

from hcq.errors import UnsupportedError, UsageError, UsageTypeError, refuse_copy
from hcq.hardware import DeviceInfo
from hcq.locks import DROP, NOTHING
from hcq.memory import Buffer, Owner
from hcq.params import Expr, Word
from hcq.signal import Point

Dim3 = tuple[int, int, int]
_OFFSET = attrgetter("offset")


class DriverProgram(Protocol):
    """The driver's form of a kernel loaded on one device."""

    @property
    def image(self) -> KernelImage:
        """The image that it was made from."""


@dataclass(frozen=True, slots=True)
class Residency:
    """How many workgroups of one launch a device runs at the same time: `per_unit` in each of `units`."""

    per_unit: int
    """Workgroups of one multiprocessor; for a launch with clusters, of one cluster."""
    units: int
    """Number of multiprocessors (SMs, compute units or workgroup processors); or of clusters that run at
    once."""
    reasons: str
    """The workgroups that each resource allows: "8 by registers (40 a thread), 2 by shared memory"."""
    kind: str = "units"
    """What `units` counts, for errors: "units" or "clusters"."""

    @property
    def groups(self) -> int:
        """Workgroups on the whole device."""
        return self.per_unit * self.units


@runtime_checkable
class Cooperative(Protocol):
    """A driver's program that knows how many of its workgroups run at the same time."""

    def residency(self, threads: Dim3, cluster: Dim3 | None = None) -> Residency:
        """Return the residency of workgroups of `threads`, in clusters of `cluster` workgroups.

        `cluster` None: the clusters that the image requires. Raises `UnsupportedError` where the residency is
        not known, `UsageError` for a cluster that the image or the device excludes.
        """


class Loader(Owner, Protocol):
    """The part of a device that programs use; `hcq.device.Device` implements it."""

    @property
    def info(self) -> DeviceInfo:
        """The device's properties, with the limits of a launch."""

    def retire_program(self, loaded: DriverProgram) -> None:
        """Unload a program once the work now in flight is done."""

    def dropping(self, loaded: DriverProgram) -> Callable[[], object]:
        """Return the function that unloads a program at the next `sweep`, for its finalizer."""


class DeferredUnloads:
    """Loaded programs that were closed or dropped: each is unloaded once its launches are done.

    The owner holds its lock around `sweep` and `close`; finalizers append to `waiting`.
    """

    def __init__(self, unload: Callable[[DriverProgram], None]) -> None:
        self._unload = unload
        self.waiting: deque[tuple[list[Point], DriverProgram]] = deque()
        """Programs, and the points of the launches that use them."""

    def sweep(self) -> None:
        """Unload the programs whose launches are done."""
        for _ in range(len(self.waiting)):  # finalizers append meanwhile
            points, loaded = self.waiting.popleft()
            if all(point.over() for point in points):
                self._unload(loaded)
            else:
                self.waiting.append((points, loaded))

    def close(self) -> None:
        """Unload all; the device runs nothing any more."""
        while self.waiting:
            self._unload(self.waiting.popleft()[1])


class ArgKind(enum.Enum):
    """Kinds of kernel arguments."""

    POINTER = enum.auto()
    INT = enum.auto()
    FLOAT = enum.auto()


@dataclass(frozen=True, slots=True)
class ArgSlot:
    """One argument of a kernel, and its position in the argument block."""

    name: str
    kind: ArgKind
    offset: int
    """Bytes from the start of the argument block."""
    size: int
    """Bytes: 8 for a pointer; 1, 2, 4 or 8 for a number. Naturally aligned."""
    access: Literal["r", "w", "rw"] = "rw"
    """How the kernel accesses the memory of a pointer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelImage:
    """A compiled kernel: machine code and the properties that a launch needs; no device state.

    The compiler makes one, or the user (docs/kernel-by-hand.md). `Device.load` uploads it.
    """

    name: str
    """The kernel's entry symbol in `code`."""
    arch: str
    """`DeviceInfo.arch` of the devices that run it: "x86_64-...", "gfx1100", "sm_90a"."""
    code: bytes
    """An ELF file: host object, AMDGPU code object or cubin."""
    args: tuple[ArgSlot, ...]
    kernarg_size: int
    """Bytes of the argument block, a multiple of 8."""
    shared_bytes: int = 0
    """Bytes of static shared memory (LDS) of a workgroup."""
    scratch_bytes: int = 0
    """Bytes of private memory of a thread."""
    max_threads: int = 1024
    """The most threads of a workgroup; 1 on `cpu`."""
    group_ns: int = 0
    """Estimated nanoseconds that a workgroup takes; 0: unknown. A device may use it to distribute work."""

    def verify(self) -> None:
        """Raise `UsageError` when slots are misaligned, overlap, or do not fit `kernarg_size`.

        Raises it also for a number above its greatest value, a `kernarg_size` that is no multiple of 8, and
        another `access`; `UsageTypeError` for a field of another class or below its least value.
        """
        self._check_fields()
        end = 0
        for slot in sorted(self.args, key=_OFFSET):
            sizes = (8,) if slot.kind is ArgKind.POINTER else (1, 2, 4, 8)
            if (
                slot.size not in sizes
                or slot.offset % slot.size
                or (slot.kind is ArgKind.FLOAT and slot.size == 1)
            ):
                raise UsageError(
                    f"kernel {self.name}: argument {slot.name} ({slot.kind.name}, {slot.size} bytes "
                    f"at {slot.offset}) has no legal size, or is not naturally aligned"
                )
            if slot.offset < end:
                raise UsageError(
                    f"kernel {self.name}: argument {slot.name} at {slot.offset} overlaps another"
                )
            end = slot.offset + slot.size
        if end > self.kernarg_size or self.kernarg_size % 8:
            raise UsageError(
                f"kernel {self.name}: arguments end at {end}, the block has {self.kernarg_size} bytes; "
                f"it must hold them and be a multiple of 8"
            )

    def _check_fields(self) -> None:
        for what, kind in _FIELDS.items():
            if not isinstance(value := getattr(self, what), kind):
                seen = f"{what} is a {type(value).__name__}, not {kind.__name__}"
                raise UsageTypeError(f"kernel {self.name}: {seen}")
        for what, (least, most) in _RANGES.items():
            value = getattr(self, what)
            if not isinstance(value, int) or value < least:
                wanted = f"an int of at least {least}"
                raise UsageTypeError(f"kernel {self.name}, {what}: wanted {wanted}, seen {value!r}")
            if value > most:
                raise UsageError(f"kernel {self.name}, {what}: wanted at most {most}, seen {value}")
        for slot in self.args:
            if (
                not isinstance(slot, ArgSlot)
                or not isinstance(slot.kind, ArgKind)
                or not isinstance(slot.offset, int)
                or not isinstance(slot.size, int)
                or slot.offset < 0
            ):
                wanted = "an hcq.ArgSlot with an hcq.ArgKind, at byte 0 or later"
                raise UsageTypeError(f"kernel {self.name}: wanted {wanted}, seen {slot}")
            if not isinstance(slot.access, str) or slot.access not in {"r", "w", "rw"}:
                seen = f"the access of {slot.name} is {slot.access!r}"
                raise UsageError(f"kernel {self.name}: {seen}, not 'r', 'w' or 'rw'")


_FIELDS = {"name": str, "arch": str, "code": bytes, "args": tuple}
"""Field of an image -> its class."""
_RANGES = {
    "kernarg_size": (0, (1 << 31) - 1),
    "shared_bytes": (0, (1 << 31) - 1),
    "scratch_bytes": (0, (1 << 31) - 1),
    "max_threads": (1, (1 << 31) - 1),
    "group_ns": (0, (1 << 63) - 1),
}
"""Numbers of an image -> the least and the greatest value."""


class KernArgs:
    """One packed argument block, in which arguments may be open. Made by `Program.args`; do not change it.

    It owns no device memory: each encoding places a copy, so that one block may be used in many launches.
    """

    __slots__ = ("_pointers", "captured", "epoch", "launched", "patches", "program", "values", "words")

    captured: tuple[tuple[object, ...], str, list[Any]]
    """(sizes, text, accesses) of a launch, kept by `hcq.capture.recorder`; unset until one is captured."""
    launched: str
    """The line that submitted it last, kept by `hcq.validate`; unset without validation."""

    def __init__(
        self,
        program: Program,
        words: array[int],
        values: tuple[Buffer | Word | float, ...],
        patches: tuple[tuple[int, int, Expr], ...],
    ) -> None:
        self.program = program
        self.words = words
        """The block as array('Q'); the bits of open arguments are 0."""
        self.values = values
        """The values given, one for each slot; they keep the buffers alive."""
        self.patches = patches
        """(byte offset, width in bits, expression) of every open argument."""
        self.epoch = program.device.close_epoch
        """`Device.close_epoch` when the buffers were last known to be open."""

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers that the block points to."""
        return tuple([value for _, value in self.pointers() if not isinstance(value, Expr)])

    def pointers(self) -> list[tuple[ArgSlot, Buffer | Expr]]:
        """Return (slot, buffer or open expression) of every pointer argument."""
        try:
            return self._pointers
        except AttributeError:  # the first call; eager launches make none
            opened = {offset: expr for offset, _, expr in self.patches}
            self._pointers: list[tuple[ArgSlot, Buffer | Expr]] = [
                (slot, value if isinstance(value, Buffer) else opened[slot.offset])
                for slot, value in zip(self.program.image.args, self.values, strict=True)
                if slot.kind is ArgKind.POINTER
            ]
            return self._pointers

    def describe(self) -> tuple[str, ...]:
        """Return one line of text for each argument, for fault reports."""
        return tuple(
            f"{slot.name} = {value!r}"
            for slot, value in zip(self.program.image.args, self.values, strict=True)
        )


class Program:
    """A kernel loaded on one device. Made by `Device.load`; unloaded with its last reference, or by `close`.

    Usable from any thread.
    """

    __slots__ = ("__weakref__", "_drop", "_make", "closed", "device", "grid", "image", "loaded", "name")

    def __init__(self, device: Loader, image: KernelImage, loaded: DriverProgram) -> None:
        from hcq.kernargs import compile_args  # noqa: PLC0415 - the generator imports this module

        self._drop = device.dropping(loaded)
        self.closed = False
        self.device = device
        self.image = image
        self.loaded = loaded
        """The driver's form of the kernel, which encoders use."""
        self.name = image.name
        self.grid: tuple[tuple[Word, Word, Word], Dim3] = (1, 1, 1), (1, 1, 1)
        """(groups, threads) of the launch recorded last: recording the same objects again checks nothing."""
        self._make = compile_args(image, device)

    def args(self, *values: Buffer | Word | float) -> KernArgs:
        """Pack one value for each argument slot, in order of the slots; return the block.

        A pointer takes a Buffer, a Param or `param + bytes`; a number takes an int, a float or a Param. The
        block may be used in any number of launches. The device is not accessed.

            program.args(out, a, 10)

        Raises `UsageError`, which names the slot, for a wrong count of values, a number out of range, a value
        of another class, a closed program, and a buffer that the device cannot access; the error of
        `Buffer.live` for a closed buffer.
        """
        return self._make(self, values)

    def residency(self, threads: Dim3, cluster: Dim3 | None = None) -> Residency:
        """Return how many workgroups of `threads` run at the same time if nothing else runs.

        It follows from registers, shared memory and threads, as published for the device. `cluster`: the
        workgroups of a cluster along x, y and z; None: the clusters that the image requires, else none. For
        clusters the result is a lower bound. Raises `UnsupportedError` for a device where workgroups do not
        run at the same time, or where their number is not known; `UsageError` for a cluster that the image or
        the device excludes, and for `threads` or `cluster` that are not three counts of at least 1.
        """
        threads = _dimensions(self.name, "threads", threads)
        cluster = None if cluster is None else _dimensions(self.name, "cluster", cluster)
        if not isinstance(self.loaded, Cooperative):
            raise UnsupportedError(
                f"kernel {self.name}: {self.device.name} does not state how many workgroups it runs at once"
            )
        return self.loaded.residency(threads, cluster)

    def check_cooperative(
        self, groups: tuple[Word, Word, Word], threads: Dim3, cluster: Dim3 | None = None
    ) -> None:
        """Raise `UsageError` unless all workgroups of a grid run at once, and are no parameters.

        Also as `residency`.
        """
        known = [one for one in groups if isinstance(one, int)]
        if len(known) < len(groups):
            raise UsageError(f"kernel {self.name}: {groups} workgroups; a cooperative grid cannot be open")
        found = self.residency(threads, cluster)
        if prod(known) > found.groups:
            raise UsageError(
                f"kernel {self.name}: a cooperative grid of {prod(known)} workgroups of {prod(threads)} "
                f"threads; {self.device.name} runs {found.groups} at once, {found.per_unit} on each of "
                f"{found.units} {found.kind}: {found.reasons}\n"
                f"hint: launch at most {found.groups} workgroups, each of which does more"
            )

    def close(self) -> None:
        """Refuse later launches with `UsageError`; unload the kernel once those in flight are done.

        Idempotent.
        """
        if not self.closed:
            self.closed = True
            self._make = _refuse_closed
            self._drop = NOTHING
            self.device.retire_program(self.loaded)

    __reduce__ = refuse_copy

    def __repr__(self) -> str:
        return f"<Program {self.name} on {self.device.name}{' (closed)' if self.closed else ''}>"

    __del__ = DROP


def _dimensions(name: str, what: str, counts: object) -> Dim3:
    """Return three counts. Raises `UsageError`, which says what was seen."""
    if (
        isinstance(counts, (tuple, list))
        and len(counts) == 3
        and all(isinstance(one, int) and one > 0 for one in counts)
    ):
        x, y, z = counts
        return x, y, z
    raise UsageError(f"kernel {name}, {what}: wanted three ints of at least 1, seen {counts!r}")


def _refuse_closed(program: Program, _values: object) -> KernArgs:
    raise UsageError(f"{program!r} was closed and cannot be launched any more; load its image again")
