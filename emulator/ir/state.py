"""Records shared by generated code and Python: of host threads, resident workgroups, warps and access sites.

No other module states an offset. Generated code accesses fields through `Record.load` and `Record.store`, Python through
`Record.pack` and `Record.read`. A mask of lanes takes 8 bytes for every warp width.

Not here: the allocation of records (`emulator.simt.running`). Next: `emulator.simt.dispatch`, which runs on these records.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from emulator.ir.ir_text import bits_of

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Mapping

    from emulator.ir.vector import CodeBuilder, IrValue

    Raw = bytes | bytearray | memoryview | ctypes.Array[ctypes.c_char]
    """Host memory with records."""

_FORMATS = {"ptr": "Q", "i64": "Q", "i32": "I"}
_BYTES = {"ptr": 8, "i64": 8, "i32": 4}
_LINE = 64
"""Bytes of a cache line of the host."""


class Record:
    """A record of named fields, each of type ptr, i64 or i32; its size is a multiple of 64 bytes.

    A field of type "line" has no bytes: the next field begins at a multiple of 64 bytes from the record's start.
    """

    def __init__(self, name: str, /, **fields: str) -> None:
        self.name = name
        self.offsets: dict[str, int] = {}
        self.types = fields
        position = 0
        for field, type_ in fields.items():
            if type_ == "line":
                position = -(-position // _LINE) * _LINE
                continue
            size = _BYTES[type_]
            position = -(-position // size) * size
            self.offsets[field] = position
            position += size
        self.size = -(-position // _LINE) * _LINE
        self._codes = {name: struct.Struct("<" + _FORMATS[fields[name]]) for name in self.offsets}
        self._whole, self._order = self._layout()

    def _layout(self) -> tuple[struct.Struct, list[str]]:
        """Return the format of the whole record, and the fields in its order."""
        text, end = "<", 0
        for name, at in self.offsets.items():
            text += f"{at - end}x{_FORMATS[self.types[name]]}"
            end = at + _BYTES[self.types[name]]
        return struct.Struct(f"{text}{self.size - end}x"), list(self.offsets)

    def address(self, code: CodeBuilder, base: IrValue, field: str) -> IrValue:
        """Append code that computes the address of a field of the record at `base`."""
        return code.gep(base, self.offsets[field])

    def load(self, code: CodeBuilder, base: IrValue, field: str, *, volatile: bool = False) -> IrValue:
        """Append code that reads a field."""
        return code.load(self.types[field], self.address(code, base, field), volatile=volatile)

    def store(self, code: CodeBuilder, base: IrValue, field: str, value: IrValue | int) -> None:
        """Append code that writes a field; a narrower value is extended with zeros."""
        type_ = self.types[field]
        if isinstance(value, int):
            value = code.const(type_, value)
        if value.type != "ptr" and bits_of(value.type) < 8 * _BYTES[type_]:
            value = code.resize(value, 8 * _BYTES[type_])
        code.store(value, self.address(code, base, field))

    def pack(self, **values: int) -> bytearray:
        """Return the bytes of a record with these fields set and the others zero. Raises `KeyError` for unknown names."""
        if not values.keys() <= self.offsets.keys():
            raise KeyError(", ".join(sorted(values.keys() - self.offsets.keys())))
        return bytearray(self._whole.pack(*[values.get(field, 0) for field in self._order]))

    def update(self, raw: bytearray | ctypes.Array[ctypes.c_char], values: Mapping[str, int]) -> None:
        """Write some fields of a record in place."""
        for field, value in values.items():
            self._codes[field].pack_into(raw, self.offsets[field], value)

    def read(self, raw: Raw, field: str, at: int = 0) -> int:
        """Read a field of the record at offset `at` of host memory."""
        value: int = self._codes[field].unpack_from(raw, at + self.offsets[field])[0]
        return value


LAUNCH = Record("launch", stop="i32", sequence="i64", apart="line", next="i32")
"""Data that the host threads of one launch share. `stop`, if not 0, makes all of them return. `next`: number of workgroups
started. `sequence`: the time of the launch, for races between workgroups. Threads read `stop` at every turn of a warp and
change `next` for every workgroup, so the two fields lie in different cache lines."""

THREAD = Record(
    "thread",
    launch="ptr", entry="ptr", params="ptr", sites="ptr", map="ptr", reports="ptr", slots="ptr", warp_order="ptr", sink="ptr", queue="ptr",
    releases="ptr", known="ptr",
    shared_window="i64", local_window="i64", sequence="i64", fuel="i64", begun="i32", active="i32", stalled="i32", at="i32",
    param_bytes="i32", map_count="i32", grid_x="i32", grid_y="i32", grid_z="i32", block_x="i32", block_y="i32", block_z="i32",
    threads="i32", warps="i32", groups="i32", group_step="i32", group_first="i32", shared_bytes="i32", local_bytes="i32",
    slot_bytes="i32", slot_limit="i32", warp_bytes="i32", warps_at="i32", shared_at="i32", local_at="i32", shadow_at="i32",
    dynamic_shared="i32", visible_grid_x="i32", visible_grid_y="i32", visible_grid_z="i32", visible_block_x="i32", visible_block_y="i32",
    visible_block_z="i32", known_step="i32", last_x="i32", last_y="i32", last_z="i32", cluster="i32", cluster_x="i32", cluster_y="i32",
    cluster_z="i32", explicit_cluster="i32", parties="i32", unit_bytes="i32", registers="i32", counts="ptr", touched="ptr",
    turns="i32",
)  # fmt: skip
"""The data with which one host thread runs workgroups: the constants of the launch, and memory of the thread.

