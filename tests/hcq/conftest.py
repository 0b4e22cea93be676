"""A device of the model over the fake driver, with validation and reordering as in every test.

Words of 32 bits are for the whole run: the drivers of GPUs bring them into the quick one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hcq.registry import wrap
from tests.hcq.fake import FakeDevice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hcq.device import Device
    from hcq.memory import Buffer


U32_CALLS = pytest.param((32, True), marks=pytest.mark.slow)


@pytest.fixture(params=[(64, False), U32_CALLS], ids=["u64", "u32-calls"])
def fake(request: pytest.FixtureRequest) -> FakeDevice:
    word_bits, calls = request.param
    return FakeDevice(word_bits=word_bits, calls=calls)


@pytest.fixture
def device(fake: FakeDevice) -> Iterator[Device]:
    with wrap(fake, validate=True, seed=1) as device:
        yield device
        fake.hold = False


@pytest.fixture
def abc(device: Device) -> list[Buffer]:
    return [device.alloc(64, label=name) for name in "abc"]
