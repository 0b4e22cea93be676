"""What the namespace can do: `__array_namespace_info__()`.

Not here: limits of dtypes (`data_types`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.dtype import by_name, dtypes
from frontend.array_api.data_types import NAMES, isdtype
from frontend.device import Device

if TYPE_CHECKING:
    from compiler.dtype import DType


class Info:
    """Capabilities, dtypes and devices of the namespace."""

    def capabilities(self) -> dict[str, Any]:
        """Return what is optional in the standard."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> str:
        """Return the name of the default device."""
        return Device.named(None)

    def devices(self) -> list[str]:
        """Return the names of devices that arrays can be made on: the default one."""
        return [self.default_device()]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """Return the dtypes of Python numbers and of indices. There is no complex one."""
        del device
        return {"real floating": dtypes.float32, "integral": dtypes.int32, "indexing": dtypes.int32}

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, DType]:
        """Return the dtypes of a kind by name, all if None."""
        del device
        every = {n: by_name(n) for n in NAMES}
        return every if kind is None else {n: d for n, d in every.items() if isdtype(d, kind)}
