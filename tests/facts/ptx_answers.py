"""Ask NVIDIA's assembler what PTX forms give: it computes instructions whose operands are constants.

Every form of the table becomes a kernel that applies it to immediates and stores the results. `ptxas` folds most of
them; `nvdisasm` prints the code, and what is stored is read from its moves of constants. What is not folded is left
out. A form that `ptxas` refuses for an architecture is named too.

    python -m tests.facts.ptx_answers --ptxas PATH --nvdisasm PATH

writes the answers to tests/facts/ptx_answers/<arch>.txt.xz, and tells disagreements with the table.
"""

# ruff: noqa: E501, T201 - rows of tables and texts read best on one line; a tally is printed

from __future__ import annotations

import bisect
import lzma
import re
import subprocess
import sys
import tempfile
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.facts import ptx_illegal, ptx_table
from tests.facts.ptx_form import ANY_NAN, Form, folded, results, same
from tests.facts.ptx_numbers import F32, FORMATS, NAN
from tests.facts.sass_values import opcodes, stores
from tools.arguments import command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

KEPT = Path(__file__).resolve().parent / "ptx_answers_kept"
ARCHES = ("sm_80", "sm_90", "sm_120")
MOST = {"compare": 6}
"""Inputs of each form that are asked about, by family."""
_FORMS = 64
"""Forms of one run of the assembler."""


def chosen(form: Form, most: int) -> list[tuple[int, ...]]:
    """Return up to `most` of a form's inputs, spread over all of them."""
    every = form.inputs
    if len(every) <= most:
        return list(every)
    step = len(every) / most
    return [every[int(i * step) + (i * 7919) % int(step)] for i in range(most)]


