"""Generated code that counts the instructions, memory accesses, divergent branches and atomics of a launch.

A counted translation (`Translation.counted`) adds to 64-bit slots of the launch, which `state.THREAD.counts`
points to. Instructions cost one addition for each basic block and one for each mask in it; accesses call a helper. A
translation without counters contains none of this code.

Not here: the classes of instructions (`emulator.nv.ptx.counted`). Next: `emulator.shared.counts`, which makes a kernel's
counters from the slots.
"""

# ruff: noqa: E501, PLR0917 - helpers mirror the functions they write, argument for argument

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from emulator.ir.addresses import address_type, split_generic
from emulator.ir.findings import i32
from emulator.ir.library import helper
from emulator.ir.state import THREAD, WARP
from emulator.ir.vector import IrValue, Spilled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator.ir.library import Library
    from emulator.ir.vector import CodeBuilder
    from emulator.simt.warp_code import WarpCode

BANKS: Final = 32
"""Banks of shared memory, 4 bytes each: an access moves 128 bytes in a cycle at best."""
BANK_BYTES: Final = 4
REQUESTS, LANES, BYTES, UNITS, LEAST, SERIAL, RECORD = range(7)
"""The slots of one access instruction. REQUESTS: executions with an active lane. LANES: active lanes. BYTES: bytes that the
lanes requested. UNITS: units of global memory (`Counted.unit`), or cycles of shared memory. LEAST: the cycles that shared
memory would take without bank conflicts. SERIAL: for atomics, the most lanes with one address. RECORD is the number of slots."""
PAGE_UNITS: Final = 64
"""Units of one entry of the table of touched memory, one bit for each."""
TABLE_BITS: Final = 18
"""log2 of the number of indices in the table of touched memory."""
TABLE_AT: Final = 64
ENTRIES_AT: Final = TABLE_AT + (4 << TABLE_BITS)
ENTRIES: Final = 1 << TABLE_BITS - 1
ENTRY_BYTES: Final = 32
"""The table of touched memory, a hash table. First the number of entries (i64) and of accesses to units without room (i64),
then, from TABLE_AT, an i32 for each hash: 1 + the number of an entry, 0 if none. From ENTRIES_AT, entries of ENTRY_BYTES:
a page number, and one bit for each unit that was read (at byte 8) and written (at byte 16)."""
TOUCHED_BYTES: Final = ENTRIES_AT + ENTRIES * ENTRY_BYTES
"""Bytes of the table of touched memory."""
_GOLDEN: Final = 0x9E37_79B9_7F4A_7C15
"""2**64 divided by the golden ratio: the multiplier of Fibonacci hashing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedOperation:
    """An instruction as it is counted."""

    kind: str
    """Its class, such as "float" or "branch"."""
    flops: int = 0
    """Floating-point operations of one lane."""
    matrix: int = 0
    """Operations of a matrix instruction by the whole warp; 0 for other instructions."""
    type: str = ""
    """The type of these operations, such as "f32"; "" if there are none."""


@dataclass(frozen=True, slots=True)
class Executed:
    """An instruction, the slot of its executions by warps, and the slot of its active lanes.

    `lanes` is -1 for an instruction that a warp executes once, not in each lane.
    """

    operation: CountedOperation
    warps: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Accessed:
    """An access and its first slot; `space` is global, shared or local, `what` load, store or atomic."""

    space: str
    what: str
    at: int


@dataclass(slots=True)
class Counted:
    """The slots of a counted translation."""

    unit: int
    """Bytes of the unit in which global memory is moved: a sector or a cache line."""
    slots: int = 0
    """The number of slots."""
    executed: list[Executed] = field(default_factory=list)
    accessed: list[Accessed] = field(default_factory=list)
    branches: list[int] = field(default_factory=list)
    """Slots of branches that divided the lanes of a warp."""
    copied: list[int] = field(default_factory=list)
    """Slots of the numbers of bytes that asynchronous copies moved."""


class Counting:
    """Writes the counting code of one warp function; `counted` describes its slots."""

    def __init__(self, wf: WarpCode, unit: int) -> None:
        self._wf = wf
        self.counted = Counted(unit)
        self._block = -1
        self._masks: dict[str, int] = {}

    def begin_block(self) -> None:
        """Begin a basic block, all of whose instructions execute equally often."""
        self._block, self._masks = -1, {}

    def execute(self, operation: CountedOperation, mask: IrValue | None) -> None:
        """Count one instruction in the lanes of a mask; None: the warp executes it once."""
        if self._block < 0:
            self._block = self._new(1)
            self._add(self._block, IrValue("i64", "1"))
        lanes = -1
        if mask is not None:
            lanes = self._masks.get(mask.ref, -1)
            if lanes < 0:
                lanes = self._masks[mask.ref] = self._new(1)
                self._add(lanes, _population(self._wf.c, mask))
        self.counted.executed.append(Executed(operation, self._block, lanes))

    def divide(self, lanes: IrValue, part: IrValue) -> None:
        """Count a branch as divergent if it sends some lanes, but not all, to `part`."""
        c = self._wf.c
        some = c.op("and", c.icmp("ne", part, 0), c.icmp("ne", part, lanes))
        at = self._new(1)
        self.counted.branches.append(at)
        self._add(at, c.resize(some, 64))

    def narrow(self, before: IrValue, after: IrValue) -> None:
        """Count a change of the mask of lanes as divergent if it leaves some, but not all, of them."""
        c = self._wf.c
        outside = c.op("and", after, c.not_(before))
        at = self._new(1)
        self.counted.branches.append(at)
        fewer = c.op("and", c.icmp("ne", after, 0), c.icmp("ne", after, before))
        self._add(at, c.resize(c.op("and", fewer, c.icmp("eq", outside, 0)), 64))

    def copy(self, lanes: IrValue, size: IrValue) -> None:
        """Count an asynchronous copy of `size` bytes (a scalar i64) by each lane of a mask."""
        at = self._new(1)
        self.counted.copied.append(at)
        self._add(at, self._wf.c.op("mul", _population(self._wf.c, lanes), size))

    def access(self, space: str, what: str, address: IrValue, size: int, lanes: IrValue) -> None:
        """Count an access of `size` bytes by each lane of a mask.

        `what` is load, store or atomic. `space` is global, shared, cluster, local or generic; a generic access is split.
        """
        c, lib, warp = self._wf.c, self._wf.lib, self._wf.warp
        if space == "local":
            self._call(_local(lib, size), space, what, lanes)
        elif space in ("shared", "cluster"):  # the banks of another workgroup are those of the same offset
            self._call(_shared(lib, size, atomic=what == "atomic"), "shared", what, address, lanes)
        elif space == "global":
            self._call(_global(lib, size, self.counted.unit, what), space, what, address, lanes)
        else:
            rest = lanes
            for window in ("shared", "local"):
                offset, inside = split_generic(lib, c, warp, address, window)
                mine = c.op("and", rest, c.mask_bits(inside))
                self.access(window, what, offset, size, mine)
                rest = c.op("and", rest, c.not_(c.mask_bits(inside)))
            self.access("global", what, address, size, rest)

    def record(self, space: str, what: str) -> int:
        """Allocate the slots of an access that the caller counts with a helper of `shared_counter`; return the first."""
        at = self._new(RECORD)
        self.counted.accessed.append(Accessed(space, what, at))
        return at

    def run(self, what: str, address: IrValue, size: IrValue, lanes: IrValue) -> None:
        """Count one access of `size` consecutive bytes of global memory (i64 scalars), if any of `lanes` is active."""
        name = _run(self._wf.lib, self.counted.unit, what)
        self._call(name, "global", what, address, size, lanes)

    def _call(self, helper: str, space: str, what: str, *arguments: IrValue) -> None:
        self._wf.c.call(helper, "void", self._wf.warp, i32(self.record(space, what)), *arguments)

    def _new(self, count: int) -> int:
        at = self.counted.slots
        self.counted.slots += count
        return at

    def _add(self, slot: int, value: IrValue) -> None:
        c = self._wf.c
        _increase(c, self._wf.of_thread("counts"), slot, value)


def _population(c: CodeBuilder, mask: IrValue) -> IrValue:
    return c.resize(c.intrinsic("ctpop", mask), 64)


def _increase(c: CodeBuilder, base: IrValue, slot: int, value: IrValue) -> None:
    place = c.gep(base, 8 * slot)
    c.store(c.op("add", c.load("i64", place), value), place)


def _record(c: CodeBuilder, warp: IrValue, at: IrValue) -> tuple[IrValue, IrValue]:
    """Return the host thread's record, and the address of the slots from number `at` on."""
    thread = WARP.load(c, warp, "thread")
    return thread, c.gep(THREAD.load(c, thread, "counts"), c.op("mul", c.resize(at, 64), 8))


