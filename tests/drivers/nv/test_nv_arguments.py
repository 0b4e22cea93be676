"""Argument slots of an image against the parameters that its cubin records."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

import hcq
from compiler.targets.nvptx import assembler
from drivers.nv import cubin
from drivers.nv.layouts.chips import CHIPS, NvChip
from drivers.nv.program import check
from hcq.errors import UsageError
from hcq.program import ArgKind, ArgSlot, KernelImage
from tests.support.nv.golden import small_cubin
from tools.bringup.nv.kernels import ARCHES

needs_assembler = pytest.mark.skipif(
    not assembler.available(), reason="neither nvJitLink nor ptxas is installed"
)

PTX = """.version 8.7
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
    text = PTX.format(arch=arch)
    kernel = cubin.read(assembler.assemble(text, arch), "k")[2]
    assert [(one.ordinal, one.offset, one.size) for one in kernel.parameters] == [(0, 0, 8), (1, 8, 4)]


@needs_assembler
@pytest.mark.parametrize("validate", [False, True])
def test_a_device_refuses_slots_that_contradict_the_cubin(*, validate: bool):
    args = (ArgSlot("out", ArgKind.POINTER, 0, 8, "w"), ArgSlot("n", ArgKind.INT, 8, 8))
    image = KernelImage(
        name="k", arch="sm_90a", code=assembler.assemble(PTX.format(arch="sm_90a"), "sm_90a"), args=args,
        kernarg_size=16,
    )  # fmt: skip
    with hcq.open("nv-emu", validate=validate) as device:
        with pytest.raises(UsageError, match=r"slot 1 \(n\).*4 bytes at 8.*8 bytes at 8"):
            device.load(image)
        device.load(replace(image, args=(args[0], replace(args[1], size=4)))).close()
