"""Cubins: what is read from them, relocations, parameters, limits; and their assembler."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import pytest

import hcq
from compiler.targets.nvptx import assembler
from drivers.elf import LOAD, Elf, ElfSite
from drivers.nv import cubin
from drivers.nv.layouts import cubin as layout
from drivers.nv.layouts.chips import CHIPS, GENERATIONS, NvChip
from drivers.nv.layouts.cubin import CallAbs47, CallAbs55, Relocation
from drivers.nv.layouts.qmd import sm_config
from drivers.nv.layouts.qmd_v04 import QmdV04
from drivers.nv.program import check, thread_limit
from drivers.nv.qmd import Descriptor, NvLaunchable, carveouts, wanted_carveout
from drivers.nv.quirks import parse
from hcq.errors import CompileError, UnsupportedError, UsageError
from hcq.program import ArgKind, ArgSlot, KernelImage
from tests.facts import nv_cubin
from tests.support.nv.golden import sample, small_cubin
from tools.bringup.nv.kernels import ARCHES, ptx

needs_assembler = pytest.mark.skipif(
    not assembler.available(), reason="neither nvJitLink nor ptxas is installed"
)

PTX = """.version 8.0
.target {arch}
.address_size 64
.global .align 4 .b8 table[64] = {{9,2,3,4}};
.visible .entry k(.param .u64 out, .param .u32 n)
{{
 .reg .b64 %rd<6>;
 .reg .b32 %r<4>;
 .reg .f32 %f<4>;
 ld.param.u64 %rd1, [out];
 ld.param.u32 %r1, [n];
 mul.wide.u32 %rd2, %r1, 4;
 mov.u64 %rd3, table;
 add.u64 %rd3, %rd3, %rd2;
 ld.global.f32 %f1, [%rd3];
 sqrt.rn.f32 %f2, %f1;
 div.rn.f32 %f3, %f2, %f1;
 st.global.f32 [%rd1], %f3;
 ret;
}}
"""


def test_the_name_of_the_ptx_section_is_the_drivers():
    assert assembler.PTX_SECTION == layout.PTX_SECTION


def test_facts_of_a_kernel_come_from_its_info_records():
    _, placement, kernel = cubin.read(small_cubin("k", 90, 24, registers=77, stack=48), "k")
    assert (kernel.sm, kernel.registers, kernel.stack_bytes, kernel.parameter_base) == (90, 77, 48, 0x210)
    assert kernel.code % layout.TEXT_ALIGN == 0
    assert placement.size >= kernel.code + kernel.code_bytes + layout.PREFETCH_PAD


def test_a_missing_kernel_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match="no kernel 'other'; it has: k"):
        cubin.read(small_cubin("k", 90, 24), "other")


def test_code_for_another_machine_is_refused():
    data = bytearray(small_cubin("k", 90, 24))
    data[18] = 62
    with pytest.raises(UsageError, match="machine 62"):
        cubin.read(bytes(data), "k")


@pytest.mark.parametrize(
    ("kind", "size", "expected"),
    [
        (Relocation.R_CUDA_64, 8, 0x12_3456_7800),
        (Relocation.R_CUDA_ABS32_LO, 8, 0x3456_7800 << 32),
        (Relocation.R_CUDA_ABS32_HI, 8, 0x12 << 32),
        (Relocation.R_CUDA_ABS47_34, 16, int(CallAbs47(TARGET=0x12_3456_7800))),
        (Relocation.R_CUDA_ABS55_16_34, 16, int(CallAbs55(TARGET=0x12_3456_7800))),
    ],
)
def test_relocations_write_their_bits_and_no_others(kind: object, size: int, expected: int):
    for background in (0, (1 << 8 * size) - 1):
        content = bytearray(background.to_bytes(size, "little"))
        cubin.FORMULAS[kind](ElfSite(content, 0, 0, 0x12_3456_7000, 0x800))
        seen = int.from_bytes(content, "little")
        touched = cubin_mask(kind)
        assert seen & touched == expected
        assert seen & ~touched == background & ~touched


def cubin_mask(kind: int) -> int:
    if kind == Relocation.R_CUDA_64:
        return (1 << 64) - 1
    if kind in (Relocation.R_CUDA_ABS32_LO, Relocation.R_CUDA_ABS32_HI):
        return 0xFFFF_FFFF << 32
    return (CallAbs47 if kind == Relocation.R_CUDA_ABS47_34 else CallAbs55).FIELDS["TARGET"].mask()


def test_an_addend_in_the_relocated_word_is_kept():
    content = bytearray(struct.pack("<II", 7, 0x10))
    cubin.FORMULAS[Relocation.R_CUDA_ABS32_LO](ElfSite(content, 0, 0, 0x1000, None))
    assert struct.unpack("<II", content) == (7, 0x1010)


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_a_kernel_without_parameters_has_none_behind_the_driver_s_words(arch: str):
    text = ptx("store", arch) + ".visible .entry plain() { ret; }"
    _, _, kernel = cubin.read(assembler.assemble(text, arch), "plain")
    assert (kernel.parameter_base, kernel.parameter_bytes) == (CHIPS[arch.rstrip("a")].bank0.SIZE, 0)


@needs_assembler
def test_a_function_that_is_no_kernel_is_refused():
    data = assembler.assemble(PTX.format(arch="sm_90a"), "sm_90a")
    texts = (s.name.removeprefix(".text.") for s in Elf(data).sections if s.name.startswith(".text."))
    helper = next(name for name in texts if name != "k")
    with pytest.raises(UsageError, match=r"is not a kernel from ptxas: it has no section \.nv\.constant0\."):
        cubin.read(data, helper)


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_an_assembled_kernel_loads_and_its_calls_reach_the_helpers(arch: str):
    text = PTX.format(arch=arch).replace(".version 8.0", ".version 8.8" if "sm_1" in arch else ".version 8.0")
    data = assembler.assemble(text, arch)
    elf, placement, kernel = cubin.read(data, "k")
    base = 0x10_0020_0000
    image = cubin.load(elf, placement, base)
    assert image[: len(b"\x7fELF")] == b"\x7fELF"
    helpers = {base + placement.offsets[s.index] for s in elf.sections if s.name.startswith(".text.__cuda")}
    assert helpers
    form = CallAbs55 if kernel.sm >= 90 else CallAbs47
    kinds = (Relocation.R_CUDA_ABS47_34, Relocation.R_CUDA_ABS55_16_34)
    calls = [r for r in elf.relocations() if r.type in kinds]
    targets = {form.from_bytes(image, placement.offsets[r.section] + r.offset).TARGET for r in calls}
    assert targets <= helpers
    assert targets


@needs_assembler
@pytest.mark.parametrize(
    ("directive", "stated"),
    [
        (".reqnctapercluster 2, 3", ((2, 3, 1), False, 0)),
        (".explicitcluster", (None, True, 0)),
        (".maxclusterrank 4", (None, False, 4)),
    ],
)
def test_an_image_states_its_clusters(directive: str, stated: tuple[object, bool, int]):
    text = ptx("store", "sm_90a").replace("out) {", f"out) {directive} {{")
    kernel = cubin.read(assembler.assemble(text, "sm_90a"), "store")[2]
    assert (kernel.cluster, kernel.explicit_cluster, kernel.max_cluster) == stated


@needs_assembler
@pytest.mark.parametrize("arch", ARCHES)
def test_the_banks_that_a_kernel_has_of_its_own_are_bound_beside_those_of_the_file(arch: str):
    """The assembler puts jump tables into bank 2, in a section with the kernel's name."""
    text = ptx("grid", arch) + ".visible .entry plain(.param .u64 unused) { ret; }"
    elf, placement, grid = cubin.read(assembler.assemble(text, arch), "grid")
    _, _, plain = cubin.read(elf.data, "plain")
    assert (set(grid.banks), set(plain.banks)) == ({nv_cubin.OWN_BANKS[1], 3}, {3})
    content = cubin.load(elf, placement, 0x10_0000_0000)
    for number, name in ((2, ".nv.constant2.grid"), (3, ".nv.constant3")):
        at, size = grid.banks[number]
        section = elf.section(name)
        assert section is not None
        assert at % cubin.BANK_ALIGN == 0
        assert content[at : at + size] == bytes(elf.content(section))
        assert size >= 16