def _asked(c: CodeBuilder, base: IrValue, mask: IrValue, size: int) -> None:
    lanes = _population(c, mask)
    _increase(c, base, REQUESTS, c.resize(c.icmp("ne", mask, 0), 64))
    _increase(c, base, LANES, lanes)
    _increase(c, base, BYTES, c.op("mul", lanes, size))


def _local(lib: Library, size: int) -> str:
    """`emu.count.local.SIZE(warp, at, mask)`: count an access to local memory."""

    def body(c: CodeBuilder, warp: IrValue, at: IrValue, mask: IrValue) -> None:
        _asked(c, _record(c, warp, at)[1], mask, size)

    return lib.define(f"emu.count.local.{size}", "void", "ptr, i32, mask", body)


def _lowest(c: CodeBuilder, mask: IrValue) -> IrValue:
    return c.resize(c.call(f"llvm.cttz.{mask.type}", mask.type, mask, IrValue("i1", "false")), 32)


def _global(lib: Library, size: int, unit: int, what: str) -> str:
    """`emu.count.global...(warp, at, addresses, mask)`: count an access to global memory, unit by unit.

    Units are visited in two passes: first those in which accesses begin, then those in which misaligned accesses end.
    """
    shift = unit.bit_length() - 1

    def visit(c: CodeBuilder, thread: IrValue, units: IrValue, mask: IrValue, others: tuple[IrValue, IrValue] | None) -> tuple[IrValue, IrValue]:
        """Loop over the distinct units of a mask; return their number, and lanes of `others` with other units.

        `others` are units and a mask of lanes.
        """
        found, kept = c.slot("i64"), c.slot(mask.type)
        c.store(IrValue("i64", "0"), found)
        c.store(others[1] if others else c.zero(mask.type), kept)
        with _each_distinct(lib, c, units, mask) as (one, _):
            if others:
                apart = c.mask_bits(c.icmp("ne", others[0], c.splat(one, lib.lanes)))
                c.store(c.op("and", c.load(mask.type, kept), apart), kept)
            c.store(c.op("add", c.load("i64", found), 1), found)
            c.call(_touch(lib), "void", thread, one, IrValue("i1", "true" if what != "load" else "false"))
            if what == "atomic":
                c.call(_touch(lib), "void", thread, one, IrValue("i1", "false"))
        return c.load("i64", found), c.load(mask.type, kept)

    def body(c: CodeBuilder, warp: IrValue, at: IrValue, addresses: IrValue, mask: IrValue) -> None:
        thread, base = _record(c, warp, at)
        _asked(c, base, mask, size)
        first = c.op("lshr", addresses, shift)
        last = c.op("lshr", c.op("add", addresses, size - 1), shift)
        split = c.op("and", mask, c.mask_bits(c.icmp("ne", first, last)))
        count, rest = visit(c, thread, first, mask, (last, split))
        more, _ = visit(c, thread, last, rest, None)
        _increase(c, base, UNITS, c.op("add", count, more))
        if what == "atomic":
            _increase(c, base, SERIAL, _most_equal(lib, c, addresses, mask))

    return lib.define(f"emu.count.global.{what}.{size}.{unit}", "void", "ptr, i32, i64 each, mask", body)


