"""The setting HCQ_RING_BYTES: rings of a GPU are as large as it says."""

from __future__ import annotations

import pytest

import hcq
from hcq.config import override, read

SMALL = 1 << 14


@pytest.mark.parametrize("name", ["nv-emu", "amd-emu", "amd-emu:gfx942"])
def test_rings_are_as_large_as_the_setting_says(name: str) -> None:
    with override(ring_bytes=SMALL), hcq.open(name) as small:
        seen = [(queue.ring.words, queue.ring.submissions) for queue in (small.compute, small.copies[0])]
    with hcq.open(name) as device:
        usual = [(queue.ring.words, queue.ring.submissions) for queue in (device.compute, device.copies[0])]
    for (words, submissions), (most, more) in zip(seen, usual, strict=True):
        assert words <= SMALL // 4 < most
        assert submissions < more


def test_ring_bytes_are_a_power_of_two_in_bounds() -> None:
    assert read({}).ring_bytes == read({"HCQ_RING_BYTES": "0"}).ring_bytes == 0
    assert read({"HCQ_RING_BYTES": "0x4000"}).ring_bytes == SMALL
    for refused in ("8192", "16385", "0x8000000"):
        with pytest.raises(hcq.UsageError, match="HCQ_RING_BYTES"):
            read({"HCQ_RING_BYTES": refused})