- Progress: `fuel` is the number of turns of workgroups before the thread returns. `begun`: whether it has run before.
  `active`: the number of resident workgroups. `stalled`: whether no workgroup progressed in this round. `at`: the workgroup
  that has the next turn; `turns`: the turns that it has had in a row.
- Order, if races between workgroups are checked: `releases` points to a RELEASE for each workgroup of the grid, `known` to
  the vector clock of each (`emulator.sanitizers.group_order`), at a distance of `known_step` bytes.
- Sizes: `block_x` to `block_z`, `threads` and `warps` describe every workgroup except the last along an axis. `last_x` to
  `last_z` are the threads of that one along its axis.
- Clusters: `cluster` is the number of workgroups of a cluster, at least 1, `cluster_x` to `cluster_z` along each axis;
  `explicit_cluster` is 1 if the launch states them. `parties`: warps of a cluster. A cluster occupies `unit_bytes`: the slots
  of its workgroups in order of their ranks. `warp_order` has a u32 for each party: the offset of a warp's state in the unit,
  in the order of turns.
- `registers`: registers of a thread at the start, 0 if unknown. `counts` and `touched`: the slots and the table of touched
  memory of a counted launch (`emulator.simt.counting`).
"""

GROUP = Record(
    "group",
    thread="ptr", shared="ptr", shadow="ptr", clocks="ptr", index="i32", x="i32", y="i32", z="i32", live_lanes="i32", live_warps="i32",
    epoch="i32", released="i64", acquired="i64", fenced="i32", arrivals="i32", warps="i32", partial="i32", rank="i32", met="i32",
    free="i32",
)  # fmt: skip
"""A resident workgroup. `arrivals` is not 0 if any barrier has been reached. `warps`: the number of its warps. `partial` is 1
if it has fewer threads than others. `rank`: its number in its cluster. `met` is 1 once a barrier of the cluster has opened.
`clocks`: the vector clocks of the cluster. `free`: registers in the workgroup's pool, for one thread of each warp."""

RELEASE = {"last": 0, "before": 4}
RELEASE_BYTES = 8
"""Offsets of the times of a workgroup's last release and of the release before it, u32; 0 if there was none."""

BARRIER = Record(
    "barrier",
    arrived="i32",
    expected="i32",
    waiting="i32",
    count="i32",
    every="i32",
    some="i32",
    last_count="i32",
    last_every="i32",
    last_some="i32",
)
"""One barrier of a workgroup: its arrivals, and the votes of `bar.red`. `last_*` are the votes of the last completed round."""

BARRIERS = 16
CLUSTER_BARRIER, REGISTER_POOL, SPLIT_BARRIER = 1 << 16, (1 << 16) + 1, (1 << 16) + 2
"""Numbers in `WARP.barrier` of three things that a warp can wait at: the barrier of its cluster, its workgroup's pool of
registers, its workgroup's barrier in two parts. Numbers of other barriers, valid or not, are smaller."""
GROUP_HEAD = GROUP.size + BARRIERS * BARRIER.size

