"""Devices by name: the table of drivers, and `open`.

Other packages add drivers by entry points of the group "hcq.drivers", and so do the emulated GPUs of this
distribution. These are read only for a name that is not in the table, and when all drivers are listed.

Not here: what a driver implements (`driver`, docs/how-to/add-a-device.md), devices of tensors
(`frontend.device`).
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec

from hcq.config import config
from hcq.device import Device
from hcq.driver import DeviceInfo, Driver, DriverDevice
from hcq.errors import UnsupportedError, UsageError, UsageTypeError
from hcq.names import nearest


@dataclass(frozen=True, slots=True)
class DriverEntry:
    """A driver: its name, and the module and attribute that hold its `hcq.driver.Driver`."""

    name: str
    module: str
    attribute: str
    hardware: bool
    """Whether it drives a GPU, which "auto" prefers."""

    def present(self) -> bool:
        """Return whether the module is installed."""
        try:
            return find_spec(self.module) is not None
        except ModuleNotFoundError:
            return False

    def driver(self) -> Driver:
        """Import and return the driver. Raises `UnsupportedError` when it is not installed."""
        if not self.present():
            raise UnsupportedError(
                f"the driver {self.name!r} is not part of this installation ({self.module} is absent)"
            )
        driver: Driver = getattr(import_module(self.module), self.attribute)
        return driver


DRIVERS = (
    DriverEntry("nv", "drivers.nv", "DRIVER", hardware=True),
    DriverEntry("amd", "drivers.amd", "DRIVER", hardware=True),
    DriverEntry("cpu", "drivers.cpu", "DRIVER", hardware=False),
)

GPU_NAMES = frozenset({"cuda", "gpu", "hip", "rocm"})
"""What other frameworks call a GPU. `frontend.device` takes them; `open` takes names of drivers."""
GROUP = "hcq.drivers"
"""Entry points of this group name drivers outside the table: `name = "module:attribute"`."""

_opening = threading.Lock()
"""Held while a driver opens a device, so that one thread at a time calls `Driver.open`."""


def _forget() -> None:
    """Make a new lock in a forked child, where the thread that holds the old one may not exist."""
    global _opening  # noqa: PLW0603 - a lock cannot be released by a thread that does not hold it
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_forget)


def drivers() -> tuple[DriverEntry, ...]:
    """Return the entries of the table, then those of entry points; a module may be absent."""
    return (*DRIVERS, *_registered())


@cache
def _registered() -> tuple[DriverEntry, ...]:
    """Return the drivers that installed distributions register by entry points, read once, ordered by name.

    An entry point with a name of the table is ignored. "auto" opens none of these drivers.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and rarely needed

    known = {entry.name for entry in DRIVERS}
    found = {
        point.name: DriverEntry(point.name, point.module, point.attr, hardware=False)
        for point in entry_points(group=GROUP)
        if point.name not in known
    }
    return tuple(found[name] for name in sorted(found))


def devices() -> list[DeviceInfo]:
    """Return the devices that can be opened now, GPUs first. Raises what importing or enumerating raises."""
    return [info for entry in drivers() if entry.present() for info in entry.driver().enumerate()]


def open(
    name: str = "auto",
    *,
    validate: bool | None = None,
    seed: int | None = None,
    profile: bool | None = None,
) -> Device:
    """Open a device: "cpu", "nv:1", "nv-emu:sm_90", or "auto".

        with hcq.open("cpu", validate=True) as device:
            ...

    "auto" is the device that `HCQ_DEVICE` names, else the first GPU, else the cpu. An explicit name has no
    fallback. Each call returns a new device, which the caller owns and closes.

    - `validate`: use the validation layer; default `HCQ_VALIDATE`.
    - `seed`: shuffle the kernels between two barriers before encoding; 0 keeps their order. Default:
      `HCQ_SEED`, or 1 with validation.
    - `profile`: time each kernel, copy and fill for `Device.spans`; default `HCQ_PROFILE`.

    Raises `UsageError` for an unknown name or a setting that cannot be read, `UsageTypeError` for another
    class of argument; `UnsupportedError`, with the cure, when the driver or the hardware is missing;
    `DriverError` when the kernel driver refuses a call; `BringUpError` when the device does not answer as a
    working one does; `OSError` when the file of `HCQ_TOP` cannot be made.
    """
    for option, given in (("validate", validate), ("profile", profile)):
        if given is not None and not (isinstance(given, int) and given in {0, 1}):
            raise UsageTypeError(f"{option}: wanted True, False or None, seen {given!r}")
    if seed is not None and (not isinstance(seed, int) or seed < 0):
        raise UsageTypeError(f"seed: wanted an int of at least 0, or None, seen {seed!r}")
    settings = config()
    entry, index, variant = parse(
        _automatic(settings.device) if isinstance(name, str) and name == "auto" else name
    )
    if settings.top:
        from hcq.published import PUBLISHER  # noqa: PLC0415 - only when wanted

        PUBLISHER.start()
    validate = settings.validate if validate is None else validate
    if seed is None:
        seed = settings.seed or int(validate)
    with _opening:
        opener = entry.driver()
        driver = opener.open(index, variant)
    profile = settings.profile if profile is None else profile
    return wrap(
        driver, validate=validate, seed=seed, trace=settings.trace, profile=profile,
        counters=settings.counters, emulated=opener.emulated, capture=settings.capture,
        crash=settings.crash, name=f"{entry.name}:{variant}" if variant else entry.name,
    )  # fmt: skip


