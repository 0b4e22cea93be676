"""Kernel ASTs written by hand, and how tests run them: through the real compiler and the real object."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from compiler.dtype import DType, dtypes
from compiler.ir.index import loop
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, const, uop
from compiler.pipeline import arguments, lower
from compiler.plan.proposal import KernelForm
from compiler.targets import target_of
from tests.compiler.host_kernel import ARCH, HostKernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.nest.loop_nest import LoopNest
    from compiler.plan.proposal import Proposal, Propose
    from compiler.targets.shared.target import Target

GUARD = 64
"""Bytes around every buffer that a kernel must not change."""


def buffer(slot: int, dtype: DType = dtypes.float32) -> UOp:
    return uop(Ops.BUFFER, dtype, (), slot)


def load(slot: int, index: UOp, dtype: DType = dtypes.float32, mask: UOp | None = None) -> UOp:
    return uop(Ops.LOAD, dtype, (buffer(slot, dtype), index, *(() if mask is None else (mask,))))


def store(slot: int, index: UOp, value: UOp, mask: UOp | None = None) -> UOp:
    return uop(
        Ops.STORE, dtypes.void, (buffer(slot, value.dtype), index, value, *(() if mask is None else (mask,)))
    )


def sink(*stores: UOp) -> UOp:
    return uop(Ops.SINK, dtypes.void, stores)


def op(name: str, *src: UOp, dtype: DType | None = None) -> UOp:
    compares = name in ("LT", "EQ", "NE")
    return uop(name, dtype or (dtypes.bool if compares else src[-1].dtype), src)


def reduce(value: UOp, name: str, *ranges: UOp) -> UOp:
    return uop(
        Ops.REDUCE, value.dtype, (value,), (name, tuple([r.arg[0] for r in ranges if r.op is Ops.RANGE]))
    )


def proposed(propose: Propose, ast: UOp, target: Target) -> Proposal | None:
    """Return the last, fastest proposal of one planner for a kernel as it is; None without any."""
    return ([*propose(KernelForm(ast), target, None)] or [None])[-1]


def number(value: float, dtype: DType = dtypes.float32) -> UOp:
    return const(value, dtype)


@functools.lru_cache(maxsize=400)
def build(ast: UOp, arch: str = ARCH) -> tuple[HostKernel, int]:
    """Load a kernel; return the function and its workgroups."""
    return build_planned(ast, arch)


def build_planned(ast: UOp, arch: str, plan: LoopNest | None = None) -> tuple[HostKernel, int]:
    """Load a kernel under a plan; return the function and its workgroups."""
    target = target_of(arch)
    ir, used = lower(ast, target, plan)
    return HostKernel(target.emit(ir, target.machine(), 0)), used.launch()[0][0]


def stored_as(dtype: DType) -> np.dtype:
    """Return NumPy's type for memory of a dtype; one that NumPy lacks is stored as its bits."""
    return np.dtype(dtype.numpy or f"uint{dtype.bits}")


def aligned(size: int) -> np.ndarray:
    """Return bytes in which `GUARD` is at a line of the caches, as buffers of `hcq` begin."""
    raw = np.full(size + 64, 0xA5, np.uint8)
    return raw[-(raw.ctypes.data + GUARD) % 64 :][:size]


def run(
    ast: UOp, inputs: dict[int, np.ndarray], outputs: dict[int, tuple[int, DType]], *, arch: str = ARCH,
    variables: Sequence[int] = (), plan: LoopNest | None = None,
) -> dict[int, np.ndarray]:  # fmt: skip
    """Run a kernel.

    `inputs` are arrays by slot, `outputs` (elements, dtype) by slot; a slot in both is updated in place.

    All buffers are surrounded by bytes that must not change.
    """
    kernel, groups = build(ast, arch) if plan is None else build_planned(ast, arch, plan)
    slots = len(arguments(ast).access)
    memory: dict[int, np.ndarray] = {}
    views: dict[int, np.ndarray] = {}
    for slot in range(slots):
        given = inputs.get(slot)
        if given is not None:
            dtype, count = given.dtype, given.size
        else:
            count, kind = outputs[slot]
            dtype = stored_as(kind)
        raw = aligned(2 * GUARD + count * dtype.itemsize)
        memory[slot] = raw
        views[slot] = raw[GUARD : GUARD + count * dtype.itemsize].view(dtype)
        if given is not None:
            views[slot][:] = given.ravel()
    kernel.run([views[s].ctypes.data for s in range(slots)], list(variables), groups)
    for slot, raw in memory.items():
        assert (raw[:GUARD] == 0xA5).all(), f"the kernel wrote before buffer {slot}"
        assert (raw[len(raw) - GUARD :] == 0xA5).all(), f"the kernel wrote behind buffer {slot}"
        if slot not in outputs:
            assert (views[slot] == inputs[slot].ravel()).all() or np.issubdtype(
                views[slot].dtype, np.floating
            ), f"input {slot} changed"
    return {slot: views[slot].copy() for slot in outputs}


def elementwise(
    name: str, arrays: Sequence[np.ndarray], kinds: Sequence[DType], result: DType, *, arch: str = ARCH
) -> np.ndarray:
    """Apply one operation to whole arrays, memory as `stored_as` says."""
    n = arrays[0].size
    i = loop(0, n)
    value = op(name, *[load(k + 1, i, kind) for k, kind in enumerate(kinds)], dtype=result)
    return run(
        sink(store(0, i, value)), {k + 1: a for k, a in enumerate(arrays)}, {0: (n, result)}, arch=arch
    )[0]


__all__ = [
    "ARCH", "buffer", "build", "dtypes", "elementwise", "load", "loop", "number", "op", "reduce", "run",
    "sink", "store", "stored_as",
]  # fmt: skip
