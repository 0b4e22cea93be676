"""A kernel on one device: its image, its descriptor template, and the driver's words of constant bank 0.

Not here: reading cubins (`cubin`), versions of the descriptor (`qmd`), launching (`encode`). Next: `qmd`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from drivers.nv import vaspace
from drivers.nv.cubin import NvKernelFacts
from drivers.nv.layouts.compute import LOCAL_STACK_RESERVE, LOCAL_THREAD_ALIGN
from drivers.nv.layouts.cubin import (
    FIRST_SM_WITH_RESERVE,
    RESERVED_SHARED,
    SHARED_GRANULE,
    STACK_POINTER_TOP,
    UNBOUNDED_STACK,
)
from drivers.nv.layouts.qmd import MAX_REGISTERS, WARP
from drivers.nv.memory import NvMemory
from drivers.nv.qmd import Descriptor, NvLaunchable, residency, resident_warps
from drivers.nv.quirks import NvQuirks
from drivers.nv.topology import NvGpu
from drivers.shared.kernels import check_arguments, check_stack
from hcq.commands import check_cluster
from hcq.errors import UnsupportedError, UsageError
from hcq.hardware import DeviceInfo
from hcq.layout import Struct
from hcq.params import Word
from hcq.program import Dim3, KernelImage, Residency

_SHAPES_KEPT: Final = 256
"""Launch shapes of one kernel that are cached; the cache is emptied when it is full."""
_GROUP_COUNTS: Final = ("nctaid", "nclusterid", "cga1_nclusterid")
"""Fields of constant bank 0 that hold the number of workgroups, along an axis where a cluster has one."""
_ONE: Final = (1, 1, 1)


@dataclass(frozen=True, slots=True)
class NvLaunchShape:
    """The prebuilt data of one launch shape, without addresses and arguments."""

    block: array[int]
    """The descriptor, and constant bank 0 at offset `NvProgram.bank_at`, as u64 words."""
    bank_word: int
    """The descriptor's u64 word that receives the bank's address: its other bits are already set."""


class NvProgram:
    """A kernel in device memory: `memory`, which the device owns, is to hold its relocated image.

    Raises `UnsupportedError` or `UsageError` if the GPU cannot run it (`check`, `qmd.carveouts`).
    """

    def __init__(  # noqa: PLR0917 - the parts of one kernel
        self,
        image: KernelImage,
        kernel: NvKernelFacts,
        memory: NvMemory,
        gpu: NvGpu,
        choices: NvQuirks,
        info: DeviceInfo,
    ) -> None:
        self.image = image
        self.kernel = kernel
        self.memory = memory
        self._bank0 = check(image, kernel, gpu)
        counts = [name for name in _GROUP_COUNTS if name in self._bank0.FIELDS]
        self.group_counts = tuple(tuple(self._bank0.offset_of(n, axis) for n in counts) for axis in range(3))
        """Axis of the grid -> offsets of its size in constant bank 0, in bytes."""
        reserve = 0 if kernel.sm >= FIRST_SM_WITH_RESERVE else RESERVED_SHARED
        static = kernel.shared_bytes - (RESERVED_SHARED if not reserve else 0)
        self.dynamic_shared = max(0, image.shared_bytes - max(static, 0))
        shared = max(kernel.shared_bytes + reserve, RESERVED_SHARED) + self.dynamic_shared
        shared = -(-shared // SHARED_GRANULE) * SHARED_GRANULE
        bounded = 0 if kernel.stack_bytes == UNBOUNDED_STACK else kernel.stack_bytes
        stack = max(bounded, image.scratch_bytes)
        self._windows = vaspace.WINDOWS[choices.windows]
        high = choices.stack == "high"
        local = stack + LOCAL_STACK_RESERVE * high if stack else 0
        self.local_bytes = -(-local // LOCAL_THREAD_ALIGN) * LOCAL_THREAD_ALIGN
        """Local memory of a thread in bytes, which the device must back."""
        self.stack_pointer = STACK_POINTER_TOP if high else self.local_bytes
        block = self._bank0.SIZE + max(image.kernarg_size, kernel.parameter_bytes)
        self.bank0_bytes = -(-block // 16) * 16
        banks = {n: (memory.va + at, size) for n, (at, size) in kernel.banks.items()}
        self._gpu = gpu
        self._launchable = NvLaunchable(
            program=memory.va + kernel.code,
            code_bytes=kernel.code_bytes,
            registers=kernel.registers,
            barriers=kernel.barriers,
            shared_bytes=shared,
            local_bytes=self.local_bytes,
            banks=banks,
            bank0_bytes=self.bank0_bytes,
        )
        self.descriptor = Descriptor(gpu, choices, self._launchable)
        align = self.descriptor.dialect.bank_align
        self.bank_at = -(-self.descriptor.layout.SIZE // align) * align
        """Offset of constant bank 0 from the start of the descriptor, in bytes."""
        self.bank_word_at = 8 * self.descriptor.bank0
        """Offset in the descriptor, in bytes, of the u64 that holds the bank's address shifted right by
        `bank_shift`."""
        self.bank_shift = self.descriptor.dialect.bank_shift
        first = self.bank_at + self._bank0.SIZE
        self.arguments = slice(first // 8, (first + image.kernarg_size) // 8)
        """The position of the arguments in a shape's block, in u64 words."""
        self.max_threads = min(image.max_threads, thread_limit(kernel.registers))
        self.shapes: dict[tuple[object, ...], NvLaunchShape] = {}
        """The cache: (groups, threads) of a launch, or (groups, threads, cluster) if it states a cluster."""
        self._info = info

    def shape(
        self, groups: tuple[Word, Word, Word], threads: Dim3, cluster: Dim3 | None = None
    ) -> NvLaunchShape:
        """Return the prebuilt data of a launch shape, cached if all dimensions are numbers.

        `groups` counts workgroups; dimensions that are not numbers are 0 in the data. `cluster` is the size
        that the launch states, or None. Raises `UsageError` if the workgroup has too many threads, a
        dimension is out of range, the image excludes the cluster, or requires one and none is stated.
        """
        wanted = self._cluster(cluster)
        if wanted is not None:
            check_cluster(f"kernel {self.image.name}", self._info.name, self._info, wanted, groups)
        if not all(isinstance(word, int) for word in groups):
            return self._partial(groups, threads, wanted)
        shape = self._make(groups, threads, wanted)  # type: ignore[arg-type]  # all are numbers here
        if len(self.shapes) >= _SHAPES_KEPT:
            self.shapes.clear()
        self.shapes[(groups, threads) if cluster is None else (groups, threads, cluster)] = shape
        return shape

    def _cluster(self, stated: Dim3 | None) -> Dim3 | None:
        """Return the cluster of a launch; None for a launch without clusters.

        Raises `UsageError` if the image excludes the stated cluster, or requires one and none is stated.
        """
        kernel, name = self.kernel, self.image.name
        if stated is None:
            if kernel.explicit_cluster and kernel.cluster is None:
                raise UsageError(
                    f"kernel {name} must be launched in clusters of workgroups\nhint: pass cluster=(x, y, z)"
                )
            return kernel.cluster
        if kernel.cluster not in {None, stated}:
            raise UsageError(
                f"kernel {name} was compiled for clusters of {kernel.cluster} workgroups, saw {stated}"
            )
        if kernel.max_cluster and math.prod(stated) > kernel.max_cluster:
            raise UsageError(
                f"kernel {name} was compiled for at most {kernel.max_cluster} workgroups of a cluster, "
                f"saw {stated}"
            )
        return None if stated == _ONE and kernel.cluster is None and not kernel.explicit_cluster else stated

    def _partial(self, groups: tuple[Word, Word, Word], threads: Dim3, cluster: Dim3 | None) -> NvLaunchShape:
        """Return the data of a shape with 0 for each dimension that is not a number."""
        x, y, z = (word if isinstance(word, int) else 1 for word in groups)
        shape = self._make((x, y, z), threads, cluster)
        for axis, word in enumerate(groups):
            if not isinstance(word, int):
                at, lo, _ = self.descriptor.grid_site(axis)
                shape.block[at // 8] ^= 1 << lo
                for offset in self.group_counts[axis]:
                    byte = self.bank_at + offset
                    shape.block[byte // 8] ^= 1 << byte % 8 * 8
        return shape

    def _make(self, groups: Dim3, threads: Dim3, cluster: Dim3 | None) -> NvLaunchShape:
        count = threads[0] * threads[1] * threads[2]
        if not 0 < count <= self.max_threads:
            raise UsageError(
                f"kernel {self.image.name}: {count} threads in a workgroup; at most {self.max_threads} fit "
                f"({self.kernel.registers} registers for each thread)"
            )
        descriptor = self.descriptor.shaped(groups, threads, cluster)
        head = self._bank0(**self.bank0_fields(groups, threads, cluster or _ONE)).to_bytes()
        block = array("Q", bytes(self.bank_at + self.bank0_bytes))
        block[: len(descriptor)] = descriptor
        block[self.bank_at // 8 : self.arguments.start] = array("Q", head)
        return NvLaunchShape(block, descriptor[self.descriptor.bank0])

    def bank0_fields(self, groups: Dim3, threads: Dim3, cluster: Dim3 = _ONE) -> Mapping[str, object]:
        """Return the driver's fields of constant bank 0: name -> value, those that this GPU's layout has."""
        banks = self.kernel.banks
        clusters = tuple(count // size for count, size in zip(groups, cluster, strict=True))
        fields = {
            "ntid": threads,
            "nctaid": groups,
            "shared_window": self._windows[0],
            "local_window": self._windows[1],
            "stack_pointer": self.stack_pointer,
            "dynamic_shared_size": self.dynamic_shared,
            "reserved_shared_size": RESERVED_SHARED,
            "constant_bank_3": self.memory.va + banks[3][0] if 3 in banks else 0,
            "cluster_nctaid": cluster,
            "cluster_nctarank": math.prod(cluster),
            "nclusterid": clusters,
            "cga1_dynamic_shared_size": self.dynamic_shared,
            "cga1_cluster_nctaid": cluster,
            "cga1_cluster_nctarank": math.prod(cluster),
            "cga1_nclusterid": clusters,
        }
        return {name: value for name, value in fields.items() if name in self._bank0.FIELDS}

    def residency(self, threads: Dim3, cluster: Dim3 | None = None) -> Residency:
        """Return how many workgroups, or clusters, run at the same time; for clusters it is a lower bound.

        `cluster` as for `shape`. Raises `UsageError` if the image or the device excludes the cluster,
        `UnsupportedError` for a device without clusters, or if the GPCs of the device are not known.
        """
        wanted = self._cluster(cluster)
        if wanted is None:
            return residency(self._gpu, self._launchable, math.prod(threads))
        check_cluster(f"kernel {self.image.name}", self._info.name, self._info, wanted, wanted)
        return residency(self._gpu, self._launchable, math.prod(threads), math.prod(wanted))

    @property
    def head_bytes(self) -> int:
        """Offset of the arguments in constant bank 0, in bytes."""
        return self._bank0.SIZE

    def holds(self, va: int) -> bool:
        """Return whether `va` lies in this kernel's image."""
        return self.memory.va <= va < self.memory.va + self.memory.size


def thread_limit(registers: int) -> int:
    """Return the most threads of a workgroup that the register file holds (nv.md 4.2)."""
    return resident_warps(registers) * WARP


def check(image: KernelImage, kernel: NvKernelFacts, gpu: NvGpu) -> type[Struct]:
    """Return the layout of constant bank 0, if the GPU can run the kernel.

    Raises `UnsupportedError` if the image is for another GPU, or the code has no bound for its stack and the
    image states none. Raises `UsageError` if image and code contradict each other.
    """
    family = f"sm_{kernel.sm}"
    layout = gpu.chip.bank0
    own = int(gpu.sm.removeprefix("sm_"))
    # Code runs on its own architecture and on later members of its family.
    if kernel.sm // 10 != own // 10 or kernel.sm > own:
        raise UnsupportedError(f"kernel {image.name} was assembled for {family}, this GPU is {gpu.sm}")
    check_stack(image, bounded=kernel.stack_bytes != UNBOUNDED_STACK or image.scratch_bytes > 0)
    if kernel.parameter_base != layout.SIZE:
        raise UsageError(
            f"kernel {image.name}: its parameters start at {kernel.parameter_base:#x} of constant bank 0, "
            f"{layout.SIZE:#x} was expected for {gpu.sm}: another assembler generation?"
        )
    records = sorted(kernel.parameters, key=attrgetter("ordinal"))
    check_arguments(image, kernel.parameter_bytes, records or None)
    if kernel.registers > MAX_REGISTERS:
        raise UsageError(
            f"kernel {image.name}: {kernel.registers} registers for each thread; the most is {MAX_REGISTERS}"
        )
    return layout
