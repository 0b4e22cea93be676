"""What rungs with kernels of all vendors share: launches through the complete driver, and checks of results.

A wrong result raises `RungError`.

Not here: the parts of a driver below a device. Next: `tools.bringup.nv.rungs_compute` and
`tools.bringup.amd.rungs_compute`, the other rungs with kernels.
"""

from __future__ import annotations

import contextlib
import struct
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from drivers.shared.choices import describe
from hcq.device import Device
from hcq.driver import BufferSpec, Place
from hcq.errors import HcqError, UnsupportedError
from tools.bringup.checks import Checks, RungError
from tools.bringup.child import child_command
from tools.bringup.rung import LAUNCH

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from drivers.kernel import Kernel
    from hcq.driver import DriverDevice
    from hcq.memory import Buffer
    from hcq.program import KernelImage, Program
    from tools.bringup.checks import Facts

HOST: Final = BufferSpec(place=Place.HOST, host_visible=True, coherent=True)
"""Coherent memory of the host, for results."""


def words(buffer: Buffer, count: int) -> list[int]:
    """Return the first 32-bit words of a buffer of the host."""
    return list(struct.unpack(f"<{count}I", bytes(buffer.host()[: 4 * count])))


@dataclass
class Launches(Checks, ABC):
    """The part of a bench that opens devices, launches kernels and checks what they stored."""

    vendor: ClassVar[str]
    """The vendor's part of device names: "nv", "amd"."""
    token: ClassVar[int]
    """The word that the kernel `store` stores."""
    image: ClassVar[Callable[..., KernelImage]]
    """Name, architecture, `shared_bytes`, `folder` -> the image of one of the vendor's kernels."""
    kernel: Kernel
    choices: Any
    index: int = 0
    """Index of the GPU."""
    kernels: Path | None = None
    """Folder of prepared kernels."""
    boost: bool = False
    """Whether the highest clocks may be requested; ignored where the kernel driver has no call for it."""
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    devices: list[Any] = field(default_factory=list[Any])
    """The drivers opened so far, for dumps."""

    @property
    @abstractmethod
    def present(self) -> int:
        """How many GPUs the kernel driver lists."""

    @abstractmethod
    def opened(self, index: int, ring_bytes: int) -> DriverDevice:
        """Open the driver of a GPU; `ring_bytes` is as in `device`."""

    def device(self, *, index: int | None = None, ring_bytes: int = 0) -> Device:
        """Open a device with the complete driver.

        `index` None stands for the GPU of the bench, `ring_bytes` 0 for the driver's own size.
        """
        driver = self.opened(self.index if index is None else index, ring_bytes)
        device = Device(driver)  # closes the driver where it raises: then there is no evidence to read
        self.devices.append(driver)
        self.stack.callback(device.close)
        return device

    @property
    @abstractmethod
    def late_cause(self) -> str:
        """Why a store that arrives after its release is an error; "" if it is none."""

    def load(self, device: Device, name: str, *, shared_bytes: int = 0) -> Program:
        """Load one of the vendor's kernels; the device owns the program."""
        return device.load(
            self.image(name, device.info.arch, shared_bytes=shared_bytes, folder=self.kernels)
        )

    def launch(
        self,
        device: Device,
        program: Program,
        *values: Any,
        groups: int = 1,
        threads: int = 1,
        cluster: int = 0,
    ) -> float:
        """Launch and wait; return the microseconds until the host observed completion.

        `cluster` is the number of workgroups of a cluster; 0 for none.
        """
        queue = device.compute
        start = time.perf_counter()
        commands = queue.record().exec(
            program, program.args(*values), groups=(groups, 1, 1), threads=(threads, 1, 1),
            cluster=(cluster, 1, 1) if cluster else None,
        )  # fmt: skip
        self.wait(queue.submit(commands))
        return (time.perf_counter() - start) * 1e6

    def check_arrival(self, read: Callable[[], list[int]], want: list[int], what: str) -> float:
        """Check that a kernel stored `want`; return the seconds between its release and the words' arrival.

        Raises `RungError` for wrong or missing words, and for late ones if there is a `late_cause`. In a dry
        run nothing raises, and 0.0 is returned for wrong words.
        """
        late = self.arrival(read, want)
        if late is not None and not (late and self.late_cause):
            return late
        seen = read()
        first = next((i for i, word in enumerate(want) if seen[i] != word), None)
        if first is None:
            text = f"arrived {1e6 * (late or 0):.0f} us after the release: {self.late_cause}"
        else:
            text = f"element {first} is {seen[first]:#x}, not {want[first]:#x}"
        self.check(condition=False, text=f"{what}: {text}")
        return 0.0

    def check_words(self, buffer: Buffer, want: list[int], what: str) -> float:
        """Check the first words of a buffer; see `check_arrival`."""
        return self.check_arrival(lambda: words(buffer, len(want)), want, what)

    def count_rounds(self, device: Device, rounds: int) -> float:
        """Let launches wait for copies and copies for launches; return the microseconds of a round.

        In each round a kernel stores one more than it loads. Raises `RungError` if their number is wrong.
        """
        counter, copied = device.alloc(4096), device.alloc(4096)
        out = device.alloc(4096, HOST)
        program, compute, copy = self.load(device, "count"), device.compute, device.copies[0]
        point = copy.submit(copy.record().fill(copied, 0))
        start = time.perf_counter()
        for _ in range(rounds):
            commands = compute.record().exec(
                program, program.args(counter, copied), groups=(1, 1, 1), threads=(1, 1, 1)
            )
            point = compute.submit(commands, after=[point])
            point = copy.submit(copy.record().copy(copied, counter), after=[point])
        self.wait(point)
        took = (time.perf_counter() - start) * 1e6
        self.wait(copy.submit(copy.record().copy(out, copied)))
        self.check(words(out, 1) == [rounds], f"{rounds} rounds counted {words(out, 1)[0]}")
        return took / rounds

    def bandwidth(self) -> float:
        """Return the bandwidth of a copying kernel in GB/s."""
        size = 1 << 20 if self.dry or self.emulate is not None else 1 << 30
        device = self.device()
        first, second = device.alloc(size), device.alloc(size)
        program, copies = self.load(device, "stream"), device.copies[0]
        self.wait(copies.submit(copies.record().fill(second, 1)))
        groups = size // (256 * 16)
        best = min(self.launch(device, program, first, second, groups=groups, threads=256) for _ in range(10))
        return round(2 * size / best / 1e3, 1)

    def store_again(self) -> list[str]:
        """Return the command of rung 18 for another process, with the options of this bench."""
        return child_command(
            f"{self.vendor}:{self.index}", LAUNCH, choices=describe(self.choices), emulate=self.emulate,
            kernels=self.kernels,
        )  # fmt: skip


