"""One kernel on an open device under several plans: compile, launch on random inputs, compare, time.

The inputs are the same for every plan. Memory after each output must stay as it was. Results without a
reduction of floats must be equal to the bit; those with one may differ by a few units in the last place of
the largest result, as the order of additions depends on the plan.

Not here: which plans (`frontend.tuning.space`), protection from crashes (`process`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from compiler.compile import compile_uncached
from compiler.dtype import DType
from compiler.ir.ops import Ops
from compiler.ir.serialize import kernel_key, postorder
from compiler.narrow_floats import FORMATS, encode, loaded
from compiler.pipeline import arguments
from compiler.targets import target_of
from frontend.device import TensorDevice
from frontend.tuning import count
from hcq.commands import Scope
from hcq.errors import CompileError, UsageError

if TYPE_CHECKING:
    import hcq
    from compiler.image import CompiledKernel
    from compiler.ir.uop import UOp
    from compiler.plan.choice import Choice

GUARD_BYTES = 64
"""Bytes after each buffer that a kernel must not change."""
GUARD = 0xA5
"""The value of each of them."""
SINGLE, NARROW_ULPS = 23, 4.0
"""Bits of a float32 fraction; units in the last place by which narrower floats may differ anyway."""
LEAST_NS = 500_000
"""The least time of a sample; launches are repeated until they take as long."""
MOST_LAUNCHES = 64
"""The most launches of a sample."""
TIMEOUT_S = 60.0
"""Seconds after which a launch is given up, unless the caller ends the process earlier."""


@dataclass(frozen=True, slots=True)
class LoadedTrial:
    """A kernel under one plan, loaded on the device."""

    compiled: CompiledKernel
    program: hcq.Program


class Trial:
    """One kernel, its buffers and inputs on an open device. The caller owns the device."""

    def __init__(self, device: hcq.Device, ast: UOp) -> None:
        """Make buffers with random inputs.

        Raises `UsageError` for a kernel that loads at computed indices, as random ones could be anywhere, and
        as `hcq.Device.alloc`.
        """
        nodes = postorder((ast,))
        if any(node.op is Ops.INDEXOF for node in nodes):
            raise UsageError(
                "wanted a kernel whose addresses depend on no loaded value, saw one with computed indices; "
                "try BEAM=0 for it"
            )
        self.ast = ast
        self.device = TensorDevice(device.name, device)
        self.emulated = device.info.driver.endswith("-emu")
        """Whether times mean nothing: `cost` then counts instructions."""
        self._access = arguments(ast).access
        self.stored = tuple([slot for slot, access in enumerate(self._access) if "w" in access])
        """The slots of the buffers that the kernel stores to."""
        self._dtypes = {n.arg: n.dtype for n in nodes if n.op is Ops.BUFFER}
        self._values = [int(n.vmax) for n in sorted({n for n in nodes if n.op is Ops.VAR}, key=_name)]
        extents = _extents(nodes)
        rng = np.random.default_rng(0)
        self._given = [
            _random(rng, self._dtypes[slot], extents[slot]) + bytes([GUARD]) * GUARD_BYTES
            for slot in range(len(self._access))
        ]
        self._bound = _bound(nodes)
        self._buffers: list[hcq.Buffer] = []
        self._reset()

    def inputs(self) -> list[np.ndarray]:
        """Return the contents of every buffer before a launch, by slot; bfloat16 as its bits."""
        out = []
        for slot, data in enumerate(self._given):
            kind = self._dtypes[slot].numpy or f"uint{self._dtypes[slot].bits}"
            out.append(np.frombuffer(data[: len(data) - GUARD_BYTES], kind).copy())
        return out

    def load(self, choice: Choice | None) -> LoadedTrial:
        """Compile the kernel under a choice, None for the estimated plan, and load it.

        Raises `CompileError`, `UnsupportedError`, and as `hcq.Device.load`.
        """
        compiled = compile_uncached(self.ast, self.device.arch, choice)
        return LoadedTrial(compiled, self.device.hcq.load(compiled.image))

    def results(self, kernel: LoadedTrial) -> dict[int, bytes]:
        """Launch once on the inputs; return the bytes of each output by slot.

        Raises `CompileError` if the kernel wrote after the end of a buffer, and as `hcq.Device.alloc` and
        `hcq.Point.wait`.
        """
        self._reset()
        self._launch(kernel, 1)
        out: dict[int, bytes] = {}
        for slot in self.stored:
            size = len(self._given[slot])
            data = bytes(self.device.read(self._buffers[slot], size))
            if set(data[size - GUARD_BYTES :]) != {GUARD}:
                raise CompileError(
                    f"wanted no stores after the {size - GUARD_BYTES} bytes of b{slot}, saw some",
                    ast=kernel_key(self.ast),
                )
            out[slot] = data[: size - GUARD_BYTES]
        return out

    def difference(self, wanted: dict[int, bytes], seen: dict[int, bytes], *, least: float = 0.0) -> str:
        """Return how results differ by more than the bound, as text; empty if they do not.

        The bound of floats is at least `least` units in the last place of the largest result: results of
        other code than this compiler's are rounded elsewhere. Sums of narrower floats are float32: their
        bound is in units of float32, and `NARROW_ULPS` of their own for what is rounded on the way.
        """
        bound = max(self._bound, least)
        for slot, data in wanted.items():
            dtype = self._dtypes[slot]
            if not dtype.is_float:
                if data != seen[slot]:
                    return f"b{slot}: wanted equal {dtype.name}s, saw others"
                continue
            a, b = _floats(data, dtype), _floats(seen[slot], dtype)
            if bound == 0 or not np.isfinite(a).all():
                if not np.array_equal(a, b, equal_nan=True):
                    return f"b{slot}: wanted equal {dtype.name}s, saw others"
                continue
            largest = float(np.abs(a).max(initial=0.0))
            digits = _digits(dtype)
            ulp = 2.0 ** (math.frexp(largest)[1] - 1 - digits) if largest else 2.0**-126
            error = float(np.abs(a - b).max(initial=0.0)) / ulp
            most = bound if digits >= SINGLE else NARROW_ULPS + bound * 2.0 ** (digits - SINGLE)
            if not error <= most:
                return f"b{slot}: wanted at most {most:.0f} units in the last place, saw {error:.3g}"
        return ""

    def cost(self, kernel: LoadedTrial, choice: Choice | None) -> float:
        """Return what is compared: nanoseconds of a launch, on an emulated GPU counted instructions.

        A time is the mean of one submission with several launches in order: as many as take `LEAST_NS`, at
        most `MOST_LAUNCHES`. Raises as `hcq.Point.wait`, and as `count.instructions` of the choice.
        """
        if self.emulated:
            return count.instructions(self.ast, target_of(self.device.arch), choice)
        taken, launches = self._launch(kernel, 1), 1
        while taken < LEAST_NS and launches < MOST_LAUNCHES:
            launches = min(MOST_LAUNCHES, max(2, math.ceil(launches * LEAST_NS / max(taken, 1))))
            taken = self._launch(kernel, launches)
        return taken / launches

    def close(self) -> None:
        """Free the buffers."""
        for buffer in self._buffers:
            buffer.close()

    def _reset(self) -> None:
        """Make new buffers with the inputs; those of outputs have random values too, and guard bytes."""
        self.close()
        self._buffers = [self.device.write(data) for data in self._given]

    def _launch(self, kernel: LoadedTrial, launches: int) -> int:
        """Launch some times in order; return the nanoseconds of the whole submission."""
        commands = self.device.queue.record(label="trial")
        args = kernel.program.args(*self._buffers, *self._values)
        for number in range(launches):
            if number:
                commands.barrier(Scope.DEVICE)
            compiled = kernel.compiled
            commands.exec(kernel.program, args, groups=compiled.groups, threads=compiled.threads)
        begun = time.perf_counter_ns()
        self.device.queue.submit(commands).wait(timeout_s=TIMEOUT_S)
        return time.perf_counter_ns() - begun


def _name(node: UOp) -> str:
    return str(node.arg[0])


def _extents(nodes: Sequence[UOp]) -> dict[int, int]:
    """Return the elements of each buffer: one more than the largest index of an access."""
    out: dict[int, int] = {}
    for node in nodes:
        if node.op in (Ops.LOAD, Ops.STORE):
            slot = node.src[0].arg
            out[slot] = max(out.get(slot, 1), int(node.src[1].vmax) + 1)
    return out


def _random(rng: np.random.Generator, dtype: DType, elements: int) -> bytes:
    """Return random values: normal floats, integers from 1 to 7 (no divisor is 0), both truth values."""
    if dtype.is_float:
        values = rng.standard_normal(elements, np.float32)
        if dtype.numpy is None:
            return encode(values, dtype).tobytes()
        return values.astype(dtype.numpy).tobytes()
    high = 2 if dtype.kind == "bool" else 8
    assert dtype.numpy is not None
    return rng.integers(0 if high == 2 else 1, high, elements).astype(dtype.numpy).tobytes()


def _floats(data: bytes, dtype: DType) -> np.ndarray:
    """Return floats in memory as float64."""
    if dtype.numpy is None:
        return loaded(data, dtype).astype(np.float64)
    return np.frombuffer(data, dtype.numpy).astype(np.float64)


def _digits(dtype: DType) -> int:
    """Return the bits of a float's fraction."""
    if dtype.numpy is None:
        return FORMATS[dtype].fraction if dtype in FORMATS else 7
    return int(np.finfo(dtype.numpy).nmant)


def _bound(nodes: Sequence[UOp]) -> float:
    """Return the most units in the last place between results of two plans; 0 without a sum of floats.

    Errors of n additions grow as the root of n for values of both signs.
    """
    sizes = {n.arg[0]: n.arg[1] for n in nodes if n.op is Ops.RANGE}
    most = 0
    for node in nodes:
        if node.op is Ops.REDUCE and node.dtype.is_float and node.arg[0] not in (Ops.MAX, Ops.MIN):
            most = max(most, math.prod([sizes.get(number, 1) for number in node.arg[1]]))
    return 8.0 + 4.0 * math.sqrt(most) if most else 0.0
