"""Run a program on emulated GPUs with all checks, and print each finding.

    python -m interop.sanitize --device nv-emu:sm_80 train.py --epochs 1
    python -m interop.sanitize --json kernels.py

Every emulated GPU that the script opens runs its kernels with checks for races, accesses outside memory,
reads of uninitialized memory and barriers, and every submission is validated. `--device` is what "auto"
opens.

Findings go to the standard output, with kernel, line of the source, thread, address and allocation. Exit
status: 0 without findings, 1 with one, 2 when the script failed otherwise; a status that the script itself
gives passes.

Not here: the checks (`drivers.emu.sanitizers`). Next: docs/testing-kernels.md.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from drivers.emu.report import parse
from hcq.config import override
from hcq.errors import DeviceFault

if TYPE_CHECKING:
    from collections.abc import Sequence

FOUND: Final = 1
FAILED: Final = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m interop.sanitize", description="run a program on emulated GPUs with all checks"
    )
    parser.add_argument("--device", default="nv-emu", help='what "auto" opens; default: %(default)s')
    parser.add_argument("--json", action="store_true", help="print each finding as one line of JSON")
    parser.add_argument("script", help="the program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args(argv)
    status, found = run(options.script, options.arguments, options.device)
    for one in found:
        print(json.dumps(one) if options.json else text(one))  # noqa: T201 - the output of the command
    if not options.json:
        print(f"{len(found)} finding{'' if len(found) == 1 else 's'}", file=sys.stderr)  # noqa: T201 - the same
    return status


def run(script: str, arguments: Sequence[str], device: str) -> tuple[int, list[dict[str, Any]]]:
    """Run a script as `__main__`; return the exit status and the findings, as dictionaries."""
    kept = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [script, *arguments], str(Path(script).resolve().parent)
    try:
        with override(device=device, emu_checked=True, validate=True):
            runpy.run_path(script, run_name="__main__")
    except DeviceFault as fault:
        return FOUND, findings(fault)
    except SystemExit as end:
        return (end.code if isinstance(end.code, int) else int(end.code is not None)), []
    except Exception as error:  # noqa: BLE001 - the script's own
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, DeviceFault):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, DeviceFault):
            return FOUND, findings(cause)
        traceback.print_exc()
        return FAILED, []
    finally:
        sys.argv, sys.path[0] = kept
    return 0, []


def findings(fault: DeviceFault) -> list[dict[str, Any]]:
    """Return the findings that a fault names; a fault without one is a finding of its own."""
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
            {"kind": head.kind.name.lower(), "message": texts[0].split("\n")[0], "kernel": head.kernel or ""}
        )
    for row in out:
        row["device"], row["arguments"] = fault.report.device, list(fault.report.arguments)
    return out


def text(found: dict[str, Any]) -> str:
    """Return a finding as lines, in the order of compute-sanitizer: what, where, who, which memory."""
    lines = [f"========= {found['message']}"]
    if found.get("address") is not None:
        lines[0] += f": {found['access'] or 'access'} of {found['size']} bytes at {found['address']:#x}"
    if "line" in found:
        place = f" ({found['source']})" if found["source"] else ""
        lines.append(
            f"=========     in {found['kernel']}, line {found['line']}{place}: {found['instruction']}"
        )
        lines.append(f"=========     by thread {tuple(found['thread'])} of block {tuple(found['block'])}")
        lines += [f"=========     {key}: {found[name]}" for key, name in _MORE if found[name]]
    lines += [f"=========     {one}" for one in found["arguments"]]
    return "\n".join(lines)


_MORE: Final = (("nearest allocation", "nearest"), ("against", "other"))

if __name__ == "__main__":
    sys.exit(main())