@needs_assembler
def test_the_ptx_is_carried_inside_and_nothing_else_moved():
    text = PTX.format(arch="sm_90a")
    data = assembler.assemble(text, "sm_90a")
    assert assembler.ptx_of(data) == text
    plain = Elf(data)
    section = plain.section(layout.PTX_SECTION)
    assert section is not None
    assert section.flags == 0
    again = Elf(assembler.with_ptx(data, "other"))
    assert [s.name for s in again.sections][:-1] == [s.name for s in plain.sections]
    assert again.section(".text.k") == plain.section(".text.k")


@needs_assembler
@pytest.mark.parametrize("name", ["nvjitlink", "ptxas"])
def test_the_assemblers_own_copy_of_the_text_is_emptied_and_the_rest_kept(name: assembler.Assembler):
    text = PTX.format(arch="sm_90a")
    try:
        raw = assembler._assembler(name)(text, "sm_90a", ())
    except UnsupportedError as error:
        pytest.skip(str(error))
    before, after = Elf(raw), Elf(assembler.without_text(raw))
    copies = 0
    for old, new in zip(before.sections, after.sections, strict=True):
        if old.name.startswith(".nv_debug_ptx_txt"):
            copies += 1
            assert new.size == 0
        else:
            assert new._replace(offset=0) == old._replace(offset=0)
            assert after.content(new) == before.content(old)
            assert new.offset % (new.align or 1) == old.offset % (new.align or 1)
    assert copies == 1
    assert b".version" in raw
    assert b".version" not in after.data
    for old_part, new_part in zip(before.segments, after.segments, strict=True):
        assert new_part._replace(offset=0) == old_part._replace(offset=0)
        if (
            old_part.type == LOAD and old_part.offset != before.segments[0].offset
        ):  # which is the table itself
            assert (
                after.data[new_part.offset :][: new_part.file_size]
                == (before.data[old_part.offset :][: old_part.file_size])
            )


