"""Plans: the kernels and the executable of an expression structure, made once and cached.

The plan of one expression is stored as its `run`, which is called when a tensor is realized. Tensors that are
realized together have a joint plan. It is found by their expressions and by which of the joint leaves each
expression reads.

Not here: compiling a kernel (`compiler.compile`). Next: `launch`, the executable.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, cast

from compiler import collector
from compiler.ir import graph
from compiler.ir.ops import Ops
from compiler.ir.uop import UOp, trim_table
from frontend.device import Device, TensorDevice
from frontend.evaluation.expr import PARAM, STOP, Leaves, TensorExpr, join, uops
from frontend.evaluation.launch import KernelLaunch, assemble
from frontend.evaluation.limits import Checks, limits_of
from frontend.evaluation.storage import Leaf, in_memory
from frontend.evaluation.varying import CONSTANT_LIMIT, Numbers, general
from frontend.stats import stats
from hcq.config import config
from hcq.errors import UsageError

if TYPE_CHECKING:
    import hcq
    from compiler.schedule.item import ScheduleItem
    from frontend.check.launches import Check
    from hcq.config import Config


class _CaptureOfThread(threading.local):
    """The capture that the current thread records."""

    now: Any = None
    """A `frontend.capture.recording.Capture`, or None."""
    notes: list[str] | None = None
    """What a capture would have refused, in the first call of a compiled function; None outside of one."""
    draws: list[Any] | None = None
    """The random draws of a call whose expression is recorded (`frontend.capture.histories`)."""
    plans: dict[Any, None] | None = None
    """The keys of the plans that were added in a block of `PLANS.noted`; None outside of one."""


CAPTURE: Final = _CaptureOfThread()
"""The capture of each thread. Launches of other threads are not recorded; they wait for `LOCK`."""
_MANY: Final[dict[Any, LaunchPlan]] = {}
"""Key of `plan_of` -> the joint plan."""
NODE_LIMIT: Final = 200_000
"""The most compiler nodes kept between plans, so that a plan can reuse kernels of another plan."""
MOST_BYTES: Final = (1 << 63) - 1
"""The most bytes of one tensor."""
LARGE_BYTES: Final = 1 << 20
"""An executable whose parameters have this many bytes or more drops its bindings after each replay."""

OBJECTS: Final = 24 << 10
"""Estimated bytes of Python objects of one kernel launch: plan, commands, patches, code, expressions.

Measured by tracemalloc on CPython 3.11: 15 KiB for launch and plan, 9 KiB for unshared expressions.
"""
MEASURE: Final = 64
"""All plans are measured again each time that this many were added: executables grow with launches in flight.