def _most_equal(lib: Library, c: CodeBuilder, addresses: IrValue, mask: IrValue) -> IrValue:
    """Return the largest number of lanes of a mask that have one address, as i64."""
    most = c.slot("i64")
    c.store(IrValue("i64", "0"), most)
    with _each_distinct(lib, c, addresses, mask) as (_, equal):
        c.store(c.intrinsic("umax", c.load("i64", most), _population(c, equal)), most)
    return c.load("i64", most)


@contextmanager
def _each_distinct(lib: Library, c: CodeBuilder, values: IrValue, mask: IrValue) -> Iterator[tuple[IrValue, IrValue]]:
    """Loop over the distinct values of the lanes of a mask; yield the value, and the mask of lanes that have it."""
    head, body, after = c.fresh("head"), c.fresh("body"), c.fresh("after")
    left = c.slot(mask.type)
    c.store(mask, left)
    all_in = Spilled(c, values)
    c.jump(head)
    c.label(head)
    now = c.load(mask.type, left)
    c.branch(c.icmp("ne", now, 0), body, after)
    c.label(body)
    one = all_in.get(_lowest(c, now))
    equal = c.op("and", now, c.mask_bits(c.icmp("eq", values, c.splat(one, lib.lanes))))
    c.store(c.op("xor", now, equal), left)
    yield one, equal
    c.jump(head)
    c.label(after)


