"""The counters of a kernel as text.

Not here: the counters (`counters`). Next: docs/counters.md, which explains each line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hcq.counters import AccessCounts, KernelCounters


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
    yield "global memory", (
        f"{one.asked:,} bytes asked, {one.moved:,} moved ({one.coalescing:.1%}); "
        f"{one.read:,} read and {one.written:,} written at least once{' or more' if one.lost else ''}"
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
