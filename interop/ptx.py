"""What PTX text states about its entries: parameters, workgroup sizes, and features that devices may lack.

Source: PTX ISA 8.8, sections 5.4 and 11. Not here: execution (`emulator.nv.ptx`). Next:
`compiler.targets.nvptx.assembler`, assembly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hcq.errors import UsageError
from hcq.program import ArgKind
from interop.signature import KernelParameter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hcq.program import Dim3

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY: Final = re.compile(r"\.entry\s+([\w$%]+)\s*(?:\(([^)]*)\))?([^{;]*)")
_PARAMETER: Final = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>[a-z]+\d+)\s+"
    r"(?P<pointer>\.ptr\b(?:\s*\.(?:const|global|local|shared))?(?:\s*\.align\s+\d+)?\s+)?"
    r"(?:\.align\s+(?P<align2>\d+)\s+)?(?P<name>[\w$%]+)\s*(?:\[\s*(?P<count>\d+)\s*\])?"
)
_LIMIT: Final = re.compile(r"\.(reqntid|maxntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_ADDRESS: Final = re.compile(r"\bcvta\.param\b")
_TARGET: Final = re.compile(r"\.target\s+(sm_\d+[af]?)\b")
_WORKSPACE: Final = re.compile(r"\bmov\.[ub]32\s+(%[\w$]+)\s*,\s*%envreg([12])\s*;")
_GRID: Final = "__hcq_grid_workspace"
_HANDLES: Final = "bind the memory's address as an argument, and load and store it"
_LACKING: Final = (
    ("textures", r"\b(?:tex|tld4|txq|istypep)\.|\.(?:texref|samplerref)\b", _HANDLES, False),
    ("surfaces", r"\b(?:suld|sust|sured|suq)\.|\.surfref\b", _HANDLES, False),
    (
        "%envreg, registers that libcuda fills, of which only %envreg1 and 2 are known, in PTX",
        r"%envreg\d+\b",
        "for this_grid().sync() of a cubin load its PTX",
        False,
    ),
    ("indirect and virtual calls", r"\.call(?:prototype|targets)\b", "call functions by name", True),
    ("sparse products (mma.sp)", r"\bw?g?mma[\w.:]*\.sp\b", "multiply the dense matrices", True),
    (
        "block-scaled products (mma with .block_scale)",
        r"\bmma\.[\w.:]*\.block_scale\b",
        "scale and multiply wider floats",
        True,
    ),
)
"""(feature, pattern of its PTX, what to do instead, whether only emulated GPUs lack the feature)."""
_UNITS: Final = frozenset({1, 2, 4, 8, 16})
"""Sizes in bytes that the type of a parameter may have."""
_DIGITS: Final = 10
"""Most digits of a decimal number of 32 bits."""
_SHOWN: Final = 40
"""Characters of a number that an error shows."""
_KINDS: Final = {"u": ArgKind.INT, "s": ArgKind.INT, "f": ArgKind.FLOAT}


@dataclass(frozen=True, slots=True)
class PtxEntry:
    """One `.entry` of a module. `required_threads` None: any workgroup of up to `max_threads` threads."""

    name: str
    parameters: tuple[KernelParameter, ...]
    required_threads: Dim3 | None
    max_threads: int


def entries(text: str, base: int = 0) -> tuple[PtxEntry, ...]:
    """Return the entries of PTX text, in order. Raises `UsageError` for a malformed parameter or size.

    `base` is the offset of the parameters in their constant bank: alignment counts from the start of the
    bank, offsets of parameters from `base`.
    """
    return tuple(_entry(found, base) for found in _ENTRY.finditer(_COMMENT.sub(" ", text)))


def target(text: str) -> str:
    """Return the architecture that a module is for ("sm_90a"); empty if it states none."""
    found = _TARGET.search(_COMMENT.sub(" ", text))
    return found[1] if found else ""


def takes_addresses(text: str) -> bool:
    """Return whether the code takes generic addresses of kernel parameters."""
    return _ADDRESS.search(_COMMENT.sub(" ", text)) is not None


def with_grid_barrier(text: str) -> str:
    """Return PTX whose barriers of a whole grid, `this_grid().sync()`, have their state in the module.

    %envreg1 and %envreg2 are the high and the low 32 bits of an address of 8 bytes, which hold a size and a
    count of arrivals. libcuda sets them up (cooperative_groups/details/driver_abi.h of CUDA 13). Here the 8
    bytes are a variable of the module, which is 0 when the module is loaded; each barrier leaves the count
    usable for the next one. PTX without these registers is returned as it is.
    """

    def words(found: re.Match[str]) -> str:
        pair = f"{{{found[1]}, %hcq_w}}" if found[2] == "2" else f"{{%hcq_w, {found[1]}}}"
        return (
            "{ .reg .b32 %hcq_w; .reg .b64 %hcq_a; "
            f"mov.u64 %hcq_a, {_GRID}; cvta.global.u64 %hcq_a, %hcq_a; mov.b64 {pair}, %hcq_a; }}"
        )

    code, count = _WORKSPACE.subn(words, text)
    head = re.search(r"\.address_size\s+64[^\n]*\n", code)
    if not count or head is None:
        return text
    return f"{code[: head.end()]}.global .align 8 .b8 {_GRID}[8];\n{code[head.end() :]}"


def has_grid_barrier(text: str, entry: str) -> bool:
    """Return whether a kernel, or a function of its module, uses the variable of `with_grid_barrier`."""
    return _GRID in text and any(_GRID in part for part in _without_others(text, entry))


def lacking(text: str, entry: str, *, emulated: bool) -> tuple[str, str] | None:
    """Return (feature, hint) for a feature that a kernel uses and its device lacks; None: there is none.

    All functions of the module count as used by the kernel; other kernels are ignored.
    """
    code = _COMMENT.sub(" ", text)
    if not any(re.search(pattern, code) for _, pattern, _, _ in _LACKING):
        return None
    code = "".join(_without_others(code, entry))
    for name, pattern, hint, only_emulated in _LACKING:
        if (emulated or not only_emulated) and re.search(pattern, code):
            return name, hint
    return None


def _without_others(code: str, entry: str) -> Iterator[str]:
    """Yield the functions of a module and one of its entries."""
    heads = list(re.finditer(r"\.(?:entry|func)\b", code))
    ends = [*(one.start() for one in heads[1:]), len(code)]
    for head, end in zip(heads, ends, strict=True):
        found = _ENTRY.match(code, head.start())
        if found is None or found[1] == entry:
            yield code[head.start() : end]


def _entry(found: re.Match[str], base: int) -> PtxEntry:
    name, parameters, directives = found[1], found[2] or "", found[3]
    limits = {
        one[1]: (_number(name, one[2]), _number(name, one[3] or "1"), _number(name, one[4] or "1"))
        for one in _LIMIT.finditer(directives)
    }
    required = limits.get("reqntid")
    x, y, z = required or limits.get("maxntid") or (1024, 1, 1)
    return PtxEntry(name, _parameters(name, parameters, base), required, x * y * z)


def _parameters(entry: str, text: str, base: int) -> tuple[KernelParameter, ...]:
    out: list[KernelParameter] = []
    at = base
    for part in filter(None, map(str.strip, text.split(","))):
        found = _PARAMETER.fullmatch(part)
        if found is None:
            raise UsageError(f"entry {entry}: {part!r} is no parameter of PTX")
        kind = found["type"]
        unit = _number(entry, kind.lstrip("abcdefghijklmnopqrstuvwxyz")) // 8
        size = unit * _number(entry, found["count"] or "1")
        align = _number(entry, found["align"] or found["align2"] or str(unit))
        if unit not in _UNITS or align.bit_count() != 1:
            wanted = "a type of 8 to 128 bits and an alignment that is a power of two"
            raise UsageError(f"entry {entry}: wanted {wanted}, saw {part!r}")
        at = -(-at // align) * align
        held = _kind(found, unit)
        whole = held is None and not found["count"] and kind[0] in "us"
        out.append(KernelParameter(found["name"], at - base, size, held, whole))
        at += size
    return tuple(out)


def _number(entry: str, text: str) -> int:
    """Return a number of 32 bits. Raises `UsageError` for 0 and larger ones."""
    if len(text) > _DIGITS or not 0 < int(text) < 1 << 32:
        raise UsageError(f"entry {entry}: wanted a number from 1 to {(1 << 32) - 1}, saw {text[:_SHOWN]}")
    return int(text)


def _kind(found: re.Match[str], unit: int) -> ArgKind | None:
    """Return the kind of a parameter.

    None for arrays, and for integers of 8 bytes, which may be addresses.
    """
    if found["pointer"]:
        return ArgKind.POINTER
    if found["count"]:
        return None
    kind = _KINDS.get(found["type"][0])
    return None if kind is ArgKind.INT and unit == 8 else kind
