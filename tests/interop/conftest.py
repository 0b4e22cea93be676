"""Emulated GPUs that the tests of a file share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import hcq

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def devices() -> Iterator[dict[str, hcq.Device]]:
    """Yield the open devices by target, to which tests add; they are closed after the last test of a file."""
    opened: dict[str, hcq.Device] = {}
    yield opened
    for device in opened.values():
        device.close()


@pytest.fixture(scope="module")
def device(request: pytest.FixtureRequest) -> Iterator[hcq.Device]:
    """Yield the device that a file names as `DEVICE`."""
    with hcq.open(request.module.DEVICE) as opened:
        yield opened
