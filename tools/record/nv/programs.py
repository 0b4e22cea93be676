"""Whole kernels as forms: random ones of the fuzzer, and operations of tensors in float16 and bfloat16.

Their PTX is kept in `programs.xz`, so that a recording needs neither a compiler nor the tests, and stays
valid when the compiler changes. It is of sm_80 and runs on every later architecture.
`python -m tests.fuzz --programs` writes the random kernels; the operations are as compiled once.

A compiled kernel takes a pointer for each of its buffers. `rewritten` changes it to take two pointers:
outputs lie one after another from the first, inputs from the second.

Not here: forms of single instructions (the other modules). Next: `build`, which makes kernels of forms.
"""

# ruff: noqa: E501 - texts and calls read best on one line

from __future__ import annotations

import functools
import json
import lzma
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from hcq.errors import UsageError
from tools.record.forms import Allowed, Form, Launch, Result, edges, frozen, near, scattered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tools.record.forms import Inputs

    Dim3 = tuple[int, int, int]

KEPT: Final = Path(__file__).with_name("programs.xz")
PROGRAM: Final = "program"
"""The group of forms whose text is a whole module."""
_ENTRY: Final = re.compile(r"\.visible \.entry (\w+)\s*\([^)]*\)")


def rewritten(ptx: str, places: Sequence[tuple[str, int]]) -> str:
    """Return PTX whose kernel is `k` and takes two pointers, `out` and `in`; comments are removed.

    `places` has for each parameter of the kernel the pointer that replaces it, "out" or "in", and the bytes
    that are added. Raises `UsageError` for PTX without a kernel, and for a parameter that is not loaded as a
    pointer.
    """
    found = _ENTRY.search(ptx)
    if found is None:
        raise UsageError("wanted PTX with one kernel, found none")
    name = found[1]
    text = ptx.replace(found[0], ".visible .entry k(.param .u64 out, .param .u64 in)")

    def load(match: re.Match[str]) -> str:
        where, offset = places[int(match[2])]
        return f"ld.param.b64 {match[1]}, [{where}];\n\tadd.s64 {match[1]}, {match[1]}, {offset};"

    text = re.sub(rf"ld\.param\.[ub]64\s+(%\w+), \[{name}_param_(\d+)\];", load, text)
    if f"{name}_param_" in text:
        raise UsageError(f"wanted parameters that are pointers, saw another use of one of {name}")
    return re.sub(r"//[^\n]*\n", "\n", text)


def module(text: str, version: str, arch: str) -> str:
    """Return PTX text with another version and target."""
    text = re.sub(r"\.version \S+", f".version {version}", text, count=1)
    return re.sub(r"\.target \S+", f".target {arch}", text, count=1)


def _inputs(kind: str, count: int) -> Inputs:
    """Return `count` u64 of a kind of `Program.inputs`."""
    if kind == "bits":
        rows = scattered(("u64", "u64"), count, seed=61)
        return frozen(rows[:, 0] >> (rows[:, 1] & np.uint64(63)))
    if kind.startswith("whole "):
        values = scattered(("u8",), 4 * count, seed=67)[:, 0] % np.uint64(7)
        bits = {"float16": (0, 0x3C00, 0xC000, 0x4200, 0xBC00, 0x4400, 0x3800)}
        bits["bfloat16"] = (0, 0x3F80, 0xC000, 0x4040, 0xBF80, 0x4080, 0x3F00)
        return frozen(np.array(bits[kind[6:]], "<u2")[values].view("<u8"))
    type_ = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "int32": "s32"}[kind]
    size = 8 // (2 if "16" in type_ else 4)
    return frozen(_mixed(type_, size * count).astype("<u2" if "16" in type_ else "<u4").view("<u8"))


def _mixed(type_: str, count: int) -> Inputs:
    """Return values of a type: its edges first, then numbers near 1, every third replaced by random bits."""
    rows = near((type_,), count, spread=6)[:, 0].copy()
    known = edges(type_)
    rows[: min(len(known), count)] = known[:count]
    rows[len(known) :: 3] = scattered((type_,), count, seed=71)[len(known) :: 3, 0]
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A kept kernel."""

    name: str
    text: str
    """Its PTX, from `rewritten`."""
    groups: Dim3
    threads: Dim3
    type: str
    """The type of its results, a key of `forms.BYTES`."""
    count: int
    """The number of its results."""
    inputs: str
    """The kind of its inputs. "bits": pseudo-random bits. A dtype, such as "float16": edges, numbers near 1,
    random bits. "whole float16" or "whole bfloat16": small whole numbers and 0.5."""
    words: int
    """The number of u64 that it reads."""
    shared: int = 0
    """Bytes of dynamic shared memory."""
    ulp: float = 0.0
    """The allowed difference of results; 0 for equal bits."""
    rule: str = ""
    """The rule that allows it; "" for equal bits."""

    def form(self) -> Form:
        """Return the form that records it."""
        allowed = Allowed("ulp", self.ulp, self.rule) if self.ulp else Allowed()
        return Form(
            self.name, self.text, ("u64",), _inputs(self.inputs, self.words), (Result("out", self.type, allowed),),
            doubt=5, group=PROGRAM, launch=Launch(self.groups, self.threads, shared_bytes=self.shared), rows=self.count, needs=80,
        )  # fmt: skip


@functools.cache
def kept() -> tuple[Program, ...]:
    """Return the kept programs; none if the file is missing."""
    lines = lzma.decompress(KEPT.read_bytes()).splitlines() if KEPT.exists() else []
    found = (json.loads(line) for line in lines)
    return tuple(Program(**one | {what: tuple(one[what]) for what in ("groups", "threads")}) for one in found)


def keep(kind: str, made: Iterable[Program]) -> int:
    """Replace the kept programs whose names begin with `kind`; return the bytes of the file."""
    every = [*(one for one in kept() if not one.name.startswith(kind)), *made]
    lines = [json.dumps(asdict(one), sort_keys=True) for one in sorted(every, key=lambda one: one.name)]
    data = lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME)
    KEPT.write_bytes(data)
    kept.cache_clear()
    return len(data)


def forms() -> Iterator[Form]:
    """Return the forms of the kept programs."""
    return (one.form() for one in kept())
