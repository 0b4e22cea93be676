"""nvJitLink still folds PTX forms to the answers that are kept from ptxas."""

from __future__ import annotations

import struct

import pytest

from compiler.targets.nvptx.assembler import assemble, available
from drivers.elf import Elf
from tests.facts import ptx_table
from tests.facts.ptx_answers import chosen, kept
from tests.facts.ptx_form import folded, kernel_name

pytestmark = pytest.mark.skipif(not available(), reason="neither nvJitLink nor ptxas is installed")


def _immediates(code: bytes) -> set[int]:
    """The 32-bit immediates of instructions of 16 bytes: bits 32 to 63."""
    return {struct.unpack_from("<I", code, at + 4)[0] for at in range(0, len(code), 16)}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_assembler_in_process_folds_to_the_kept_answers(arch: str) -> None:
    answers, asked = kept(arch)[1], []
    for family in ("integers", "convert", "floats"):
        for form in ptx_table.of(arch, family)[::3]:
            inputs = chosen(form, 24)
            if answers[form.name].code:
                continue  # not folded alone
            for values, row in zip(inputs, answers[form.name].rows, strict=False):
                if len(row) == 1 and form.outputs == (32,) and (row[0] or 0) & 0xFFFF > 0xFF:
                    asked.append((form, values, row[0]))
                    break
    image = assemble(folded([(form, [values]) for form, values, _ in asked], arch), arch)
    elf = Elf(image)
    code = {section.name: elf.content(section) for section in elf.sections}
    missing = [
        form.name
        for at, (form, _, wanted) in enumerate(asked)
        if wanted not in _immediates(code[f".text.{kernel_name(at)}"])
    ]
    assert len(asked) > 12
    assert not missing
