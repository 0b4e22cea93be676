"""What calls of the emulated kernel driver refuse: by a status in their structure, or by an error number."""

from __future__ import annotations

from typing import Any

import pytest

from hcq.errors import DriverError
from tests.drivers.nv_machine.client import Status


def refused(code: int, call: Any, *args: Any, **kw: Any) -> None:
    """The call answers with this status."""
    with pytest.raises(Status) as got:
        call(*args, **kw)
    assert got.value.code == code, got.value


def invalid(number: int, call: Any, *args: Any, **kw: Any) -> None:
    """The call fails with this error number."""
    with pytest.raises(DriverError) as got:
        call(*args, **kw)
    assert got.value.status == number
