"""`Program.args`: packing, and what it refuses."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.errors import UnsupportedError, UsageError
from hcq.kernargs import compile_args, pack_values
from hcq.params import Param
from hcq.program import ArgKind, ArgSlot, KernelImage
from hcq.registry import wrap
from tests.hcq.fake import ADD, ONE, STORE, FakeDevice

if TYPE_CHECKING:
    from hcq.device import Device

SLOTS = st.lists(
    st.sampled_from(
        [
            (ArgKind.POINTER, 8), (ArgKind.INT, 1), (ArgKind.INT, 2), (ArgKind.INT, 4), (ArgKind.INT, 8),
            (ArgKind.FLOAT, 2), (ArgKind.FLOAT, 4), (ArgKind.FLOAT, 8),
        ]
    ),
    max_size=8,
)  # fmt: skip


def image_of(kinds: list[tuple[ArgKind, int]]) -> KernelImage:
    at, slots = 0, []
    for i, (kind, size) in enumerate(kinds):
        at = (at + size - 1) // size * size
        slots.append(ArgSlot(f"a{i}", kind, at, size))
        at += size
    return KernelImage(name="k", arch="fake1", code=b"add", args=tuple(slots), kernarg_size=(at + 7) // 8 * 8)


@given(SLOTS, st.data())
def test_generated_packing_equals_the_readable_loop(kinds: list[tuple[ArgKind, int]], data: st.DataObject):
    with wrap(FakeDevice()) as device:
        program = device.load(image_of(kinds))
        values = []
        for kind, size in kinds:
            if kind is ArgKind.POINTER:
                values.append(device.alloc(64))
            elif kind is ArgKind.INT:
                values.append(data.draw(st.integers(-(1 << 8 * size - 1), (1 << 8 * size) - 1)))
            else:
                values.append(data.draw(st.floats(width={2: 16, 4: 32, 8: 64}[size], allow_nan=False)))
        made, want = program.args(*values), pack_values(program, tuple(values))
        assert made.words == want.words
        assert made.values == want.values


def test_kernels_with_the_same_kinds_of_arguments_share_the_code_that_packs_them(device: Device):
    kinds = [(ArgKind.POINTER, 8), (ArgKind.INT, 4)]
    one, same = compile_args(image_of(kinds), device), compile_args(image_of(kinds), device)
    assert one.__code__ is same.__code__
    assert compile_args(image_of(kinds[:1]), device).__code__ is not one.__code__


def test_the_block_has_the_layout_of_the_image(device: Device):
    out = device.alloc(64)
    args = device.load(STORE).args(out, -2, 1.5, 1 << 40)
    assert args.words.tobytes() == struct.pack("<QifQ", out.va, -2, 1.5, 1 << 40)


def test_params_leave_holes_and_patches(device: Device):
    pointer, number, scale = Param("p"), Param("n", 32), Param("x", 32)
    args = device.load(STORE).args(pointer + 16, number, scale, 7)
    assert args.words.tolist() == [0, 0, 7]
    assert [(at, bits, expr.param.name, expr.add, expr.float_bits) for at, bits, expr in args.patches] == [
        (0, 64, "p", 16, 0), (8, 32, "n", 0, 0), (12, 32, "x", 0, 32),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "value", "wanted"),
    [
        (0, 0x1000, "argument out: wanted a Buffer or a Param, seen 4096"),
        (1, 1.0, "argument n: wanted an integer of 32 bits or a Param, seen 1.0"),
        (1, 1 << 32, "argument n: wanted an integer of 32 bits or a Param, seen 4294967296"),
        (1, -(1 << 31) - 1, "argument n: wanted an integer of 32 bits"),
        (2, "1", "argument x: wanted a float"),
        (2, 1e300, "argument x: wanted a float of 32 bits"),
        (3, None, "argument k: wanted an integer of 64 bits"),
    ],
)
def test_a_wrong_value_is_refused_by_slot(device: Device, place: int, value: object, wanted: str):
    values: list[object] = [device.alloc(64), 1, 1.0, 1]
    values[place] = value
    with pytest.raises(UsageError, match=f"kernel store, {wanted}"):
        device.load(STORE).args(*values)


def test_a_buffer_as_a_number_is_refused(device: Device):
    out = device.alloc(64)
    with pytest.raises(UsageError, match="argument k: wanted an integer"):
        device.load(STORE).args(out, 1, 1.0, out)


def test_a_wrong_number_of_arguments_is_refused_with_their_names(device: Device):
    with pytest.raises(UsageError, match=r"add takes 3 arguments \(out, a, b\), 1 were given"):
        device.load(ADD).args(device.alloc(64))


def test_a_closed_buffer_is_refused(device: Device):
    a = device.alloc(64, label="weights")
    program = device.load(ADD)
    a.close()
    with pytest.raises(
        UsageError, match="'weights' of 64 bytes closed on fake:0> was used after it was closed; closed at"
    ):
        program.args(a, a, a)


def test_a_buffer_of_another_device_is_refused_until_it_is_mapped(device: Device):
    with wrap(FakeDevice(index=1)) as other:
        a, b = device.alloc(64), other.alloc(64)
        program = device.load(ADD)
        with pytest.raises(UsageError, match=r"argument \w+: seen .*fake:0"):
            program.args(a, a, b)
        b.map_to(device)
        assert program.args(a, a, b).buffers == (a, a, b)


def test_arguments_of_one_kernel_do_not_launch_another(device: Device):
    one, other = device.load(ADD), device.load(ADD)
    a = device.alloc(64)
    with pytest.raises(UsageError, match="the arguments were made for add"):
        device.compute.record().exec(one, other.args(a, a, a), groups=ONE, threads=ONE)


def test_an_image_for_another_architecture_is_unsupported(device: Device):
    image = KernelImage(name="k", arch="sm_90", code=b"add", args=(), kernarg_size=0)
    with pytest.raises(UnsupportedError, match="k is for sm_90, fake:0 is fake1"):
        device.load(image)


@pytest.mark.parametrize(
    ("slots", "size", "why"),
    [
        ((ArgSlot("a", ArgKind.POINTER, 4, 8),), 16, "not naturally aligned"),
        ((ArgSlot("a", ArgKind.INT, 0, 8), ArgSlot("b", ArgKind.INT, 4, 4)), 8, "overlaps"),
        ((ArgSlot("a", ArgKind.INT, 8, 8),), 8, "end at 16, the block has 8"),
        ((ArgSlot("a", ArgKind.FLOAT, 0, 1),), 8, "no legal size"),
    ],
)
def test_a_broken_argument_block_is_refused(device: Device, slots: tuple[ArgSlot, ...], size: int, why: str):
    with pytest.raises(UsageError, match=why):
        device.load(KernelImage(name="k", arch="fake1", code=b"add", args=slots, kernarg_size=size))


def test_a_program_is_unloaded_with_its_last_reference(device: Device, fake: FakeDevice):
    device.load(ADD)
    device.sweep()
    assert fake.unloaded == ["add"]


def test_a_program_in_flight_is_unloaded_only_when_done(device: Device, fake: FakeDevice):
    fake.hold = True
    program, a = device.load(ADD), device.alloc(64)
    out = device.alloc(64)
    device.compute.submit(
        device.compute.record().exec(program, program.args(out, a, a), groups=ONE, threads=ONE)
    )
    program.close()
    assert fake.unloaded == []
    fake.run()
    device.sweep()
    assert fake.unloaded == ["add"]


def test_a_closed_program_is_not_launched(device: Device):
    program, a = device.load(ADD), device.alloc(64)
    out = device.alloc(64)
    commands = device.compute.record().exec(program, program.args(out, a, a), groups=ONE, threads=ONE)
    program.close()
    with pytest.raises(UsageError, match=r"<Program add on fake:0 \(closed\)> cannot be launched"):
        device.compute.submit(commands)
