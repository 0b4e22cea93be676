"""Computing pending tensors: plans hung on expressions, several outputs at once, assignment in place.

A *plan* is what a structure becomes once: schedule, kernels, one executable. `realize` of one pending
tensor is a call of its expression's `run`. Several tensors are one plan too, found by their expressions
and by which of their joint leaves each reads.

Assignment: a tensor with a pending `assign` stores into the buffer it had (`Rebound.home`). If anything
but the tensors being realized still means the old contents, those are copied to new memory first and its
leaf is given the copy; who means what is known exactly, because a leaf is referred to by nothing but leaf
tuples.

Threads: building expressions takes no lock. Whatever makes plans, launches, differentiates, or gives a tensor
another value holds `LOCK`, a capture from its first to its last line; waiting for results is done without it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import prod
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final

from compiler import graph
from compiler.ops import Ops
from compiler.uop import trim_table
from frontend.device import LOCK, Device, OpenDevice
from frontend.expr import PARAM, STOP, Expr, Leaves, uops
from frontend.launch import Kernel, assemble
from frontend.lazy import EPOCH, Rebound, refresh
from frontend.stats import stats
from frontend.storage import Leaf
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import hcq
    from compiler.item import BufRef
    from frontend.tensor import Tensor


class _Under(threading.local):
    """What a thread is in the middle of."""

    now: Any = None
    """The capture under way (`frontend.capture.Capture`), or None."""


CAPTURE: Final = _Under()
"""Each thread's own: other threads compute as ever, once the one that captures lets them."""
PENDING: Final[dict[int, tuple[int, Any]]] = {}
"""Tensors with a pending assign by id: the thread that assigned, and a weak reference."""
_MANY: Final[dict[Any, Plan]] = {}
"""Plans of several outputs, by structure."""
_RUNNING: Final[list[Expr]] = []
"""Expressions that have a plan."""
PLAN_LIMIT: Final = 2000
"""Plans kept at a time: each owns some KiB of device memory. Dropped ones are made again as needed."""
NODE_LIMIT: Final = 200_000
"""Nodes of the compiler that are kept between plans, so that one finds the kernels of another."""
MOST_BYTES: Final = (1 << 63) - 1
"""Of one tensor."""
LARGE_BYTES: Final = 1 << 20
"""From so many bytes on, an executable lets go of the buffers that it was bound to at once."""

Part = tuple[Expr, tuple[int, ...]]


@dataclass(slots=True)
class Plan:
    """The launch of one structure. Inputs are numbered by leaf, ("in", k); outputs ("out", n)."""

    device: OpenDevice
    kernels: tuple[Kernel, ...]
    inputs: tuple[int, ...]
    """The leaves that the kernels touch, in the order that `replay` takes their buffers; outputs follow."""
    outputs: tuple[tuple[int, int], ...]
    """(output number, bytes) of every output that gets new memory."""
    stored: tuple[int, ...]
    """Those that kernels write; the others have no elements."""
    executable: hcq.Executable | None
    """None when there is nothing to run."""
    large: bool = False

    def replay(self, given: list[hcq.Buffer]) -> None:
        """Launch on some buffers."""
        if self.executable is not None:
            self.executable.replay(given)
            if self.large:
                self.executable.forget()
            stats.kernels += len(self.kernels)
            stats.launches += 1


def pending() -> list[Tensor]:
    """Return the tensors that are assigned but not computed yet; in a capture, those of its thread."""
    thread = 0 if CAPTURE.now is None else threading.get_ident()
    found = [ref() for by, ref in list(PENDING.values()) if not thread or by == thread]
    return [t for t in found if t is not None]


