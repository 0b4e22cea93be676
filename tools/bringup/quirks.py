"""The ladder on emulated GPUs that refuse the default of one quirk: `--quirks`.

A quirk is a value that public sources leave uncertain. For each quirk of a vendor's `REJECTIONS` there is an
emulated GPU on which the driver's default does not work.
The ladder climbs it with the default values, and must find the alternative that works. A row of the table has
the rung at which the default failed, its error, and the value with which it passed. Rungs run in this
process. The rungs of the environment, of two processes and of the deliberate fault are left out.

Not here: what an emulated GPU refuses (`tools.bringup.amd.rejections`, `tools.bringup.nv.rejections`). Next:
`ladder`.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from tools.bringup.emulated import PREFIX
from tools.bringup.ladder import Ladder
from tools.bringup.run import first_line, run_rung
from tools.bringup.rung import FAULT

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from tools.bringup.rung import Result, Rung
    from tools.bringup.vendor import Vendor

_ALSO: Final = {"subcontext": "context_share"}
"""Uncertain value -> another value whose alternative also works: without a context share there is no
subcontext, and presets without a context share are tried first."""
LEFT_OUT: Final = frozenset({0, FAULT, 24, 25})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the ladder found on an emulated GPU that refuses the default of one uncertain value."""

    value: str
    """The name of the quirk, a field of the vendor's `Quirks`."""
    device: str
    """The emulated GPU, for example "amd-emu:gfx1100+other=order"."""
    rung: str
    """Number and name of the rung at which the default failed; "" if every rung passed."""
    error: str
    """The first line of that rung's error; "" if every rung passed."""
    working: str
    """The values with which every rung passed; "" if a rung passed with no values."""
    tries: int
    """Runs of rungs with alternatives."""
    seconds: float
    """The time of the whole climb."""

    @property
    def right(self) -> bool:
        """Whether the default failed, and the ladder passed with an alternative of this value alone."""
        name, _, _ = self.working.partition("=")
        fits = name in {self.value, _ALSO.get(self.value)}
        return bool(self.rung) and fits and "+" not in self.working


def _silent(_result: Result) -> None:
    """Print nothing."""


def find(given: argparse.Namespace, value: str, show: Callable[[Result], None] = _silent) -> Found:
    """Climb the ladder on an emulated GPU that refuses the default of `value`; return what it found.

    `given` are the parsed arguments of `tools.bringup`; `show` is called with each result. Raises `KeyError`
    for a value that is not in the vendor's `quirks`.
    """
    vendor: Vendor[Any] = given.vendor
    variant = f"{vendor.quirks[value]}+{PREFIX}{value}"
    options = copy.copy(given)
    options.variants, options.emulate, options.report = "needed", variant, None

    def spawn(rung: Rung, choices: Any, _times: float) -> Result:
        kernel: Any = vendor.make_kernel(emulate=variant)
        try:
            return run_rung(rung, choices, options, kernel)
        finally:
            kernel.shut()

    start = time.monotonic()
    rungs = [rung for rung in vendor.rungs if rung.number not in LEFT_OUT]
    ladder = Ladder(rungs, options, show, spawn=spawn)
    ladder.climb()
    failed = [one for one in ladder.results if not one.passed and not one.variant]
    return Found(
        value=value,
        device=f"{vendor.name}-emu:{variant}",
        rung=f"{failed[0].rung} {failed[0].name}" if failed else "",
        error=first_line(failed[0].error) if failed else "",
        working=ladder.working if ladder.passed else "",
        tries=sum(bool(one.variant) for one in ladder.results),
        seconds=round(time.monotonic() - start, 1),
    )


def print_table(options: argparse.Namespace) -> int:
    """Print a table of all quirks, or of those of --quirks.

    Return 0 if the ladder found each, 1 if not, 2 for an unknown value.
    """
    vendor: Vendor[Any] = options.vendor
    unknown = [value for value in options.quirks if value not in vendor.quirks]
    if unknown:
        sys.stderr.write(f"{unknown[0]!r} is no quirk whose default an emulated GPU refuses\n")
        sys.stderr.write(f"hint: there are: {', '.join(vendor.quirks)}\n")
        return 2
    values: Sequence[str] = options.quirks or tuple(vendor.quirks)
    found = []
    for value in values:
        one = find(options, value)
        found.append(one)
        sys.stderr.write(f"{'found' if one.right else 'NOT FOUND':9} {value} ({one.seconds} s)\n")
    if options.json:
        sys.stdout.write(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    else:
        sys.stdout.write("| refused default of | GPU | rung that fails | works |\n|---|---|---|---|\n")
        for one in found:
            where, works = one.rung or "none", one.working or "nothing"
            sys.stdout.write(
                f"| `{one.value}` | `{one.device.partition('+other')[0]}` | {where} | `{works}` |\n"
            )
    right = sum(one.right for one in found)
    sys.stderr.write(f"{right} of {len(found)} found by the ladder\n")
    return 0 if right == len(found) else 1