def _run(lib: Library, unit: int, what: str) -> str:
    """`emu.count.run...(warp, at, address, size, mask)`: count consecutive bytes as one request, unit by unit."""
    shift = unit.bit_length() - 1

    def body(c: CodeBuilder, warp: IrValue, at: IrValue, address: IrValue, size: IrValue, mask: IrValue) -> None:
        thread, base = _record(c, warp, at)
        some = c.op("and", c.icmp("ne", mask, 0), c.icmp("ne", size, 0))
        c.branch(some, "some", "none")
        c.label("some")
        for slot, value in ((REQUESTS, IrValue("i64", "1")), (LANES, IrValue("i64", "1")), (BYTES, size)):
            _increase(c, base, slot, value)
        first = c.op("lshr", address, shift)
        last = c.op("lshr", c.op("sub", c.op("add", address, size), 1), shift)
        count = c.op("add", c.op("sub", last, first), 1)
        _increase(c, base, UNITS, count)
        with c.count(count) as number:
            place = c.op("add", first, number)
            c.call(_touch(lib), "void", thread, place, IrValue("i1", "false" if what == "load" else "true"))
        c.jump("none")
        c.label("none")

    return lib.define(f"emu.count.run.{what}.{unit}", "void", "ptr, i32, i64, i64, mask", body)


@helper("emu.count.touch", "ptr, i64, i1")
def _touch(_lib: Library, c: CodeBuilder, thread: IrValue, unit: IrValue, writes: IrValue) -> None:
    """`emu.count.touch(thread, unit, writes)`: mark a unit of global memory as written or, without `writes`, as read."""
    table = THREAD.load(c, thread, "touched")
    page = c.op("lshr", unit, PAGE_UNITS.bit_length() - 1)
    at, found = c.slot("i64"), c.slot("i64")
    c.store(c.op("lshr", c.op("mul", page, _GOLDEN), 64 - TABLE_BITS), at)
    c.jump("look")
    c.label("look")
    place = c.gep(table, c.op("add", c.op("mul", c.load("i64", at), 4), TABLE_AT))
    index = c.load("i32", place)
    c.branch(c.icmp("eq", index, 0), "fresh", "known")
    c.label("known")
    number = c.op("sub", c.resize(index, 64), 1)
    c.store(number, found)
    there = c.load("i64", _entry(c, table, number))
    c.branch(c.icmp("eq", there, page), "mark", "next")
    c.label("next")
    c.store(c.op("and", c.op("add", c.load("i64", at), 1), (1 << TABLE_BITS) - 1), at)
    c.jump("look")
    c.label("fresh")
    used = c.load("i64", table)
    c.branch(c.icmp("ult", used, ENTRIES), "room", "full")
    c.label("full")
    _increase(c, table, 1, IrValue("i64", "1"))
    c.ret()
    c.label("room")
    c.store(c.op("add", used, 1), table)
    c.store(c.resize(c.op("add", used, 1), 32), place)
    c.store(page, _entry(c, table, used))
    c.store(used, found)
    c.jump("mark")
    c.label("mark")
    bits = c.gep(_entry(c, table, c.load("i64", found)), c.select(writes, IrValue("i64", "16"), IrValue("i64", "8")))
    bit = c.op("shl", IrValue("i64", "1"), c.op("and", unit, PAGE_UNITS - 1))
    c.store(c.op("or", c.load("i64", bits), bit), bits)