# -- plans ---------------------------------------------------------------------------------------------
def build(parts: Sequence[Part], homes: Sequence[int], device: OpenDevice) -> Plan:
    """Schedule and compile some expressions over joint leaves.

    Homes[i] >= 0 says which leaf output i is stored into.
    """
    from compiler.compile import compile_many  # noqa: PLC0415 - nothing of the compiler before a kernel is wanted
    from compiler.schedule import schedule  # noqa: PLC0415 - as above

    for e, _ in parts:
        if prod(e.shape) * e.dtype.itemsize > MOST_BYTES:
            raise UsageError(
                f"{e.dtype.name}{list(e.shape)} would take {prod(e.shape) * e.dtype.itemsize} bytes: more "
                "than any address space has\nhint: realize a part of it, or a reduction"
            )
    trim_table(NODE_LIMIT)  # the graphs of earlier plans have served
    outputs = uops(parts)
    for i, home in enumerate(homes):
        if home >= 0:
            e = parts[i][0]
            outputs[i] = graph.assign(graph.param(home, e.shape, e.dtype), outputs[i])
    items = schedule(outputs)
    compiled = compile_many([item.ast for item in items], device.arch)
    kernels = []
    for item, made in zip(items, compiled, strict=True):
        program = device.program(made.image)
        keys = tuple([_key(ref) for ref in item.bufs])
        sizes = tuple([ref.nbytes for ref in item.bufs])
        kernels.append(Kernel(program, made.groups, made.threads, keys, sizes, item.stores))
    stats.plans += 1
    return _planned(parts, homes, device, tuple(kernels))


def _key(ref: BufRef) -> tuple[str, int]:
    """Return what names a scheduled buffer in a plan."""
    from compiler.item import OutRef, ParamRef  # noqa: PLC0415 - nothing of the compiler before a kernel is wanted

    if isinstance(ref, ParamRef):
        return "in", ref.slot
    return "out" if isinstance(ref, OutRef) else "temp", ref.n


def _planned(
    parts: Sequence[Part], homes: Sequence[int], device: OpenDevice, kernels: tuple[Kernel, ...]
) -> Plan:
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
        label = " ".join([e.op.lower() for e, _ in parts[:4]])
        executable = assemble(device, kernels, params, {}, label=label)
    large = sum([*[sizes[i] for i in inputs], *[size for _, size in outputs]]) >= LARGE_BYTES
    written = tuple([n for n, _ in outputs if n in stored])
    return Plan(device, kernels, inputs, outputs, written, executable, large)


def aliased(e: Expr, *, stopped: bool = True) -> bool:
    """Whether an expression is a leaf's memory itself, in another shape, and, if `stopped`, perhaps detached.

    A detached leaf cannot be realized as that leaf: gradients would find their way by it.
    """
    while e.op is Ops.RESHAPE or (stopped and e.op is STOP):
        e = e.src[0]
    return e.op is PARAM


def build_run(e: Expr) -> Callable[[Leaves], Leaves]:
    """Return the launch of one expression, and hang it on it."""
    if aliased(e, stopped=False):
        e.run = _same_memory
        return e.run
    device = Device[e.device]
    plan = build([(e, tuple(range(e.n)))], (-1,), device)
    if len(_RUNNING) >= PLAN_LIMIT:
        for old in _RUNNING:
            old.run = None
        _RUNNING.clear()
        device.programs.clear()
    _RUNNING.append(e)
    e.run = _runner(plan, prod(e.shape) * e.dtype.itemsize or 1)
    return e.run


def _same_memory(leaves: Leaves) -> Leaves:
    return leaves


def _runner(plan: Plan, nbytes: int) -> Callable[[Leaves], Leaves]:
    alloc = plan.device.hcq.alloc
    inputs, count = plan.inputs, len(plan.kernels)
    replay = None if plan.executable is None else plan.replay if plan.large else plan.executable.replay

    def run(leaves: Leaves) -> Leaves:
        out = alloc(nbytes)
        if replay is not None:
            given = [leaves[i].buffer for i in inputs]
            given.append(out)
            replay(given)
            if not plan.large:
                stats.kernels += count
                stats.launches += 1
        if CAPTURE.now is not None:
            CAPTURE.now.record(plan, [leaf.buffer for leaf in leaves], [out])
        leaf = Leaf(out)
        if CAPTURE.now is not None:
            CAPTURE.now.made(leaf)
        return (leaf,)

    return run


