"""Diagnosis of a machine as data: devices, default device, cache, settings, packages, and what is missing.

`examine` makes the report; its inputs can be passed to it, for tests.

Not here: how a report is printed (`hcq.__main__`). Next: `registry`, the drivers by name; `config`, the
settings.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from itertools import count

from hcq.config import Config, process_environment, read, variables
from hcq.driver import DeviceInfo, Driver
from hcq.errors import HcqError, UsageError
from hcq.registry import DriverEntry, drivers
from hcq.store import Store
from hcq.tables import html_table

_INSTALL = "install hcq again; in a checkout: pip install -e ."
NAMES = ("compiler", "drivers", "emulator", "frontend", "hcq", "interop")
"""The packages that the wheel holds. All but one have names that other distributions may have, too."""
_EXTRAS = re.compile(r"""extra\s*==\s*["'](\w+)["']""")
_SHOWN_EXTRAS = {"nv"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A device that can be opened, or a driver without a device and the reason."""

    name: str
    """The name for `hcq.open`, such as "cpu:0"; the driver's name when it has no device.

    A GPU that its driver refuses beside others has its number: "amd:1".
    """
    present: bool
    description: str = ""
    """Model, compute units if known, and queues of a present device."""
    arch: str = ""
    vram_bytes: int = 0
    missing: str = ""
    """What is missing: the device, or a tool that builds kernels for it. Empty: nothing."""
    cure: str = ""
    """The command or step that provides it."""


@dataclass(frozen=True, slots=True)
class Default:
    """The device that `hcq.open()` opens; `name` is empty if there is none, or HCQ_DEVICE names no driver."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Cache:
    """The folder of compiled code; `folder` is empty when none is kept. Sizes are bytes.

    `error` is why nothing can be kept there; empty: it can.
    """

    folder: str
    entries: int
    size: int
    limit: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """An environment variable: its text (None: not set), its default and its meaning."""

    name: str
    value: str | None
    default: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Package:
    """A package that hcq uses. If it is absent, `version` is empty and `cure` installs it."""

    name: str
    version: str
    cure: str = ""


@dataclass(frozen=True, slots=True)
class SharedName:
    """A package of hcq whose name other installed distributions have, too: an import may find theirs."""

    name: str
    others: tuple[str, ...]
    cure: str


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `examine`."""

    version: str
    python: str
    system: str
    devices: tuple[Finding, ...]
    default: Default
    cache: Cache
    settings: tuple[Setting, ...]
    settings_error: str
    """Why the settings are invalid, so that no device opens; empty: they are valid."""
    packages: tuple[Package, ...]
    shared: tuple[SharedName, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether at least one device can be opened."""
        return not self.settings_error and any(device.present for device in self.devices)

    def _repr_html_(self) -> str:
        rows = [
            (d.name, "yes" if d.present else "no", d.description or d.missing, d.cure) for d in self.devices
        ]
        return html_table(("device", "present", "about", "cure"), rows)


def examine(
    *,
    entries: Sequence[DriverEntry] | None = None,
    environment: Mapping[str, str] | None = None,
    version_of: Callable[[str], str] | None = None,
    requirements: Iterable[str] | None = None,
    owners: Mapping[str, Sequence[str]] | None = None,
) -> Report:
    """Return a report about this machine. Only devices that no driver enumerates are opened.

    Defaults: all registered drivers, the environment of this process, `importlib.metadata` for versions and
    for `owners` (import name -> its distributions), and the requirements of the installed hcq (lines such as
    "numpy>=1.26").
    """
    environment = process_environment() if environment is None else environment
    version_of = version_of or installed_version
    entries = drivers() if entries is None else entries
    settings, error = Config(), ""
    try:
        settings = read(environment)
    except UsageError as refused:
        error = str(refused)
    devices = tuple(finding for entry in entries for finding in _findings(entry))
    return Report(
        version=version_of("hcq"),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        devices=devices,
        default=_default(settings.device, entries, devices),
        cache=_cache(settings),
        settings=tuple(
            Setting(v.name, environment.get(v.name), _text(v.default), v.meaning) for v in variables()
        ),
        settings_error=error,
        packages=tuple(_packages(_requirements() if requirements is None else requirements, version_of)),
        shared=tuple(_shared(metadata.packages_distributions() if owners is None else owners)),
    )


def _findings(entry: DriverEntry) -> list[Finding]:
    """Return one finding for each GPU of a driver, refused ones too, or one with the reason for none."""
    try:
        driver = entry.driver()
        found = driver.enumerate()
        if found:
            listed = [(info.index, _device(entry, driver, info)) for info in found]
            if entry.hardware:
                listed += _refused(entry, driver, {index for index, _ in listed})
            return [finding for _, finding in sorted(listed, key=lambda pair: pair[0])]
        driver.open(0, None).close()
    except HcqError as error:
        missing, _, cure = str(error).partition("\nhint: ")
        return [Finding(name=entry.name, present=False, missing=missing, cure=cure)]
    except ImportError as error:
        cure = f"pip install {error.name.split('.')[0]}" if error.name else _INSTALL
        return [Finding(name=entry.name, present=False, missing=str(error), cure=cure)]
    return [_unlisted(entry.name)]


def _refused(entry: DriverEntry, driver: Driver, listed: set[int]) -> Iterator[tuple[int, Finding]]:
    """Yield (number, finding) of the GPUs beside the `listed` ones that cannot be opened, and why."""
    for index in count():
        if index in listed:
            continue
        try:
            driver.open(index, None).close()
        except UsageError:  # there is no GPU with this number
            if index > max(listed):
                return
        except HcqError as error:
            missing, _, cure = str(error).partition("\nhint: ")
            yield index, Finding(name=f"{entry.name}:{index}", present=False, missing=missing, cure=cure)
        else:
            yield index, _unlisted(f"{entry.name}:{index}")


def _unlisted(name: str) -> Finding:
    return Finding(name=name, present=True, description="opens, but is not listed by its driver")


def _device(entry: DriverEntry, driver: Driver, info: DeviceInfo) -> Finding:
    absent = [tool for tool in driver.tools if not tool.version()]
    units = f"{info.compute_units} compute units, " if info.compute_units else ""
    queues = f"{info.compute_queues} compute and {info.copy_queues} copy queues"
    return Finding(
        name=f"{entry.name}:{info.index}",
        present=True,
        description=f"{info.name}, {units}{queues}",
        arch=info.arch,
        vram_bytes=info.vram_bytes,
        missing="; ".join(f"no {tool.name}: kernels cannot be compiled for it" for tool in absent),
        cure="; ".join(tool.cure for tool in absent),
    )


def _default(chosen: str, entries: Sequence[DriverEntry], devices: Sequence[Finding]) -> Default:
    """Return the device that `hcq.open` would choose."""
    names = list(dict.fromkeys(entry.name for entry in (*drivers(), *entries)))
    if chosen and chosen.partition(":")[0] not in names:
        known = ", ".join(names)
        return Default("", f"HCQ_DEVICE is {chosen!r}, and no driver has that name; drivers: {known}")
    if chosen:
        return Default(chosen, "HCQ_DEVICE names it; nothing else is tried")
    present = [device.name for device in devices if device.present]
    gpus = [entry.name for entry in entries if entry.hardware]
    for name in gpus:
        if any(device.split(":")[0] == name for device in present):
            return Default(name, "the first GPU")
    if any(device.split(":")[0] == "cpu" for device in present):
        return Default("cpu", "no GPU can be opened, and HCQ_DEVICE is not set")
    return Default("", "no device can be opened")


def _cache(settings: Config) -> Cache:
    if settings.cache is None:
        return Cache("", 0, 0, settings.cache_bytes)
    sizes, error = [], ""
    try:
        sizes = [status.st_size for _, status in Store(settings.cache).files()]
        present = next(folder for folder in (settings.cache, *settings.cache.parents) if folder.exists())
        if not present.is_dir():
            error = f"{present} is no folder"
        elif not os.access(present, os.W_OK):
            error = f"{present} may not be written by this user"
    except OSError as refused:
        error = str(refused)
    return Cache(str(settings.cache), len(sizes), sum(sizes), settings.cache_bytes, error)


def _text(default: object) -> str:
    """Return a default as the text of its environment variable."""
    if isinstance(default, bool):
        return str(int(default))
    if isinstance(default, tuple):
        return ",".join(default)
    return "" if default is None else str(default)


def installed_version(package: str) -> str:
    """Return the version of an installed package; "" where it is not."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _requirements() -> list[str]:
    try:
        return metadata.requires("hcq") or []
    except metadata.PackageNotFoundError:
        return []


def _shared(owners: Mapping[str, Sequence[str]]) -> Iterator[SharedName]:
    """Yield the packages of hcq that other distributions have, too."""
    for name in NAMES:
        others = tuple(sorted({owner for owner in owners.get(name, ()) if owner.lower() != "hcq"}))
        if others:
            cure = f"pip uninstall {' '.join(others)}, or a virtual environment for hcq alone"
            yield SharedName(name, others, cure)


def _packages(requirements: Iterable[str], version_of: Callable[[str], str]) -> Iterable[Package]:
    """Yield the packages needed at run time: the requirements of hcq and of the extras for devices."""
    for line in requirements:
        extras = set(_EXTRAS.findall(line))
        named = re.match(r"[\w.-]+", line)
        if named is None or not extras <= _SHOWN_EXTRAS or named[0] == "hcq":
            continue
        version = version_of(named[0])
        cure = f"pip install '{line.partition(';')[0].strip()}'"
        yield Package(named[0], version, "" if version else cure)
