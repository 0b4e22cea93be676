"""Generated code that writes a finding into the report buffer (`emu.report`), and helpers around it.

Not here: the checks (`addresses`, `emulator.sanitizers.sanitize`). Next: `emulator.simt.launch`, which reads
the buffer and makes the text of a finding.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.ir.library import helper
from emulator.ir.report import ReportKind
from emulator.ir.state import GROUP, LAUNCH, REPORT, REPORT_LIMIT, REPORTS_HEAD, SITE, THREAD, WARP
from emulator.ir.vector import IrValue

if TYPE_CHECKING:
    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder


def i32(value: int) -> IrValue:
    """Return an i32 constant."""
    return IrValue("i32", str(value))


def i64(value: int) -> IrValue:
    """Return an i64 constant."""
    return IrValue("i64", str(value))


def site_record(c: CodeBuilder, warp: IrValue, site: IrValue) -> IrValue:
    """Return the address of the SITE record that this host thread has for an instruction."""
    thread = WARP.load(c, warp, "thread")
    sites = THREAD.load(c, thread, "sites")
    return c.gep(sites, c.op("mul", c.resize(site, 64), SITE.size))


@helper("emu.report", "ptr, i32, i32, i32, i64, i32, i64", core=True)
def report(
    _lib: Library,
    c: CodeBuilder,
    warp: IrValue,
    kind: IrValue,
    site: IrValue,
    lane: IrValue,
    address: IrValue,
    size: IrValue,
    other: IrValue,
) -> None:
    """`emu.report(warp, kind, site, lane, address, size, other)`: record a finding; a fatal one stops the launch.

    A host thread records one finding for each site and kind. Findings beyond `REPORT_LIMIT` are counted, not stored.
    """
    thread = WARP.load(c, warp, "thread")
    record = site_record(c, warp, site)
    seen = SITE.load(c, record, "seen")
    bit = c.op("shl", i64(1), c.resize(kind, 64))
    fatal = c.icmp("ult", kind, int(ReportKind.SHARED_RACE))
    with c.when(c.icmp("eq", c.op("and", seen, bit), 0)):
        SITE.store(c, record, "seen", c.op("or", seen, bit))
        table = THREAD.load(c, thread, "reports")
        number = c.let("i32", f"atomicrmw add {table}, i32 1 seq_cst")
        with c.when(c.icmp("ult", number, REPORT_LIMIT)):
            at = c.gep(table, c.op("add", c.op("mul", c.resize(number, 64), REPORT.size), REPORTS_HEAD))
            group = WARP.load(c, warp, "group")
            for name, value in (
                ("kind", kind),
                ("site", site),
                ("lane", lane),
                ("size", size),
                ("address", address),
                ("other", other),
            ):
                REPORT.store(c, at, name, value)
            REPORT.store(c, at, "group", GROUP.load(c, group, "index"))
            REPORT.store(c, at, "warp", WARP.load(c, warp, "index"))
    with c.when(fatal):
        launch = THREAD.load(c, thread, "launch")
        c.emit(f"store atomic i32 1, {LAUNCH.address(c, launch, 'stop')} seq_cst, align 4")


def emit_report(
    lib: Library,
    c: CodeBuilder,
    warp: IrValue,
    kind: ReportKind,
    site: IrValue,
    lane: IrValue,
    *,
    address: IrValue | None = None,
    size: IrValue | None = None,
    other: IrValue | None = None,
) -> None:
    """Append a call of `emu.report`; operands that are None become 0."""
    c.call(
        report(lib), "void", warp, i32(kind), site, lane, address or i64(0), size or i32(0), other or i64(0)
    )


def report_conflict(
    lib: Library,
    c: CodeBuilder,
    warp: IrValue,
    kind: ReportKind,
    site: IrValue,
    lane: IrValue,
    address: IrValue,
    size: IrValue,
    access: IrValue,
    party: IrValue,
) -> None:
    """Append a report of an access that conflicts with an access of another party.

    `other` of the record gets the access kinds (`access`) in the upper 16 bits and `party` in the lower 32.
    """
    other = c.op("or", c.op("shl", c.resize(access, 64), 48), c.resize(party, 64))
    emit_report(lib, c, warp, kind, site, lane, address=c.resize(address, 64), size=size, other=other)
