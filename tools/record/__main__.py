"""Record what a GPU computes for enumerated inputs, or compare a device with a recording.

    python -m tools.record --device nv --out sm_90a.jsonl     record; again: continue where it ended
    python -m tools.record --device nv --out FILE --shards 1/4 --limit-s 100     a quarter, 100 s at most
    python -m tools.record --keep FILE     write the compact file tests/golden/silicon/ARCH.xz of a recording
    python -m tools.record --compare FILE --device nv-emu     run the forms of FILE, name each difference
    python -m tools.record --prepare kernels     assemble all kernels, for a machine without an assembler
    python -m tools.record --forms --arch sm_90a     count forms and inputs

Exit status: 1 if a form gave no results, a result differs, or an instruction has no form; 2 for a wrong
argument, file or device; else 0, also if the time limit ended a recording. The same command then continues
it.

Not here: what is recorded (`tools.record.nv`, `tools.record.amd`). Next: `tools.record.runner`;
docs/hardware/README.md.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Final

from compiler.targets.nvptx.assembler import available
from tools.arguments import (
    above_zero,
    command,
    device_name,
    existing,
    folder,
    made_folder,
    output,
    part,
    reported,
)
from tools.hardware.stage import REPOSITORY
from tools.record.compare import compared as difference
from tools.record.recording import Journal, load, packed
from tools.record.runner import TIMEOUT_S, Opened, Recorder, head_of, shards
from tools.record.vendors import vendor_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from tools.record.forms import Form
    from tools.record.recording import Recording
    from tools.record.vendors import Vendor

SILICON: Final = REPOSITORY / "tests/golden/silicon"
"""The folder of recordings of silicon, with one file for each architecture."""
_EMULATED_PATIENCE: Final = 60
"""The factor of `TIMEOUT_S` on an emulated GPU."""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; exit with status 2 for wrong arguments."""
    parser = command("tools.record", __doc__)
    parser.add_argument("--device", type=device_name, default="nv", help="the GPU; default: %(default)s")
    parser.add_argument("--out", type=output, metavar="FILE", help="the journal, made or continued")
    parser.add_argument("--shards", type=part, default=(1, 1), metavar="K/N", help="the K-th of N parts")
    parser.add_argument(
        "--limit-s", type=above_zero, default=float("inf"), metavar="S", help="the most seconds to record"
    )
    parser.add_argument("--only", type=_pattern, metavar="REGEX", help="forms whose names match")
    parser.add_argument("--kernels", type=folder, metavar="DIR", help="kernels that --prepare built")
    parser.add_argument("--keep", type=existing, metavar="FILE", help="write the compact file of a recording")
    parser.add_argument("--compare", type=existing, metavar="FILE", help="compare a device with a recording")
    parser.add_argument("--prepare", type=made_folder, metavar="DIR", help="assemble all kernels into DIR")
    parser.add_argument("--forms", action="store_true", help="count forms and inputs")
    parser.add_argument("--arch", default="", help="--prepare, --forms: one architecture: sm_90a")
    parser.add_argument("--json", action="store_true", help="print the result as a line of JSON")
    options = parser.parse_args(argv)
    chosen = [name for name in ("keep", "compare", "prepare", "forms") if getattr(options, name)]
    if len(chosen) > 1:
        parser.error(f"wanted one of --keep, --compare, --prepare, --forms; saw {', '.join(chosen)}")
    if not chosen and options.out is None:
        parser.error("a recording needs --out FILE")
    return options


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ArgumentTypeError(f"wanted a regular expression: {error}") from None


def chosen_forms(vendor: Vendor, arch: str, options: argparse.Namespace) -> list[list[Form]]:
    """Return the shards of the part K/N, of the forms whose names match --only."""
    forms = [one for one in vendor.forms(arch) if options.only is None or options.only.search(one.name)]
    number, parts = options.shards
    return shards(forms)[number - 1 :: parts]


