from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.emulator.amd_kfd.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def machine() -> Iterator[Callable[..., Caller]]:
    """Open processes in front of emulated GPUs; they end with the test."""
    made: list[Caller] = []

    def make(*gpus: str, **options: object) -> Caller:
        caller = Caller(*gpus, **options)  # type: ignore[arg-type]  # the options are Caller's
        made.append(caller)
        return caller

    yield make
    for caller in made:
        caller.close()


@pytest.fixture
def caller(machine: Callable[..., Caller]) -> Caller:
    """A process in front of one gfx1100 on the strict kernel."""
    return machine()
