"""Run every form of the PTX table on the emulated GPU, and count: forms, inputs, disagreements, refusals.

`python -m tests.facts.ptx_tally [sm_90] [family ...]` prints the tally; it exits with 1 where something disagrees.
"""

# ruff: noqa: E501, T201 - rows of tables and texts read best on one line; a tally is printed

from __future__ import annotations

import lzma
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from emulator.nv.ptx.module import PtxError
from tests.emulator.nv.conftest import Bench
from tests.facts import ptx_table
from tests.facts.ptx_form import Form, batch, results, same
from tests.facts.ptx_numbers import mask
from tools.arguments import command
from tools.record.nv.manual import KEPT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_BATCH = 160
_SHOWN = 3
"""Disagreements of a form that are told."""


@dataclass
class Tally:
    """What was run, and what came of it."""

    forms: int = 0
    inputs: int = 0
    open: int = 0
    """Inputs whose result the manual leaves open."""
    differ: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


@cache
def _array(kinds: tuple[str, ...]) -> list[np.ndarray]:
    from tests.facts.ptx_form import vectors

    return [np.array(column, np.uint64) for column in zip(*vectors(kinds), strict=True)]


def run(forms: Sequence[Form], arch: str) -> np.ndarray:
    """Run forms of one signature; return results by form, output and input, as 64-bit integers."""
    columns = _array(forms[0].kinds)
    count, outputs = len(columns[0]), sum(len(form.outputs) for form in forms)
    bench = Bench()
    given = [bench.new(column, "u8") for column in columns]
    found = bench.new(np.zeros(outputs * count, np.uint64), "u8")
    done = bench.run(batch(list(forms), arch), "k", -(-count // 128), 128, *given, found, count, arch=arch)
    if done.fault is not None:
        raise AssertionError(done.fault)
    return found.reshape(outputs, count).copy()


def tally(arch: str, forms: Iterable[Form]) -> Tally:
    """Run forms and compare them with their meanings."""
    found, groups = Tally(), defaultdict(list)
    for form in forms:
        groups[form.kinds].append(form)
    for group in groups.values():
        for at in range(0, len(group), _BATCH):
            _some(arch, group[at : at + _BATCH], found)
    return found


def _some(arch: str, forms: list[Form], found: Tally) -> None:
    """Run a batch; where the emulator refuses it, halve it until the refused form is alone."""
    try:
        seen = run(forms, arch)
    except PtxError as error:
        if len(forms) == 1:
            found.refused[forms[0].name] = str(error)
            return
        half = len(forms) // 2
        _some(arch, forms[:half], found)
        _some(arch, forms[half:], found)
        return
    rows = iter(seen)
    for form in forms:
        columns = [next(rows) & np.uint64(mask(bits)) for bits in form.outputs]
        found.forms += 1
        found.inputs += len(form.inputs)
        _compare(form, list(zip(*(column.tolist() for column in columns), strict=True)), found)


def _compare(form: Form, seen: list[tuple[int, ...]], found: Tally) -> None:
    bad = []
    for given, got in zip(form.inputs, seen, strict=True):
        wanted = results(form, given)
        if wanted == got:
            continue
        found.open += None in wanted
        if not all(same(form, w, g, bits) for w, g, bits in zip(wanted, got, form.outputs, strict=True)):
            bad.append(f"({_hex(given)}) is {_hex(wanted)}, not {_hex(got)}")
    if bad:
        found.differ[form.name] = [f"{len(bad)} of {len(seen)} inputs", *bad[:_SHOWN]]


def _hex(values: Iterable[int | None]) -> str:
    return ", ".join("open" if v is None else "a NaN" if v < 0 else f"{v:#x}" for v in values)


def main(arguments: list[str] | None = None) -> int:
    """Print the tally of each family of forms."""
    parser = command("tests.facts.ptx_tally", __doc__)
    parser.add_argument("arch", nargs="?", default="sm_90", help="(default sm_90)")
    parser.add_argument(
        "families", nargs="*", metavar="FAMILY", help=f"of: {', '.join(ptx_table.FAMILIES)} (default: all)"
    )
    parser.add_argument("--write", action="store_true", help="write the texts that `tools.record` runs")
    options = parser.parse_args(arguments)
    if options.write:
        KEPT.write_bytes(lzma.compress("".join(ptx_table.texts()).encode(), preset=9))
        return 0
    arch, wrong = options.arch, False
    for family in options.families or ptx_table.FAMILIES:
        found = tally(arch, ptx_table.of(arch, family))
        print(
            f"{arch} {family}: {found.forms} forms, {found.inputs} inputs ({found.open} of them left open by the"
            f" manual), {len(found.differ)} forms disagree, {len(found.refused)} refused"
        )
        for name, lines in found.differ.items():
            print(f"  {name}: {lines[0]}", *(f"    {line}" for line in lines[1:]), sep="\n")
        for name, why in found.refused.items():
            print(f"  refused: {name}: {why}")
        wrong |= bool(found.differ)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
