"""Memory shared between one GPU, the host and other GPUs: which ranges are mapped where.

The host engine of GPUs before Hopper has 40 address bits. On these GPUs host memory at a higher address is
mapped a second time at a low address, and `semaphore_va` returns that address for a signal.

Not here: the mappings themselves, and the device's own memory (`memory`). Next: `memory`.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

from drivers.nv.layouts.host import SEM_ADDRESS_BITS
from drivers.nv.memory import NvMemories, NvMemory
from drivers.nv.rm import Rm
from drivers.nv.topology import NvGpu
from hcq.errors import DriverError, UnsupportedError, UsageError


class NvSharedMemory:
    """The mappings between one GPU, the host and other GPUs. Thread-safe.

    `lock` is the device's, which guards `memories`. No method holds the locks of two GPUs at once.
    """

    def __init__(
        self, rm: Rm, gpu: NvGpu, memories: NvMemories, *, lock: AbstractContextManager[bool], name: str
    ) -> None:
        self.rm, self.gpu, self._memories = rm, gpu, memories
        self._lock, self.name = lock, name
        self._host: dict[int, NvMemory] = {}
        """Address of host memory -> its mapping."""
        self._aliases: dict[int, NvMemory] = {}
        """Address of host memory -> its second mapping, at a low address."""
        self._lent: dict[int, list[tuple[NvSharedMemory, NvMemory]]] = {}
        """Address of an allocation -> the other GPUs that map it, each with its mapping."""

    def map_host(self, va: int, size: int) -> None:
        """Map whole pages of host memory at the same address.

        Raises `DriverError` if the kernel driver refuses it.
        """
        with self._lock:
            memory = self._memories.map_host(va, size, label="host memory")
            if not self.gpu.wide_host and va >> SEM_ADDRESS_BITS:
                try:
                    self._aliases[va] = self._memories.alias(memory)
                except BaseException:
                    self._memories.free(memory)
                    raise
            self._host[va] = memory

    def unmap_host(self, va: int, size: int) -> None:
        """Undo `map_host`. Raises `UsageError` if `map_host` did not map the range."""
        with self._lock:
            memory = self._host.get(va)
            if memory is None or memory.size != size:
                raise UsageError(f"host memory at {va:#x}, {size} bytes, is not mapped into {self.name}")
            del self._host[va]
            alias = self._aliases.pop(va, None)
            if alias is not None:
                self._memories.free(alias)
            self._memories.free(memory)

    def semaphore_va(self, va: int) -> int:
        """Return the address of a signal slot for the host engine, which before Hopper has 40 address bits.

        Raises `UsageError` if `va` has more bits and lies in no host memory that `map_host` mapped.
        """
        if self.gpu.wide_host:
            return va
        for start, alias in tuple(self._aliases.items()):  # a copy: other threads map and unmap memory
            if start <= va < start + alias.size:
                return alias.va + va - start
        raise UsageError(
            f"{va:#x} is beyond the addresses of the host engine of {self.gpu.sm}, and is not a signal slot"
        )

    def map_peer(self, memory: NvMemory, owner: NvSharedMemory) -> None:
        """Map memory of the GPU of `owner` at the same address, until that GPU frees it.

        Raises `UnsupportedError` if no link allows it, and for video memory of another emulated machine.
        """
        label = f"{memory.label} of {owner.name}"
        what = f"{self.name} cannot map {memory.size} bytes of {owner.name}"
        hint = "hint: copy through host memory (BufferSpec(place=Place.HOST))"
        if owner.rm.kernel is not self.rm.kernel and not memory.of_process:
            raise UnsupportedError(f"{what}: the GPUs are in two emulated machines\n{hint}")
        try:
            with self._lock:
                mine = self._memories.map_peer(memory, owner.rm, owner.gpu.uuid, label=label)
        except DriverError as error:
            raise UnsupportedError(f"{what}: {error.call} ended with {error.status_name}\n{hint}") from error
        owner.lend(memory.va, self, mine)

    def lend(self, va: int, peer: NvSharedMemory, mapping: NvMemory) -> None:
        """Record that `peer` maps the allocation at `va`; `end_lending` unmaps it."""
        with self._lock:
            self._lent.setdefault(va, []).append((peer, mapping))

    def take_back(self, mapping: NvMemory) -> None:
        """Unmap memory of another GPU; do nothing if it is not mapped, as after this GPU was closed."""
        with self._lock:
            if mapping in self._memories.map:
                self._memories.free(mapping)

    def end_lending(self, va: int) -> None:
        """Unmap an allocation from all other GPUs. The caller does not hold the device's lock."""
        if va not in self._lent:
            return
        with self._lock:
            lent = self._lent.pop(va, [])
        for peer, mapping in lent:
            peer.take_back(mapping)

    def close(self) -> None:
        """Unmap all allocations from other GPUs. The caller does not hold the device's lock."""
        with contextlib.ExitStack() as stack:
            for va in tuple(self._lent):
                stack.callback(self.end_lending, va)
