"""Run the kernels with one mistake each on checked emulated GPUs, and list which findings name the mistake.

    python -m tests.guests.bad_run              # the broken kernels, and the same ones without the mistake
    python -m tests.guests.bad_run --only grid --verbose

Exit status 1 if a finding is missing, or if a right kernel has one. Not here: the kernels and their launches
(`tests.guests.bad_cases`).
"""

from __future__ import annotations

import functools
import json
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import hcq
import interop
from hcq.config import override
from interop import sanitize
from tests.guests import bad_cases, build
from tools.arguments import command, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

DEVICES: Final = {"sm_80": "nv-emu:sm_80+checked", "sm_90a": "nv-emu:sm_90+checked"} | {
    target: f"amd-emu:{target}+checked" for target in ("gfx942", "gfx1100", "gfx1201")
}


@functools.cache
def archive(name: str) -> dict[str, tuple[dict[str, Any], bytes]]:
    """Return the compiled kernels of an archive: name -> (facts, PTX or code object)."""
    return build.read(build.DATA / f"bad_{name}.tar.xz")


HANG_S: Final = 10
"""Seconds of processor time until a kernel counts as a hang: the right ones need less than one."""


def opened(target: str) -> hcq.Device:
    """Open the emulated GPU of a target with all checks, as `interop.sanitize` does."""
    with override(device=DEVICES[target], emu_checked=True, validate=True, emu_timeout_s=HANG_S):
        return hcq.open(DEVICES[target])


def findings(name: str, kernel: str, *, fixed: bool) -> list[dict[str, Any]]:
    """Launch one kernel of an archive on a new device; return the findings that `interop.sanitize` prints."""
    with opened(bad_cases.ARCHIVES[name]) as device:
        return _findings(device, name, kernel, fixed=fixed)


def _findings(device: hcq.Device, name: str, kernel: str, *, fixed: bool) -> list[dict[str, Any]]:
    source = bad_cases.source_of(name)
    launch = bad_cases.LAUNCHES[source][kernel]
    facts, code = archive(name)[kernel + (".fixed" if fixed else "")]
    arguments: list[Any] = [
        interop.empty(device, one.count, one.dtype)
        if isinstance(one, bad_cases.New)
        else one
        if isinstance(one, (int, float))
        else interop.array(device, one)
        for one in launch.arguments
    ]
    loaded = interop.load(device, code, entry=kernel)
    threads, shared = launch.threads or facts["threads"], facts.get("shared", launch.shared[not fixed])
    if source == bad_cases.TRITON:  # pointers of scratch memory follow, which none of the kernels uses
        arguments += [None] * (len(loaded.signature.parameters) - len(arguments))
    try:
        loaded.launch(*arguments, groups=launch.groups, threads=threads, shared=shared).wait()
    except hcq.DeviceFault as fault:
        return sanitize.findings(fault)
    return [
        {"kind": "wrong_result", "message": f"argument {number} of the right kernel has another content"}
        for number, wanted in (launch.expected if fixed else {}).items()
        if not np.array_equal(arguments[number].numpy(), np.broadcast_to(wanted, arguments[number].shape))
    ]


def named(source: str, kernel: str, found: Sequence[dict[str, Any]]) -> bool:
    """Return whether a finding names the kernel, a marked line of the source, and a kind of that mark."""
    marks = bad_cases.marks(bad_cases.path_of(source).read_text())[kernel]
    places = {
        (f"{bad_cases.path_of(source).name}:{mark.line}", kind) for mark in marks for kind in mark.kinds
    }
    return any(
        one["kernel"] == kernel and (one.get("source", "").rpartition("/")[2], one["kind"]) in places
        for one in found
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command("tests.guests.bad_run", __doc__)
    parser.add_argument("--only", default="", help="archives or kernels whose name contains this text")
    parser.add_argument("--verbose", action="store_true", help="print the findings")
    parser.add_argument("--json", action="store_true", help="one JSON object a kernel")
    options = parser.parse_args(argv)
    count = missed = wrong = 0
    for name in bad_cases.ARCHIVES:
        source = bad_cases.source_of(name)
        for kernel in bad_cases.launches_of(name):
            if options.only not in kernel and options.only not in name:
                continue
            broken = findings(name, kernel, fixed=False)
            right = findings(name, kernel, fixed=True)
            seen = named(source, kernel, broken)
            count, missed, wrong = count + 1, missed + (not seen), wrong + bool(right)
            if options.json:
                print(json.dumps({"kernel": kernel, "named": seen, "findings": broken, "fixed": right}))
                continue
            print(f"{name:14} {kernel:32} {'named' if seen else 'MISSED'}{'  RIGHT ONE TOO' * bool(right)}")
            for one in [*(broken if options.verbose or not seen else ()), *right]:
                print("    " + sanitize.text(one).replace("\n", "\n    "))
    if not count:
        parser.error(f"--only: no archive's and no kernel's name contains {options.only!r}")
    print(f"{count - missed} of {count} named; {wrong} right kernels with findings", file=sys.stderr)
    return 1 if missed or wrong else 0


if __name__ == "__main__":
    sys.exit(reported(main))
