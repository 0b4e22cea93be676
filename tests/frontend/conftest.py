"""What the tests of a process share is set right before each: room for what it makes, and random numbers."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from frontend import Tensor, expr
from frontend.plan import PLANS
from hcq.config import override

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOM = 10_000


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a test keep its plans and expressions, however many others left."""
    monkeypatch.setattr(expr, "TABLE_LIMIT", max(expr.TABLE_LIMIT, len(expr.TABLE) + ROOM))
    with override(plan_bytes=PLANS.nbytes + (1 << 30)):
        yield


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Compute without validation: what lies outside is not looked for."""
    with override(validate=False):
        yield


@pytest.fixture(autouse=True)
def numbers_of_its_own(request: pytest.FixtureRequest) -> None:
    """Start a module's `RNG`, and the numbers of tensors, anew for each test.

    What a test is given depends on none that ran before it.
    """
    Tensor.manual_seed(0)
    shared = getattr(request.module, "RNG", None)
    if shared is not None:
        own = np.random.default_rng(zlib.crc32(request.node.name.encode()))
        shared.bit_generator.state = own.bit_generator.state