At that time all plans also drop their bindings, which keep the results of their last launch alive.
"""

_BUFFER: Final = attrgetter("buffer")
Part = tuple[TensorExpr, tuple[int, ...]]
"""An expression, and the numbers of its leaves among the joint leaves of a plan."""


@dataclass(slots=True)
class LaunchPlan:
    """The launch of one structure. Keys of memory are ("in", leaf number), ("out", n) and ("temp", n)."""

    device: TensorDevice
    kernels: tuple[KernelLaunch, ...]
    inputs: tuple[int, ...]
    """Numbers of the leaves that kernels access, in the order in which `replay` takes their buffers."""
    outputs: tuple[tuple[int, int], ...]
    """(output number, bytes) of every output that gets new memory."""
    stored: tuple[int, ...]
    """Numbers of the outputs that kernels write; the others have no elements."""
    executable: hcq.Executable | None
    """None when no kernel runs."""
    large: bool = False
    """Whether bindings are dropped after each replay; see `LARGE_BYTES`."""
    limits: Checks | None = None
    """Limits of indices and divisors, checked under validation; None: there are none."""
    partial: bool = False
    """Whether outputs may keep elements that no kernel wrote; see `KernelLaunch.partial`."""
    numbers: tuple[Leaf, ...] = ()
    """Leaves of numbers that vary, which follow the joint leaves: see `frontend.evaluation.varying`."""
    check: Check | None = None
    """The comparison of the first launch under `HCQ_CHECK=1`; None: done, or not wanted."""

    @property
    def nbytes(self) -> int:
        """Bytes that the plan keeps: words and argument blocks of all replay slots, code, Python objects."""
        if self.numbers:  # the rest is that of the plan for all numbers
            return OBJECTS
        code = sum([len(k.program.image.code) for k in self.kernels if k.program is not None])
        launch = 0 if self.executable is None else self.executable.nbytes
        return 2 * code + launch + OBJECTS * len(self.kernels)  # code: the host's copy and the device's

    def replay(self, given: list[hcq.Buffer]) -> None:
        """Launch on buffers: those of `inputs`, then those of `stored`. Raises as `hcq.Executable.replay`."""
        if self.executable is not None:
            if self.check is not None:
                self.check.run(self, given)
                self.check = None
            else:
                self.executable.replay(given)
            if self.large:
                self.executable.forget()
            stats.kernels += len(self.kernels)
            stats.launches += 1


class Plans:
    """The cached plans, ordered by age, with a limit on their bytes.

    A plan counts with its measured `nbytes`; memory that plans share counts for each of them. Above
    `Config.plan_bytes` bytes the oldest plans are dropped, and made again when they are needed again. A
    replay in flight or a captured function keeps a dropped plan alive. The caller of every method holds
    `frontend.device.LOCK`.
    """

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[LaunchPlan, Callable[[Any], None], int]] = {}
        self.nbytes = 0
        """Bytes of all plans, as last measured."""
        self._added = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, key: Any, plan: LaunchPlan, drop: Callable[[Any], None], most: int) -> None:
        """Add a plan as the newest; `drop(key)` is called when it is evicted.

        The oldest plans are evicted until all take at most `most` bytes; the new plan stays in any case.
        """
        self.remove(key)
        size = plan.nbytes
        if CAPTURE.plans is not None:
            CAPTURE.plans[key] = None
        self._kept[key] = plan, drop, size
        self.nbytes += size
        self._added += 1
        if self._added >= MEASURE:
            self._measure()
        while self.nbytes > most and len(self._kept) > 1:
            oldest = next(iter(self._kept))
            _, forget, _ = self._kept[oldest]
            self.remove(oldest)
            forget(oldest)

    def remove(self, key: Any) -> None:
        """Remove a plan without calling its `drop`; nothing happens if it is not there."""
        found = self._kept.pop(key, None)
        if found is not None:
            self.nbytes -= found[2]

    @staticmethod
    @contextmanager
    def noted(keys: dict[Any, None]) -> Iterator[None]:
        """Add the keys of the plans that this thread makes in the block, for `evict`; needs no `LOCK`."""
        before, CAPTURE.plans = CAPTURE.plans, keys
        try:
            yield
        finally:
            CAPTURE.plans = before

    def evict(self, keys: dict[Any, None]) -> None:
        """Evict plans that are not needed again, as their launches were captured; clear the keys."""
        for key in keys:
            if (found := self._kept.get(key)) is not None:
                self.remove(key)
                found[1](key)
        keys.clear()

    def drop(self, device: str) -> None:
        """Evict all plans of a device."""
        for key, (plan, forget, _) in list(self._kept.items()):
            if plan.device.name == device:
                self.remove(key)
                forget(key)

    def _measure(self) -> None:
        for plan, _, _ in self._kept.values():
            if plan.executable is not None:
                plan.executable.forget()  # the buffers of its last launch, whose tensors may be gone
        self._kept = {key: (plan, drop, plan.nbytes) for key, (plan, drop, _) in self._kept.items()}
        self.nbytes = sum([size for _, _, size in self._kept.values()])
        self._added = 0


PLANS: Final = Plans()


def plan_of(key: tuple[Any, ...], device: TensorDevice, *, fixed: bool = False) -> LaunchPlan:
    """Return the joint plan of a key, which has three items for each output, one after the other.

    They are the expression, the numbers of its leaves among the joint leaves, and the number of the leaf into
    which the output is stored, or -1 for new memory. A `fixed` plan has no `numbers`. On a mesh it is a
    `frontend.distributed.plans.MeshLaunch`. Raises as `build`.
    """
    if device.devices:
        return cast("LaunchPlan", cast("Any", device).launch_of(key))
    name = (fixed, *key) if fixed else key
    plan = _MANY.get(name)
    if plan is None:
        parts = [(key[i], key[i + 1]) for i in range(0, len(key), 3)]
        homes, settings = key[2::3], config()
        found = None if fixed or stats.plans < CONSTANT_LIMIT else _varied(parts, homes)
        if found is None:
            plan = build(parts, homes, device, settings)
        else:
            rows = [(*part, home) for part, home in zip(found[0], homes, strict=True)]
            numbers = tuple([in_memory(device, *value) for value in found[1]])
            plan = replace(plan_of(tuple(chain(*rows)), device), numbers=numbers)
        _MANY[name] = plan
        PLANS.add(name, plan, _forget_many, settings.plan_bytes)
    return plan


def _varied(parts: Sequence[Part], homes: tuple[int, ...]) -> tuple[list[Part], Numbers] | None:
    """Return expressions whose numbers vary with the numbers as additional leaves, and these; else None.

    No result shares the memory of a number.
    """
    if CAPTURE.now is not None:
        return None
    n = 1 + max([*homes, *[i for _, leaves in parts for i in leaves], -1])
    found = general(homes, parts, n, moving=True, ruled=False)
    if found is not None:
        found[0][:] = [join(Ops.CONTIGUOUS, None, part) if aliased(part[0]) else part for part in found[0]]
    return found


def _forget_many(key: tuple[Any, ...]) -> None:
    _MANY.pop(key, None)


@collector.paused()
def build(parts: Sequence[Part], homes: Sequence[int], device: TensorDevice, settings: Config) -> LaunchPlan:
    """Schedule and compile expressions over joint leaves; return their plan.

    `homes[i]` >= 0 is the number of the leaf into which output i is stored; -1: new memory. Raises the audit
    event "frontend.plan" with the graph's outputs, the schedule, and the device's name and architecture.

    Raises `UsageError` for a tensor beyond the address space, `CompileError`, and as `hcq.Device.load`.
    """
    from compiler.compile import compile_many, forget  # noqa: PLC0415 - nothing of the compiler before a kernel is wanted

    for e, _ in parts:
        if prod(e.shape) * e.dtype.itemsize > MOST_BYTES:
            raise UsageError(
                f"{e.dtype.name}{list(e.shape)} would take {prod(e.shape) * e.dtype.itemsize} bytes: more "
                "than any address space has\nhint: realize a part of it, or a reduction"
            )
    if trim_table(NODE_LIMIT):  # nodes of earlier plans are not needed
        forget()  # nor the kernels found by them
    outputs, items = scheduled(parts, homes, device.arch, settings)
    sys.audit("frontend.plan", outputs, items, device.name, device.arch)
    if settings.beam:
        from frontend.tuning.tune import tune  # noqa: PLC0415 - only with BEAM

        tune([item.ast for item in items], device.name, device.arch)
    compiled = compile_many([item.ast for item in items], device.arch, settings=settings)
    kernels = []
    structure = tuple(parts), tuple(homes)
    for n, (item, made) in enumerate(zip(items, compiled, strict=True)):
        program = device.program(made.image)
        keys = tuple([(ref.kind, ref.n) for ref in item.bufs])
        sizes = tuple([ref.nbytes for ref in item.bufs])
        origin, partial = (structure, n), _partial(item.ast)
        kernels.append(
            KernelLaunch(program, made.groups, made.threads, keys, sizes, item.stores, origin, partial)
        )
    stats.plans += 1
    plan = _planned(parts, homes, device, tuple(kernels))
    if settings.check and plan.executable is not None:
        from frontend.check.launches import Check  # noqa: PLC0415 - only under the setting

        plan.check = Check(outputs, items, device)
    if any([e.limited for e, _ in parts]):  # noqa: C419 - a list is faster
        plan.limits = limits_of(parts)
    return plan


def scheduled(
    parts: Sequence[Part], homes: Sequence[int], arch: str, settings: Config
) -> tuple[list[UOp], list[ScheduleItem]]:
    """Return the graph's outputs and the schedule of expressions over joint leaves: see `build`."""
    from compiler.schedule.scheduler import limits_on, schedule  # noqa: PLC0415 - nothing of the compiler before a kernel is wanted
    from compiler.targets import target_of  # noqa: PLC0415 - as above

    outputs = uops(parts)
    for i, home in enumerate(homes):
        if home >= 0:
            e = parts[i][0]
            outputs[i] = graph.assign(graph.param(home, e.shape, e.dtype), outputs[i])
    limits = limits_on(target_of(arch, settings))
    if settings.beam:  # a kernel of several parts has one plan, so it is not searched
        limits = replace(limits, operand=0)
    return outputs, schedule(outputs, limits=limits, verify=settings.debug > 0)


