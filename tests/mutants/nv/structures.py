"""The structures of the ioctls of NVIDIA's resource manager and UVM.

Not here: mutants (`tests.mutants.calls`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.kernel import view_at
from drivers.nv.layouts.chips import COMPUTE_CLASSES, COPY_CLASSES, GPFIFO_CLASSES, USERMODE_CLASSES
from drivers.nv.layouts.controls import CONTROL_STRUCTS
from drivers.nv.layouts.rm import NVOS54_PARAMETERS, NVOS64_PARAMETERS, Escape, Request
from drivers.nv.layouts.rm_classes import (
    ALLOC_STRUCTS,
    NV_CHANNEL_ALLOC_PARAMS,
    NV_GR_ALLOCATION_PARAMETERS,
    NV_HOPPER_USERMODE_A_PARAMS,
    NVB0B5_ALLOCATION_PARAMETERS,
)
from drivers.nv.layouts.uvm import COMMAND_STRUCTS
from tests.facts import nv_escapes
from tests.mutants.emulated import Block, Call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hcq.layout import Struct


def call(structs: Mapping[str, type[Struct]], request: int, argument: bytearray) -> Call:
    """Describe an ioctl; `structs` are the structures of a driver branch by their names at branch 580."""
    if request in COMMAND_STRUCTS:
        command = COMMAND_STRUCTS[request]
        return Call(command.__name__, structs.get(command.__name__, command), encoded=False)
    name = Escape(Request.from_int(request).NR).name
    struct = nv_escapes.ESCAPES[name][1]
    layout = structs[struct] if struct is not None else None
    if layout is NVOS54_PARAMETERS:
        control = NVOS54_PARAMETERS.from_bytes(argument)
        named = CONTROL_STRUCTS.get(control.cmd)
        kind = structs[named] if named is not None else None
        return Call(f"{name} {control.cmd:#x}", layout, (_block(kind, control.params, control.paramsSize),))
    if layout is NVOS64_PARAMETERS:
        alloc = NVOS64_PARAMETERS.from_bytes(argument)
        if alloc.pAllocParms:
            plain = ALLOC_STRUCTS.get(alloc.hClass) or _engine_struct(alloc.hClass)
            kind = structs.get(plain.__name__, plain) if plain is not None else None
            block = _block(kind, alloc.pAllocParms, alloc.paramsSize)
            return Call(f"{name} class {alloc.hClass:#x}", layout, (block,))
    return Call(name, layout)


def _block(layout: type[Struct] | None, va: int, size: int) -> Block:
    return Block(layout, view_at(va, size))


def _engine_struct(class_: int) -> type[Struct] | None:
    for classes, layout in (
        (GPFIFO_CLASSES, NV_CHANNEL_ALLOC_PARAMS),
        (COMPUTE_CLASSES, NV_GR_ALLOCATION_PARAMETERS),
        (COPY_CLASSES, NVB0B5_ALLOCATION_PARAMETERS),
        (USERMODE_CLASSES, NV_HOPPER_USERMODE_A_PARAMS),
    ):
        if class_ in classes:
            return layout
    return None
