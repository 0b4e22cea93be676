"""Fixtures that every test may use, under the settings of a test run: validation on, seeded orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hcq.config import override

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 1


@pytest.fixture(autouse=True)
def settings(request: pytest.FixtureRequest) -> Iterator[None]:
    """Turn validation on with a fixed seed; `@pytest.mark.usefixtures("fast")` asks for neither."""
    wanted = "fast" not in request.fixturenames
    with override(validate=wanted, seed=SEED if wanted else 0):
        yield


@pytest.fixture
def fast() -> None:
    """Mark a test that measures: no validation, no reordering."""