def record(options: argparse.Namespace, out: Path) -> tuple[bool, Recording]:
    """Record on the device of --device into the journal `out`.

    Return whether all shards were recorded in time, and the recording. Raises `UsageError` for a journal of
    another device, and `HcqError` if the device does not open.
    """
    vendor = vendor_of(options.device)
    with Opened(options.device) as opened:
        info = opened.get().info
        head = head_of(info, vendor.version(), available() if vendor.name == "nv" else "LLVM")
        parts = chosen_forms(vendor, info.arch, options)
        patience = _EMULATED_PATIENCE if info.driver.endswith("-emu") else 1
        with Journal(out, head) as journal:
            recorder = Recorder(vendor, opened, journal, options.kernels, TIMEOUT_S * patience)
            done = recorder.record(parts, limit_s=options.limit_s)
            return done, journal.recording


def recorded(options: argparse.Namespace) -> int:
    """Record, and print a summary; return 1 if a form has an error."""
    begin = time.monotonic()
    done, recording = record(options, options.out)
    _print(options, {
        "file": str(options.out), "whole": done, **recording.head, "forms": len(recording.results),
        "errors": {name: why for name, (_, why) in recording.errors.items()},
        "seconds": round(time.monotonic() - begin, 1),
    })  # fmt: skip
    return 1 if recording.errors else 0


def compared(options: argparse.Namespace) -> int:
    """Run the forms on the device, compare with --compare, print the differences; return 1 if any."""
    silicon = load(options.compare)
    with tempfile.TemporaryDirectory(prefix="hcq-record-") as there:
        _, other = record(options, options.out or Path(there) / "emulated.jsonl")
    vendor = vendor_of(options.device)
    forms = [form for shard in chosen_forms(vendor, other.head["arch"], options) for form in shard]
    found = difference(silicon, other, forms)
    print("\n".join(found.lines()))
    return 0 if found.agrees else 1


def keep(options: argparse.Namespace) -> int:
    """Write the compact file of a recording of silicon; return 2 for a recording of an emulated GPU."""
    recording = load(options.keep)
    if "emulated" in recording.head["driver"]:
        sys.stderr.write(f"error: wanted a recording of a real GPU, saw an emulated one in {options.keep}\n")
        return 2
    target = options.out or SILICON / f"{recording.head['arch']}.xz"
    target.parent.mkdir(parents=True, exist_ok=True)
    data = packed(recording)
    target.write_bytes(data)
    _print(options, {"file": str(target), "bytes": len(data), "forms": len(recording.results)})
    return 0


def prepare(options: argparse.Namespace) -> int:
    """Assemble the kernels of all shards into --prepare, for --arch or all architectures; return 0."""
    vendor = vendor_of(options.arch or options.device)
    for arch in [options.arch] if options.arch else vendor.arches:
        count = sum(
            vendor.prepare(shard, arch, options.prepare) for shard in chosen_forms(vendor, arch, options)
        )
        _print(options, {"arch": arch, "kernels": count, "folder": str(options.prepare)})
    return 0


def listed(options: argparse.Namespace) -> int:
    """Print the numbers of forms, rows and bytes; return 0."""
    vendor = vendor_of(options.arch or options.device)
    for arch in [options.arch] if options.arch else vendor.arches:
        forms = [form for shard in chosen_forms(vendor, arch, options) for form in shard]
        _print(options, {
            "arch": arch, "forms": len(forms), "rows": sum(form.count for form in forms),
            "bytes": sum(form.result_bytes for form in forms),
        })  # fmt: skip
    return 0


def _print(options: argparse.Namespace, facts: dict[str, object]) -> None:
    if options.json:
        print(json.dumps(facts), flush=True)
        return
    for name, value in facts.items():
        values = value.items() if isinstance(value, dict) else value if isinstance(value, list) else None
        if values is None:
            print(f"{name}: {value}")
        else:
            lines = (f"\n  {one if isinstance(one, str) else ': '.join(map(str, one))}" for one in values)
            print(f"{name}: {len(value)}" + "".join(lines))  # type: ignore[arg-type] # a dict or list


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    options = parse(argv)
    for name, action in (("keep", keep), ("compare", compared), ("prepare", prepare), ("forms", listed)):
        if getattr(options, name):
            return action(options)
    return recorded(options)


if __name__ == "__main__":
    sys.exit(reported(main))
