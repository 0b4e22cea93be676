"""The compiler: tensor graphs to machine code. It opens no device.

`compiler.schedule` turns tensor graphs (`compiler.ir.graph`) into kernels; `compiler.ir.ops` defines the
nodes of both. `compiler.compile` turns a kernel into an image for one architecture. Names load on first use:
importing this package loads no other module.

Not here: loading images and launching them (`hcq`), tensors and gradients (`frontend`). Next:
`compiler.pipeline`, the steps of one kernel; docs/way-of-a-tensor.md, one example through all stages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.dtype import DType as DType
    from compiler.dtype import dtypes as dtypes
    from compiler.ir.index import Variable as Variable
    from compiler.ir.uop import Ops as Ops
    from compiler.ir.uop import UOp as UOp
    from compiler.schedule.scheduler import ScheduleItem as ScheduleItem

_HOMES = {
    "DType": "compiler.dtype",
    "Ops": "compiler.ir.uop",
    "ScheduleItem": "compiler.schedule.scheduler",
    "UOp": "compiler.ir.uop",
    "Variable": "compiler.ir.index",
    "dtypes": "compiler.dtype",
}

__all__ = ["DType", "Ops", "ScheduleItem", "UOp", "Variable", "dtypes"]

if not TYPE_CHECKING:  # type checkers know all names

    def __getattr__(name: str) -> object:
        from hcq.names import lazy  # noqa: PLC0415 - importing this package loads no other module

        return lazy(__name__, __all__, _HOMES)[0](name)

    def __dir__() -> list[str]:
        return sorted(__all__)
