"""The check of a plan at its first launch: `HCQ_CHECK=1`.

The kernels of the plan run one after the other, on copies of the memory that they overwrite. The results of
each kernel are compared with the expression that the scheduler was given, evaluated from parameters and from
results of earlier kernels (`evaluation`). A value is therefore compared with its operations as they were
before fusion, splits and joins. Then the plan's launch runs as always, and must store the same bytes.

Winograd's algorithm adds products that a sum does not have. The bound of such a kernel is `WINOGRAD` times
the largest bound of its results, and an infinity may become NaN (docs/cpu-kernels.md).

Not checked: kernels that a program compiles or loads itself. Replays of captured functions are not checked
either; their kernels were checked in the calls before the first replay.

Not here: single operations and their bounds (`interpreter`). Next: `frontend.evaluation.plan`.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from compiler.dtype import dtypes
from compiler.ir import graph
from compiler.ir.ops import Ops
from compiler.ir.serialize import kernel_key, postorder
from compiler.schedule.scheduler import limits_on, share_assigned, split_reductions, without_empties
from compiler.targets import target_of
from frontend.check.evaluation import evaluate
from frontend.check.interpreter import Array, Bounded, TooLargeError, from_bytes, kept_as
from hcq.errors import CheckError

if TYPE_CHECKING:
    import hcq
    from compiler.ir.uop import UOp
    from compiler.schedule.item import ScheduleItem
    from frontend.device import TensorDevice
    from frontend.evaluation.plan import LaunchPlan

WINOGRAD: Final = 16
"""A result of Winograd's algorithm may differ by this multiple of the largest bound of the results."""
MOST_BYTES: Final = 1 << 27
"""The most bytes that the kernels of a plan may access; a larger plan is not compared."""
UNWRITTEN: Final = 0xA5A5A5A5
"""The 32-bit word with which new memory is filled before a kernel stores its results there."""
GUARD: Final = 256
"""Number of bytes after new memory that no kernel may store to."""


@dataclass(slots=True)
class Tally:
    """What was checked in this process."""

    kernels: int = 0
    """Kernels whose results were all compared."""
    sampled: int = 0
    """Kernels of which a sample of results was compared."""
    elements: int = 0
    """Results that were compared."""
    open: int = 0
    """Results with an infinite bound, for which any value is right."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Kernels that were not compared, by name and reason."""

    def __str__(self) -> str:
        text = (
            f"HCQ_CHECK: {self.kernels} kernels compared, {self.sampled} by a sample of their results, "
            f"{self.skipped.total()} not; {self.elements} results, of which {self.open} have no bound"
        )
        return "\n".join([text, *[f"  not compared: {name} ({n} times)" for name, n in self.skipped.items()]])


TALLY: Final = Tally()


class Check:
    """The expressions of a plan's results, until its first launch has been checked."""

    def __init__(self, outputs: Sequence[UOp], items: Sequence[ScheduleItem], device: TensorDevice) -> None:
        self.items = items
        self.device = device
        self.originals = _originals(outputs, device.arch)
        self.launched = False
        """Whether the plan itself was launched; before that, kernels store to copies only."""

    def run(self, plan: LaunchPlan, given: Sequence[hcq.Buffer]) -> None:
        """Run the plan's kernels one by one and compare each; then launch the plan on `given` and compare.

        `given` are the buffers of inputs and outputs. A plan above `MOST_BYTES` is launched only. Raises
        `CheckError` before anything is stored to `given` if a kernel is wrong; after that if the launch
        stores other bytes than the kernels one by one.
        """
        assert plan.executable is not None
        self.launched = False
        if sum([size for kernel in plan.kernels for size in kernel.sizes]) > MOST_BYTES:
            names = [kernel.program.name for kernel in plan.kernels if kernel.program is not None]
            TALLY.skipped.update([f"{name}: more than {MOST_BYTES} bytes" for name in names])
            self.launched = True
            plan.executable.replay(list(given))
            return
        run = _Run(self, plan, given)
        run.kernels_one_by_one()
        self.launched = True
        plan.executable.replay(list(given))
        run.compare_launch()

    def compare(self, plan: LaunchPlan, given: Sequence[hcq.Buffer]) -> None:
        """Compare the plan's kernels one by one without a launch of the whole. Raises `CheckError`."""
        _Run(self, plan, given).kernels_one_by_one()


