"""From tensor graphs to kernels, in an order that respects their loads and stores.

A large reduction to few elements is split in two: partial results first, then their reduction. In one kernel,
workers could share it only with synchronisation. The split depends on the shape and the target, not on the
number of workers, so this number does not change the rounding of a sum.

Not here: machine code (`compiler.compile`), the loops of a reduction inside one kernel
(`compiler.emit.reductions`). Next: `fusion`, which decides what nodes share a kernel; `lower`, which makes a
kernel's AST.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from compiler import collector
from compiler.ir import graph
from compiler.ir.fold import identity
from compiler.ir.ops import ELEMENTWISE, Ops
from compiler.ir.serialize import postorder
from compiler.ir.uop import UOp, uop
from compiler.ir.walk import rebuilt
from compiler.schedule.analysis import Evaluation, FusionLimits, KernelDraft, param_of
from compiler.schedule.chains import join_chains
from compiler.schedule.fusion import Grouping
from compiler.schedule.item import BufRef, OutRef, ParamRef, ScheduleItem, TempRef, needed
from compiler.schedule.lower import Buffers, assigned_place, lower
from compiler.schedule.operands import join_users
from compiler.schedule.rows import join_rows
from hcq.config import config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.targets.shared.target import Target


__all__ = ["BufRef", "FusionLimits", "OutRef", "ParamRef", "ScheduleItem", "TempRef", "schedule"]

_DEFAULT = FusionLimits()
GROUPS_PER_CORE = 4
"""Workgroups that keep one processor of a device busy, if each computes a sum."""
OPERAND_BYTES = 1 << 18
"""Bytes of a buffer from which on kernels that load it become one on a host."""
THREADS_PER_CORE = 1024
"""Threads that keep one processor of a device busy, if each computes a sum."""


def schedule(
    outputs: Sequence[UOp], *, limits: FusionLimits = _DEFAULT, verify: bool | None = None
) -> list[ScheduleItem]:
    """Return the kernels that compute the outputs, in an order in which they may run.

    Output number i is stored to OutRef(i), whole and row-major; an ASSIGN stores in place instead and has no
    OutRef. An output without elements needs no kernel. `verify` checks the graph and every kernel, and raises
    `CompileError` for a wrong one; by default if DEBUG is set.
    """
    if verify is None:
        verify = config().debug > 0
    if verify:
        return _verified(outputs, limits)
    with collector.paused():
        return _schedule(outputs, limits)


def _verified(outputs: Sequence[UOp], limits: FusionLimits) -> list[ScheduleItem]:
    """Return the kernels, after a check of the outputs and of every kernel; from DEBUG=2 on, report them."""
    from compiler.ir.verify import verify_kernel, verify_tensor  # noqa: PLC0415 - loaded on demand

    for output in outputs:
        verify_tensor(output)
    with collector.paused():
        items = _schedule(outputs, limits)
    for item in items:
        verify_kernel(item.ast)
    if config().debug >= 2:
        from compiler import show  # noqa: PLC0415 - loaded on demand

        show.report(f"graph:\n{show.graph(outputs)}\nschedule:\n{show.schedule(items)}")
    return items


def _schedule(outputs: Sequence[UOp], limits: FusionLimits) -> list[ScheduleItem]:
    """Return the kernels that compute the outputs; see `schedule`."""
    outputs = share_assigned(split_reductions(without_empties(outputs), limits))
    grouping = Grouping([output for output in outputs if 0 not in output.shape], limits)
    in_place = _assign_in_place(grouping)
    kernels = _ordered(grouping)
    refs: dict[UOp, tuple[BufRef, ...]] = {}
    for n, output in enumerate(outputs):
        if output.op is not Ops.ASSIGN:
            refs[output] = (*refs.get(output, ()), OutRef(n, output.dtype, output.shape))
    temps = 0
    for kernel in kernels:
        for fact, _ in kernel.stores:
            node = fact.node
            if node not in refs and node not in in_place and kernel.copies is not node:
                refs[node] = (TempRef(temps, node.dtype, node.shape),)
                temps += 1
    buffers = Buffers(refs, in_place)
    items = needed([lower(kernel, buffers) for kernel in kernels])
    if not limits.chains or len(items) == 1:
        return items
    if limits.threaded is not None:
        from compiler.schedule.threaded import join_attention  # noqa: PLC0415 - loaded on demand

        return join_attention(items, limits.threaded)
    items = join_chains(items)
    items = join_rows(items, limits.rows) if len(items) > 1 else items
    several = len(items) > 1 and limits.operand > 0
    return join_users(items, limits.operand, limits.buffers) if several else items


def limits_on(target: Target) -> FusionLimits:
    """Return the limits of fusion on a target."""
    if target.threads == 1:
        return FusionLimits(chains=target.chains, operand=OPERAND_BYTES)
    return FusionLimits(
        chains=bool(target.matrix),
        threaded=target,
        groups=GROUPS_PER_CORE * target.cores,
        outputs=THREADS_PER_CORE * target.cores,
    )


def without_empties(outputs: Sequence[UOp]) -> list[UOp]:
    """Return the outputs with constants in place of nodes whose first source is empty.

    Empty nodes stay. Three operations make elements of an empty tensor: PAD and GATHER from an empty axis
    give zeros, REDUCE gives the neutral element of its reduction.
    """
    order = postorder(outputs)
    if not any([0 in x.shape for x in order]):  # noqa: C419 - a list is faster
        return list(outputs)

    def change(x: UOp, _src: tuple[UOp, ...]) -> UOp | None:
        if 0 in x.shape:
            return x
        if not x.src or 0 not in x.src[0].shape:
            return None
        return graph.full(identity(x.arg[0], x.dtype).arg if x.op is Ops.REDUCE else 0, x.shape, x.dtype)

    new = rebuilt(order, change)
    return [new[x] for x in outputs]


def share_assigned(outputs: Sequence[UOp]) -> list[UOp]:
    """Return the outputs, where users of a value x that is also assigned use ASSIGN(p, x).

    They then need neither x's sources nor the old contents of p, so the updates of an optimiser's state and
    of its parameter are one kernel that stores in place. Only results of elementwise operations and
    reductions are replaced.
    """
    order = postorder(outputs)
    assigned: dict[UOp, UOp] = {}
    for x in order:
        if x.op is Ops.ASSIGN and x.src[1].op in ELEMENTWISE | {Ops.REDUCE}:
            assigned.setdefault(x.src[1], x)
    if not assigned:
        return list(outputs)
    new: dict[UOp, UOp] = {}
    used: dict[UOp, UOp] = {}
    for x in order:
        if x in used:
            continue
        src = tuple([used[s] for s in x.src])
        if x.op is Ops.ASSIGN and assigned.get(x.src[1]) is not x:
            src = (src[0], new[x.src[1]])
        new[x] = used[x] = x if src == x.src else uop(x.op, x.dtype, src, x.arg)
        assign = assigned.get(x)
        if assign is not None:
            made = uop(Ops.ASSIGN, assign.dtype, (assign.src[0], new[x]), assign.arg)
            new[assign] = used[assign] = used[x] = made
    return [new[x] for x in outputs]


def _ordered(grouping: Grouping) -> list[KernelDraft]:
    """Return the kernels sorted by the longest path to each, so that independent kernels are adjacent.

    A kernel without dependencies (the cast of a weight) comes just before its first user, to keep buffers
    short-lived.
    """
    users_of = grouping.order.users
    level = [0] * len(users_of)
    waits = [False] * len(users_of)
    for number in sorted(range(len(users_of)), key=lambda i: -grouping.order.later[i].bit_count()):
        for user in users_of[number]:
            level[user] = max(level[user], level[number] + 1)
            waits[user] = True
    for number, users in enumerate(users_of):
        if users and not waits[number]:
            level[number] = min([level[user] for user in users]) - 1
    return sorted(grouping.kernels, key=lambda k: (level[k.number], -k.number))


def _assign_in_place(grouping: Grouping) -> set[UOp]:
    """Order readers of old contents before each ASSIGN, and return the ASSIGNs that can store in place.

    Each other ASSIGN gets a temporary buffer, and a kernel that copies it after all readers. It needs them if
    its kernel loads the target at other indices than it stores, or if a reader of the old contents runs after
    the kernel.
    """
    assigns = [(k, fact.node) for k in grouping.kernels for fact, _ in k.stores if fact.node.op is Ops.ASSIGN]
    if not assigns:
        return set()
    readers: dict[int, list[Evaluation]] = {}
    for kernel in grouping.kernels:
        for (node, _, _), entry in kernel.entries.items():
            if node.op is Ops.PARAM:
                readers.setdefault(node.arg[0], []).append(entry)
    in_place: set[UOp] = set()
    writers: dict[int, list[tuple[KernelDraft, UOp]]] = {}
    assigns.sort(key=lambda pair: -grouping.order.later[pair[0].number].bit_count())
    for kernel, assign in assigns:
        slot = param_of(assign).arg[0]
        old = dict.fromkeys([e.kernel for e in readers.get(slot, ()) if e.kernel is not kernel])
        newer = dict.fromkeys([k for k, _ in writers.get(slot, ()) if k is not kernel])
        for _, earlier in writers.get(slot, ()):
            if earlier in in_place:
                newer.update(
                    dict.fromkeys([e.kernel for e in grouping.facts.of[earlier].entries if e.loaded])
                )
        before = [*old, *newer]
        late = any(k is kernel or grouping.order.must_precede(kernel, k) for k in before)
        if late or _reads_elsewhere(kernel, assign, readers.get(slot, ())):
            writer = grouping.copy_kernel(assign)
            grouping.order.after(kernel, writer)
        else:
            writer = kernel
            in_place.add(assign)
        for k in before:
            grouping.order.after(k, writer)
        writers.setdefault(slot, []).append((writer, assign))
    return in_place


def _reads_elsewhere(kernel: KernelDraft, assign: UOp, readers: Sequence[Evaluation]) -> bool:
    """Return whether a kernel loads the buffer that it assigns at another index than it stores to."""
    ref, at = assigned_place(assign, kernel.index_of(assign.shape))
    own = Buffers({}, ())
    return any(own.load(e.node, e.index) != (ref, at) for e in readers if e.kernel is kernel)


_MOST_PARTS = 256
"""The most partial results of one result."""
_LEAST = 1024
"""The fewest elements of a partial result, unless the reduction has fewer than twice as many."""
_MOST_PARTS_THREADED = 1024
"""The most partial results of one result, if results are too few for the processors of a device."""
_LEAST_THREADED = 256
"""The fewest elements of a partial result in that case."""
_WORTH = 32
"""The fewest elements for which a second kernel pays in that case, as a multiple of `FusionLimits.split`."""


def split_reductions(outputs: Sequence[UOp], limits: FusionLimits) -> list[UOp]:
    """Return the outputs with every large reduction to few elements split in two."""
    order = postorder(outputs)
    cuts = {x: cut for x in order if x.op is Ops.REDUCE and (cut := _cut(x, limits)) is not None}
    if not cuts:
        return list(outputs)

    def change(x: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return _two_steps(src[0], x.arg, *cuts[x]) if x in cuts else None

    new = rebuilt(order, change)
    return [new[x] for x in outputs]


def _cut(x: UOp, limits: FusionLimits) -> tuple[int, int] | None:
    """Return the axis to cut and the number of parts, or None if the reduction stays whole."""
    shape = x.src[0].shape
    axes = x.arg[1]
    if not shape:
        return None
    length, results = prod([shape[a] for a in axes]), prod(x.shape)
    enough = limits.groups if len(shape) - 1 in axes else limits.outputs
    if results * 2 <= enough and length * results >= limits.split * _WORTH:
        most = min(_MOST_PARTS_THREADED, -(-enough // results), max(1, length // _LEAST_THREADED))
    elif results < limits.few_rows and length >= limits.split:
        most = min(_MOST_PARTS, max(2, length // _LEAST))
    else:
        return None
    # For each axis the largest number of equal parts that is not too large; of two equal ones the first axis.
    parts, axis = max([(n, -a) for a in axes for n in range(1, most + 1) if shape[a] % n == 0])
    return (-axis, parts) if parts > 1 else None


def _two_steps(source: UOp, arg: tuple[str, tuple[int, ...]], axis: int, parts: int) -> UOp:
    """Return the reduction `arg` in two steps: all but the parts of a cut axis, then the parts."""
    op, axes = arg
    shape = source.shape
    cut = graph.reshape(source, (*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :]))
    partial = graph.reduce(cut, op, [a + (a >= axis) for a in axes])
    return graph.reduce(graph.contiguous(partial), op, (axis - sum(1 for a in axes if a < axis),))