def _entry(c: CodeBuilder, table: IrValue, number: IrValue) -> IrValue:
    return c.gep(table, c.op("add", c.op("mul", number, ENTRY_BYTES), ENTRIES_AT))


def shared_counter(lib: Library, size: int) -> str:
    """Return the name of the helper (warp, at, offsets, mask) that counts a load or store of shared memory."""
    return _shared(lib, size, atomic=False)


def _shared(lib: Library, size: int, *, atomic: bool) -> str:
    """`emu.count.shared...(warp, at, offsets, mask)`: count an access to shared memory, phase by phase.

    A phase has consecutive lanes that together access at most 128 bytes. A load or store takes as many cycles as there are
    different words in one bank, an atomic as many as there are lanes in one bank. An access of three words counts as four.
    """
    width = max(1 << (size - 1).bit_length(), BANK_BYTES)
    columns = BANKS * BANK_BYTES // width
    phase = min(columns, lib.lanes)
    phases = lib.lanes // phase

    def body(c: CodeBuilder, warp: IrValue, at: IrValue, offsets: IrValue, mask: IrValue) -> None:
        _, base = _record(c, warp, at)
        _asked(c, base, mask, size)
        words = c.op("lshr", offsets, width.bit_length() - 1)
        lanes = c.ints(lib.v("i32"), range(lib.lanes))
        first = c.op("and", _lowest(c, mask), lib.lanes - 1)
        all_in = Spilled(c, words)
        if not atomic:
            steps = c.op("sub", words, lanes)
            start = c.op("sub", all_in.get(first), first)
            apart = c.op("and", mask, c.mask_bits(c.icmp("ne", steps, c.splat(start, lib.lanes))))
            c.branch(c.icmp("eq", apart, 0), "row", "any")
            c.label("row")
            some = IrValue("i64", "0")
            for number in range(phases):
                part = c.op("and", mask, ((1 << phase) - 1) << number * phase)
                some = c.op("add", some, c.resize(c.icmp("ne", part, 0), 64))
            _increase(c, base, UNITS, some)
            _increase(c, base, LEAST, some)
            c.ret()
            c.label("any")
        else:
            _increase(c, base, SERIAL, _most_equal(lib, c, offsets, mask))
        counts = c.slot(f"[{columns} x i64]")
        for number in range(phases):
            part = c.op("and", mask, ((1 << phase) - 1) << number * phase)
            with c.when(c.icmp("ne", part, 0)):
                c.store(IrValue(f"[{columns} x i64]", "zeroinitializer"), counts)
                most, left = c.slot("i64"), c.slot(mask.type)
                c.store(IrValue("i64", "0"), most)
                c.store(part, left)
                head, body_, after = c.fresh("head"), c.fresh("body"), c.fresh("after")
                c.jump(head)
                c.label(head)
                now = c.load(mask.type, left)
                c.branch(c.icmp("ne", now, 0), body_, after)
                c.label(body_)
                word = all_in.get(_lowest(c, now))
                equal = c.op("and", now, c.mask_bits(c.icmp("eq", words, c.splat(word, lib.lanes))))
                c.store(c.op("xor", now, equal), left)
                place = c.gep(counts, c.op("mul", c.resize(c.op("and", word, columns - 1), 64), 8))
                more = _population(c, equal) if atomic else IrValue("i64", "1")
                total = c.op("add", c.load("i64", place), more)
                c.store(total, place)
                c.store(c.intrinsic("umax", c.load("i64", most), total), most)
                c.jump(head)
                c.label(after)
                _increase(c, base, UNITS, c.load("i64", most))
                _increase(c, base, LEAST, IrValue("i64", "1"))

    kind = "atomic" if atomic else "plain"
    return lib.define(f"emu.count.shared.{kind}.{size}", "void", f"ptr, i32, {address_type(lib, 'shared')}, mask", body)
