"""What errors say: each names what was wanted, what was seen, and what to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hcq.errors import UsageError, size_text
from hcq.graph import Graph
from hcq.params import Param
from hcq.registry import wrap
from tests.hcq.fake import ADD, ONE, FakeDevice

if TYPE_CHECKING:
    from hcq.device import Device


@pytest.mark.parametrize("groups", [4, (4,), (4, 1), (1, 1, 1, 1), None])
@pytest.mark.parametrize("what", ["groups", "threads"])
def test_a_shape_that_is_not_three_numbers_is_refused(device: Device, groups: object, what: str):
    program, a = device.load(ADD), device.alloc(64)
    shape = {"groups": ONE, "threads": ONE, what: groups}
    with pytest.raises(
        UsageError, match=rf"kernel add: {what}=.*wanted three(?s:.*)hint: {what}=\(4, 1, 1\)"
    ):
        device.compute.record().exec(program, program.args(a, a, a), **shape)


def test_a_shape_may_be_a_list(device: Device):
    program, a, b = device.load(ADD), device.alloc(64), device.alloc(64)
    commands = device.compute.record().exec(
        program, program.args(a, b, b), groups=[1, 1, 1], threads=[1, 1, 1]
    )
    assert commands.commands[0].groups == ONE
    device.compute.submit(commands).wait()


def test_a_point_instead_of_a_list_of_points_is_refused_with_a_hint(device: Device):
    point = device.compute.submit(device.compute.record())
    with pytest.raises(UsageError, match=r"hint: after=\[point\]"):
        device.copies[0].submit(device.copies[0].record(), after=point)
    graph = Graph()
    node = graph.add(device.compute, device.compute.record())
    with pytest.raises(UsageError, match=r"hint: after=\[node\]"):
        graph.add(device.compute, device.compute.record(), after=node)
    with pytest.raises(UsageError, match=r"hint: after=\[point\]"):
        graph.compile().replay(after=point)


def test_a_buffer_of_another_opened_device_of_the_same_name_is_distinguished(device: Device):
    with wrap(FakeDevice()) as other:
        theirs, program, mine = other.alloc(64), device.load(ADD), device.alloc(64)
        with pytest.raises(UsageError, match="belongs to another opened fake:0"):
            device.compute.submit(device.compute.record().fill(theirs, 1))
        with pytest.raises(UsageError, match="belongs to another opened fake:0"):
            program.args(theirs, mine, mine)
        value = Param("value")
        with pytest.raises(UsageError, match=r"value: seen .* belongs to another opened fake:0"):
            device.compute.submit(device.compute.record().fill(value, 1, 64), values={value: theirs})


def test_a_hazard_names_the_argument_without_a_stray_comma(device: Device):
    program, a, b = device.load(ADD), device.alloc(64, label="a"), device.alloc(64)
    commands = device.compute.record().exec(program, program.args(a, b, b), groups=ONE, threads=ONE)
    device.compute.submit(commands)
    with pytest.raises(
        UsageError, match=r"nothing orders it after kernel add, argument out, which writes it"
    ):
        device.copies[0].submit(device.copies[0].record().fill(a, 1))


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (96, "96 bytes"), (1024, "1 KiB"), (1536, "1.5 KiB"), (3 << 20, "3 MiB"),
     (1 << 50, "1,024 TiB"), (5 << 30, "5 GiB"), (1 << 70, "1,073,741,824 TiB")],
)  # fmt: skip
def test_sizes_are_reported_in_units(size: int, text: str):
    assert size_text(size) == text


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_a_fill_from_an_address_that_is_no_multiple_of_4_is_refused(device: Device, offset: int):
    a, where = device.alloc(64), Param("where")
    with pytest.raises(UsageError, match="wanted an address that is a multiple of 4"):
        device.compute.record().fill(a.view(offset, 8), 1)
    commands = device.compute.record().fill(where + offset, 1, 8)
    with pytest.raises(UsageError, match="wanted multiples of 4"):
        device.compute.submit(commands, values={where: a})


@pytest.mark.parametrize(("bits", "offset"), [(32, 2), (64, 4), (64, 1)])
def test_a_write_to_an_address_that_is_not_naturally_aligned_is_refused(
    device: Device, bits: int, offset: int
):
    a, where = device.alloc(64), Param("where")
    with pytest.raises(UsageError, match=f"multiple of {bits // 8}"):
        device.compute.record().write(a.view(offset), 1, bits=bits)
    with pytest.raises(UsageError, match=f"multiples of {bits // 8}"):
        device.compute.submit(device.compute.record().write(where + offset, 1, bits=bits), values={where: a})


def test_a_fill_of_a_size_given_at_submit_that_is_no_multiple_of_4_is_refused(device: Device):
    a, size = device.alloc(64), Param("size", 32)
    with pytest.raises(UsageError, match="wanted multiples of 4"):
        device.compute.submit(device.compute.record().fill(a, 1, size), values={size: 6})


def test_host_access_to_invisible_memory_is_refused_with_a_hint(fake: FakeDevice):
    class Far(FakeDevice):
        def alloc(self, size: int, spec: object) -> object:
            from dataclasses import replace

            found = super().alloc(size, spec)
            return found if spec.host_visible else replace(found, host=None)

    with wrap(Far()) as device:
        with pytest.raises(UsageError) as caught:
            device.alloc(64).host()
        import hcq

        hint = str(caught.value).partition("that is: ")[2]
        made = eval(hint, {"hcq": hcq, "device": device})  # the hint is a call that works
        assert len(made.host()) == 64