WARP = Record(
    "warp",
    thread="ptr", group="ptr", shared="ptr", local="ptr", start="i64", live="i64", blocked="i64", release="i64", index="i32",
    status="i32", barrier="i32", barrier_count="i32", barrier_site="i32", party="i32", arrived="i64", passed="i64", registers="i32", lanes="i64",
    poll_site="i32", poll_lane="i32", poll_address="i64", poll_wants="i64",
    synced="i32", touched="i32", grouped="i32", reading="i32", barrier_aligned="i32", cluster_site="i32", loop_site="i32", loop_lane="i32",
    split="i32", reads_until="i32", reads_first="i32",
)  # fmt: skip
"""A warp: its lanes, its status, and the barrier at which it waits. Thread ids, pending masks and registers follow.

- Lanes, as masks: `start` enter the kernel now, `live` have not left it, `blocked` wait at the barrier, `lanes` began.
  `arrived` and `passed` have arrived at the cluster's barrier and not waited yet, before and after it opened.
- `release`: not 0 if the barrier has opened since. `party`: its number in its cluster. `registers`: registers of a thread.
- `poll_*` describe its last failed test of a barrier in memory, for reports: `poll_wants` has the missing arrivals from bit
  32 on, the missing bytes below, and bit 63 set.
- `loop_site` and `loop_lane` describe the loop that it last left to yield: 1 + the last instruction with a name, and a lane.
- `split`: whether it has signalled at the barrier in two parts, and whether that has opened since
  (`emulator.simt.cluster_barrier`).
- Written only if the sanitizers check them: `barrier_aligned`: whether all lanes must reach the barrier at which some wait.
  `cluster_site`: the instruction with which lanes last arrived at the cluster's barrier.
- Order of its lanes (`emulator.sanitizers.lane_order`): `synced`, the clock at which all lanes last met; since then, `touched`:
  whether it accessed shared memory, and `grouped`: whether only some lanes met. `reading`: the asynchronous operations
  that read for it. `reads_until`: if not 0, the clock of reads that the asynchronous proxy makes for it now; `reads_first`:
  the earliest clock of a group of reads in flight (`emulator.sanitizers.read_groups`).
"""


PACKED_IDS = 3
"""The number of a fourth "axis": the ids along x, y and z in one i32, 10 bits each. Workgroups have at most 1024 threads."""


def warp_ids_at(axis: int, lanes: int) -> int:
    """Return the offset, in a warp's state, of the thread ids of one axis (one i32 for each lane), or of `PACKED_IDS`."""
    return WARP.size + axis * 4 * lanes


def warp_registers_at(lanes: int) -> int:
    """Return the offset, in a warp's state, of the part that belongs to the translated kernel: pending masks, then registers."""
    return WARP.size + 4 * 4 * lanes


MAP_ENTRY = Record(
    "map entry", start="i64", size="i64", delta="i64", flags="i64", initialised="i64", touched="i64", order="i64"
)
"""One allocation for generated code; entries are sorted by `start`. Host address = device address + `delta`, modulo 2**64.

`initialised`, `touched` and `order` are host addresses of shadows: 1 byte for each byte, 32 and 8 bytes for each dword. 0 if
there is none.
"""

MAP_READ, MAP_WRITE, MAP_ATOMIC = 1, 2, 4
"""Bits of `MAP_ENTRY.flags`: the permitted accesses."""

SITE = Record("site", start="i64", bytes="i64", delta="i64", seen="i64")
"""The allocation that an instruction last accessed. An aligned address a of an access of `size` bytes is valid if
(a - start) / size < bytes / size. `seen` has a bit for each kind of report that the instruction has made."""

REPORT = Record(
    "report",
    kind="i32",
    site="i32",
    lane="i32",
    group="i32",
    warp="i32",
    size="i32",
    address="i64",
    other="i64",
)
"""One finding in the report buffer; `lane` is in warp `warp` of workgroup `group`."""
REPORT_LIMIT = 256
"""The most records in a report buffer."""
REPORTS_HEAD = 64
"""Bytes before the first record: the number of findings as u32, then padding."""

DONE, BARRIER_WAIT, YIELD, POLL = 0, 1, 2, 3
"""The reason why a warp's turn ended. POLL: it only tested barriers in memory, without success, and will until another warp acts."""
READY, WAITING, FINISHED, YIELDED = 0, 1, 2, 3
"""Values of `WARP.status`."""