def store(bench: Launches) -> Facts:
    """18: one thread stores a token, to host and to video memory."""
    device = bench.device()
    out, video, copied = device.alloc(4096, HOST), device.alloc(4096), device.alloc(4096, HOST)
    program, queue = bench.load(device, "store"), device.copies[0]
    took: list[float] = []
    late: list[float] = []

    def launch(number: int) -> None:
        out.host()[:4] = bytes(4)
        took.append(bench.launch(device, program, out))
        late.append(bench.check_words(out, [bench.token], f"host memory after launch {number}"))

    launch(0)
    bench.launch(device, program, video)

    def fetch() -> list[int]:
        bench.wait(queue.submit(queue.record().copy(copied, video)))
        return words(copied, 1)

    late.append(bench.check_arrival(fetch, [bench.token], "video memory"))
    repeats = bench.repeat("a token", launch)
    facts: Facts = {"first_us": took[0], "best_us": min(took), "repeats": repeats}
    return facts | ({"late_us": round(1e6 * max(late), 1)} if max(late) else {})


def local(bench: Launches) -> Facts:
    """21: memory of a thread: an array of 4 KiB, indexed at run time, in 256 workgroups of 256 threads."""
    device = bench.device()
    out = device.alloc(4 * 256 * 256, HOST)
    bench.launch(device, bench.load(device, "local"), out, 7, groups=256, threads=256)
    # With an odd step each element (i * step) & 1023 is written once, by iteration i.
    bench.check_words(out, [2 * i for i in range(256)] * 256, "memory of threads")
    return {"bytes_per_thread": 4096}


def peers(bench: Launches) -> Facts:
    """29: kernels of this GPU and of another one count in turn, each in video memory of the other GPU."""
    if bench.present < 2:
        return {"other GPUs": "none"}
    number = (bench.index + 1) % bench.present
    pair = bench.device(), bench.device(index=number)
    memories, outs = [one.alloc(4096) for one in pair], [one.alloc(4096, HOST) for one in pair]
    try:
        for memory, peer in zip(memories, reversed(pair), strict=True):
            memory.map_to(peer)
    except UnsupportedError as error:
        return {"other GPU": number, "no peers": str(error).partition("\n")[0]}
    programs = [bench.load(one, "count") for one in pair]
    rounds = bench.repeats
    point = pair[0].compute.submit(pair[0].compute.record().fill(memories[0], 0))
    for turn in range(2 * rounds):
        own, program, queue = turn % 2, programs[turn % 2], pair[turn % 2].compute
        commands = queue.record().exec(
            program, program.args(memories[1 - own], memories[own]), groups=(1, 1, 1), threads=(1, 1, 1)
        )
        point = queue.submit(commands, after=[point])
    for one, out, memory in zip(pair, outs, reversed(memories), strict=True):
        bench.wait(one.copies[0].submit(one.copies[0].record().copy(out, memory), after=[point]))
    seen = [words(out, 1)[0] for out in outs]
    want = [2 * rounds - 1, 2 * rounds]
    bench.check(seen == want, f"two GPUs counted {seen} in memory of each other, not {want}")
    return {"other GPU": number, "kernels in turn": 2 * rounds}


def fresh_after_fault(bench: Launches) -> Facts:
    """25: after the fault a new process works."""
    try:
        return store(bench)
    except HcqError as error:
        raise RungError(f"after the fault a new process does not work: {error}") from error
