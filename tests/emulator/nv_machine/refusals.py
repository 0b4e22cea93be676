"""Expected refusals of the emulated kernel driver: a status in the structure, or an errno."""

from __future__ import annotations

from typing import Any

import pytest

from hcq.errors import DriverError
from tests.emulator.nv_machine.client import Status


def refused(code: int, call: Any, *args: Any, **kw: Any) -> None:
    """The call returns this status."""
    with pytest.raises(Status) as got:
        call(*args, **kw)
    assert got.value.code == code, got.value


def invalid(number: int, call: Any, *args: Any, **kw: Any) -> None:
    """The call fails with this error number."""
    with pytest.raises(DriverError) as got:
        call(*args, **kw)
    assert got.value.status == number
