"""Clients that are closed after the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.emulator.nv_machine.client import Client
from tests.emulator.nv_machine.launching import Launcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def make() -> Iterator[Callable[..., Client]]:
    """Make clients of emulated machines."""
    made: list[Client] = []

    def one(*args: Any, **kw: Any) -> Client:
        made.append(Client(*args, **kw))
        return made[-1]

    yield one
    for client in made:
        client.close()


@pytest.fixture
def up(make: Callable[..., Client]) -> Client:
    """A client of the default machine, brought up to an address space and a doorbell."""
    return make().up()


@pytest.fixture
def launcher(up: Client) -> Launcher:
    """A client of the default machine that can launch kernels."""
    return Launcher.make(up)
