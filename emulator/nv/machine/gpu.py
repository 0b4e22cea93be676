"""One emulated GPU of a machine: its identity, memory, doorbells, and the caches of its engines.

Not here: what the GPUs of a machine share (`machine`), the objects of clients (`emulator.nv.rm.objects`).
Next: `machine`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from drivers.nv.layouts.gpfifo import WorkSubmitToken
from drivers.nv.layouts.rm_classes import EngineType, copy_engine
from drivers.nv.layouts.status import NvStatus
from emulator.nv.engines.caches import Caches
from emulator.nv.reports import RmRefused

if TYPE_CHECKING:
    from emulator.nv.engines.images import LoadedImage
    from emulator.nv.profiles import Profile
    from emulator.nv.rm.objects import RmChannel, RmObject
    from emulator.shared.caches import WriteLog
    from hcq.counters import Counters

_BAR1_USED: Final = 1 << 20
"""Bytes of BAR1 that the kernel driver maps itself: 1 MiB of an idle GPU, as nvidia-smi shows."""
_CHANNELS: Final = 4096
"""The most channels."""


class EmulatedGpu:
    """One GPU. The lock of the machine guards it."""

    def __init__(self, profile: Profile, index: int, *, bar1_bytes: int | None, log: WriteLog | None) -> None:
        """Create GPU `index` of a machine.

        `bar1_bytes` is that of `open_machine`. `log` is the machine's log of writes; None: caches are not
        modelled.
        """
        self.profile = profile
        self.index = index
        """Its number in the machine: its minor number and its device instance."""
        self.gpu_id = 0x100 * (index + 1)
        """Bus and slot of its PCI address (gpu_id = bus << 8 | slot, on domain 0)."""
        name = f"hcq emulated {profile.name}" + f" {index}" * bool(index)
        self.uuid = hashlib.sha256(name.encode()).digest()[:16]
        self.bar1_bytes = profile.bar1_bytes if bar1_bytes is None else bar1_bytes
        """Bytes of the aperture through which the CPU reaches video memory."""
        self.vram_used = 0
        """Bytes of video memory."""
        self.cookies: dict[int, tuple[RmObject, RmObject, int]] = {}
        """Cookie of MAP_MEMORY -> the mapped object, that through which it is mapped, and bytes of BAR1."""
        self.channels: list[RmChannel] = []
        self.tokens: dict[int, RmChannel] = {}
        """Token of a doorbell -> its channel."""
        self.engines = (int(EngineType.GR0), *(copy_engine(i) for i in range(profile.copy_engines)))
        self.graphics_engines = tuple(copy_engine(i) for i in range(profile.graphics_copy_engines))
        self.counters: Counters | None = None
        """What grids are counted into; None while they are not counted."""
        self.descriptors: dict[tuple[int, int], bytes] = {}
        """(address space, address) -> the launch descriptor in the scheduler's cache."""
        self.code: dict[tuple[int, int], LoadedImage] = {}
        """(address space, program) -> the kernel in the instruction caches."""
        self.constants: dict[tuple[int, int], bytes] = {}
        """(address space, address) -> the bank in the constant caches."""
        self.caches = None if log is None else Caches(log)
        """The model of caches; None if cache maintenance is not checked."""

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.profile.gpu_name})"

    @property
    def node(self) -> str:
        """The path of its device node."""
        return f"/dev/nvidia{self.index}"

    @property
    def bar1_free(self) -> int:
        """Bytes of BAR1 that no mapping has."""
        return self.bar1_bytes - _BAR1_USED - sum(window for _, _, window in self.cookies.values())

    def add_channel(self, channel: RmChannel, number: int) -> None:
        """Add a channel and assign its token, from the free one after `number`.

        Raises `RmRefused` if there are too many channels.
        """
        if len(self.channels) >= _CHANNELS:
            raise RmRefused(NvStatus.INSUFFICIENT_RESOURCES, "there are no channels left")
        self.channels.append(channel)
        engine = channel.group.engine
        runlist = (
            0 if engine == EngineType.GR0 or engine in self.graphics_engines else self.engines.index(engine)
        )
        number %= _CHANNELS
        rings = self.profile.runlist_doorbell
        while (
            token := int(WorkSubmitToken(CHANNEL=number, RUNLIST=runlist, RUNLIST_DOORBELL=rings))
        ) in self.tokens:
            number = (number + 1) % _CHANNELS
        self.tokens[token] = channel

    def drop_channel(self, channel: RmChannel) -> None:
        """Remove a channel and its token."""
        self.channels.remove(channel)
        self.tokens = {token: one for token, one in self.tokens.items() if one is not channel}

    def token_of(self, channel: RmChannel) -> int:
        """Return the value that is stored to the doorbell for a channel."""
        return next(token for token, one in self.tokens.items() if one is channel)

    def invalidate(self, *, instructions: bool, constants: bool, data: bool) -> None:
        """Invalidate the instruction, constant and L1 data caches whose argument is true."""
        if instructions:
            self.code.clear()
        if constants:
            self.constants.clear()
        if self.caches is not None:
            self.caches.invalidate(instructions=instructions, constants=constants, data=data)
