"""State shared by the tests of a process is reset before each: table limits and random numbers."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from frontend import Tensor
from frontend.evaluation import expr
from frontend.evaluation.plan import PLANS
from hcq.config import override

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOM = 10_000


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep the expressions and plans of a test, independent of how many other tests made."""
    monkeypatch.setattr(expr, "TABLE_LIMIT", max(expr.TABLE_LIMIT, len(expr.TABLE) + ROOM))
    with override(plan_bytes=PLANS.nbytes + (1 << 30)):
        yield


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Compute without validation: indices out of range are not checked."""
    with override(validate=False):
        yield


@pytest.fixture(autouse=True)
def numbers_of_its_own(request: pytest.FixtureRequest) -> None:
    """Seed the `RNG` of a module, and the generator of tensors, before each test.

    What a test is given depends on none that ran before it.
    """
    Tensor.manual_seed(0)
    shared = getattr(request.module, "RNG", None)
    if shared is not None:
        own = np.random.default_rng(zlib.crc32(request.node.name.encode()))
        shared.bit_generator.state = own.bit_generator.state
