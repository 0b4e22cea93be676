"""The instructions and special registers that the emulated GPU supports and no form of the recorder covers.

The texts of the forms are compared with four lists: the emulator's table of opcodes, its special registers,
the forms of the reference page that it translates (`tools.ptx_forms`), and the instructions of the kernels of
Triton and CUDA C++ that the tests keep. Two instructions are equal if their opcodes are equal, and their
modifiers in any order.

Not here: the forms (`tools.record.nv.vendor`). Next: `tools.ptx_forms`, the reference page.
"""

from __future__ import annotations

import functools
import io
import lzma
import re
import tarfile
from typing import TYPE_CHECKING, Final

import emulator.nv.ptx.translate  # noqa: F401 - registers what its instructions mean
from emulator.nv.ptx.blocks import ENDS
from emulator.nv.ptx.core import MEANINGS
from tools.hardware.stage import REPOSITORY
from tools.ptx_forms import refusal, rows
from tools.record.nv.build import whole
from tools.record.nv.programs import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tools.record.forms import Form

Name = tuple[str, frozenset[str]]
"""Opcode and modifiers."""
_OF_THE_EMULATOR: Final = {
    "barrier_result": "a step that the emulator makes of bar.red",
    "move_param": "a step that the emulator makes of a call",
}
NOT_RECORDED: Final = {
    "brkpt": "stops the kernel without a debugger",
    "setmaxnreg": "has no result, and a small kernel has no registers to give back",
    "trap": "ends the launch with a fault; the ladder's fault covers it",
}
"""Opcodes without a form, and why."""
ABSENT: Final = {
    "cp.async.bulk.shared::cluster.global": "nvJitLink 13.5 makes a call of it; shared::cta is recorded",
    "cp.async.bulk.tensor.1d.shared::cluster.global": "the same",
    "cvt.rn.bf16x2.e4m3x2": "needs a later version of PTX than the 8.8 that the recorder writes",
}
"""Beginnings of instructions of the reference page without a form from sm_100 on, and why."""
_SINCE: Final = dict.fromkeys(
    (
        "elect", "getctarank", "griddepcontrol", "mapa", "red.async", "st.async", "stmatrix", "tensormap",
        "wgmma",
    ), 90,
)  # fmt: skip
"""Opcode -> the number of the first architecture that has it; all architectures have the others."""
_UNTIL: Final = {"wgmma": 99}
"""Opcode -> the last architecture that has it. Source: PTX ISA, target notes of each instruction."""
_BLACKWELL: Final = 100
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INSTRUCTION: Final = re.compile(
    r"^\s*(?:[\w$.]+:\s*)*(?:@!?[%$\w]+\s+)?([a-z][a-z0-9_]*)((?:\.[A-Za-z0-9_:]+)*)(?=\s|$)"
)
_REGISTER: Final = re.compile(r"%(?:n?tid|n?ctaid|n?clusterid|cluster_n?ctaid)\.[xyz]|%[a-z]\w+")
_KEPT: Final = REPOSITORY / "tests/interop/data"


def instructions(text: str) -> set[Name]:
    """Return the different instructions of PTX text; directives and labels are left out."""
    found = set()
    for statement in re.split(r"[;{}\n]", _COMMENT.sub("", text)):
        match = _INSTRUCTION.match(statement)
        if match:
            found.add((match[1], frozenset(match[2].split(".")[1:])))
    return found


def shown(name: Name, original: str = "") -> str:
    """Return `original`, or without it the opcode with its modifiers in alphabetical order."""
    return original or ".".join((name[0], *sorted(name[1])))


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_").rstrip("af"))


def _opcodes(arch: str) -> set[str]:
    words = (set(MEANINGS) | set(ENDS) | {"call"}) - _OF_THE_EMULATOR.keys() - NOT_RECORDED.keys()
    sm = _number(arch)
    return {one for one in words if _SINCE.get(one, 0) <= sm <= _UNTIL.get(one, sm)}


def _is_absent(text: str, arch: str) -> bool:
    return _number(arch) >= _BLACKWELL and text.startswith(tuple(ABSENT))


@functools.cache
def _reference(arch: str) -> dict[Name, str]:
    """Return the instructions of the reference page that are translated for an architecture."""
    found = {}
    sm = _number(arch)
    for _, forms in rows():
        for form in forms:
            if _number(form.arch) > sm or _is_absent(form.text, arch) or refusal(form) is not None:
                continue
            if form.arch.endswith("a") and form.arch != arch:
                continue
            for text in form.text.split("; "):
                for name in instructions(text):
                    if name[0] not in NOT_RECORDED:
                        found[name] = text
    return found


@functools.cache
def _kept(arch: str) -> dict[Name, str]:
    """Return the instructions of the kernels that the tests keep for an architecture."""
    found: dict[Name, str] = {}
    for path in sorted(_KEPT.glob("*.tar.xz")):
        if path.name.startswith("bad") or path.name.split(".")[0].rsplit("_", 2)[-1].rstrip("a") != arch[
            3:
        ].rstrip("a"):
            continue
        with tarfile.open(fileobj=io.BytesIO(lzma.decompress(path.read_bytes()))) as archive:
            for member in archive.getmembers():
                file = archive.extractfile(member)
                data = file.read() if file is not None else b""
                for part in re.findall(rb"\.version \d[^\0]*", data):
                    names = instructions(part.decode(errors="replace"))
                    found |= {name: f"{shown(name)} ({member.name})" for name in names if name not in found}
    return {name: text for name, text in found.items() if name[0] in _opcodes(arch)}


def uncovered(forms: Iterable[Form], arch: str) -> list[str]:
    """Return a line for each instruction or register that no form has, with the list that names it.

    Forms of the group `PROGRAM` do not count.
    """
    texts = [whole(form, arch) for form in forms if form.group != PROGRAM]
    names = set().union(*map(instructions, texts))
    whole_text = "\n".join(texts)
    opcodes = {name[0] for name in names}
    opcodes |= {f"{name[0]}.{word}" for name in names for word in name[1]}
    missing = [f"opcode {one}" for one in sorted(_opcodes(arch) - opcodes)]
    missing += [f"reference: {text}" for name, text in _reference(arch).items() if name not in names]
    registers = {
        one
        for text in _reference(arch).values()
        for one in _REGISTER.findall(text)
        if not re.fullmatch(r"%(?:rd|[rfhpdbq])\d+", one)
    }
    missing += [f"special register {one}" for one in sorted(registers) if one not in whole_text]
    missing += [
        f"kept kernels: {text}" for name, text in sorted(_kept(arch).items(), key=str) if name not in names
    ]
    return missing
