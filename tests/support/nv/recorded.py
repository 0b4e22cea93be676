"""The emulated kernel of NVIDIA, which records its calls as decoded lines, and the words of each doorbell.

Replies can be changed and submissions held back. Everything else is done by the emulated GPU, which refuses
what hardware refuses.

Not here: calls that fail, and what the driver holds (`tests.support.hooked`). Next: `golden`.
"""

# ruff: noqa: D102 - methods are those of `drivers.kernel.Kernel` and `Mmio`

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from drivers.kernel import view_at
from drivers.nv import decode
from drivers.nv.decode import fields_text
from drivers.nv.driver import NvDriver
from drivers.nv.layouts import rm
from drivers.nv.layouts.chips import CLASS_NAMES, WIDE_CHANNEL
from drivers.nv.layouts.controls import CONTROL_STRUCTS, Control, GrInfo
from drivers.nv.layouts.fault import NOTIFIER_ERROR, NOTIFIER_POSTED, NvNotification
from drivers.nv.layouts.gpfifo import GpfifoEntry
from drivers.nv.layouts.rm import Escape, Request
from drivers.nv.layouts.rm_classes import RmClass
from drivers.nv.layouts.status import NvStatus
from drivers.nv.layouts.uvm import COMMAND_STRUCTS, UvmCommand
from emulator.nv.machine.kernel import NvKernel
from emulator.nv.machine.machine import NvMachine
from emulator.nv.profiles import find_profile, find_version
from emulator.simt.engine import Settings
from hcq.config import config
from tests.limits import HANG_S
from tests.mutants.nv.structures import call as structures_of
from tests.support.hooked import HookedKernel, Places

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drivers.kernel import Mmio
    from emulator.nv.engines.channel import ChannelRun
    from emulator.nv.profiles import Link


class Doorbells:
    """The doorbells of a machine: the words of each are decoded, and held back while `stalled`."""

    def __init__(self, machine: NvMachine) -> None:
        self._machine = machine
        self._gets: dict[int, int] = {}
        """Channel -> the slot after its last decoded entry."""
        self._held: dict[ChannelRun, None] = {}
        self.streams: list[list[str]] = []
        """The decoded words of each doorbell, the newest last."""
        self.watch: Callable[[ChannelRun, list[list[int]]], None] | None = None
        """Called at each doorbell, before the GPU hears it: channel, and words of each ring entry."""
        self.stalled = False
        """Whether no doorbell arrives, as when the GPU hangs or is busy; `resume` ends the stall."""

    def take(self, run: ChannelRun) -> bool:
        """Decode what a doorbell submits; return whether it arrives."""
        if self.stalled:
            self._held[run] = None
            return False
        get, put = self._gets.get(run.number, 0), run.host_put
        raw: list[list[int]] = []
        while get != put:
            entry = GpfifoEntry.from_int(run.ring.read(get))
            raw.append(view_at(entry.ADDRESS, 4 * entry.LENGTH).cast("I").tolist())
            get = (get + 1) % run.setup.entries
        self._gets[run.number] = get
        self.streams.append([line for words in raw for line in self.lines(run, words)])
        if self.watch is not None:
            self.watch(run, raw)
        return True

    def lines(self, run: ChannelRun, words: list[int]) -> list[str]:
        """Return a line for each method of a ring entry's words."""
        channel = self.channel(run)
        wide = run.gpu.profile.wide
        return [str(one) for one in decode.methods(words, wide=wide, wide_host=channel.cls >= WIDE_CHANNEL)]

    def channel(self, run: ChannelRun) -> Any:
        """Return the channel object of an execution state."""
        return next(one for one in self._machine.channels if one.run is run)

    def resume(self) -> None:
        """End a stall, and let the doorbells arrive that were held back."""
        self.stalled = False
        held, self._held = self._held, {}
        channels = {one.run: one for one in self._machine.channels}
        for run in (run for run in held if run in channels):
            self._machine.doorbell_rung(channels[run])


class _Watched(Places):
    """Places of a machine whose doorbells are recorded."""

    def __init__(self, table: Any, doorbells: Doorbells) -> None:
        super().__init__(table)
        self.doorbells = doorbells

    def doorbell(self, machine: object, queue: Any) -> bool:
        return super().doorbell(machine, queue) and self.doorbells.take(queue)


class _Page:
    """A register page whose unmapping is recorded."""

    def __init__(self, inner: Mmio, lines: list[str]) -> None:
        self._inner, self._lines = inner, lines

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def close(self) -> None:
        self._lines.append("mmio.close")
        self._inner.close()


