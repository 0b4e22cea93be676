"""`hcq.layout.Struct`: fields at byte offsets, as in C."""

from __future__ import annotations

import ctypes
import enum
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.errors import UsageError
from hcq.layout import (
    BitStruct,
    Struct,
    Violation,
    bits,
    blob,
    chars,
    i32,
    nested,
    optional,
    u8,
    u16,
    u32,
    u64,
)


class Status(enum.IntEnum):
    OK = 0
    INVALID_ARGUMENT = 0x1F


class Attributes(BitStruct):
    physicality: int = optional(28, 27)
    location: int = bits(26, 25, default=0)


class Pair(Struct, size=8):
    index: int = u32(0)
    data: int = u32(4)


class Control(Struct, size=48, source="a made-up header"):
    """A control call."""

    client: int = u32(0x00)
    fd: int = i32(0x04)
    params: int = u64(0x08, doc="address of the parameters")
    attributes: Attributes = nested(0x10, Attributes)
    name: str = chars(0x14, 8)
    pairs: tuple[Pair, ...] = nested(0x1C, Pair, count=2)
    status: Status = u8(0x2C)
    enabled: bool = u8(0x2D)


class Later(Control, size=56):
    status: Status = u32(0x30)
    words: tuple[int, ...] = u16(0x34, count=2)


class InC(ctypes.Structure):
    _fields_ = [
        ("client", ctypes.c_uint32),
        ("fd", ctypes.c_int32),
        ("params", ctypes.c_uint64),
        ("attributes", ctypes.c_uint32),
        ("name", ctypes.c_char * 8),
        ("pairs", (ctypes.c_uint32 * 2) * 2),
        ("status", ctypes.c_uint8),
        ("enabled", ctypes.c_uint8),
    ]


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "client": st.integers(0, 2**32 - 1),
        "fd": st.integers(-(2**31), 2**31 - 1),
        "params": st.integers(0, 2**64 - 1),
        "attributes": st.builds(Attributes, physicality=st.integers(0, 3), location=st.integers(0, 3)),
        "name": st.text("abcxyz.", max_size=7),
        "pairs": st.lists(
            st.builds(Pair, index=st.integers(0, 99), data=st.integers(0, 2**32 - 1)), max_size=2
        ).map(tuple),
        "status": st.sampled_from(Status),
        "enabled": st.booleans(),
    },
)


@given(VALUES)
def test_bytes_are_those_of_the_same_struct_in_c(values: dict[str, Any]):
    in_c = InC(**{k: v for k, v in values.items() if k not in ("attributes", "name", "pairs")})
    in_c.attributes = int(values.get("attributes", Attributes()))
    in_c.name = values.get("name", "").encode()
    for i, pair in enumerate(values.get("pairs", ())):
        in_c.pairs[i][:] = (pair.index, pair.data)
    assert Control(**values).to_bytes() == bytes(in_c)


@given(VALUES)
def test_pack_equals_the_object_and_decodes_to_it(values: dict[str, Any]):
    packed = Control.pack(**values)
    assert packed == Control(**values).to_bytes()
    back = Control.from_bytes(packed)
    for name, value in values.items():
        assert getattr(back, name) == (value if name != "pairs" else (*value, *(Pair(),) * (2 - len(value))))
    assert back.check() == []


@given(st.integers(-(2**70), 2**70))
def test_integers_out_of_range_are_refused(value: int):
    for field, lowest, highest in (("client", 0, 2**32 - 1), ("fd", -(2**31), 2**31 - 1), ("status", 0, 255)):
        if lowest <= value <= highest:
            Control.pack(**{field: value})
        else:
            with pytest.raises(UsageError, match=rf"Control\.{field} = -?\d+ does not fit"):
                Control.pack(**{field: value})


def test_store_writes_single_fields_in_place():
    block = bytearray(4) + bytearray(Control(client=7).to_bytes())
    Control.store(block, 4, status=Status.INVALID_ARGUMENT, fd=-1)
    assert Control.from_bytes(block, 4) == Control(client=7, fd=-1, status=Status.INVALID_ARGUMENT)


def test_a_refused_store_writes_nothing():
    block = bytearray(48)
    with pytest.raises(UsageError):
        Control.store(block, client=1, fd=1 << 40)
    assert block == bytearray(48)


def test_a_newer_struct_is_the_diff_of_the_older():
    assert Later(status=Status.INVALID_ARGUMENT, words=(1, 2)).to_bytes()[0x30:] == struct.pack(
        "<IHH", 0x1F, 1, 2
    )
    assert Later.offset_of("words", 1) == 0x36


def test_check_names_stray_bytes_unknown_enums_and_nested_violations():
    raw = bytearray(48)
    raw[0x13] = 0x80  # bit 31 of the nested word
    raw[0x2C] = 9
    raw[0x2F] = 1
    assert Control.from_bytes(raw).check() == [
        Violation("Control", "attributes.bit 31 of word 0", 1, "no field declares it, it must be 0"),
        Violation("Control", "status", 9, "not a Status"),
        Violation("Control", "byte 0x2f", 1, "no field declares it, it must be 0"),
    ]


def test_a_text_without_space_for_its_nul_is_refused():
    with pytest.raises(UsageError, match=r"Control\.name has 8 bytes"):
        Control(name="12345678")


def test_a_nested_value_of_another_type_is_refused():
    with pytest.raises(UsageError, match="takes a Attributes"):
        Control(attributes=Pair())


def test_bytes_are_zero_filled():
    class Local(Struct, size=4):
        data: bytes = blob(0, 4)

    assert Local(data=b"ab").to_bytes() == b"ab\0\0"
    with pytest.raises(UsageError):
        Local(data=b"12345")


def test_overlap_and_excess_are_type_errors():
    with pytest.raises(TypeError, match="overlaps"):
        type(
            "Broken",
            (Struct,),
            {"__annotations__": {"a": "int", "b": "int"}, "a": u32(0), "b": u8(3)},
            size=8,
        )
    with pytest.raises(TypeError, match="exceeds 8 bytes"):
        type("Broken", (Struct,), {"__annotations__": {"a": "int"}, "a": u64(4)}, size=8)


def test_a_short_block_is_refused():
    with pytest.raises(UsageError, match="Control is 48 bytes, 47 are left"):
        Control.from_bytes(bytes(47))


def test_repr_shows_fields_that_are_set():
    assert repr(Control(client=0xC1D0_0001, status=Status.INVALID_ARGUMENT)) == (
        "Control(client=0xc1d00001, status=Status.INVALID_ARGUMENT)"
    )


def test_markdown_lists_offsets():
    assert "| 0x8 | 8 | `params` | int | address of the parameters |" in Control.markdown()