# -- one tensor ----------------------------------------------------------------------------------------
def realize_one(t: Tensor) -> None:
    """Compute a pending tensor: one lookup and one launch when its structure is known."""
    if t.expr.op is PARAM:
        return
    with LOCK:
        e = t.expr
        if e.op is PARAM:  # by another thread, meanwhile
            return
        if t.recipe.__class__ is Rebound and t.recipe.home is not None:
            realize_many((t,))
            return
        if t.epoch != EPOCH[0]:
            refresh(t)
            e = t.expr
            if e.op is PARAM:
                return
        run = e.run
        if run is None:
            check_concrete(t)
            run = build_run(e)
        old = t.leaves  # not let go of between the two lines, so that no other thread sees only the first
        t.leaves = run(old)
        t.expr = e.leaf
        if t.recipe.__class__ is Rebound:
            PENDING.pop(id(t), None)
        else:
            t.recipe = None
        if t.used:
            EPOCH[0] += 1
            t.epoch = EPOCH[0]


def check_concrete(t: Tensor) -> None:
    """Refuse to realize a stand-in inside a traced method."""
    if any(leaf.__class__ is not Leaf for leaf in t.leaves):
        raise UsageError(
            "a value was asked for inside a traced method or a gradient rule, whose result "
            "must not depend on values\n"
            "hint: do it outside, or express it with where()"
        )


# -- several tensors -----------------------------------------------------------------------------------
def realize_many(tensors: Sequence[Tensor]) -> None:
    """Compute several pending tensors, with their assigns, in one launch a device."""
    with LOCK:
        _realize_many(tensors)


def _realize_many(tensors: Sequence[Tensor]) -> None:
    todo: dict[str, list[Tensor]] = {}
    seen: set[int] = set()
    for t in tensors:
        if id(t) in seen:
            continue
        seen.add(id(t))
        if t.epoch != EPOCH[0]:
            refresh(t)
        if t.expr.op is not PARAM or _home(t) is not None:
            todo.setdefault(t.expr.device, []).append(t)
    del tensors
    for name, group in todo.items():
        if len(group) == 1 and _home(group[0]) is None:
            realize_one(group[0])
        else:
            _realize_group(group, Device[name])


def _home(t: Tensor) -> Leaf | None:
    recipe = t.recipe
    return recipe.home if recipe.__class__ is Rebound else None


def _realize_group(group: list[Tensor], device: OpenDevice) -> None:
    _separate_homes(group, device)
    index: dict[Leaf, int] = {}
    key: list[Any] = []
    for t in group:
        check_concrete(t)
        where = tuple([index.setdefault(leaf, len(index)) for leaf in t.leaves])
        recipe: Any = t.recipe  # its home must not get a name: every reference counts
        key += (t.expr, where, -1 if _home(t) is None else index.setdefault(recipe.home, len(index)))
    name = tuple(key)
    plan = _MANY.get(name)
    if plan is None:
        if len(_MANY) >= PLAN_LIMIT:
            _MANY.clear()
            device.programs.clear()
        parts = [(name[i], name[i + 1]) for i in range(0, len(name), 3)]
        plan = _MANY[name] = build(parts, name[2::3], device)
    _launch(plan, group, index)


def _separate_homes(group: list[Tensor], device: OpenDevice) -> None:
    """Give a tensor that shares its buffer with an earlier one of the group a buffer of its own."""
    seen: set[int] = set()
    for t in group:
        home = _home(t)
        if home is None:
            continue
        if id(home) in seen:
            t.recipe = Rebound(Leaf(device.alloc(home.buffer.size)))
        seen.add(id(home))