@needs_assembler
def test_broken_ptx_is_a_compile_error_with_the_assemblers_text():
    with pytest.raises(CompileError, match=r"line \d+|error"):
        assembler.assemble(PTX.format(arch="sm_90a").replace("sqrt.rn.f32", "sqrt.wrong.f32"), "sm_90a")


def test_a_missing_assembler_is_reported_with_its_cure(monkeypatch: pytest.MonkeyPatch):
    assembler._library.cache_clear()
    monkeypatch.setattr(assembler, "_candidates", lambda: [assembler.Path("/nowhere/libnvJitLink.so.13")])
    monkeypatch.setattr(assembler.shutil, "which", lambda _: None)
    try:
        with pytest.raises(UnsupportedError, match=r"pip install 'nvidia-nvjitlink"):
            assembler.assemble("", "sm_90a")
        assert assembler.available() == ""
    finally:
        assembler._library.cache_clear()


class FakeGpu:
    chip, sm = CHIPS["sm_90"], "sm_90"
    max_warps, sm_version = 64, 0x900
    generation = GENERATIONS[0xCBC0]


def launchable(*, shared: int = 0x400, registers: int = 16) -> NvLaunchable:
    return NvLaunchable(
        program=0x10_0000_0000,
        code_bytes=4096,
        registers=registers,
        barriers=1,
        shared_bytes=shared,
        local_bytes=0,
        banks={},
        bank0_bytes=0x230,
    )


def kernel_of(sm: int, parameters: int = 20):
    return cubin.read(small_cubin("axpy", sm, parameters), "axpy")[2]


def test_code_for_another_architecture_is_refused():
    with pytest.raises(UnsupportedError, match="assembled for sm_80, this GPU is sm_90"):
        check(sample("sm_90a", 90), kernel_of(80), FakeGpu())


def test_arguments_that_the_image_does_not_declare_are_refused():
    image = KernelImage(name="axpy", arch="sm_90a", code=b"", args=(), kernarg_size=8)
    with pytest.raises(UsageError, match="reads 20 bytes of arguments"):
        check(image, kernel_of(90), FakeGpu())


