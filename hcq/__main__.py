"""`hcq doctor [--json]`: the devices of this machine, what is missing and its cure, and every setting.

Exits with 1 only when no device can be opened. `python -m hcq` is the command `hcq` (`hcq.cli`).

Not here: the diagnosis (`hcq.doctor`), whose report this file prints.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from textwrap import wrap
from typing import TYPE_CHECKING

from hcq.doctor import Finding, Report, examine
from hcq.errors import size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_WIDTH = 110


def main(argv: Sequence[str] | None = None, *, diagnose: Callable[[], Report] = examine) -> int:
    """Print the report; return the exit status, 1 when no device can be opened."""
    parser = argparse.ArgumentParser(
        prog="hcq doctor", description="Show devices, what this machine lacks, the cache and all settings."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    report = diagnose()
    text = json.dumps({**asdict(report), "usable": report.usable}, indent=2)
    sys.stdout.write((text if options.json else "\n".join(_lines(report))) + "\n")
    return 0 if report.usable else 1


def list_devices(argv: Sequence[str] | None = None, *, diagnose: Callable[[], Report] = examine) -> int:
    """Print the devices alone; return the exit status, 1 when none can be opened."""
    parser = argparse.ArgumentParser(
        prog="hcq devices", description="Show the devices, and what others lack."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    options = parser.parse_args(argv)
    report = diagnose()
    if options.json:
        lines = [json.dumps([asdict(device) for device in report.devices], indent=2)]
    else:
        lines = [line for device in report.devices for line in _device(device)]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if report.usable else 1


def _lines(report: Report) -> Iterator[str]:
    version = report.version or "(not installed: run from a checkout)"
    yield f"hcq {version}, {report.python}, {report.system}"
    yield from ("", "Devices")
    for device in report.devices:
        yield from _device(device)
    chosen = report.default
    yield from ("", f"Default device: {chosen.name or 'none'} ({chosen.reason})")
    cache = report.cache
    yield from ("", "Cache of compiled code")
    if cache.folder:
        held = f"{cache.entries} {'entry' if cache.entries == 1 else 'entries'}"
        yield f"  {cache.folder}: {held}, {size_text(cache.size)} of {size_text(cache.limit)}"
        if cache.error:
            yield f"  nothing is kept: {cache.error}. Cure: HCQ_CACHE names another folder"
    else:
        yield "  none: this user has no home. Cure: HCQ_CACHE names a folder for it"
    yield from ("", "Environment variables")
    if report.settings_error:
        yield f"  cannot be read, so no device opens: {report.settings_error}"
    for item in report.settings:
        default = f" (default {item.default})" if item.default else ""
        yield from _wrapped(f"  {item.name:18s} ", item.meaning + default)
        if item.value:
            yield f"  {'':18s} set: {item.value}"
    if report.shared:
        yield from ("", "Names that other distributions have, too")
    for shared in report.shared:
        text = f"of {', '.join(shared.others)}: `import {shared.name}` may find it. Cure: {shared.cure}"
        yield from _wrapped(f"  {shared.name:18s} ", text)
    yield from ("", "Packages")
    for package in report.packages:
        yield f"  {package.name:18s} {package.version or f'absent. Cure: {package.cure}'}"


def _device(device: Finding) -> Iterator[str]:
    if device.present:
        about = [device.description, device.arch, size_text(device.vram_bytes) if device.vram_bytes else ""]
        yield from _wrapped(f"  {device.name:9s} yes  ", ", ".join(part for part in about if part))
        if device.missing:
            yield from _wrapped(f"  {'':9s}      ", device.missing)
    else:
        yield from _wrapped(f"  {device.name:9s} no   ", device.missing)
    if device.cure:
        yield from _wrapped(f"  {'':9s}      ", f"Cure: {device.cure}")


def _wrapped(head: str, text: str) -> list[str]:
    """Return text in lines of at most `_WIDTH`; the first starts with `head`, the others are indented."""
    return wrap(
        text,
        _WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    from hcq.cli import main as commands

    sys.exit(commands())
