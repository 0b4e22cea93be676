"""Kernel images, loaded programs and their argument blocks."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

Dim3 = tuple[int, int, int]


class ArgKind(enum.Enum):
    """What a kernel argument is."""

    POINTER = enum.auto()
    INT = enum.auto()
    FLOAT = enum.auto()


@dataclass(frozen=True, slots=True)
class ArgSlot:
    """One argument of a kernel and where it lies in the argument block."""

    name: str
    kind: ArgKind
    offset: int
    """Bytes from the start of the argument block."""
    size: int
    """Bytes: 8 for a pointer; 1, 2, 4 or 8 for a number. Naturally aligned."""
    access: Literal["r", "w", "rw"] = "rw"
    """What the kernel does through a pointer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelImage:
    """What the compiler hands over: code and the facts a launch needs; no device state."""

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
    """LDS / shared memory a workgroup, static part."""
    scratch_bytes: int = 0
    """Private memory a thread."""
    max_threads: int = 1024
    """Threads a workgroup at most; 1 on `cpu`."""
    group_ns: int = 0
    """Estimated nanoseconds a workgroup takes; 0 is unknown. A device may use it to decide how to spread work."""