@pytest.mark.parametrize(
    ("registers", "threads"), [(8, 8192), (32, 2048), (64, 1024), (128, 512), (255, 256)]
)
def test_registers_limit_the_threads_of_a_workgroup(registers: int, threads: int):
    assert thread_limit(registers) == threads


@pytest.mark.parametrize(
    ("size", "codes"), [(0x400, (3, 0x3A)), (48 << 10, (17, 0x3A)), (228 << 10, (0x3A, 0x3A))]
)
def test_carve_outs_are_the_smallest_that_holds_and_the_largest(size: int, codes: tuple[int, int]):
    assert carveouts(FakeGpu(), size) == codes


@pytest.mark.parametrize(
    ("shared", "registers", "threads", "kib"),
    [
        (0x400, 16, 1024, 8),  # two groups fill the warps
        (0x400, 16, 128, 16),  # sixteen do
        (0x400, 16, 33, 32),  # a group of two warps; 32 groups are the most
        (0x400, 128, 128, 8),  # registers for four groups
        (48 << 10, 32, 128, 196),  # room for four groups
        (100 << 10, 32, 128, 228),  # for two
        (164 << 10, 32, 128, 164),
        (228 << 10, 32, 128, 228),
    ],
)
def test_the_carve_out_that_is_wanted_holds_every_group_that_an_sm_could_run(
    shared: int, registers: int, threads: int, kib: int
):
    assert wanted_carveout(FakeGpu(), launchable(shared=shared, registers=registers), threads) == sm_config(
        kib
    )


def descriptor(choices: str) -> QmdV04:
    words = Descriptor(FakeGpu(), parse(choices), launchable()).shaped((2, 1, 1), (128, 1, 1))
    return QmdV04.from_bytes(words.tobytes())


@pytest.mark.parametrize(
    ("carveout", "kib"), [("wanted", (8, 16, 228)), ("least", (8, 8, 228)), ("none", None)]
)
def test_a_descriptor_holds_the_chosen_carve_outs(carveout: str, kib: tuple[int, ...] | None):
    fields = descriptor(f"carveout={carveout}")
    codes = tuple(map(sm_config, kib)) if kib else (0, 0, 0)
    assert (0x400 if kib else 0) == fields.SHARED_MEMORY_SIZE
    assert codes == (
        fields.MIN_SM_CONFIG_SHARED_MEM_SIZE,
        fields.TARGET_SM_CONFIG_SHARED_MEM_SIZE,
        fields.MAX_SM_CONFIG_SHARED_MEM_SIZE,
    )


def test_a_spare_descriptor_has_what_the_launch_known_on_hopper_has():
    fields = descriptor("full_descriptor=false+carveout=none")
    spoken = {name for name in QmdV04.FIELDS if getattr(fields, name) != getattr(QmdV04(), name)}
    assert spoken == {
        "QMD_TYPE",
        "API_VISIBLE_CALL_LIMIT",
        "GRID_WIDTH",
        "GRID_HEIGHT",
        "GRID_DEPTH",
        "CTA_THREAD_DIMENSION0",
        "CTA_THREAD_DIMENSION1",
        "CTA_THREAD_DIMENSION2",
        "REGISTER_COUNT",
        "BARRIER_COUNT",
        "PROGRAM_ADDRESS_UPPER",
        "CONSTANT_BUFFER_VALID",
        "CONSTANT_BUFFER_SIZE_SHIFTED4",
    }


def test_more_shared_memory_than_there_is_is_refused():
    with pytest.raises(UsageError, match="sm_90 has 233472"):
        carveouts(FakeGpu(), (228 << 10) + 1)


TWO = """.version 8.7
.target {arch}
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n)
{{
 .reg .b64 %rd<2>;
 .reg .b32 %r<2>;
 ld.param.u64 %rd1, [out];
 ld.param.u32 %r1, [n];
 st.global.u32 [%rd1], %r1;
 ret;
}}
"""


