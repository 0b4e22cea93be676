"""Write the golden files: `python -m tests.support.amd_golden [TARGET...]`, all targets by default.

Not here: the kernels (`corpus`).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import llvmlite.binding as llvm

from tests.support.amd_golden.corpus import kernels, selectable
from tools.arguments import command

if TYPE_CHECKING:
    from collections.abc import Sequence

_GOLDEN = Path(__file__).parents[3] / "tests/golden/amd_isa"
TARGETS = ("gfx1100", "gfx1201", "gfx942")
FEATURES = {"gfx1201": "+real-true16"}
"""What makes LLVM name the halves of registers, which the hardware always has."""
_LINE = re.compile(rb"^\t([a-z]\w+[^;\n]*?) *; ((?:[0-9A-F]{8} ?)+)$", re.MULTILINE)
_NUMBER = re.compile(r"\d+")


def lines(text: str, target: str, *, features: str = "", opt: int = 2) -> list[tuple[str, str]]:
    """Compile IR for a target and return dwords and text of each instruction, in order."""
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(
        cpu=target, features=",".join(filter(None, ("+dumpcode", features))), opt=opt
    )
    module = llvm.parse_assembly(text)
    module.verify()
    found = _LINE.findall(machine.emit_object(module))
    return [(code.decode().strip(), re.sub(r"\s+", " ", read.decode())) for read, code in found]


def corpus(target: str) -> tuple[dict[str, str], int]:
    """Return dwords -> text for one instruction of each form, and the number of kernels compiled.

    Two instructions have the same form if their texts differ in numbers only.
    """
    forms: dict[str, tuple[str, str]] = {}
    count = 0
    for text in kernels():
        if not selectable(text, target):
            continue
        count += 1
        for code, read in lines(text, target, features=FEATURES.get(target, "")):
            if '""' not in read:  # a branch whose target is not resolved yet has empty text
                forms.setdefault(_NUMBER.sub("#", read), (code, read))
    return dict(sorted(forms.values(), key=lambda p: p[1])), count


def prepare() -> None:
    """Load LLVM's AMDGPU target; once before `lines`."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def main(argv: Sequence[str] | None = None) -> int:
    """Write the golden files; return 0."""
    parser = command("tests.support.amd_golden", __doc__)
    parser.add_argument(
        "target", nargs="*", choices=[*TARGETS, []], metavar="TARGET", help=f"of: {', '.join(TARGETS)} (all)"
    )
    targets = parser.parse_args(argv).target or TARGETS
    prepare()
    _GOLDEN.mkdir(parents=True, exist_ok=True)
    for target in targets:
        found, count = corpus(target)
        (_GOLDEN / f"{target}.txt").write_text("".join(f"{code}: {read}\n" for code, read in found.items()))
        print(f"{target}: {len(found)} forms of instructions in {count} kernels", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
