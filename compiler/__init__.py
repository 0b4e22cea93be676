"""From tensor graphs to machine code. Opens no device.

`compiler.schedule` turns tensor graphs (`compiler.graph`) into kernels (`compiler.ops` says what nodes mean),
`compiler.compile` turns a kernel into an image for one architecture. Names load on first use: importing this
package loads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.dtype import DType as DType
    from compiler.dtype import dtypes as dtypes
    from compiler.schedule import ScheduleItem as ScheduleItem
    from compiler.symbolic import Variable as Variable
    from compiler.uop import Ops as Ops
    from compiler.uop import UOp as UOp
    from compiler.view import ShapeTracker as ShapeTracker
    from compiler.view import View as View

_HOMES = {
    "DType": "compiler.dtype",
    "Ops": "compiler.uop",
    "ScheduleItem": "compiler.schedule",
    "ShapeTracker": "compiler.view",
    "UOp": "compiler.uop",
    "Variable": "compiler.symbolic",
    "View": "compiler.view",
    "dtypes": "compiler.dtype",
}

__all__ = [
    "DType",
    "Ops",
    "ScheduleItem",
    "ShapeTracker",
    "UOp",
    "Variable",
    "View",
    "dtypes",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'compiler' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - keeps the import of this package cheap

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