def _partial(ast: UOp) -> bool:
    """Return whether a kernel needs not write all elements of what it stores."""
    if ast.src[0].op is not Ops.STORE:  # a chain of kernels
        return any([_partial(part) for part in ast.src])  # noqa: C419 - a list is faster
    return any([store.src[2].op is Ops.WITHIN for store in ast.src])  # noqa: C419 - a list is faster


def _planned(
    parts: Sequence[Part], homes: Sequence[int], device: TensorDevice, kernels: tuple[KernelLaunch, ...]
) -> LaunchPlan:
    touched = {key[1] for k in kernels for key in k.memory if key[0] == "in"}  # type: ignore[index]  # made by `build`
    sizes: dict[int, int] = {}
    for e, leaves in parts:
        for leaf, at in zip(e.params, leaves, strict=True):
            sizes[at] = prod(leaf.shape) * leaf.dtype.itemsize
    for (e, _), home in zip(parts, homes, strict=True):
        if home >= 0:
            sizes[home] = prod(e.shape) * e.dtype.itemsize
    inputs = tuple(sorted(touched))
    stored = {key[1] for k in kernels for key in k.memory if key[0] == "out"}  # type: ignore[index]  # made by `build`
    outputs = tuple(
        [
            (i, prod(e.shape) * e.dtype.itemsize)
            for i, ((e, _), home) in enumerate(zip(parts, homes, strict=True))
            if home < 0
        ]
    )
    executable = None
    if kernels:
        params: list[tuple[Hashable, int]] = [(("in", i), sizes[i]) for i in inputs]
        params += [(("out", n), size) for n, size in outputs if n in stored]
        executable = assemble(device, kernels, params, {}, label=_label(kernels))
    large = sum([*[sizes[i] for i in inputs], *[size for _, size in outputs]]) >= LARGE_BYTES
    written = tuple([n for n, _ in outputs if n in stored])
    partial = any([kernel.partial for kernel in kernels])  # noqa: C419 - a list is faster
    return LaunchPlan(device, kernels, inputs, outputs, written, executable, large, partial=partial)