def _launch(plan: Plan, group: list[Tensor], index: dict[Leaf, int]) -> None:
    """Run a plan of several outputs and give the tensors their new leaves."""
    buffers = [leaf.buffer for leaf in index]
    homes = [_home(t) for t in group]
    if any(home is not None for home in homes):
        _keep_old(group, homes, plan.device)
    del index
    outs = {n: plan.device.alloc(nbytes) for n, nbytes in plan.outputs}
    plan.replay([*[buffers[i] for i in plan.inputs], *[outs[n] for n in plan.stored]])
    seen = CAPTURE.now
    if seen is not None:
        seen.record(plan, buffers, list(outs.values()))
    used = False
    gone: list[Leaves] = []  # as in `_realize_one`
    for i, t in enumerate(group):
        home = homes[i]
        if home is None:
            leaf = Leaf(outs[i])
            if t.recipe.__class__ is Rebound:
                PENDING.pop(id(t), None)
            else:
                t.recipe = None
            if seen is not None:
                seen.made(leaf)
        else:
            leaf = home
            t.recipe = Rebound(None)
            PENDING.pop(id(t), None)
            if seen is not None:
                seen.assigned(t, leaf)
        gone.append(t.leaves)
        t.leaves = (leaf,)
        t.expr = t.expr.leaf
        used = used or t.used
    if used:
        EPOCH[0] += 1
        for t in group:
            t.epoch = EPOCH[0]


def _keep_old(group: list[Tensor], homes: list[Leaf | None], device: OpenDevice) -> None:
    """Where others still mean the old contents of a buffer about to be written, give their leaf a copy.

    First the tensors being realized let go of their parents. What then refers to a leaf is: the caller's
    index, `homes`, the Rebound that names it, and leaf tuples; of those, only the ones that belong to the
    group alone are not someone else's.
    """
    for t in group:
        if t.recipe.__class__ is not Rebound:
            t.recipe = None
    own: dict[int, tuple[Leaves, int]] = {}
    for t in group:
        leaves, count = own.get(id(t.leaves), (t.leaves, 0))
        own[id(leaves)] = (leaves, count + 1)
        del leaves
    inside: dict[Leaf, int] = {}
    for entry in own.values():
        if getrefcount(entry[0]) == entry[1] + 2:  # the tensors of the group, this entry, the call
            for leaf in entry[0]:
                inside[leaf] = inside.get(leaf, 0) + 1
    leaf = None
    for i, home in enumerate(homes):
        if home is None:
            continue
        # index, homes, Rebound.home, `home`, the call; `inside` when it is a key there; tuples of the group
        expected = 5 + (1 + inside[home] if home in inside else 0)
        if getrefcount(home) > expected:
            original = home.buffer
            home.buffer = device.copied(original)
            if CAPTURE.now is not None:
                CAPTURE.now.copied(home.buffer, original)
            fresh = Leaf(original)
            homes[i] = fresh
            _rehome(group[i], fresh)


def _rehome(t: Tensor, leaf: Leaf) -> None:
    t.recipe = Rebound(leaf)


def _drop_lost(name: str) -> None:
    """Forget what was to be assigned to, or computed from, memory that was lost to a fault."""
    for t in pending():
        home = _home(t)
        leaves = (*t.leaves, *([] if home is None else [home]))
        if t.device == name and any(leaf.__class__ is Leaf and leaf.buffer.closed for leaf in leaves):
            PENDING.pop(id(t), None)


def _void_plans(name: str) -> None:
    """Forget the plans of a device that was closed, and what was to be assigned there."""
    for t in pending():
        if t.device == name:
            PENDING.pop(id(t), None)
    for key in [k for k, plan in _MANY.items() if plan.device.name == name]:
        del _MANY[key]


Device.closing.append(_void_plans)
Device.recovered.append(_drop_lost)
