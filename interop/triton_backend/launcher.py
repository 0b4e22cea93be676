"""The launcher of one Triton kernel: flattens the arguments and submits to the device's first compute queue.

Not here: timing (`interop.triton_backend.timing`). Next: `interop.triton_backend.staging`, arguments in host
memory.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from triton.runtime import jit  # still incomplete here: Triton imports its drivers first
from triton.runtime.cache import get_cache_manager

from hcq.errors import UnsupportedError, UsageError
from hcq.memory import Buffer
from interop import tensor_map
from interop.arrays import DeviceArray
from interop.load import load
from interop.triton_backend.staging import LaunchStaging, Reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hcq.device import Device
    from interop.kernel import LoadedKernel
    from interop.triton_backend.binary import Binary

_TF32: Final = 11
"""The number of tf32 as an element type of `tensormap.replace`."""
_SCRATCH: Final = ("global_scratch", "profile_scratch")
"""Pointers that Triton adds after the kernel's own parameters, in this order."""


class Launcher:
    """Launches one compiled kernel. Triton makes it from the source and the metadata."""

    def __init__(self, device: Device, source: Any, metadata: Any) -> None:
        self.device = device
        self._metadata = metadata
        self._name: str = source.name
        self._types = tuple(source.signature.values())
        self._descriptors = tuple(getattr(metadata, "tensordesc_meta", None) or ())
        """What Triton states about each tensor descriptor made on the host.

        Empty if the code takes no maps.
        """
        self._cluster: int = getattr(metadata, "num_ctas", 1)
        """Workgroups of a cluster along x; a grid of Triton counts clusters."""
        self._cooperative = bool(getattr(metadata, "launch_cooperative_grid", False))
        self._threads: int = metadata.num_warps * metadata.warp_size
        self._shared: int = metadata.shared
        self._places = _places(self._types)
        """(position, type) of each argument that the code takes, in order; empty if a type has parts."""
        self._kernel: LoadedKernel | None = None

    def __call__(  # noqa: PLR0917 - Triton's signature
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: int,  # noqa: ARG002 - there is one
        function: Binary,
        kernel_metadata: object,  # noqa: ARG002 - Triton's signature
        launch_metadata: object,
        enter: Callable[[object], object] | None,
        leave: Callable[[object], object] | None,
        *arguments: object,
    ) -> None:
        """Launch a grid. An empty grid launches nothing.

        Raises as `interop.load`, `LoadedKernel.launch` and `LaunchStaging.place`; `UnsupportedError` for a
        descriptor of padded 4-bit floats or im2col.
        """
        groups = grid_x, grid_y, grid_z
        if 0 in groups:
            return
        kernel = self._kernel or self._load(function)
        if enter is not None:
            enter(launch_metadata)
        flat = self._opened(arguments)
        values = [value for _, value in flat]
        if all(map(_resident, values)):
            self._launch(kernel, values, groups)
        else:
            with LaunchStaging(self.device) as staging:
                placed = [staging.place(_pointer(one)) for one in flat]
                staging.upload()
                placed = [one.buffer if isinstance(one, Reference) else one for one in placed]
                self._launch(kernel, list(map(_with_rest, values, placed)), groups)
        if leave is not None:
            leave(launch_metadata)

    def _launch(self, kernel: LoadedKernel, values: list[Any], groups: tuple[int, int, int]) -> None:
        """Launch with the values of the kernel's own parameters."""
        x, y, z = groups
        values += self._scratch(len(kernel.signature.parameters) - len(values), groups)
        kernel.launch(
            *values,
            groups=(x * self._cluster, y, z),
            threads=kernel.signature.required_threads or (self._threads, 1, 1),
            shared=self._shared,
            cluster=None if self._cluster == 1 else self._cluster,
            cooperative=self._cooperative,
        )

    def _load(self, function: Binary) -> LoadedKernel:
        """Load the code, for NVIDIA with its PTX, which Triton keeps in its cache."""
        own = self._metadata
        files = get_cache_manager(own.hash).get_group(f"{self._name[:150]}.json") or {}
        texts = [Path(path) for name, path in files.items() if name.endswith(".ptx")]
        ptx = texts[0].read_text() if texts else ""
        self._kernel = load(self.device, function.code, entry=function.name, ptx=ptx)
        return self._kernel

    def _opened(self, arguments: tuple[Any, ...]) -> list[tuple[str, Any]]:
        """Return (type, value) of each parameter of the code."""
        if self._places:
            return [(kind, encoded(kind, arguments[place])) for place, kind in self._places]
        return list(self._flat(self._types, arguments, iter(self._descriptors)))

    def _flat(
        self, types: tuple[Any, ...], values: tuple[Any, ...], facts: Iterator[dict[str, Any]]
    ) -> Iterator[tuple[str, Any]]:
        """Yield (type, value) of each parameter of the code; constants are left out.

        Tuples and descriptors are replaced by their parts.
        """
        for kind, value in zip(types, values, strict=True):
            if isinstance(kind, tuple):
                yield from self._flat(kind, tuple(value), facts)
            elif kind.startswith("tensordesc"):
                yield from self._descriptor(kind, value, facts)
            elif kind != "constexpr":
                yield kind, encoded(kind, value)

    def _descriptor(
        self, kind: str, value: Any, facts: Iterator[dict[str, Any]]
    ) -> Iterator[tuple[str, Any]]:
        """Yield the parameters of a tensor descriptor that was made on the host."""
        if self._descriptors:
            yield from self._opaque(value, next(facts))
            return
        from triton.backends.driver import decompose_descriptor  # noqa: PLC0415 - absent before Triton 3.7

        element = kind.partition("<")[2].partition("[")[0]
        for number, part in enumerate(decompose_descriptor(value)):
            last = number >= 1 + 2 * len(value.shape)
            width = "u1" if isinstance(part, bool) else "i32" if last else "i64"
            yield (f"*{element}", part) if number == 0 else (width, encoded(width, part))

    def _opaque(self, value: Any, facts: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield a tensor map, the shape and the strides of a tensor descriptor.

        Raises `UnsupportedError` for padded 4-bit floats and im2col.
        """
        missing = [name for name in ("fp4_padded", "is_im2col") if facts.get(name)]
        if missing:
            raise UnsupportedError(f"kernel {self._name}: a tensor descriptor is {missing[0]}, not supported")
        whole = tensor_map.encode(
            0,
            element=_TF32 if value.round_f32_to_tf32 else facts["elem_type"],
            shape=value.shape,
            strides=value.strides,
            box=facts["block_size"],
            swizzle=facts["swizzle"],
            fill_nan=value.padding == "nan",
        )
        yield "tensormap", Map(value.base, whole[8:])
        yield from (("i32", int(one)) for one in value.shape)
        yield from (("i64", int(one)) for one in value.strides)

    def _scratch(self, count: int, groups: tuple[int, int, int]) -> list[Buffer | None]:
        """Return memory for the `count` pointers that Triton added; None for one without a size."""
        if not 0 <= count <= len(_SCRATCH):
            raise UsageError(f"kernel {self._name}: the code has {count} parameters more than its signature")
        out: list[Buffer | None] = []
        for name in _SCRATCH[:count]:
            size = getattr(self._metadata, f"{name}_size", 0) or 0
            total = size * math.prod(groups) * self._cluster
            out.append(self.device.alloc(total, label=name) if total else None)
        return out


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor map as an argument: the tensor, whose address is its first 8 bytes, and its other bytes."""

    base: Any
    rest: bytes


def _pointer(item: tuple[str, Any]) -> tuple[str, Any]:
    """Return (type, value) of the memory of an argument: of a tensor map, its tensor."""
    return ("*", item[1].base) if isinstance(item[1], Map) else item


def _with_rest(value: Any, placed: Any) -> Any:
    """Return a tensor map as the parts of a structure, and other values as they were placed."""
    return [placed, value.rest] if isinstance(value, Map) else placed


def _places(types: tuple[Any, ...]) -> tuple[tuple[int, str], ...]:
    if any(isinstance(kind, tuple) or kind.startswith("tensordesc") for kind in types):
        return ()
    return tuple((place, kind) for place, kind in enumerate(types) if kind != "constexpr")


def _resident(value: object) -> bool:
    """Return whether a value needs no memory on the device: a number, a buffer or None."""
    return isinstance(value, (Buffer, int, float)) or value is None


def encoded(kind: str, value: Any) -> Any:
    """Return the value of a parameter of Triton's type `kind` as `LoadedKernel` takes it."""
    if kind[0] == "*":
        if isinstance(value, jit.TensorWrapper):  # of `triton.reinterpret`
            value = value.base
        return value.buffer if isinstance(value, DeviceArray) else value
    if kind == "bf16":
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF
    if kind[0] == "f":
        return float(value)
    number = int(value)
    if kind[0] == "u" and number >> (bits := max(8, int(kind[1:]))) - 1:
        return number - (1 << bits)
    return number