class Assembler:
    """The vendor's programs."""

    def __init__(self, ptxas: str, nvdisasm: str) -> None:
        self.ptxas, self.nvdisasm = ptxas, nvdisasm

    def version(self) -> str:
        """Return what the assembler says of itself."""
        said = subprocess.run([self.ptxas, "--version"], capture_output=True, text=True, check=True).stdout
        return re.findall(r"V([\d.]+)", said)[0]

    def refused(self, forms: Sequence[Form], arch: str) -> dict[str, str]:
        """Return the forms that the architecture refuses, with the assembler's words."""
        found: dict[str, str] = {}
        while True:
            left = [form for form in forms if form.name not in found]
            text = folded([(form, chosen(form, 1)) for form in left], arch)
            said = self._assemble(text, arch)[1]
            if not said:
                return found
            starts = [at for at, line in enumerate(text.split("\n"), 1) if line.startswith(".visible .entry")]
            hits = re.findall(r"line (\d+);\s*(?:error|fatal)\s*:\s*(.*)", said)
            if not hits:
                raise ValueError(f"ptxas fails, and names no line: {said[:2000]}")
            for at, why in hits:
                found[left[bisect.bisect_right(starts, int(at)) - 1].name] = why

    def listing(self, text: str, arch: str) -> str:
        """Assemble and disassemble."""
        listing, said = self._assemble(text, arch)
        if said:
            raise ValueError(f"ptxas fails: {said[:2000]}")
        return listing

    def _assemble(self, text: str, arch: str) -> tuple[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            source, image = Path(folder, "a.ptx"), Path(folder, "a.cubin")
            source.write_text(text)
            done = subprocess.run(
                [self.ptxas, "-arch", arch, str(source), "-o", str(image)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                return "", done.stderr or f"exit {done.returncode}"
            shown = subprocess.run(
                [self.nvdisasm, "-c", "-hex", str(image)], capture_output=True, text=True, check=True
            )
            return shown.stdout, ""


@dataclass
class Answers:
    """What came of asking about one form."""

    inputs: list[tuple[int, ...]]
    folded: list[list[int | None]]
    """Results by input and output that the assembler computed itself; None where it did not."""
    computed: list[list[int | None]]
    """The same, with plain integer instructions of the code followed too."""
    code: str
    """The instructions that are left of the form, without moves."""


def answers(
    assembler: Assembler, arch: str, family: str, forms: Sequence[Form]
) -> Iterator[tuple[Form, Answers]]:
    """Ask about forms that the architecture has."""
    most = MOST.get(family, 24)
    for at in range(0, len(forms), _FORMS):
        some = forms[at : at + _FORMS]
        listing = assembler.listing(folded([(form, chosen(form, most)) for form in some], arch), arch)
        folds, values, left = stores(listing, plain=True), stores(listing, plain=False), opcodes(listing)
        for index, form in enumerate(some):
            inputs = chosen(form, most)
            both = [
                [
                    [got.get(16 * row + 8 * col) for col in range(len(form.outputs))]
                    for row in range(len(inputs))
                ]
                for got in (folds[index], values[index])
            ]
            yield form, Answers(inputs, *both, " ".join(sorted(set(left[index]))))


def digest(inputs: Iterable[tuple[int, ...]]) -> str:
    """Return a check sum of inputs, so that kept answers are not compared with those of others."""
    return f"{zlib.crc32(repr(list(inputs)).encode()):08x}"


def told(form: Form, found: Answers) -> str:
    """Return the kept line of a form: its name, check sum of the inputs, answers, and code.

    Answers are hexadecimal, those of one input joined by commas; `-` is unknown, `*` in front is computed by following
    plain integer instructions of the code.
    """
    rows = []
    for folds, values in zip(found.folded, found.computed, strict=True):
        rows.append(
            ",".join(
                "-" if v is None else f"{'*' if f is None else ''}{v:x}"
                for f, v in zip(folds, values, strict=True)
            )
        )
    text = "" if set("".join(rows)) <= {"-", ","} else " ".join(rows)
    return "\t".join((form.name, digest(found.inputs), text, found.code))


@dataclass
class Kept:
    """Answers about a form, read back: by input and output, None where the assembler said nothing."""

    check: str
    rows: list[list[int | None]]
    folded: int
    """Inputs whose every output was folded."""
    code: tuple[str, ...]


@cache
def kept(arch: str) -> tuple[str, dict[str, Kept], dict[str, str]]:
    """Return the kept heading, answers by form, and what was refused with the assembler's words."""
    heading, *lines = lzma.decompress((KEPT / f"{arch}.txt.xz").read_bytes()).decode().splitlines()
    found: dict[str, Kept] = {}
    refused: dict[str, str] = {}
    for line in lines:
        name, check, text, code = line.split("\t")
        if check == "refused":
            refused[name] = text
            continue
        rows = [
            [None if v == "-" else int(v.lstrip("*"), 16) for v in row.split(",")] for row in text.split()
        ]
        folded = sum("*" not in row and "-" not in row for row in text.split())
        found[name] = Kept(check, rows, folded, tuple(code.split()))
    return heading, found, refused


@cache
def accepted(arch: str) -> frozenset[str]:
    """Return the names of `ptx_illegal.products` that the assembler takes for an architecture."""
    return frozenset((KEPT / f"{arch}_accepts.txt").read_text().splitlines()[1:])


def main(arguments: list[str] | None = None) -> int:
    """Ask about every form of the table, tell what differs from it, and keep the answers."""
    parser = command("tests.facts.ptx_answers", __doc__)
    parser.add_argument("--ptxas", required=True)
    parser.add_argument("--nvdisasm", required=True)
    parser.add_argument("--arch", action="append", help="architectures, all of them by default")
    given = parser.parse_args(arguments)
    assembler, wrong = Assembler(given.ptxas, given.nvdisasm), 0
    KEPT.mkdir(exist_ok=True)
    for arch in given.arch or ARCHES:
        lines = [f"# ptxas {assembler.version()} for {arch}: python -m tests.facts.ptx_answers"]
        for family in ptx_table.FAMILIES:
            wrong += _family(assembler, arch, family, lines)
        products = list(ptx_illegal.products())
        refused = assembler.refused(products, arch)
        names = sorted(form.name for form in products if form.name not in refused)
        (KEPT / f"{arch}_accepts.txt").write_text("\n".join([lines[0], *names, ""]))
        packed = lzma.compress(("\n".join(lines) + "\n").encode(), preset=9 | lzma.PRESET_EXTREME)
        (KEPT / f"{arch}.txt.xz").write_bytes(packed)
    return int(wrong > 0)


def _family(assembler: Assembler, arch: str, family: str, lines: list[str]) -> int:
    """Ask about a family; append the kept lines, print the tally, and return how many answers differ from the table."""
    every = [*ptx_table.table(family), *(ptx_illegal.forms() if family == "integers" else ())]
    refused = assembler.refused(every, arch)
    lines += [f"{name}\trefused\t{why}\t" for name, why in refused.items()]
    forms = [form for form in every if form.name not in refused]
    asked = got = more = bad = whole = 0
    for form, found in answers(assembler, arch, family, forms):
        lines.append(told(form, found))
        asked += len(found.inputs)
        folds = sum(None not in row for row in found.folded)
        got, whole = got + folds, whole + (folds > 0)
        more += sum(None not in row for row in found.computed) - folds
        for text in different(form, found.inputs, found.computed):
            bad += 1
            print(f"  {arch} {text}")
    print(
        f"{arch} {family}: {len(forms)} forms, {len(refused)} refused; {whole} forms fold; of {asked} answers"
        f" {got} fold, {more} are computed by plain integer instructions; {bad} differ from the table",
        flush=True,
    )
    return bad


def different(
    form: Form, inputs: Sequence[tuple[int, ...]], rows: Sequence[Sequence[int | None]]
) -> Iterator[str]:
    """Yield the answers that neither the table allows nor a known fault of the assembler explains."""
    for values, row in zip(inputs, rows, strict=True):
        for wanted, seen, bits in zip(results(form, values), row, form.outputs, strict=True):
            if (
                seen is not None
                and not same(form, wanted, seen, bits)
                and not excused(form, values, wanted, seen)
            ):
                said = "a NaN" if wanted == ANY_NAN else f"{wanted or 0:#x}"
                yield f"{form.name} ({', '.join(f'{v:#x}' for v in values)}): the table has {said}, ptxas {seen:#x}"


def excused(form: Form, values: tuple[int, ...], wanted: int | None, seen: int) -> bool:
    """Say whether a difference is the assembler's, and no statement about the machine.

    It keeps the payload of a NaN where it folds a conversion or the minimum of equal operands, so a NaN stands for any;
    it rounds a signalling NaN to tf32 as if it were a number; and it compiles `madc.hi` of 64 bits, after a carry that it
    knows to be 0, to a product with 0 plus the second operand (ptxas 13.5, for registers as well).
    """
    if (
        form.nan
        and wanted is not None
        and FORMATS[form.nan].value(wanted) == NAN == FORMATS[form.nan].value(seen)
    ):
        return True
    if ".tf32.f32" in form.name:
        return F32.value(values[0]) == NAN
    return (
        form.name.startswith("madc.hi.")
        and "64 " in form.name
        and form.name.endswith("carry 0")
        and seen == values[1]
    )


if __name__ == "__main__":
    sys.exit(main())
