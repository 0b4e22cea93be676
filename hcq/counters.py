"""What kernels executed, counted by an emulated GPU: the numbers of each kernel, as a table and as JSON.

    with hcq.counting(device) as counted:
        ...                                       # launches
    print(counted.table())
    counted["matmul"].shared["load"].conflicts

Counts are exact for the instructions that the emulated GPU executes: PTX on `nv-emu`, machine code on
`amd-emu`. Times and occupancy that follow from them are estimates, which no GPU has confirmed: they are
*uncalibrated*.

Not here: what counts (`emulator.shared`), the rates of GPUs behind the estimates (`emulator.shared.counts`).
Next: docs/counters.md.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from hcq.errors import UnsupportedError, UsageError, UsageTypeError
from hcq.tables import html_text


@dataclass(slots=True)
class AccessCounts:
    """Accesses of one kind to one memory."""

    requests: int = 0
    """Instructions of a warp with an active lane."""
    lanes: int = 0
    """Accesses of single lanes."""
    bytes: int = 0
    """Bytes that the lanes asked for."""
    units: int = 0
    """Global memory: different sectors or cache lines, counted for each request. Shared memory: cycles."""
    least: int = 0
    """Shared memory: cycles without bank conflicts."""
    serial: int = 0
    """Atomics: for each request the most lanes with one address, which follow one another."""

    @property
    def conflicts(self) -> int:
        """Shared memory: cycles that bank conflicts add."""
        return self.units - self.least

    def add(self, other: AccessCounts) -> None:
        """Add the counts of other accesses."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_SUMS: Final = (
    "launches", "groups", "warps", "threads", "branches", "divergent", "copied", "read", "written", "lost",
)  # fmt: skip
"""Counts of a kernel that add up over launches."""


