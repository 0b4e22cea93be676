"""Run a program on emulated GPUs with all checks, and print each finding.

    hcq sanitize --device nv-emu:sm_80 train.py --epochs 1
    hcq sanitize --json kernels.py

Every emulated GPU that the script opens runs its kernels with checks for races, accesses outside memory,
reads of uninitialized memory and wrong barriers, and every submission is validated. `--device` is the device
that "auto" opens.

Findings are printed to the standard output, with kernel, source line, thread, address and allocation. They
include faults that the script handles, and faults of kernels that it does not wait for. Exit status: 1 with a
finding; 2 if the script failed for another reason, if no kernel ran on an emulated GPU, or if the arguments
are wrong; else the script's own status.

Not here: the checks (`emulator.sanitizers`). Next: docs/testing-kernels.md.
"""

from __future__ import annotations

import argparse
import json
import linecache
import runpy
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from emulator.ir.report import parse
from hcq.cli import prog
from hcq.config import config, override
from hcq.device import Device
from hcq.errors import DeviceFault, UsageError
from hcq.faults.refusal import collected
from hcq.process import open_devices
from hcq.registry import open as open_device
from hcq.registry import parse as parse_device

if TYPE_CHECKING:
    from collections.abc import Sequence

EMULATED: Final = ("nv-emu", "amd-emu")
"""Drivers that check kernels."""
FOUND: Final = 1
"""Exit status with a finding."""
FAILED: Final = 2
"""Exit status of a script that failed without a finding, or that ran no kernel on an emulated GPU."""
NOTHING: Final = """nothing was checked: the program ran no kernel on an emulated GPU
hint: open the device "auto", or nv-emu or amd-emu by its name"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status. Wrong arguments raise `SystemExit(2)`."""
    parser = argparse.ArgumentParser(
        prog=prog("interop.sanitize"), description="run a program on emulated GPUs with all checks"
    )
    parser.add_argument("--json", action="store_true", help="print each finding as one line of JSON")
    add_program(parser)
    options = checked_program(parser, argv)
    status, found, launches = run(options.script, options.arguments, options.device)
    for one in found:
        print(json.dumps(one) if options.json else text(one))  # noqa: T201 - the output of the command
    notes = [] if options.json else [f"{len(found)} finding{'' if len(found) == 1 else 's'}"]
    if status and not found:
        notes = [f"the program failed with status {status}; nothing was found before, in {launches} launches"]
    elif not (launches or found):
        notes, status = [NOTHING], FAILED
    for note in notes:
        print(note, file=sys.stderr)  # noqa: T201 - the same
    return status


