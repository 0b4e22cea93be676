"""A kernel on one device: the words and the argument block of its launches, made once for each shape.

The encoder copies the block (explicit arguments, then hidden ones) and appends the words.

Not here: reading code objects (`code`), the words of a launch (`launch`), the order of launches (`encode`).
Next: `encode`.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import Final

from drivers.amd import code, lines
from drivers.amd.code import AmdKernelFacts
from drivers.amd.context import Geometry, lane_bytes
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
from drivers.amd.layouts.chips import AmdChip, Generation
from drivers.amd.layouts.code import HiddenArguments
from drivers.amd.layouts.registers import RSRC1
from drivers.amd.quirks import AmdQuirks
from drivers.shared.kernels import check_arguments, check_stack
from hcq.errors import UnsupportedError, UsageError
from hcq.params import Word
from hcq.program import Dim3, KernelImage, Residency

_BARRIERS: Final = 16
"""Barriers of a compute unit: the most workgroups of several waves (LLVM AMDGPUBaseInfo)."""
_SIMD_SGPRS: Final = 800
"""Scalar registers of a SIMD of gfx9, which waves get in units of `_SGPR_UNIT` (LLVM AMDGPUBaseInfo)."""
_SGPR_UNIT: Final = 16
MAX_THREADS: Final = 1024
"""The most work-items of a workgroup."""
BLOCK_ALIGN: Final = 64
"""Alignment of start and size of argument blocks, a cache line: scalar loads may read past an argument."""
_SHAPES_KEPT: Final = 256
"""Launch shapes of one kernel that are cached; the cache is emptied when it is full."""
_AXES: Final = ("x", "y", "z")
_NUMBERS: Final = ("by_value", "global_buffer")
"""Kinds of explicit arguments that a slot can hold: numbers and addresses."""


@dataclass(frozen=True, slots=True)
class AmdLaunchShape:
    """The prebuilt data of one launch shape, without addresses and arguments."""

    block: array[int]
    """The argument block as u64 words."""
    words: tuple[int, ...]
    """The words of the launch."""


class AmdProgram:
    """A kernel in device memory, whose relocated image lies at `va` or is to be uploaded there.

    `aql`: the device's compute queues take AQL packets, not PM4. `geometry` is for `residency` only. Raises
    `UnsupportedError` or `UsageError` if the GPU cannot run the kernel (`check`, `launch.Pm4Launch`).
    """

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
        """The memory of its image, which the device owns."""
        fields = kernel.fields
        group = max(fields.group_segment_fixed_size, image.shared_bytes)
        check(image, kernel, target, group)
        self.scratch_bytes = lane_bytes(target, max(fields.private_segment_fixed_size, image.scratch_bytes))
        """Scratch memory of a work-item in bytes, which the device must provide."""
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
        """Field of `HiddenArguments` -> its offset in the block, in bytes."""
        self.hidden_counts = tuple(self.hidden.get(f"block_count_{axis}", -1) for axis in _AXES)
        """Axis -> offset in the block of the hidden number of workgroups, in bytes; -1: there is none."""
        end = max(image.kernarg_size, fields.kernarg_size)
        self.packet_at = -1
        """Offset in the block of the dispatch packet that the kernel reads, in bytes; -1: it reads none."""
        if self.sites.packet >= 0:
            self.packet_at = -(-end // BLOCK_ALIGN) * BLOCK_ALIGN
            end = self.packet_at + PACKET_BYTES
        self.block_bytes = -(-end // BLOCK_ALIGN) * BLOCK_ALIGN
        self.arguments = slice(0, image.kernarg_size // 8)
        """The position of the arguments in a block, in u64 words."""
        self.rare = self.sites.scratch >= 0 or self.sites.packet >= 0
        """Whether a launch needs other addresses beside that of the arguments."""
        self.shapes: dict[tuple[tuple[Word, Word, Word], Dim3], AmdLaunchShape] = {}
        """The cache: (groups, threads) of a launch -> data."""

    def grid_words(self, axis: int, threads: Dim3) -> list[tuple[int, int]]:
        """Return (index in the launch's words, left shift) of each number of workgroups along an axis.

        Raises as `grid_shift` of the launch.
        """
        return [(self.sites.grid + axis, self.launch.grid_shift(threads, axis))]

    def grid_bytes(self, axis: int, threads: Dim3) -> list[tuple[int, int]]:
        """Return (offset in the block in bytes, left shift) of each number of workgroups along an axis.

        Raises `UnsupportedError` as `work_items_shift` does, if the kernel reads its dispatch packet.
        """
        found = [(self.hidden_counts[axis], 0)] if self.hidden_counts[axis] >= 0 else []
        if self.packet_at >= 0:
            found.append((self.packet_at + PACKET_GRID + 4 * axis, work_items_shift(threads, axis)))
        return found

    def shape(self, groups: tuple[Word, Word, Word], threads: Dim3) -> AmdLaunchShape:
        """Return the prebuilt data of a launch shape, cached if all dimensions are numbers.

        `groups` counts workgroups; dimensions that are not numbers are 0 in the data. Raises `UsageError` if
        the workgroup has too many or no threads, or a dimension is out of range.
        """
        x, y, z = (word if isinstance(word, int) else 0 for word in groups)
        counts = (x, y, z)
        shape = self._make(counts, threads)
        if 0 not in counts:
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
        dynamic = self.what.group_bytes - self.kernel.fields.group_segment_fixed_size
        for name, value in hidden_values(groups, threads, dynamic).items():
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
        """Return how many workgroups run at the same time, by compute unit or workgroup processor.

        Raises `UnsupportedError` if `geometry` was not given, and for clusters, which AMD's GPUs do not have.
        """
        if cluster is not None and math.prod(cluster) > 1:
            raise UnsupportedError(
                f"kernel {self.image.name}: clusters of {cluster} workgroups, {self._target.name} has none"
            )
        if self._geometry is None:
            raise UnsupportedError(f"kernel {self.image.name}: the units of its device are not known")
        return residency(self.what, self._target, self._geometry, math.prod(threads))

    def holds(self, va: int) -> bool:
        """Return whether `va` lies in this kernel's image."""
        return self.va <= va < self.va + self.size

    def source_at(self, va: int) -> str:
        """Return "folder/file.py:12", the source line of the instruction at `va`; "" if none is recorded.

        Raises `ValueError` if the code object's debug sections are malformed.
        """
        found, _ = code.read(self.image.code, self.image.name, self._target)
        return lines.source_place(found.elf, found.placement, va - self.va)


def residency(what: AmdLaunchable, target: AmdChip, geometry: Geometry, threads: int) -> Residency:
    """Return how many workgroups of `threads` work-items a GPU runs at the same time.

    Kernels in workgroup-processor mode run on pairs of compute units. Source of the limits: LLVM
    AMDGPUBaseInfo.
    """
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
    """Return the hidden arguments that the driver fills in: name -> value. All others are 0."""
    values = {f"block_count_{axis}": count for axis, count in zip(_AXES, groups, strict=True)}
    values |= {f"group_size_{axis}": count for axis, count in zip(_AXES, threads, strict=True)}
    return values | {
        "grid_dims": DIMENSIONS,
        "dynamic_lds_size": dynamic_bytes,
        "private_base": SCRATCH_APERTURE_HI,
        "shared_base": LDS_APERTURE_HI,
    }


def check(image: KernelImage, kernel: AmdKernelFacts, target: AmdChip, group_bytes: int) -> None:
    """Check that this GPU can run an image.

    `group_bytes`: LDS of a workgroup. Raises `UnsupportedError` for too much LDS, for waves that the GPU does
    not have, an unbounded stack without `image.scratch_bytes`, and arguments that no slot can hold. Raises
    `UsageError` if image and code contradict each other.
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
    static = kernel.fields.private_segment_fixed_size
    check_stack(image, bounded=not kernel.properties.USES_DYNAMIC_STACK or image.scratch_bytes > static)
    explicit = [one for one in kernel.arguments or () if not one.hidden]
    for one in explicit:
        if one.kind not in _NUMBERS:
            raise UnsupportedError(f"kernel {image.name}: an argument is a {one.kind}, which no slot holds")
    end = max((one.offset + one.size for one in explicit), default=0)
    check_arguments(image, end, None if kernel.arguments is None else explicit)
    hidden = min((one.offset for one in kernel.arguments or () if one.hidden), default=image.kernarg_size)
    if hidden < max((slot.offset + slot.size for slot in image.args), default=0):
        raise UsageError(f"kernel {image.name}: its slots reach into the arguments of the driver at {hidden}")
