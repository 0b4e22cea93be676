"""The state of a machine with emulated GPUs and of its kernel driver: clients, channels, faults, reports.

Not here: what each GPU has of its own (`gpu`), the ioctls that change it (`emulator.nv.rm`), the file
descriptors (`kernel`). Next: `emulator.shared.scheduler`, which runs the channels.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from typing import TYPE_CHECKING

from drivers.kernel import LinuxKernel
from drivers.nv.layouts.branches import STRUCTS
from drivers.nv.layouts.controls import EVENT_RC_ERROR
from drivers.nv.layouts.fault import NOTIFIER_ERROR, NOTIFIER_POSTED, NvNotification, NvTimeStamp, RcCode
from drivers.nv.layouts.status import NvStatus
from emulator.nv.engines.grid import Grids
from emulator.nv.engines.images import Images
from emulator.nv.engines.standstill import passed, promised, standing
from emulator.nv.machine.gpu import EmulatedGpu
from emulator.nv.reports import ChannelError, FindingKind, MachineReport, RmRefused, defect
from emulator.nv.rm.objects import (
    Client,
    EngineObject,
    RmChannel,
    RmDevice,
    RmEvent,
    RmMemory,
    RmObject,
    Usermode,
    VaSpaceObject,
    VirtualMemory,
)
from emulator.shared.accuracy import AccuracyLedger
from emulator.shared.caches import WriteLog
from emulator.shared.emulated_kernel import UserMemory
from emulator.shared.machine_report import ReportLog
from emulator.shared.races import Races
from emulator.shared.scheduler import Scheduler, TurnLock
from emulator.shared.surprises import Rejections, Surprises
from emulator.shared.waits import SemaphoreHistory, find_deadlock
from hcq.errors import HcqError
from hcq.locks import Condition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from emulator.nv.engines.channel import ChannelRun
    from emulator.nv.engines.engine import EngineChannel
    from emulator.nv.profiles import Link, Profile
    from emulator.shared.backing import Backing, CpuMapping
    from emulator.shared.memory import AddressSpace
    from emulator.simt.engine import Settings

_FIRST_CLIENT = 0xC1D0_0001
_FIRST_HANDLE = 0xCAF0_0000
_FIRST_COOKIE = 0x5EED_0000_0000
_TIME_BITS = ~0x1F
"""The bits of a time in nanoseconds that the GPU's clock has."""
_KEPT = 256
"""The number of refusals that are kept."""
FIFO_EVENT = 35
"""The notification of finished work (EVENT_FIFO_MTHD)."""


