"""Fixtures that every test may use, under the settings of a test run: validation on, seeded orders.

Random examples are drawn without an eye on the clock: a loaded machine is no fact about the code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis
import pytest

from hcq.config import override

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 1
hypothesis.settings.register_profile(
    "house", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("house")


@pytest.fixture(autouse=True)
def settings(request: pytest.FixtureRequest) -> Iterator[None]:
    """Turn validation on with a fixed seed; `@pytest.mark.usefixtures("fast")` asks for neither."""
    wanted = "fast" not in request.fixturenames
    with override(validate=wanted, seed=SEED if wanted else 0):
        yield


@pytest.fixture
def fast() -> None:
    """Mark a test that measures: no validation, no reordering."""