def _label(kernels: Sequence[KernelLaunch]) -> str:
    """Return the name of a plan in a trace: its last kernel's name, and the number of other kernels."""
    name = "copy" if kernels[-1].program is None else kernels[-1].program.name
    return name if len(kernels) == 1 else f"{name} and {len(kernels) - 1} more"


def aliased(e: TensorExpr, *, stopped: bool = True) -> bool:
    """Return whether the elements of an expression are the memory of a leaf: a leaf, or a reshape of one.

    With `stopped`, a detached leaf counts too. For realizing it does not: as a leaf, it would pass gradients.
    """
    while e.op is Ops.RESHAPE or (stopped and e.op is STOP):
        e = e.src[0]
    return e.op is PARAM


def build_run(e: TensorExpr) -> Callable[[Leaves], Leaves]:
    """Build the launch of one expression, store it as its `run`, and return it. Raises as `build`."""
    device = Device[e.device]
    if device.devices:
        e.run = cast("Any", device).run_of(e)
        return cast("Callable[[Leaves], Leaves]", e.run)
    if aliased(e, stopped=False):
        e.run = lambda leaves: leaves
        return e.run
    settings = config()
    found = None if stats.plans < CONSTANT_LIMIT else _varied([(e, tuple(range(e.n)))], (-1,))
    if found is not None:
        [(expr, order)], values = found
        e.run = partial(_run_general, expr, order, values)
        return e.run
    plan = build([(e, tuple(range(e.n)))], (-1,), device, settings)
    run = e.run = _runner(plan, e.n, prod(e.shape) * e.dtype.itemsize or 1)
    if plan.limits is not None:
        run = e.run = partial(_checked, plan, run)
    PLANS.add(e, plan, _forget_run, settings.plan_bytes)
    return run


