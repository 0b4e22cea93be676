"""A kernel on one device: the words and the argument block of its launches, made once for each shape.

A launch copies the block (explicit arguments, then hidden ones) and appends the words. Not here:
reading code objects (`code`), the words of a launch (`launch`), what surrounds them (`encode`).
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivers.amd import code, lines
from drivers.amd.context import lane_bytes
from drivers.amd.launch import (
    DIMENSIONS,
    PACKET_GRID,
    AmdLaunchable,
    AqlLaunch,
    Pm4Launch,
    dispatch_packet,
    work_items_shift,
)
from drivers.amd.layouts.aql import LDS_APERTURE_HI, PACKET_BYTES, SCRATCH_APERTURE_HI
from drivers.amd.layouts.chips import Generation
from drivers.amd.layouts.code import HiddenArguments
from drivers.amd.layouts.registers import RSRC1
from hcq.errors import UnsupportedError, UsageError
from hcq.program import Residency

if TYPE_CHECKING:
    from drivers.amd.code import AmdKernelFacts
    from drivers.amd.context import Geometry
    from drivers.amd.layouts.chips import AmdChip
    from drivers.amd.quirks import AmdQuirks
    from hcq.params import Word
    from hcq.program import Dim3, KernelImage

_BARRIERS: Final = 16
"""Workgroups of several waves that a compute unit holds; it and the scalar registers: LLVM AMDGPUBaseInfo."""
_SIMD_SGPRS: Final = 800
_SGPR_UNIT: Final = 16
MAX_THREADS: Final = 1024
"""Work-items of a workgroup."""
BLOCK_ALIGN: Final = 64
"""Argument blocks begin and end at cache lines: scalar loads read past the end of what they need."""
_SHAPES_KEPT: Final = 256
_AXES: Final = ("x", "y", "z")
_NUMBERS: Final = ("by_value", "global_buffer")
"""Kinds of explicit arguments that hold numbers or addresses of memory."""


@dataclass(frozen=True, slots=True)
class AmdLaunchShape:
    """A launch shape, complete except for addresses and arguments."""

    block: array[int]
    """The argument block as u64 words."""
    words: tuple[int, ...]
    """The launch."""


class AmdProgram:
    """A kernel that was uploaded to `va`; `aql` says what its device's compute queues are."""

    __slots__ = (
        "_geometry",
        "_target",
        "arguments",
        "block_bytes",
        "handle",
        "hidden",
        "image",
        "kernarg_at",
        "kernel",
        "launch",
        "max_threads",
        "open_hidden",
        "packet_at",
        "rare",
        "scratch_bytes",
        "shapes",
        "sites",
        "size",
        "va",
        "what",
    )

    def __init__(
        self,
        image: KernelImage,
        kernel: AmdKernelFacts,
        va: int,
        size: int,
        *,
        target: AmdChip,
        choices: AmdQuirks,
        aql: bool,
        geometry: Geometry | None = None,
        handle: object = None,
    ) -> None:
        self.image = image
        self.kernel = kernel
        self.va = va
        self.size = size
        self._target, self._geometry = target, geometry
        self.handle = handle
        """The memory of its image, which the device frees."""
        fields = kernel.fields
        group = max(fields.group_segment_fixed_size, image.shared_bytes)
        check(image, kernel, target, group)
        self.scratch_bytes = lane_bytes(target, max(fields.private_segment_fixed_size, image.scratch_bytes))
        """Bytes of scratch memory of a work-item, which the device must back."""
        self.max_threads = min(image.max_threads, kernel.max_threads or MAX_THREADS, MAX_THREADS)
        self.what = AmdLaunchable(
            kernel=kernel,
            descriptor_va=va + kernel.descriptor,
            entry_va=va + kernel.entry,
            group_bytes=group,
            scratch_bytes=self.scratch_bytes,
        )
        self.launch: Pm4Launch | AqlLaunch = (AqlLaunch if aql else Pm4Launch)(self.what, target, choices)
        self.sites = self.launch.sites
        self.kernarg_at = self.sites.kernarg
        implied = kernel.arguments is None and fields.kernarg_size > image.kernarg_size
        self.hidden = code.assumed_hidden(image.kernarg_size) if implied else kernel.hidden
        """Field of `HiddenArguments` -> its place in the block."""
        self.open_hidden = tuple(self.hidden.get(f"block_count_{axis}", -1) for axis in _AXES)
        """Axis -> where in the block the number of workgroups stands, or -1."""
        end = max(image.kernarg_size, fields.kernarg_size)
        self.packet_at = -1
        """Where in the block the dispatch packet lies that the kernel reads, or -1."""
        if self.sites.packet >= 0:
            self.packet_at = -(-end // BLOCK_ALIGN) * BLOCK_ALIGN
            end = self.packet_at + PACKET_BYTES
        self.block_bytes = -(-end // BLOCK_ALIGN) * BLOCK_ALIGN
        self.arguments = slice(0, image.kernarg_size // 8)
        """Where in a block the arguments lie, in u64 words."""
        self.rare = self.sites.scratch >= 0 or self.sites.packet >= 0
        """Whether a launch has more addresses than that of the arguments."""
        self.shapes: dict[tuple[tuple[Word, Word, Word], Dim3], AmdLaunchShape] = {}

    def open_words(self, axis: int, threads: Dim3) -> list[tuple[int, int]]:
        """Return (word of the launch, lowest bit) of each place that holds an open number of groups."""
        return [(self.sites.grid + axis, self.launch.open_grid(threads, axis))]

    def open_memory(self, axis: int, threads: Dim3) -> list[tuple[int, int]]:
        """Return (byte of the block, lowest bit) of each place that holds an open number of groups."""
        places = [(self.open_hidden[axis], 0)] if self.open_hidden[axis] >= 0 else []
        if self.packet_at >= 0:
            places.append((self.packet_at + PACKET_GRID + 4 * axis, work_items_shift(threads, axis)))
        return places

    def shape(self, groups: tuple[Word, Word, Word], threads: Dim3) -> AmdLaunchShape:
        """Return the words and the block of this shape, from a cache if possible; open dimensions are 0."""
        known: Dim3 = tuple(word if isinstance(word, int) else 0 for word in groups)  # type: ignore[assignment]  # three
        shape = self._make(known, threads)
        if 0 not in known:
            if len(self.shapes) >= _SHAPES_KEPT:
                self.shapes.clear()
            self.shapes[groups, threads] = shape
        return shape

    def _make(self, groups: Dim3, threads: Dim3) -> AmdLaunchShape:
        count = threads[0] * threads[1] * threads[2]
        if not 0 < count <= self.max_threads or min(threads) < 1:
            raise UsageError(
                f"kernel {self.image.name}: {threads} threads a workgroup; 1 to {self.max_threads} in all fit"
            )
        block = bytearray(self.block_bytes)
        for name, value in hidden_values(groups, threads, self._dynamic_bytes()).items():
            if name in self.hidden:
                member = HiddenArguments.FIELDS[name]
                at = self.hidden[name]
                block[at : at + member.size] = member.encode("HiddenArguments", value)
        if self.packet_at >= 0:
            grid = [groups[axis] * threads[axis] for axis in range(DIMENSIONS)]
            words = array("I", dispatch_packet(self.what, grid, threads, barrier=True))
            block[self.packet_at : self.packet_at + PACKET_BYTES] = words.tobytes()
        return AmdLaunchShape(array("Q", bytes(block)), self.launch.words(groups, threads))

    def residency(self, threads: Dim3, cluster: Dim3 | None = None) -> Residency:
        """Return how many workgroups run at the same time; a unit is a compute unit or workgroup processor.

        Raises `UnsupportedError` without the topology, and for clusters, which AMD's GPUs do not have.
        """
        if cluster is not None and math.prod(cluster) > 1:
            raise UnsupportedError(
                f"kernel {self.image.name}: clusters of {cluster} workgroups, {self._target.name} has none"
            )
        if self._geometry is None:
            raise UnsupportedError(f"kernel {self.image.name}: the units of its device are not known")
        return residency(self.what, self._target, self._geometry, math.prod(threads))

    def _dynamic_bytes(self) -> int:
        return self.what.group_bytes - self.kernel.fields.group_segment_fixed_size

    def holds(self, va: int) -> bool:
        """Return whether `va` lies in this kernel's image."""
        return self.va <= va < self.va + self.size

    def source_at(self, va: int) -> str:
        """Return "folder/file.py:12", the place in the source of the instruction at `va`; "" if not recorded.

        Raises `ValueError` if the code object's debug sections are malformed.
        """
        found, _ = code.read(self.image.code, self.image.name, self._target)
        return lines.source_place(found.elf, found.placement, va - self.va)


def residency(what: AmdLaunchable, target: AmdChip, geometry: Geometry, threads: int) -> Residency:
    """Return how many workgroups of `threads` work-items a GPU runs at the same time."""
    kernel = what.kernel
    first = RSRC1[int(target.generation)].from_int(kernel.fields.compute_pgm_rsrc1)
    pairs = target.generation is not Generation.GFX9 and first.WGP_MODE
    simds = 4 if pairs or target.generation is Generation.GFX9 else 2
    waves = max(1, -(-threads // kernel.wave))
    wide = kernel.wave // target.waves[0]
    registers = (first.VGPRS + 1) * target.vgpr_granule[kernel.wave == 64]
    unit = target.vgpr_allocation // wide
    allocated = -(-registers // unit) * unit * wide
    by_registers = min(target.simd_vgprs // allocated, target.simd_waves)
    if target.generation is Generation.GFX9:
        by_registers = min(by_registers, _SIMD_SGPRS // ((first.SGPRS // 2 + 1) * _SGPR_UNIT))
    lds = target.lds_bytes * (2 if pairs else 1)
    most = {
        f"registers ({registers} vector registers a lane)": by_registers * simds // waves,
        f"waves ({waves} of {kernel.wave} lanes each)": target.simd_waves * simds // waves,
        f"LDS ({what.group_bytes} bytes)": lds // max(what.group_bytes, 1),
    }
    if waves > 1:
        most["barriers"] = _BARRIERS * (2 if pairs else 1)
    if what.scratch_bytes:
        most["scratch"] = geometry.scratch_slots * (2 if pairs else 1) // waves
    units = geometry.compute_units * geometry.xccs // (2 if pairs else 1)
    return Residency(
        min(most.values()), units, ", ".join(f"{count} by {name}" for name, count in most.items())
    )


def hidden_values(groups: Dim3, threads: Dim3, dynamic_bytes: int) -> dict[str, int]:
    """Return the hidden arguments that are not 0, by name."""
    values = {f"block_count_{axis}": count for axis, count in zip(_AXES, groups, strict=True)}
    values |= {f"group_size_{axis}": count for axis, count in zip(_AXES, threads, strict=True)}
    return values | {
        "grid_dims": DIMENSIONS,
        "dynamic_lds_size": dynamic_bytes,
        "private_base": SCRATCH_APERTURE_HI,
        "shared_base": LDS_APERTURE_HI,
    }


def check(image: KernelImage, kernel: AmdKernelFacts, target: AmdChip, group_bytes: int) -> None:
    """Check that this GPU can run an image, and that it agrees with its code.

    Raises `UnsupportedError` and `UsageError`.
    """
    if group_bytes > target.lds_bytes:
        raise UnsupportedError(
            f"kernel {image.name}: {group_bytes} bytes of LDS a workgroup, {target.name} has "
            f"{target.lds_bytes}"
        )
    if kernel.wave not in target.waves:
        raise UnsupportedError(
            f"kernel {image.name}: waves of {kernel.wave} lanes, {target.name} has {target.waves}"
        )
    if (
        kernel.properties.USES_DYNAMIC_STACK
        and image.scratch_bytes <= kernel.fields.private_segment_fixed_size
    ):
        raise UnsupportedError(
            f"kernel {image.name}: the code does not say how much stack it needs\n"
            "hint: give KernelImage.scratch_bytes, or compile without recursion and indirect calls"
        )
    explicit = [one for one in kernel.arguments or () if not one.hidden]
    end = max((one.offset + one.size for one in explicit), default=0)
    if end > image.kernarg_size:
        raise UsageError(
            f"kernel {image.name}: the code reads {end} bytes of arguments, its image declares "
            f"{image.kernarg_size}"
        )
    hidden = min((one.offset for one in kernel.arguments or () if one.hidden), default=image.kernarg_size)
    if hidden < max((slot.offset + slot.size for slot in image.args), default=0):
        raise UsageError(f"kernel {image.name}: its slots reach into the arguments of the driver at {hidden}")
    if kernel.arguments is not None:
        _check_slots(image, kernel)


def _check_slots(image: KernelImage, kernel: AmdKernelFacts) -> None:
    """Raise `UsageError` for argument slots that differ from the arguments of the code."""
    explicit = {one.offset: one for one in kernel.arguments or () if not one.hidden}
    layout = ", ".join(f"{one.size} at {one.offset}" for one in explicit.values())
    hint = f"\nhint: the code takes these bytes: {layout or 'none'}"
    for one in explicit.values():
        if one.kind not in _NUMBERS:
            raise UnsupportedError(f"kernel {image.name}: an argument is a {one.kind}, which no slot holds")
    left = dict(explicit)
    for slot in image.args:
        record = max(
            (one for one in explicit.values() if one.offset <= slot.offset),
            key=lambda one: one.offset,
            default=None,
        )
        within = record is not None and slot.offset + slot.size <= record.offset + record.size
        whole = record is None or record.size not in (1, 2, 4, 8) or slot.size == record.size
        if record is None or not within or not whole:
            raise UsageError(
                f"kernel {image.name}, argument slot {slot.name}: {slot.size} bytes at {slot.offset} are no "
                f"argument of the code{hint}"
            )
        left.pop(record.offset, None)
    if left:
        at = next(iter(left))
        raise UsageError(f"kernel {image.name}: no slot gives the argument of the code at {at}{hint}")