def _accesses() -> dict[str, AccessCounts]:
    return {"load": AccessCounts(), "store": AccessCounts(), "atomic": AccessCounts()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """How many warps a multiprocessor holds at once, and what limits them. An estimate."""

    groups: int
    warps: int
    most_warps: int
    limits: tuple[str, ...]
    """What limits the workgroups: "registers", "shared memory", "warps" or "workgroups"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The least time of all launches on one GPU by its published rates. Uncalibrated."""

    chip: str
    parts: dict[str, float]
    """Seconds of arithmetic ("compute"), matrix instructions, memory and on-chip traffic by themselves."""
    rates: dict[str, float] = field(default_factory=dict)
    """Published rates: bytes of "memory" a second; operations a second of each type that was counted."""

    @property
    def seconds(self) -> float:
        """The longest part."""
        return max(self.parts.values())

    @property
    def bound(self) -> str:
        """The name of the longest part; "nothing" if nothing was counted."""
        return max(self.parts, key=lambda name: self.parts[name]) if self.seconds else "nothing"

    def after(self, other: Estimate | None) -> Estimate:
        """Return the sum with the estimate of earlier launches on the same GPU."""
        before, rates = (other.parts, other.rates) if other else ({}, {})
        parts = {name: s + before.get(name, 0.0) for name, s in self.parts.items()}
        return Estimate(chip=self.chip, parts=parts, rates=rates | self.rates)

    def data(self) -> dict[str, Any]:
        """Return the estimate as data for JSON."""
        return asdict(self) | {"seconds": self.seconds, "bound": self.bound}


@dataclass(slots=True, kw_only=True)
class KernelCounters:
    """The counts of one kernel, of all its launches together."""

    kernel: str
    arch: str
    lanes: int
    """Lanes of a warp (wave)."""
    unit: int
    """Bytes of a unit of global memory: a sector of 32 bytes, or a cache line of 128."""
    launches: int = 0
    groups: int = 0
    warps: int = 0
    threads: int = 0
    instructions: Counter[str] = field(default_factory=Counter)
    """Class -> instructions that warps executed."""
    lane_instructions: Counter[str] = field(default_factory=Counter)
    """Class -> instructions of single active lanes; none for instructions of a whole wave."""
    branches: int = 0
    """Branch instructions that warps executed."""
    divergent: int = 0
    """Times that some lanes of a warp, but not all, left for another path."""
    global_: dict[str, AccessCounts] = field(default_factory=_accesses)
    shared: dict[str, AccessCounts] = field(default_factory=_accesses)
    local: dict[str, AccessCounts] = field(default_factory=_accesses)
    """Global, shared and local memory: "load", "store" or "atomic" -> accesses."""
    flops: Counter[str] = field(default_factory=Counter)
    """Type -> floating-point operations outside matrix instructions."""
    matrix: Counter[str] = field(default_factory=Counter)
    """Type of the factors -> operations of matrix instructions."""
    copied: int = 0
    """Bytes that asynchronous copies moved."""
    read: int = 0
    """Bytes of global memory, in whole units, that a launch read at least once; summed over launches."""
    written: int = 0
    """The same for bytes that a launch wrote."""
    lost: int = 0
    """Units beyond what `read` and `written` could record."""
    registers: int = 0
    """Registers of a thread."""
    shared_bytes: int = 0
    """Shared memory of a workgroup in the last launch."""
    code: int = 0
    """Machine instructions of the kernel's code, executed or not; 0: not known."""
    occupancy: Occupancy | None = None
    """None: the device does not estimate it."""
    estimates: tuple[Estimate, ...] = ()

    @property
    def special(self) -> int:
        """Divisions, roots and transcendental functions of single lanes."""
        return self.lane_instructions["special"]

    @property
    def barriers(self) -> int:
        """Barrier instructions that warps executed."""
        return self.instructions["barrier"]

    @property
    def moved(self) -> int:
        """Bytes of global memory that requests moved, in whole units."""
        return self.unit * sum(one.units for one in self.global_.values())

    @property
    def asked(self) -> int:
        """Bytes of global memory that lanes asked for."""
        return sum(one.bytes for one in self.global_.values())

    @property
    def coalescing(self) -> float:
        """Bytes asked for each byte moved; above 1 if lanes share bytes, 0 without accesses."""
        return self.asked / self.moved if self.moved else 0.0

    @property
    def conflicts(self) -> int:
        """Cycles of shared memory that bank conflicts add."""
        return sum(one.conflicts for one in self.shared.values())

    @property
    def active_lanes(self) -> float:
        """Mean share of active lanes in the instructions that lanes execute; 0 without any."""
        whole = sum(self.instructions[kind] for kind in self.lane_instructions) * self.lanes
        return sum(self.lane_instructions.values()) / whole if whole else 0.0

    def add(self, other: KernelCounters) -> None:
        """Add the counts of other launches of the same kernel; resources become those of `other`."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("instructions", "lane_instructions", "flops", "matrix"):
            getattr(self, name).update(getattr(other, name))
        for name in ("global_", "shared", "local"):
            for what, access in getattr(other, name).items():
                getattr(self, name)[what].add(access)
        before = {one.chip: one for one in self.estimates}
        self.estimates = tuple(one.after(before.get(one.chip)) for one in other.estimates)
        self.registers, self.shared_bytes = other.registers, other.shared_bytes
        self.code, self.occupancy = other.code, other.occupancy

    def scaled(self, factor: int) -> KernelCounters:
        """Return the counts for `factor` times as many workgroups of the same work, without estimates."""
        found = deepcopy(self)
        found.estimates = ()
        for name in _SUMS[1:]:
            setattr(found, name, factor * getattr(self, name))
        for name in ("instructions", "lane_instructions", "flops", "matrix"):
            counts = getattr(found, name)
            counts.update({key: (factor - 1) * count for key, count in counts.items()})
        for spaces in (found.global_, found.shared, found.local):
            for access in spaces.values():
                for name in access.__slots__:
                    setattr(access, name, factor * getattr(access, name))
        return found

    def data(self) -> dict[str, Any]:
        """Return the counts as data for JSON."""
        found: dict[str, Any] = {}
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, dict):
                value = {
                    key: asdict(one) if isinstance(one, AccessCounts) else one for key, one in value.items()
                }
            found[name.rstrip("_")] = value
        found["occupancy"] = None if self.occupancy is None else asdict(self.occupancy)
        found["estimates"] = [one.data() for one in self.estimates]
        for name in ("moved", "asked", "coalescing", "conflicts", "active_lanes", "special", "barriers"):
            found[name] = getattr(self, name)
        return found


class Counters:
    """The counts of kernels by name, in the order of their first launches."""

    def __init__(self) -> None:
        self._kernels: dict[str, KernelCounters] = {}
        self.names: Mapping[int, str] = {}
        """Address of a kernel's code -> its name, where the machine code does not have it."""

    def add(self, one: KernelCounters, *, code: int = 0) -> None:
        """Add the counts of launches of one kernel; `code` is the address of its code."""
        if code in self.names:
            one.kernel = self.names[code]
        known = self._kernels.get(one.kernel)
        if known is None:
            self._kernels[one.kernel] = deepcopy(one)
        else:
            known.add(one)

    def __getitem__(self, kernel: str) -> KernelCounters:
        """Return the counts of a kernel. Raises `UsageError` for one that was not launched."""
        if kernel not in self._kernels:
            known = ", ".join(self._kernels) or "none"
            raise UsageError(f"no launch of a kernel {kernel!r} was counted; counted: {known}")
        return self._kernels[kernel]

    def __iter__(self) -> Iterator[KernelCounters]:
        return iter(tuple(self._kernels.values()))

    def __len__(self) -> int:
        return len(self._kernels)

    def json(self) -> str:
        """Return the counts as JSON: a list of kernels."""
        return json.dumps([one.data() for one in self])

    def table(self) -> str:
        """Return a table for each kernel."""
        return "\n\n".join(table(one) for one in self)

    def _repr_html_(self) -> str:
        return html_text(self.table())


class Counts(Protocol):
    """The part of a driver's device that counts; `hcq.driver.DriverDevice` implements it."""

    def count(self, into: Counters | None) -> Counters | None:
        """Count into `into` from now on, None: not at all; return the object that was counted into before."""


class Countable(Protocol):
    """The part of a device that `counting` uses; `hcq.device.Device` implements it."""

    @property
    def name(self) -> str:
        """The device's name."""

    @property
    def driver(self) -> Counts:
        """The driver's side of the device."""

    def sync(self) -> None:
        """Wait for all work."""


def begin(device: Countable, target: str) -> tuple[Counters, str] | None:
    """Count all kernels of a device from now on; return (their counts, `target`).

    `target` is the setting HCQ_COUNTERS, which the device needs when it closes. The result is None, after a
    warning, for a device that is not emulated.
    """
    counters = Counters()
    try:
        device.driver.count(counters)
    except UnsupportedError as error:
        text = f"HCQ_COUNTERS: {device.name} is not counted: {error}"
        warnings.warn(text, stacklevel=5)
        return None
    return counters, target


@contextmanager
def counting(device: Countable) -> Iterator[Counters]:
    """Count the kernels that a device runs inside a `with` block.

    It waits for the device's work before and after the block. Counted kernels are translated anew and run
    slower; results are the same. Blocks may be nested; the outer one counts all. Raises `UnsupportedError`
    for a device that is not emulated, `UsageTypeError` for an object that is no device, and the errors of
    `Device.sync`.
    """
    if not hasattr(device, "driver"):
        raise UsageTypeError(f"counting: wanted an open device, seen {device!r}")
    device.sync()
    inner = Counters()
    outer = device.driver.count(inner)
    try:
        yield inner
        device.sync()
    finally:
        device.driver.count(outer)
        if outer is not None:
            for one in inner:
                outer.add(one)


_written: dict[str, list[dict[str, object]]] = {}
"""The kernels reported so far, by file, of all devices of the process."""


def write_counts(counters: Counters, target: str) -> None:
    """Report counted kernels: as tables on the standard error for "1", else in the JSON file `target`.

    Raises `OSError`.
    """
    if target == "1":
        if len(counters):
            print(counters.table(), file=sys.stderr)  # noqa: T201 - asked for by HCQ_COUNTERS
        return
    _written.setdefault(target, []).extend(one.data() for one in counters)
    Path(target).write_text(json.dumps(_written[target]))


def table(one: KernelCounters) -> str:
    """Return the counters of a kernel as lines of a name and a value."""
    head = f"{one.kernel} ({one.arch}): {one.launches} launch{'es' if one.launches != 1 else ''}"
    rows = list(_rows(one))
    width = max(len(name) for name, _ in rows)
    return "\n".join([head, *(f"  {name:<{width}}  {value}" for name, value in rows)])


def _rows(one: KernelCounters) -> Iterator[tuple[str, str]]:
    yield "workgroups, warps, threads", f"{one.groups:,}, {one.warps:,}, {one.threads:,}"
    yield "instructions", f"{sum(one.instructions.values()):,} ({_parts(one.instructions)})"
    yield "active lanes", f"{one.active_lanes:.1%} of {one.lanes}"
    yield "branches", f"{one.branches:,}, divergent {one.divergent:,}"
    for space, found in (("global", one.global_), ("shared", one.shared), ("local", one.local)):
        for what, access in found.items():
            if access.requests:
                yield f"{space} {what}s", _access(space, what, access, one.unit)
    yield (
        "global memory",
        (
            f"{one.asked:,} bytes asked, {one.moved:,} moved ({one.coalescing:.1%}); "
            f"{one.read:,} read and {one.written:,} written at least once{' or more' if one.lost else ''}"
        ),
    )
    if any(access.requests for access in one.shared.values()):
        yield "bank conflicts", f"{one.conflicts:,} cycles"
    if one.barriers:
        yield "barriers", f"{one.barriers:,}"
    if one.flops:
        yield "floating point", _parts(one.flops)
    if one.matrix:
        yield "matrix operations", _parts(one.matrix)
    if one.special:
        yield "special functions", f"{one.special:,}"
    if one.copied:
        yield "copied asynchronously", f"{one.copied:,} bytes"
    yield "resources", f"{one.registers} registers, {one.shared_bytes:,} bytes of shared memory"
    if one.code:
        yield "machine code", f"{one.code:,} instructions"
    if one.occupancy is not None:
        held = one.occupancy
        share = f"{held.warps} of {held.most_warps} warps ({held.warps / held.most_warps:.0%})"
        yield "occupancy", f"{share} in {held.groups} workgroups, limited by {', '.join(held.limits)}"
    for estimate in one.estimates:
        text = f"at least {estimate.seconds * 1e6:,.2f} us, bound by {estimate.bound} (uncalibrated)"
        yield f"on {estimate.chip}", text


def _parts(counts: dict[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count:,}" for name, count in ordered if count)


def _access(space: str, what: str, access: AccessCounts, unit: int) -> str:
    text = f"{access.requests:,} requests of {access.lanes:,} lanes, {access.bytes:,} bytes"
    if space == "global":
        text += f", {access.units:,} {'sectors' if unit == 32 else 'lines'} of {unit} bytes"
    elif space == "shared":
        text += f", {access.units:,} cycles ({access.conflicts:,} for bank conflicts)"
    if what == "atomic":
        text += f", {access.serial:,} steps for equal addresses"
    return text