def wrap(
    driver: DriverDevice, *, validate: bool = False, seed: int = 0, trace: str = "", profile: bool = False,
    counters: str = "", emulated: bool = False, capture: str = "", crash: str = "", name: str = "",
) -> Device:  # fmt: skip
    """Return a `Device` that owns an open driver device. Parameters are those of `open`.

    `trace` is the file for the spans of all submissions, `counters` a value of `HCQ_COUNTERS`; empty: none.
    `emulated` as in `Driver`. `capture` is the file that gets every submission, with `name`, which opens such
    a device; `crash` is the file that gets a report of each fault. A failure closes the driver device.
    """
    from hcq.device import Device  # noqa: PLC0415 - importing this table must stay cheap

    watch: Validator | None = None
    if capture:
        from hcq.capture.log import log_of  # noqa: PLC0415 - only when wanted
        from hcq.capture.recorder import Recorder  # noqa: PLC0415

        watch = Recorder(log_of(capture), name, check=validate, seed=seed)
    elif validate or seed:
        from hcq.validate.validator import Validator  # noqa: PLC0415 - only when wanted

        watch = Validator(check=validate, seed=seed)
    on_fault = None
    if crash:
        from hcq.faults.crash import write_report  # noqa: PLC0415 - only when wanted

        on_fault = partial(write_report, crash)
    return Device(
        driver, watch=watch, trace=trace, profile=profile, counters=counters, emulated=emulated,
        on_fault=on_fault,
    )  # fmt: skip


def _automatic(chosen: str) -> str:
    if chosen:
        return chosen
    for entry in DRIVERS:
        if entry.hardware and entry.present() and entry.driver().enumerate():
            return entry.name
    return "cpu"


def parse(name: str) -> tuple[DriverEntry, int, str | None]:
    """Split "driver", "driver:1", "driver:variant" or "driver:variant:1" into (entry, index, variant).

    Raises `UsageError` for an unknown driver and for a malformed name, `UsageTypeError` for no text.
    """
    if not isinstance(name, str):
        raise UsageTypeError(f"wanted the name of a device, such as 'cpu' or 'nv:0', seen {name!r}")
    first, *rest = name.split(":")
    entry = next((entry for entry in DRIVERS if entry.name == first), None)
    if entry is None and first:
        entry = next((entry for entry in _registered() if entry.name == first), None)
    if entry is None or len(rest) > 2:
        names = [entry.name for entry in drivers()]
        near = next((known for known in names if first and known.startswith(first)), nearest(first, names))
        near = first.replace("+", ":", 1) if first.partition("+")[0] in names else near
        hint = f"\nhint: did you mean {near!r}?" if near and entry is None else ""
        if first in GPU_NAMES:
            hint = "\nhint: GPUs are called nv or amd; `python -m hcq` shows those of this machine"
        if first.endswith("-emu") and not _registered():
            hint = "\nhint: no distribution registers a device; install this one: pip install -e ."
        known = ", ".join(names)
        raise UsageError(f"no device is called {name!r}; drivers: {known}; for example: cpu, nv:0{hint}")
    index, variant = 0, None
    for part in rest:
        if part.isdecimal():
            index = int(part)
        elif part and variant is None:
            variant = part
        else:
            raise UsageError(f"{name!r} is no device name; for example: cpu, nv:0")
    return entry, index, variant
