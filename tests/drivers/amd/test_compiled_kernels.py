"""What the driver makes of the compiler's code objects, for every target that it knows."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from compiler.compile import compile_uncached
from compiler.dtype import dtypes
from compiler.targets import target_of
from compiler.targets.amdgcn.rows import ROWS
from drivers.amd import code, quirks
from drivers.amd.layouts.chips import CHIPS
from drivers.amd.program import AmdProgram
from drivers.elf import Elf
from tests.compiler.kernels import load, loop, op, reduce, sink, store
from tests.facts import amd_code as facts

if TYPE_CHECKING:
    from hcq.program import KernelImage

BASE = 0x7F00_0000_0000


def test_every_target_of_the_driver_is_one_of_the_compiler() -> None:
    assert {name: row.waves for name, row in CHIPS.items()} == {name: row.waves for name, row in ROWS.items()}
    assert all(target_of(name).arch == name for name in CHIPS)


def reduction(name: str) -> KernelImage:
    i, r = loop(0, 8), loop(1, 1000)
    return compile_uncached(sink(store(0, i, reduce(load(1, i * 1000 + r), "ADD", r))), name).image


@pytest.mark.parametrize("name", CHIPS)
def test_a_reduction_is_read(name: str) -> None:
    image = reduction(name)
    found, kernel = code.read(image.code, image.name, CHIPS[name])
    assert kernel.wave == CHIPS[name].waves[0]
    assert kernel.hidden == {}
    assert [(a.offset, a.size) for a in kernel.arguments or ()] == [(0, 8), (8, 8)]
    content = found.load(BASE)
    entry = struct.unpack_from("<q", content, kernel.descriptor + facts.DESCRIPTOR_RELOCATION_OFFSET)[0]
    assert kernel.descriptor + entry == kernel.entry
    text = Elf(image.code).section(".text")
    assert text is not None
    assert content[kernel.entry :].startswith(Elf(image.code).content(text))


@pytest.mark.parametrize("name", [name for name, target in CHIPS.items() if not target.refusal])
def test_a_reduction_is_launched_with_the_compiler_s_sizes(name: str) -> None:
    image, target = reduction(name), CHIPS[name]
    found, kernel = code.read(image.code, image.name, target)
    size, aql = found.placement.size, target.compute_aql
    program = AmdProgram(image, kernel, BASE, size, target=target, choices=quirks.DEFAULT, aql=aql)
    assert program.what.group_bytes == image.shared_bytes == 1024
    assert program.scratch_bytes == 0
    assert program.max_threads == 256
    assert program.what.entry_va == BASE + kernel.entry


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CHIPS)
def test_words_of_a_table_s_address_are_its_distance_from_the_code(name: str) -> None:
    i = loop(0, 300)
    image = compile_uncached(sink(store(0, i, op("SIN", load(1, i, dtypes.float64)))), name).image
    found, _ = code.read(image.code, image.name, CHIPS[name])
    content, seen = found.load(BASE), 0
    for one in found.elf.relocations():
        symbol, shift = one.symbol, {facts.RELOCATIONS["REL32_LO"]: 0, facts.RELOCATIONS["REL32_HI"]: 32}
        if one.type not in shift:
            continue
        assert symbol is not None
        at = found.placement.offsets[one.section] + one.offset
        distance = found.placement.offsets[symbol.section] + symbol.value + (one.addend or 0) - at
        word = (distance & 0xFFFF_FFFF_FFFF_FFFF) >> shift[one.type] & 0xFFFF_FFFF
        assert struct.unpack_from("<I", content, at) == (word,)
        seen += 1
    assert seen >= 2
    assert seen % 2 == 0