def _run_general(e: TensorExpr, order: tuple[int, ...], values: Numbers, leaves: Leaves) -> Leaves:
    every = leaves + tuple([in_memory(Device[e.device], *value) for value in values])
    return (e.run or build_run(e))(tuple([every[i] for i in order]))


def _forget_run(e: TensorExpr) -> None:
    e.run = None


def _checked(plan: LaunchPlan, run: Callable[[Leaves], Leaves], leaves: Leaves) -> Leaves:
    verify(plan, leaves)
    return run(leaves)


def verify(plan: LaunchPlan, leaves: Leaves) -> None:
    """Check the indices and divisors of a plan over its joint leaves if validation is on: `verify_all`."""
    if plan.limits is not None:
        verify_all([(plan.limits, leaves)])


def verify_all(checks: Sequence[tuple[Checks, Leaves]]) -> None:
    """Perform checks, each over its leaves, if validation is on. Raises as `Checks.verify`.

    The checks launch kernels and wait. They change no statistics, and are not captured.
    """
    if not config().validate:
        return
    now, counts = CAPTURE.now, (stats.kernels, stats.launches, stats.plans)
    CAPTURE.now = None
    try:
        for limits, leaves in checks:
            limits.verify(leaves, _value)
    finally:
        CAPTURE.now = now
        stats.kernels, stats.launches, stats.plans = counts


def refuse(text: str) -> None:
    """Raise `UsageError` of a text inside a captured function; note the text where a capture may follow."""
    if CAPTURE.now is not None:
        raise UsageError(text)
    if CAPTURE.notes is not None:
        CAPTURE.notes.append(text)


def _value(e: TensorExpr, leaves: Leaves) -> memoryview:
    """Compute an expression over leaves; return its elements as bytes."""
    out = (e.run or build_run(e))(leaves)[0].buffer
    out.live()
    return memoryview(bytes(Device[e.device].read(out, prod(e.shape) * e.dtype.itemsize)))


def _runner(plan: LaunchPlan, leaf_count: int, nbytes: int) -> Callable[[Leaves], Leaves]:
    """Return the function that launches a plan with one output of `nbytes` bytes; see `TensorExpr.run`."""
    alloc = plan.device.alloc_partial if plan.partial else plan.device.hcq.alloc
    inputs, count, counted = plan.inputs, len(plan.kernels), plan.large or plan.check is not None
    whole = tuple(inputs) == tuple(range(leaf_count))
    replay = None if plan.executable is None else plan.replay if counted else plan.executable.replay

    def run(leaves: Leaves) -> Leaves:
        out = alloc(nbytes)
        if replay is not None:
            replay([*map(_BUFFER, leaves if whole else [leaves[i] for i in inputs]), out])
            if not counted:
                stats.kernels += count
                stats.launches += 1
        leaf = Leaf(out)
        capture = CAPTURE.now
        if capture is not None:
            capture.record(plan, [leaf.buffer for leaf in leaves], [out])
            capture.made(leaf)
        return (leaf,)

    return run
