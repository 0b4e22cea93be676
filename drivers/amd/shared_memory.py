"""Memory that one device maps beside its own: memory of the host, and of the other GPUs of the process.

Not here: the device's own memory (`memory`), the mappings of host memory for several GPUs (`process`). Next:
`process`.
"""

from __future__ import annotations

import contextlib

from drivers.amd.memory import AmdMemories, AmdMemory
from drivers.amd.process import AmdProcess
from drivers.amd.topology import AmdGpu
from hcq.errors import UnsupportedError, UsageError


class AmdSharedMemory:
    """The mappings of one GPU, which `close` unmaps. Not thread-safe: the caller holds the device's lock."""

    def __init__(self, process: AmdProcess, gpu: AmdGpu, *, name: str) -> None:
        self._process, self._gpu, self._name = process, gpu, name
        self._host: dict[int, int] = {}
        """Address of host memory -> its size in bytes."""
        self._peers: list[tuple[AmdMemories, AmdMemory]] = []
        """Memory of other GPUs, with its allocator."""

    def map_host(self, va: int, size: int) -> None:
        """Map whole pages of host memory at the same address. Raises as `AmdProcess.map_host` does."""
        self._process.map_host(va, size, self._gpu.gpu_id)
        self._host[va] = size

    def unmap_host(self, va: int, size: int) -> None:
        """Undo `map_host`. Raises `UsageError` if `map_host` did not map the range."""
        if self._host.get(va) != size:
            raise UsageError(f"host memory at {va:#x}, {size} bytes, is not mapped into {self._name}")
        del self._host[va]
        self._process.unmap_host(va, self._gpu.gpu_id)

    def map_peer(self, memory: AmdMemory, memories: AmdMemories, owner: AmdGpu, name: str) -> None:
        """Map memory of the GPU `owner`, called `name`, that `memories` allocated.

        Raises `UnsupportedError` for video memory of a GPU that has no link to this one.
        """
        if memory.video and owner.gpu_id != self._gpu.gpu_id:
            self._check_link(owner, name)
        memories.share(memory, self._gpu.gpu_id)
        self._peers.append((memories, memory))

    def _check_link(self, owner: AmdGpu, name: str) -> None:
        link = self._gpu.links.get(owner.node)
        if link is None or not link.carries_peers():
            seen = (
                "the topology has no link between them" if link is None else f"their {link} link forbids it"
            )
            raise UnsupportedError(
                f"{self._name} cannot reach the video memory of {name}: {seen}\n"
                "hint: turn on 'Above 4G decoding' and 'Resizable BAR' in the firmware's settings (kernels "
                "need CONFIG_PCI_P2PDMA), or copy through host memory"
            )

    def close(self) -> None:
        """Unmap everything; idempotent."""
        with contextlib.ExitStack() as stack:
            while self._peers:
                memories, memory = self._peers.pop()
                stack.callback(memories.unshare, memory, self._gpu.gpu_id)
            while self._host:
                stack.callback(self._process.unmap_host, self._host.popitem()[0], self._gpu.gpu_id)