def _originals(outputs: Sequence[UOp], arch: str) -> dict[UOp, list[UOp]]:
    """Return for each node of the scheduled graph the nodes of the given graph that it came from.

    The first passes of the scheduler, which change nodes, are repeated for all nodes at once.
    """
    nodes = [n for n in postorder(outputs) if n.dtype is not dtypes.index]
    changed = share_assigned(split_reductions(without_empties(nodes), limits_on(target_of(arch))))
    found: dict[UOp, list[UOp]] = {}
    for old, new in zip(nodes, changed, strict=True):
        found.setdefault(new, []).append(old)
    return found


def _of_winograd(wanted: Bounded) -> Bounded:
    if wanted.e is None:
        return wanted
    most = np.where(np.isfinite(wanted.e), wanted.e, 0.0).max(initial=0.0)
    return Bounded(wanted.v, np.where(np.isinf(wanted.v), np.inf, wanted.e + WINOGRAD * most))


class _Run:
    """One checked launch."""

    def __init__(self, check: Check, plan: LaunchPlan, given: Sequence[hcq.Buffer]) -> None:
        self.check, self.plan, self.device = check, plan, check.device
        keys: list[Any] = [("in", i) for i in plan.inputs] + [("out", n) for n in plan.stored]
        self.given = dict(zip(keys, given, strict=True))
        self.memory: dict[Any, hcq.Buffer] = {}
        self.bytes: dict[Any, bytes] = {}
        """Key of memory -> its present contents."""
        self.open: dict[Any, Array] = {}
        """Key of memory -> which elements have an infinite bound, in a plan that need not write all."""
        self.known: dict[UOp, Bounded] = {}
        self._prepare()

    def _prepare(self) -> None:
        written = {k.memory[i] for k in self.plan.kernels for i in k.stores}
        sizes: dict[Any, int] = {}
        for kernel in self.plan.kernels:
            for key, size in zip(kernel.memory, kernel.sizes, strict=True):
                sizes[key] = max(size, sizes.get(key, 0))
        for key, size in sizes.items():
            if key[0] == "in":
                self.bytes[key] = bytes(self.device.read(self.given[key], size))
                whole = self.given[key]
                self.memory[key] = self.device.copied(whole) if key in written else whole
            else:
                self.memory[key] = buffer = self.device.alloc(-(-size // 4) * 4 + GUARD)
                self.device.queue.submit(self.device.queue.record(label="check").fill(buffer, UNWRITTEN))
                self.bytes[key] = b"\xa5" * size
        for nodes in self.check.originals.values():
            for node in nodes:
                self._know_leaf(node)

    def _know_leaf(self, node: UOp) -> None:
        """Read a parameter. One that no kernel loads gets arbitrary values: results must not depend on it."""
        if node.op is Ops.PARAM:
            slot, shape = node.arg
            data = self.bytes.get(("in", slot), b"")[: math.prod(shape) * node.dtype.itemsize]
            values = from_bytes(data, node.dtype) if data else np.arange(math.prod(shape)) % 7 + 1
            self.known[node] = Bounded(values.astype(kept_as(node.dtype), copy=False).reshape(shape))

    def kernels_one_by_one(self) -> None:
        """Run each kernel, on copies, and compare its results.

        Raises `CheckError` for the first wrong one.
        """
        queue = self.device.queue
        for number, (kernel, item) in enumerate(zip(self.plan.kernels, self.check.items, strict=True)):
            assert kernel.program is not None
            args = kernel.program.args(*[self.memory[key] for key in kernel.memory])
            commands = queue.record(label=f"check {kernel.program.name}")
            queue.submit(commands.exec(kernel.program, args, groups=kernel.groups, threads=kernel.threads))
            for slot in item.stores:
                key: Any = kernel.memory[slot]
                size = len(self.bytes[key])
                stored = bytes(self.device.read(self.memory[key], size + GUARD * (key[0] != "in")))
                self.bytes[key], after = stored[:size], np.frombuffer(stored[size:], np.uint8)
                guard = np.full_like(after, UNWRITTEN & 0xFF)
                bad = np.flatnonzero(after != guard)
                if bad.size:
                    what = "is stored beyond its end:"
                    self._refuse(number, item, slot, bad, after, Bounded(guard), what, beyond=True)
            self._compare(number, item)

    def _compare(self, number: int, item: ScheduleItem) -> None:
        kernel = self.plan.kernels[number]
        assert kernel.program is not None
        if not item.values:
            TALLY.skipped[f"{kernel.program.name}: parts of a result, compared when joined"] += 1
            return
        seed = zlib.crc32(kernel.program.name.encode())
        part = False
        stored: dict[UOp, Bounded] = {}
        try:
            for slot, node in zip(item.stores, item.values, strict=True):
                key = kernel.memory[slot]
                wanted, at = self._wanted(node, item, seed)
                part = part or at is not None
                now = from_bytes(self.bytes[key], node.dtype)
                found = now.reshape(-1) if at is None else now.reshape(-1)[at]
                self._elements(number, item, slot, found, wanted, at)
                if self.plan.partial and wanted.e is not None and at is None:
                    self.open[key] = np.broadcast_to(wanted.e, wanted.v.shape).reshape(-1) == np.inf
                stored[node] = Bounded(now.reshape(node.shape), self._leaf_bound(wanted, at, node))
        except TooLargeError as reason:
            TALLY.skipped[f"{kernel.program.name}: {reason}"] += 1
            for slot, node in zip(item.stores, item.values, strict=True):
                now = from_bytes(self.bytes[kernel.memory[slot]], node.dtype)
                stored[node] = Bounded(now.reshape(node.shape))
        else:
            TALLY.kernels += not part
            TALLY.sampled += part
        for node, value in stored.items():
            for same in (node, *self.check.originals.get(node, ())):
                self.known[same] = value
                if same.op is Ops.ASSIGN and same.src[1].op is not Ops.PARAM:
                    self.known.setdefault(same.src[1], value)

    def _leaf_bound(self, wanted: Bounded, at: Array | None, node: UOp) -> Array | None:
        """Return the bound of stored values: None, or infinite where a kernel may leave any value."""
        if not self.plan.partial or wanted.e is None or at is not None:
            return None
        return np.where(np.broadcast_to(wanted.e, wanted.v.shape) == np.inf, np.inf, 0.0).reshape(node.shape)

    def _wanted(self, node: UOp, item: ScheduleItem, seed: int) -> tuple[Bounded, Array | None]:
        """Return values and positions, as `evaluate`, of a stored node's expression before scheduling."""
        root = self.check.originals.get(node, [node])[0]
        if root in self.known:
            return self.known[root], None
        wanted, at = evaluate(root, self.known, seed)
        return (_of_winograd(wanted) if self._is_winograd(item) else wanted), at

    def _is_winograd(self, item: ScheduleItem) -> bool:
        target = target_of(self.device.arch)
        if not target.winograd or (item.ast.arg and item.ast.arg[1]):
            return False
        from compiler.plan.choice import WinogradChoice  # noqa: PLC0415 - for devices with such kernels
        from compiler.plan.proposal import prepared  # noqa: PLC0415 - as above
        from compiler.plan.proposers import chosen  # noqa: PLC0415 - as above

        parts = item.ast.src if item.ast.arg else (item.ast,)
        return any(chosen(prepared(part), target, WinogradChoice()) is not None for part in parts)

    def _elements(  # noqa: PLR0917 - positional: as above
        self, number: int, item: ScheduleItem, slot: int, found: Array, wanted: Bounded, at: Array | None
    ) -> None:
        """Compare stored elements with the wanted ones; raise `CheckError` if one is out of its bound."""
        v = wanted.v.reshape(-1)
        with np.errstate(all="ignore"):
            if v.dtype == np.bool_:
                good = found.view(np.uint8) == v.view(np.uint8)
            else:
                good = (found == v) | (np.isnan(found) & np.isnan(v) if v.dtype.kind == "f" else False)
            if wanted.e is not None:
                e = np.broadcast_to(wanted.e, wanted.v.shape).reshape(-1)
                kind = np.longdouble if v.dtype.itemsize == 8 else np.float64
                good = good | (np.abs(found.astype(kind) - v.astype(kind)) <= e) | (e == np.inf)
                TALLY.open += int(np.count_nonzero(e == np.inf))
        TALLY.elements += int(found.size)
        bad = np.flatnonzero(~good)
        if bad.size:
            self._refuse(number, item, slot, bad, found, wanted, "differs", at)

    def _refuse(  # noqa: PLR0917 - positional: as above
        self, number: int, item: ScheduleItem, slot: int, bad: Array, found: Array, wanted: Bounded,
        what: str, at: Array | None = None, *, beyond: bool = False,
    ) -> None:  # fmt: skip
        """Raise `CheckError` for differing elements, or bytes `beyond` the result."""
        from compiler import show  # noqa: PLC0415 - loaded for errors only

        kernel, ref = self.plan.kernels[number], item.bufs[slot]
        known = item.values[item.stores.index(slot)] if item.values else None
        node = graph.full(0, ref.shape, ref.dtype) if known is None else known
        assert kernel.program is not None
        first = int(bad[0])
        flat = first if at is None else int(at[first])
        shape = (flat + 1,) if beyond else node.shape
        index = tuple([int(i) for i in np.unravel_index(flat, shape)]) if shape else ()
        bound = 0.0 if wanted.e is None else np.broadcast_to(wanted.e, wanted.v.shape).reshape(-1)[first]
        root = self.check.originals.get(node, [node])[0]
        try:
            plan = show.forms(item.ast, self.device.arch, level=show.NEST).nest
        except Exception as error:  # noqa: BLE001 - the report of another error must not hide it
            plan = f"not made again: {error!r}"
        raise CheckError(
            f"kernel {kernel.program.name} on {self.device.name}: its result {slot}, "
            f"{node.dtype.name}{list(node.shape)}, {what} at {list(index)}",
            kernel=kernel.program.name,
            device=self.device.name,
            index=index,
            found=found.reshape(-1)[first].item(),
            wanted=wanted.v.reshape(-1)[first].item(),
            bound=float(bound),
            bad=int(bad.size),
            elements=int(found.size),
            plan=plan + self._order(number),
            graph=show.graph([root]),
            ast=kernel_key(item.ast),
            where="bytes behind the result" if beyond else self._where(node, bad, found, wanted, at),
        )

    def _where(self, node: UOp, bad: Array, found: Array, wanted: Bounded, at: Array | None) -> str:
        """Return as text which elements differ, axis by axis, by how much, and how many were not stored."""
        flat = bad if at is None else at[bad]
        shape = node.shape if at is not None or math.prod(node.shape) == found.size else (found.size,)
        lines = []
        for axis, size in enumerate(shape):
            places = np.unravel_index(flat, shape)[axis]
            seen = np.unique(places)
            run = "" if seen.size == seen[-1] - seen[0] + 1 else f", {seen.size} of them"
            lines.append(f"axis {axis}: {seen[0]} to {seen[-1]} of 0 to {size - 1}{run}")
        one, other = found.reshape(-1)[bad], wanted.v.reshape(-1)[bad]
        if one.dtype.kind == "f":
            with np.errstate(all="ignore"):
                by = np.abs(one.astype(np.float64) - other.astype(np.float64))
            lines.append(f"differences of {by.min():.3g} to {by.max():.3g}, median {np.median(by):.3g}")
        fill = np.full(1, UNWRITTEN, np.uint32).view(np.uint8)
        words = np.resize(fill, one.dtype.itemsize)
        unstored = int((np.ascontiguousarray(one).view(np.uint8).reshape(bad.size, -1) == words).all(1).sum())
        return "; ".join([*lines, f"{unstored} not stored at all"] if unstored else lines)

    def _order(self, number: int) -> str:
        """Return the kernels of a launch, in order, as text; empty where there is one."""
        lines = ["\nlaunch:"]
        for n, kernel in enumerate(self.plan.kernels):
            keys: Any = kernel.memory
            names = ["".join(map(str, key)) for key in keys]
            stored = ", ".join([name for i, name in enumerate(names) if i in kernel.stores])
            loaded = ", ".join([name for i, name in enumerate(names) if i not in kernel.stores])
            name = "" if kernel.program is None else kernel.program.name
            lines.append(f"  {n} {name} stores {stored}; loads {loaded or 'nothing'}")
        lines[1 + number] += "  <- this one"
        return "\n".join(lines) if len(self.plan.kernels) > 1 else ""

    def compare_launch(self) -> None:
        """Compare the bytes of the plan's launch with those of its kernels one by one; raise `CheckError`."""
        written = {k.memory[i] for k in self.plan.kernels for i in k.stores}
        for key in written & self.given.keys():
            wanted = np.frombuffer(self.bytes[key], np.uint8)
            found = np.frombuffer(bytes(self.device.read(self.given[key], wanted.size)), np.uint8)
            same = found == wanted
            if key in self.open:
                same |= np.repeat(self.open[key], same.size // self.open[key].size)
            if not same.all():
                number = max(
                    n for n, k in enumerate(self.plan.kernels) if key in [k.memory[i] for i in k.stores]
                )
                item = self.check.items[number]
                slot = self.plan.kernels[number].memory.index(key)
                dtype = item.bufs[slot].dtype
                bad = np.unique(np.flatnonzero(~same) // dtype.itemsize)
                was = from_bytes(self.bytes[key], dtype)
                what = "differs between the launch of the whole plan and its kernels one by one"
                self._refuse(number, item, slot, bad, from_bytes(found.tobytes(), dtype), Bounded(was), what)