class NvMachine(ReportLog):
    """Emulated GPUs and their kernel driver. `lock` guards its clients, their objects and the channels."""

    def __init__(
        self,
        profiles: Sequence[Profile],
        branch: int,
        version: str,
        *,
        filtered: bool,
        bar1_bytes: int | None = None,
        seed: int,
        settings: Settings,
        report: Path | None = None,
        rejections: Rejections | None = None,
        link: Link | None = None,
    ) -> None:
        """Start GPUs without clients; `branch` and `version` are those of `find_version`.

        The other parameters are those of `open_machine`; the sanitizers are in `settings`.
        """
        super().__init__()
        self.surprises = Surprises()
        self.rejections = rejections or Rejections()
        self.link = link
        """How the GPUs reach each other's video memory; None: they do not."""
        self.branch = branch
        self.version = version
        self.filtered = filtered
        self.structs = STRUCTS[branch]
        self.lock = TurnLock()
        self.rng = random.Random(seed)  # noqa: S311 - an order, not a secret
        self.linux = LinuxKernel()
        self.user = UserMemory()
        self.clients: dict[int, Client] = {}
        self.pinned: list[Backing] = []
        """Pages of the user that the GPUs use."""
        self.cpu_mappings: list[CpuMapping] = []
        """Mappings of memory objects into this process."""
        self.refusals: deque[str] = deque(maxlen=_KEPT)
        """Reasons of refused ioctls, the latest last."""
        self.reason = ""
        """Why the latest call was refused, until the kernel's `refusal` returns it; "" if it was not."""
        self.launches: Counter[str] = Counter()
        """Name of a kernel -> number of grids run."""
        self._report = report
        self.ledger = None if report is None else AccuracyLedger(f"nv-emu {profiles[0].name}")
        """The counts of instructions by accuracy; None without a report file."""
        self.images = Images()
        self.grids = Grids(settings)
        self.tracks = settings.checks.uninitialised
        """Whether uninitialised reads are reported."""
        self.strict = settings.checks.caches
        """Whether unverified behaviour stops a channel."""
        self.races = Races() if settings.checks.global_races else None
        """The race detector; None if it is off."""
        self.log = WriteLog() if settings.checks.caches else None
        """The latest engine work that wrote memory; None if cache maintenance is not checked."""
        self.gpus = tuple(
            EmulatedGpu(profile, index, bar1_bytes=bar1_bytes, log=self.log)
            for index, profile in enumerate(profiles)
        )
        self.os_events: set[tuple[int, int]] = set()
        """(client, descriptor) of every OS event: the client's events may wake the descriptor."""
        self.events: set[int] = set()
        """Descriptors that an event has woken and that were not polled since."""
        self.event_wake = Condition()
        self.leaves_get = random.Random(seed)  # noqa: S311 - a choice, not a secret
        """Chooses the user areas that report GPGet; a separate generator, so that no order depends on it."""
        self.history = SemaphoreHistory()
        order = random.Random(self.rng.getrandbits(64))  # noqa: S311 - an order, not a secret
        self.scheduler: Scheduler[ChannelRun] = Scheduler(self, order, thread_name="hcq nv-emu")
        self._next = 0

    @property
    def channels(self) -> list[RmChannel]:
        """The channels of all GPUs."""
        return [channel for gpu in self.gpus for channel in gpu.channels]

    def client(self, handle: int, ctl_fd: int | None) -> Client:
        """Return the client of a handle.

        `ctl_fd` is the descriptor of /dev/nvidiactl that was used, None for any.

        Raises `RmRefused` if there is no client, or if another descriptor created it.
        """
        client = self.clients.get(handle)
        if client is None:
            raise RmRefused(NvStatus.INVALID_OBJECT_HANDLE, f"there is no client {handle:#x}")
        if ctl_fd not in (None, client.ctl_fd):
            raise RmRefused(
                NvStatus.INSUFFICIENT_PERMISSIONS, f"client {handle:#x} belongs to another descriptor"
            )
        return client

    def new_client_handle(self) -> int:
        """Return a handle for a new client."""
        self._next += 1
        return _FIRST_CLIENT + self._next

    def new_handle(self, client: Client) -> int:
        """Return a handle for a new object, which no object of the client has."""
        while True:
            self._next += 1
            if _FIRST_HANDLE + self._next not in client.objects:
                return _FIRST_HANDLE + self._next

    def new_cookie(self, target: RmObject, above: RmObject, window: int) -> int:
        """Return the key of a new mapping of `target` through `above`, which takes `window` bytes of BAR1.

        It is valid until unmapped or freed.
        """
        self._next += 1
        cookie = _FIRST_COOKIE + (self._next << 12)
        target.gpu.cookies[cookie] = target, above, window
        return cookie

    def free(self, client: Client, top: RmObject) -> None:
        """Free an object with its descendants and all objects that need them; advise about the latter."""
        for one in top.walk():
            for user in tuple(one.users):
                if not user.live:
                    continue
                if not user.under(top):
                    self.advise(f"{one} was freed before {user}, which needs it and went with it")
                self.free(client, user)
            self._gone(one)
            del client.objects[one.handle]
        if top.parent is not None:
            top.parent.children.remove(top)
        if isinstance(top, Client):
            self.clients.pop(top.handle, None)
            self.os_events = {one for one in self.os_events if one[0] != top.handle}

    def _gone(self, one: RmObject) -> None:
        """Undo what an object did elsewhere in the machine."""
        for needed in one.needs:
            needed.users.remove(one)
        if isinstance(one, (RmMemory, Usermode)):
            cookies = one.gpu.cookies
            one.gpu.cookies = {cookie: row for cookie, row in cookies.items() if row[0] is not one}
        match one:
            case RmChannel():
                if one.run.busy:
                    self.advise(f"{one.run.name} was freed with work left: {one.run.at}")
                one.run.abandon()
                one.run.combining.close()
                one.run.release()
                if self.races is not None:
                    self.races.drop_queue(one.run.number)
                one.gpu.drop_channel(one)
            case EngineObject(parent=RmChannel() as channel):
                channel.run.unbind(one.cls)
            case RmMemory():
                self.history.forget(one.backing.host, one.backing.host + one.backing.size)
                one.backing.drop()
            case VirtualMemory():
                for va in tuple(one.mapped):
                    one.unmap(va, "with its NV01_MEMORY_VIRTUAL")
            case VaSpaceObject():
                one.space.clear("with its address space")

    def maps(self) -> list[AddressSpace]:
        """Return the memory maps of all address spaces."""
        objects = (one for client in self.clients.values() for one in client.objects.values())
        spaces = [one.space for one in objects if isinstance(one, (RmDevice, VaSpaceObject))]
        return [space.map for space in spaces if space is not None]

    def add_channel(self, gpu: EmulatedGpu, channel: RmChannel) -> None:
        """Add a channel to a GPU. Raises `RmRefused` if there are too many channels."""
        self._next += 1
        gpu.add_channel(channel, self._next)

    def time_ns(self) -> int:
        """Return the GPU's clock; the low five bits are zero."""
        return time.monotonic_ns() & _TIME_BITS

    def launched(self, kernel: str) -> None:
        """Count a grid of the kernel named `kernel`."""
        self.launches[kernel] += 1

    @property
    def notes(self) -> bool:
        """Whether accesses by engines are recorded, for the detector of races or the model of caches."""
        return self.races is not None or self.log is not None

    def doorbell_rung(self, channel: RmChannel) -> None:
        """Handle a doorbell: let the channel run its new entries, or stop it if it is not scheduled."""
        if not self.surprises.doorbell(self, channel.run):
            return
        channel.run.doorbell()
        if not channel.scheduled:
            text = "the doorbell rang for a channel that is not scheduled"
            self.stop(channel.run, ChannelError(RcCode.PBDMA_ERROR, FindingKind.HOST, text))
        self.scheduler.doorbell_rung()

    # What the scheduler needs (`emulator.shared.scheduler.ScheduledMachine`).

    def pending(self) -> Sequence[ChannelRun]:
        """Return the channels that have work left, whether they can run or not."""
        return [channel.run for channel in self.channels if channel.run.busy]

    def runnable(self) -> list[ChannelRun]:
        """Return the pending channels that are scheduled and enabled."""
        return [channel.run for channel in self.channels if channel.run.busy and channel.runs]

    def failed(self, queue: ChannelRun, error: Exception) -> None:
        """Stop a channel whose step raised `error`."""
        if isinstance(error, ChannelError):
            self.stop(queue, error)
        elif isinstance(error, HcqError):
            text = f"{type(error).__name__}: {error}"
            self.stop(queue, ChannelError(RcCode.PBDMA_ERROR, FindingKind.UNSUPPORTED, text))
        else:
            self.stop(queue, defect(error))

    def endless_waits(self, stuck: Sequence[ChannelRun]) -> Mapping[ChannelRun, str]:
        """Return which of `stuck` wait for ever, in a cycle or for a value that has passed, and why."""
        cycle = find_deadlock(stuck, promised)
        return cycle or {run: text for run in stuck if (text := passed(run, self.history))}

    def hung(self, queue: ChannelRun, why: str) -> None:
        """Stop a channel whose wait never ends, for the reason `why`."""
        self.stop(queue, ChannelError(RcCode.CONTEXT_SWITCH_TIMEOUT, FindingKind.DEADLOCK, why))

    def stop(self, run: ChannelRun, error: ChannelError) -> None:
        """Stop a channel and the other channels of its group with an error, report it and notify clients.

        Nothing happens if the channel is stopped already. This takes the lock.
        """
        with self.lock:
            if run.dead is not None:
                return
            self.reports.append(
                MachineReport(
                    kind=error.kind,
                    message=error.message,
                    queue=run.name,
                    code=error.rc,
                    code_name="Xid",
                    va=error.va,
                    at=run.at,
                )
            )
            run.faults.take(error)
            owner = next((c for c in self.channels if c.run is run), None)
            if owner is not None:
                owner.group.dead = True
            siblings = [
                c for c in self.channels if owner is not None and c.group is owner.group and c.run is not run
            ]
            self._kill(run, error)
            for sibling in siblings:
                self._kill(
                    sibling.run,
                    ChannelError(
                        RcCode.PREEMPTIVE_REMOVAL, error.kind, f"its group was stopped: {error.message}"
                    ),
                )
            self.notify(EVENT_RC_ERROR, run.gpu)

    def _kill(self, run: ChannelRun, error: ChannelError) -> None:
        """Drop a channel's work and write its error notifier, unless it is stopped already."""
        if run.dead is not None:
            return
        run.dead = error
        run.abandon()
        memory = run.setup.notifier
        if memory is None:
            return
        now = self.time_ns()
        NvNotification.store(
            memory.backing.view,
            NOTIFIER_ERROR * NvNotification.SIZE,
            timeStamp=NvTimeStamp(nanoseconds=(now & 0xFFFF_FFFF, now >> 32)),
            info32=error.rc,
            info16=0,
            status=NOTIFIER_POSTED,
        )

    def find(self, kind: FindingKind, message: str) -> None:
        """Report a finding that no channel caused, and stop every channel. This takes the lock."""
        with self.lock:
            self.reports.append(MachineReport(kind=kind, message=message))
            for channel in tuple(self.channels):
                channel.group.dead = True
                self._kill(channel.run, ChannelError(RcCode.RESET_CHANNEL, kind, message))

    def report_unverified(self, message: str, error: Callable[[str], ChannelError]) -> None:
        """Report something that works here but may fail on hardware. Raises `error(message)` if `strict`."""
        if self.strict:
            raise error(message)
        self.lint(message)

    def note(self, message: str) -> None:
        """Record why a call is refused."""
        self.refusals.append(message)
        self.reason = message

    def new_texts(self) -> tuple[str, ...]:
        """Return the texts of the fault reports since the last call, the oldest first.

        If there are none, return why channels make no progress: they wait, are stopped, or have entries for
        which no doorbell rang. This takes the lock.
        """
        with self.lock:
            texts = self.fresh_texts()
            return texts or tuple(text for channel in self.channels for text in standing(channel))

    def notify(self, number: int, gpu: object) -> None:
        """Wake the descriptors for which a client has enabled notification `number` of a GPU."""
        with self.event_wake:
            for client in self.clients.values():
                for one in client.objects.values():
                    if (
                        isinstance(one, RmEvent)
                        and one.index == number
                        and one.gpu is gpu
                        and (client.handle, one.fd) in self.os_events
                        and one.subdevice.notifications.get(number)
                    ):
                        self.events.add(one.fd)
            self.event_wake.notify_all()

    def notify_work(self, run: EngineChannel) -> None:
        """Wake the descriptors that wait for finished work."""
        self.notify(FIFO_EVENT, run.gpu)

    def pin(self, backing: Backing) -> None:
        """Record pages of the user as pinned until their last reference is dropped."""
        self.pinned.append(backing)
        backing.on_release = lambda: self.pinned.remove(backing)

    def close(self) -> None:
        """Stop the threads and write the report. The caller has closed all descriptors.

        It may open new ones.
        """
        self.scheduler.close()
        self.user.close()
        if self.ledger is not None and self._report is not None:
            self.ledger.write(self._report)
            self.ledger = AccuracyLedger(f"nv-emu {self.gpus[0].profile.name}")
        if self.races is not None:
            self.races.close()