@dataclass(frozen=True)
class Gpu:
    chip: NvChip = CHIPS["sm_90"]
    sm: str = "sm_90"


GPU = Gpu()
PLACED = ((0, 8), (8, 8), (16, 4))
"""Offset and bytes of the parameters of `tests.support.nv.golden.sample`."""


def recorded(placed: tuple[tuple[int, int], ...], end: int):
    return cubin.read(small_cubin("axpy", 90, end, placed=placed), "axpy")[2]


def with_slots(*slots: tuple[int, int]) -> KernelImage:
    args = tuple(ArgSlot(f"a{k}", ArgKind.INT, at, size) for k, (at, size) in enumerate(slots))
    return KernelImage(name="axpy", arch="sm_90a", code=b"", args=args, kernarg_size=32)


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        (((0, 8), (8, 8), (16, 8)), ("slot 2 (a2)", "parameter 2", "4 bytes at 16", "8 bytes at 16")),
        (((0, 8), (8, 4), (16, 4)), ("slot 1 (a1)", "parameter 1", "8 bytes at 8", "4 bytes at 8")),
        (((0, 8), (8, 8), (20, 4)), ("slot 2 (a2)", "4 bytes at 20", "no parameter")),
        (((0, 8), (12, 4), (16, 4)), ("slot 1 (a1)", "parameter 1", "8 bytes at 8", "4 bytes at 12")),
        (((0, 8), (8, 8), (16, 4), (24, 8)), ("slot 3 (a3)", "8 bytes at 24", "no parameter")),
        (((0, 8), (16, 4)), ("parameter 1", "8 bytes at 8", "none")),
        ((), ("parameter 0", "8 bytes at 0", "none")),
    ],
)
def test_slots_that_contradict_the_records_of_the_code_are_refused(
    slots: tuple[tuple[int, int], ...], words: tuple[str, ...]
):
    with pytest.raises(UsageError) as raised:
        check(with_slots(*slots), recorded(PLACED, 20), GPU)
    for word in ("kernel axpy", *words):
        assert word in str(raised.value)


def test_slots_may_have_any_order():
    kernel = recorded(PLACED, 20)
    check(with_slots(*PLACED), kernel, GPU)
    check(with_slots(*reversed(PLACED)), kernel, GPU)
    assert [(one.ordinal, one.offset, one.size) for one in kernel.parameters] == [
        (k, *place) for k, place in enumerate(PLACED)
    ]


def test_a_parameter_by_value_is_filled_by_the_slots_within_it():
    kernel = recorded(((0, 8), (8, 12)), 20)
    check(with_slots((0, 8), (8, 4), (12, 4), (16, 4)), kernel, GPU)
    with pytest.raises(UsageError, match="parameter 1"):
        check(with_slots((0, 8), (16, 8)), kernel, GPU)
    with pytest.raises(UsageError, match="parameter 1"):
        check(with_slots((0, 8)), kernel, GPU)


@needs_assembler
@pytest.mark.parametrize("arch", sorted(ARCHES))
def test_the_assembler_records_every_parameter(arch: str):
    text = TWO.format(arch=arch)
    kernel = cubin.read(assembler.assemble(text, arch), "k")[2]
    assert [(one.ordinal, one.offset, one.size) for one in kernel.parameters] == [(0, 0, 8), (1, 8, 4)]


@needs_assembler
@pytest.mark.parametrize("validate", [False, True])
def test_a_device_refuses_slots_that_contradict_the_cubin(*, validate: bool):
    args = (ArgSlot("out", ArgKind.POINTER, 0, 8, "w"), ArgSlot("n", ArgKind.INT, 8, 8))
    image = KernelImage(
        name="k", arch="sm_90a", code=assembler.assemble(TWO.format(arch="sm_90a"), "sm_90a"), args=args,
        kernarg_size=16,
    )  # fmt: skip
    with hcq.open("nv-emu", validate=validate) as device:
        with pytest.raises(UsageError, match=r"slot 1 \(n\).*4 bytes at 8.*8 bytes at 8"):
            device.load(image)
        device.load(replace(image, args=(args[0], replace(args[1], size=4)))).close()