class RecordedKernel(HookedKernel):
    """An emulated kernel of NVIDIA whose calls are recorded as lines."""

    inner: NvKernel
    machine: NvMachine

    def __init__(
        self,
        *chips: str,
        driver: str = "580",
        version: str | None = None,
        filtered: bool = True,
        link: Link | None = None,
        surprises: Mapping[str, object] | None = None,
        replies: Mapping[Control, Callable[[], Mapping[str, Any] | None]] | None = None,
        gr: Mapping[GrInfo, int] | None = None,
    ) -> None:
        """Start a machine with the GPUs `chips`, "sm_90" if there are none.

        `version` replaces the version of the branch `driver`. `replies` maps a control to a function that
        returns the fields that change in its reply, or None where the control is not supported. `gr` are
        values that change in the reply of GR_GET_INFO. The other parameters are those of
        `emulator.nv.machine.open_machine`.
        """
        branch, usual = find_version(driver)
        rows = [find_profile(name) for name in chips or ("sm_90",)]
        version = usual if version is None else version
        settings = Settings(cache=config().cache)
        machine = NvMachine(rows, branch, version, filtered=filtered, seed=0, settings=settings, link=link)
        machine.surprises.table = surprises or {}
        super().__init__(NvKernel(machine))
        self.lines: list[str] = []
        """A decoded line for each call, in order."""
        self.doorbells = Doorbells(machine)
        machine.surprises = self._places = _Watched(machine.surprises.table, self.doorbells)
        self.calls = self._places.names
        self.replies = dict(replies or {})
        self._gr = gr or {}

    def open(self, path: str, flags: int = 2) -> int:
        fd = super().open(path, flags)
        self.lines.append(f"open {path}")
        return fd

    def close(self, fd: int) -> None:
        self.lines.append(f"close {self._path(fd)}")
        super().close(fd)

    def mmap(self, size: int, *, va: int = 0, flags: int | None = None, **rest: int) -> Any:
        fd = rest.get("fd", -1)
        what = f"memory {size:#x} at {va:#x} prot {rest.get('prot', 3)}"
        self.lines.append(f"mmap {what if fd < 0 else f'{self._path(fd)} {size:#x} at {va:#x}'}")
        return super().mmap(size, va=va, flags=flags, **rest)

    def munmap(self, va: int, size: int) -> None:
        self.lines.append(f"munmap {va:#x} {size:#x}")
        super().munmap(va, size)

    def mmio(self, fd: int, size: int, offset: int) -> Any:
        self.lines.append(f"mmio {self._path(fd)} {size:#x} at {offset:#x}")
        return _Page(super().mmio(fd, size, offset), self.lines)

    def ioctl(self, fd: int, request: int, argument: bytearray | int) -> int:
        assert isinstance(argument, bytearray)
        self.lines.append(self._line(fd, request, argument))
        result = super().ioctl(fd, request, argument)
        if request not in COMMAND_STRUCTS:
            number = Request.from_int(request).NR
            if number == Escape.NV_ESC_CHECK_VERSION_STR:
                self.lines[-1] += f" -> {rm.nv_ioctl_rm_api_version_t.from_bytes(argument).versionString}"
            elif number == Escape.NV_ESC_CARD_INFO:
                self.lines[-1] += f" -> {len(self.machine.gpus)} GPUs"
            elif number == Escape.NV_ESC_RM_CONTROL:
                self._change(argument)
        return result

    def _change(self, argument: bytearray) -> None:
        """Replace fields in the reply of a control."""
        params = rm.NVOS54_PARAMETERS.from_bytes(argument)
        if params.cmd == Control.NV2080_CTRL_CMD_GR_GET_INFO:
            asked: Any = self.machine.structs[CONTROL_STRUCTS[params.cmd]].from_bytes(
                view_at(params.params, params.paramsSize)
            )
            infos = view_at(asked.grInfoList, 8 * asked.grInfoListSize).cast("I")
            for at in range(0, len(infos), 2):
                infos[at + 1] = self._gr.get(GrInfo(infos[at]), infos[at + 1])
        change = self.replies.get(Control(params.cmd))
        if change is None:
            return
        fields = change()
        status = NvStatus.NOT_SUPPORTED if fields is None else NvStatus.OK
        rm.NVOS54_PARAMETERS.store(argument, status=status)
        kind = self.machine.structs[CONTROL_STRUCTS[Control(params.cmd)]]
        kind.store(view_at(params.params, params.paramsSize), **fields or {})

    def _path(self, fd: int) -> str:
        return self.inner.files[fd].path

    def _line(self, fd: int, request: int, argument: bytearray) -> str:
        """Return the line of an ioctl: its name, and its fields that are not zero before the call."""
        if request in COMMAND_STRUCTS:
            layout: Any = self.machine.structs[COMMAND_STRUCTS[UvmCommand(request)].__name__]
            return f"{UvmCommand(request).name} {fields_text(layout.from_bytes(argument))}".rstrip()
        escape = Escape(Request.from_int(request).NR)
        called = structures_of(self.machine.structs, request, argument)
        text = "".join(
            f" {fields_text(one.layout.from_bytes(one.view))}" for one in called.blocks if one.layout
        )
        name = escape.name.removeprefix("NV_ESC_")
        match escape:
            case Escape.NV_ESC_REGISTER_FD:
                return f"{name} {self._path(fd)}"
            case Escape.NV_ESC_RM_ALLOC:
                alloc = rm.NVOS64_PARAMETERS.from_bytes(argument)
                over = f"parent={alloc.hObjectParent:#x} new={alloc.hObjectNew:#x}"
                return f"{name} {class_name(alloc.hClass)} {over}{text}"
            case Escape.NV_ESC_RM_FREE:
                free = rm.NVOS00_PARAMETERS.from_bytes(argument)
                return f"{name} {self._class(free.hRoot, free.hObjectOld)} {free.hObjectOld:#x}"
            case Escape.NV_ESC_RM_ALLOC_MEMORY:
                memory = rm.nv_ioctl_nvos02_parameters_with_fd.from_bytes(argument).params
                kind = class_name(memory.hClass).removeprefix("NV01_MEMORY_SYSTEM_")
                return f"{name} {kind} {memory.hObjectNew:#x} {fields_text(memory)}"
            case Escape.NV_ESC_RM_MAP_MEMORY:
                shown = rm.nv_ioctl_nvos33_parameters_with_fd.from_bytes(argument).params
                kind = self._class(shown.hClient, shown.hMemory)
                return f"{name} {kind} {shown.hMemory:#x} {shown.length:#x}"
            case Escape.NV_ESC_RM_CONTROL:
                control = rm.NVOS54_PARAMETERS.from_bytes(argument)
                short = Control(control.cmd).name.replace("_CTRL_CMD_", " ").replace("_CTRL_", " ")
                return f"{name} {short} object={control.hObject:#x}{_without_pointers(text)}"
            case _ if called.layout is not None and escape.name.startswith("NV_ESC_RM_"):
                return f"{name} {fields_text(called.layout.from_bytes(argument))}"
            case _:
                return name

    def _class(self, client: int, handle: int) -> str:
        known = self.machine.clients.get(client)
        one = known.objects.get(handle) if known is not None else None
        return class_name(one.cls) if one is not None else "nothing"

    def settle(self) -> None:
        """Wait until the GPUs have done all work whose doorbells have arrived."""
        deadline = time.monotonic() + HANG_S
        while time.monotonic() < deadline:
            with self.machine.lock:
                if not self.machine.pending():
                    return
            time.sleep(0.001)
        raise AssertionError(f"work is left after {HANG_S} s: {self.machine.new_texts()}")

    def post_error(self, code: int) -> None:
        """Write a robust-channel error (`code`) to the error notifier of every channel."""
        for channel in self.machine.channels:
            memory = channel.run.setup.notifier
            if memory is not None:
                NvNotification.store(
                    memory.backing.view, NOTIFIER_ERROR * NvNotification.SIZE,
                    info32=code, status=NOTIFIER_POSTED,
                )  # fmt: skip

    def host_of(self, run: ChannelRun, va: int) -> int:
        """Return the address in this process behind a device address, and `va` itself for device memory."""
        mapping = run.space.map.find(va)
        assert mapping is not None, f"{va:#x} is not mapped"
        host = mapping.host + va - mapping.va
        return host if any(one.host <= host < one.host + one.size for one in self.machine.pinned) else va


def driver_of(kernel: HookedKernel) -> NvDriver:
    """Return a driver on an emulated kernel."""
    return NvDriver("nv", lambda _: kernel, emulated=True)


def class_name(class_: int) -> str:
    """Return the name of a class of the resource manager, or its number."""
    known = {**CLASS_NAMES, **{int(one): one.name for one in RmClass}}
    return known.get(class_, f"class {class_:#x}")


def _without_pointers(text: str) -> str:
    """Remove the fields that hold host addresses, which differ between runs, from a line."""
    return " ".join(part for part in text.split(" ") if not part.startswith(("grInfoList=", "classList=")))