def add_program(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a command that runs a program: the device, the script, the script's arguments."""
    parser.add_argument("--device", default="nv-emu", help='what "auto" opens; default: %(default)s')
    parser.add_argument("script", help="the program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")


def checked_program(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed arguments. `SystemExit(2)` if the script is no file or the device is not emulated."""
    options = parser.parse_args(argv)
    if not Path(options.script).is_file():
        parser.error(f"wanted the file of a program, saw {options.script!r}")
    try:
        hardware = parse_device(options.device)[0].name not in EMULATED
        if not hardware:
            open_device(options.device).close()  # an unknown chip is refused before the program runs
    except UsageError as error:
        parser.error(str(error))
    if hardware:
        parser.error(
            f"--device {options.device}: only emulated GPUs check and count; try {' or '.join(EMULATED)}"
        )
    note_late(parser, options.arguments)
    return options


def note_late(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Print a note where arguments of a program have the names of options of the command that runs it."""
    mine = {name for action in parser._actions for name in action.option_strings}  # noqa: SLF001 - the parser has no other list
    late = [word for word in arguments if word.partition("=")[0] in mine]
    if late:
        text = f"note: {', '.join(late)} after the program is its own; those of this command stand before it"
        print(text, file=sys.stderr)  # noqa: T201 - a note of the command


def run(script: str, arguments: Sequence[str], device: str) -> tuple[int, list[dict[str, Any]], int]:
    """Run a script as `__main__`; return the exit status, the rows of `findings`, and the number of launches.

    The launches are those of kernels on emulated GPUs that closed. Closes the devices that the script left
    open; `sys.argv` and `sys.path` are restored.
    """
    with TemporaryDirectory() as folder, collected() as reports:
        kept = config().emu_report or Path(folder) / "report"
        before = kept.stat().st_size if kept.exists() else 0
        with override(device=device, emu_checked=True, validate=True, emu_report=kept):
            status = run_script(script, arguments)
        lines = kept.read_bytes()[before:].splitlines() if kept.exists() else []
    launches = sum([sum(json.loads(line)["launches"].values()) for line in lines])
    found: list[dict[str, Any]] = []
    for report in reports:
        found += [row for row in findings(DeviceFault(report)) if row not in found]
    return (FOUND if found else status), found, launches


def run_script(script: str, arguments: Sequence[str]) -> int:
    """Run a script as `__main__` and close the devices that it left open; return the exit status.

    `sys.argv` and `sys.path` are restored. Tracebacks are printed, except of faults.
    """
    kept = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [script, *arguments], str(Path(script).resolve().parent)
    others = open_devices()
    try:
        status = _status(script)
        for one in open_devices():
            if isinstance(one, Device) and one not in others:
                one.close()  # waits: work that nothing waited for is checked, too
    except UsageError:  # memory that was overrun, as validation finds when a device closes
        traceback.print_exc()
        return FAILED
    finally:
        sys.argv, sys.path[0] = kept
    return status


def _status(script: str) -> int:
    """Run a script as `__main__`; return its exit status.

    Prints the traceback of errors, except of faults.
    """
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)  # noqa: T201 - as the interpreter does
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:  # noqa: BLE001 - the script's own
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, DeviceFault):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            traceback.print_exc()
        return FAILED
    return 0


def findings(fault: DeviceFault) -> list[dict[str, Any]]:
    """Return the findings that a fault reports as dictionaries; a fault without reports is itself a finding.

    All have kind, message, kernel, source, source_text, launched, device and arguments; reports of the checks
    also have the fields of `emulator.ir.report.KernelReport`.
    """
    texts = fault.report.reports or (str(fault),)
    out: list[dict[str, Any]] = []
    for report, source in parse("\n".join(texts)):
        row = asdict(report) | {
            "kind": report.kind.name.lower(),
            "message": report.kind.text,
            "source": source,
        }
        if row not in out:
            out.append(row)
    if not out:
        head = fault.report
        out.append(
            {
                "kind": head.kind.name.lower(),
                "message": texts[0].split("\n")[0],
                "kernel": head.kernel or "",
                "source": head.source,
            }
        )
    for row in out:
        row["device"], row["arguments"] = fault.report.device, list(fault.report.arguments)
        file, _, number = row["source"].rpartition(":")
        row["source_text"] = linecache.getline(file, int(number)).strip() if number.isdecimal() else ""
        row["launched"] = fault.report.launched
    return out


def text(found: dict[str, Any]) -> str:
    """Return a finding as lines, in the order of compute-sanitizer: problem, code, thread, memory."""
    lines = [f"========= {found['message']}"]
    if found.get("address") is not None:
        lines[0] += f": {found['access'] or 'access'} of {found['size']} bytes at {found['address']:#x}"
    if "line" in found:
        place = found["source"] or "no source line recorded"
        lines.append(
            f"=========     in {found['kernel']}, line {found['line']} ({place}): {found['instruction']}"
        )
        lines += [f"=========     {found['source_text']}"] * bool(found["source_text"])
        if found["thread"] is not None:
            lines.append(f"=========     by thread {tuple(found['thread'])} of block {tuple(found['block'])}")
        lines += [f"=========     {key}: {found[name]}" for key, name in _MORE if found[name]]
    lines += [f"=========     launched at {found['launched']}"] * bool(found["launched"])
    lines += [f"=========     {one}" for one in found["arguments"]]
    return "\n".join(lines)


_MORE: Final = (("nearest allocation", "nearest"), ("against", "other"))

if __name__ == "__main__":
    sys.exit(main())
