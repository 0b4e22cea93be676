"""Launches of the kernels with one mistake each, and what a checked device must find in them.

`LAUNCHES` names every kernel of `tests/guests/bad/*.cu` and of `tests/guests/bad_triton.py`; `marks` reads
the expected findings from a source. Each kernel exists broken and, compiled with FIXED, right; the launch is
the same for both.

Not here: compiling (`tests.guests.build_bad`), running (`tests.guests.bad_run`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCES: Final = Path(__file__).with_name("bad")
TRITON: Final = "triton"
_ENTRY: Final = re.compile(r"^(?:K|def) (\w+)\(")
_MARK: Final = re.compile(r"(?://|#) BAD: ([\w, ]+)$")


@dataclass(frozen=True, slots=True)
class New:
    """An array of `count` elements that nobody wrote."""

    count: int
    dtype: Any = np.int32


@dataclass(frozen=True, slots=True)
class Launch:
    """Arguments, in the order of the parameters, and the shape of a launch."""

    arguments: tuple[Any, ...]
    """Numbers, arrays, and `New`."""
    groups: tuple[int, ...]
    threads: tuple[int, ...]
    shared: tuple[int, int] = (0, 0)
    """Bytes of dynamic shared memory: right, broken."""
    constants: Mapping[str, int] = field(default_factory=dict)
    """Constants of a Triton kernel, of which the others follow: `threads` and `shared`."""
    expected: Mapping[int, Any] = field(default_factory=dict)
    """Number of an argument -> its contents after the right kernel, where they are compared."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A line of the source that a finding must name, and the kinds that it may have there, in lower case."""

    line: int
    kinds: frozenset[str]


def path_of(source: str) -> Path:
    """Return the file of a source."""
    return SOURCES.with_name("bad_triton.py") if source == TRITON else SOURCES / f"{source}.cu"


def marks(source: str) -> dict[str, tuple[Mark, ...]]:
    """Return the marks of each kernel of a source (CUDA C++ or Python)."""
    found: dict[str, list[Mark]] = {}
    entry = ""
    for number, line in enumerate(source.split("\n"), 1):
        if (head := _ENTRY.match(line)) is not None:
            entry = head[1]
            found[entry] = []
        if (mark := _MARK.search(line)) is not None and entry:
            found[entry].append(Mark(number, frozenset(mark[1].replace(",", " ").split())))
    return {name: tuple(ones) for name, ones in found.items()}


def _i(count: int) -> Any:
    return np.arange(1, count + 1, dtype=np.int32)


def _f(count: int) -> Any:
    return ((np.arange(count) * 37 % 101) / 16 - 3).astype(np.float32)


def _b(count: int) -> Any:
    return (np.arange(count) * 7 % 16).astype(np.uint8)


def _z(count: int, kind: Any = np.int32) -> Any:
    return np.zeros(count, kind)


def _steps(count: int) -> Any:
    """Return both arrays of `halos_by_flags` after some steps, first that of even steps."""
    a, b = _i(128), _z(128)
    for _ in range(count):
        a, b = np.append(a[:1], a[:-1]) + np.append(a[1:], a[-1:]), a
    return np.append(a, b) if count % 2 == 0 else np.append(b, a)


def _t(arguments: tuple[Any, ...], groups: int, **constants: int) -> Launch:
    return Launch(arguments, (groups,), (), constants=constants)


_F: Final = np.float32
L = Launch
_ROWS: Final = np.arange(0, 130, 2, dtype=np.int32)
LAUNCHES: Final[dict[str, dict[str, Launch]]] = {
    "barriers": {"reduce_no_first_barrier": L((128, _f(128), New(1, _F)), (1,), (128,)),
        "reduce_no_loop_barrier": L((128, _f(128), New(1, _F)), (1,), (128,)),
        "reduce_no_last_barrier": L((_f(128), New(128, _F)), (1,), (128,)),
        "reduce_warps_no_barrier": L((_i(128), _z(1)), (1,), (128,)),
        "scan_in_place": L((_i(128), New(128)), (1,), (128,)),
        "scan_no_second_barrier": L((_i(128), New(128)), (1,), (128,)),
        "scan_wrong_buffer": L((_i(128), New(128)), (1,), (128,)),
        "sort_no_barrier": L((_f(128), New(128, _F)), (1,), (128,)),
        "transpose_no_barrier": L((16, _f(256), New(256, _F)), (1,), (16, 16)),
        "stencil_no_barrier": L((100, _f(100), New(100, _F)), (2,), (64,)),
        "stencil_loop_no_barrier": L((_f(64), New(64, _F)), (1,), (64,)),
        "gemm_no_first_barrier": L((32, _f(512), _f(512), New(256, _F)), (1,), (16, 16)),
        "gemm_no_second_barrier": L((32, _f(512), _f(512), New(256, _F)), (1,), (16, 16)),
        "nbody_no_second_barrier": L((128, _f(512), New(64, _F)), (1,), (64,)),
        "histogram_no_atomic": L((300, _b(300), New(64)), (1,), (128,)),
        "histogram_no_first_barrier": L((300, _b(300), New(64)), (1,), (128,)),
        "histogram_no_last_barrier": L((300, _b(300), New(64)), (1,), (128,)),
        "compaction_no_atomic": L((_i(64), New(64)), (1,), (64,)),
        "reduce_volatile_no_syncwarp": L((_i(64), New(1)), (1,), (32,)),
        "softmax_no_syncwarp": L((64, _f(64), New(64, _F)), (1,), (32,)),
        "tiles_no_sync": L((_i(64), New(64)), (1,), (64,)),
        "tiles_sync_too_small": L((_i(64), New(64)), (1,), (64,)),
        "named_barrier_wrong_number": L((_i(64), New(64)), (1,), (64,)),
        "producer_arrives_too_early": L((_i(32), New(32)), (1,), (64,)),
        "flag_no_barrier": L((_i(128), New(128)), (1,), (128,))},
    "unwritten": {"tail_not_written": L((50, _f(50), New(64, _F)), (1,), (64,)),
        "accumulates_into_new_memory": L((_f(64), New(64, _F)), (2,), (32,)),
        "halo_not_written": L((64, _f(64), New(64, _F)), (1,), (64,)),
        "bins_not_cleared": L((100, _b(100), New(64)), (1,), (64,)),
        "counter_not_cleared": L((_i(64), New(1), New(64)), (1,), (64,)),
        "sparse_output_read_back": L((2 * _i(64), _f(64), New(200, _F), New(64, _F)), (1,), (64,)),
        "local_array_not_written": L((12, _i(16), New(32)), (1,), (32,))},
    "indices": {"saxpy_off_by_one": L((100, 2.0, _f(100), _f(100)), (2,), (64,)),
                "saxpy_no_mask": L((100, 2.0, _f(100), _f(100)), (2,), (64,)),
                "transpose_wrong_stride": L((20, 40, _f(800), New(800, _F)), (3, 2), (16, 16)),
                "stencil_no_left_edge": L((64, _f(64), New(64, _F)), (1,), (64,)),
                "stencil_no_right_edge": L((64, _f(64), New(64, _F)), (1,), (64,)),
                "spmv_one_too_many": L((64, _ROWS, _f(128), New(64, _F)), (1,), (64,)),
                "spmv_no_last_row": L((64, _ROWS[:64], _f(128), New(64, _F)), (1,), (64,)),
                "gemm_no_edge": L((20, _f(400), _f(400), New(400, _F)), (1,), (16, 16)),
                "vectors_no_tail": L((62, _f(62), New(62, _F)), (1,), (32,)),
                "gather_unchecked": L((64, _i(64), _f(64), New(64, _F)), (1,), (64,)),
                "bytes_for_elements": L((64, _i(64), New(64)), (2,), (32,)),
                "row_of_wrong_axis": L((3, 50, _f(150), New(150, _F)), (3,), (32,)),
                "shared_too_small": L((64, _f(64), New(64, _F)), (1,), (64,), (256, 128)),
                "shared_one_too_many": L((_f(64), New(64, _F)), (1,), (64,)),
                "shared_no_halo": L((_f(64), New(64, _F)), (1,), (64,)),
                "local_one_too_many": L((_i(16), New(32)), (1,), (32,)),
                "misaligned_vector": L((_f(132), New(128, _F)), (1,), (32,)),
                "misaligned_shared": L((_b(140), New(32)), (1,), (32,)),
                "misaligned_copy": L((_f(132), New(32, _F)), (1,), (32,))},
    "divergence": {"barrier_in_branch": L((_i(64), New(64)), (1,), (64,)),
        "barrier_in_part_of_warp": L((_i(64), New(64)), (1,), (64,)),
        "barrier_after_return": L((50, _i(64), New(64)), (1,), (64,)),
        "barrier_in_uneven_loop": L((100, _i(100), New(64)), (1,), (64,)),
        "barriers_of_two_branches": L((_i(64), New(64)), (1,), (64,)),
        "barrier_of_too_many": L((_i(64), New(64)), (1,), (64,)),
        "barrier_of_part_of_warp": L((_i(64), New(64)), (1,), (64,)),
        "shuffle_in_branch": L((20, _i(32), New(32)), (1,), (32,)),
        "shuffle_mask_too_small": L((_i(32), New(32)), (1,), (32,)),
        "ballot_in_branch": L((20, _i(32), New(32)), (1,), (32,)),
        "redux_wrong_mask": L((_i(32), New(32)), (1,), (32,)),
        "syncwarp_in_branch": L((_i(32), New(32)), (1,), (32,))},
    "copies": {"copy_no_wait": L((_f(256), New(64, _F)), (1,), (64,)),
               "copy_wrong_group": L((_f(512), New(128, _F)), (1,), (64,)),
               "copy_no_commit": L((_f(256), New(64, _F)), (1,), (64,)),
               "copy_no_barrier": L((_f(256), New(64, _F)), (1,), (64,)),
               "pipeline_no_reuse_barrier": L((3, _f(768), New(64, _F)), (1,), (64,)),
               "pipeline_wrong_stage": L((3, _f(768), New(64, _F)), (1,), (64,)),
               "pipeline_one_stage_short": L((4, _f(1024), New(64, _F)), (1,), (64,))},
    "grid": {"last_block_no_fence": L((_i(128), New(4), _z(1), New(1)), (4,), (32,)),
             "last_block_no_atomic": L((_i(128), New(4), _z(1), New(1)), (4,), (32,)),
             "last_block_one_too_early": L((_i(128), New(4), _z(1), New(1)), (4,), (32,)),
             "flag_no_release": L((_z(1), _z(1), New(1)), (2,), (1,)),
             "flag_no_acquire": L((_z(1), _z(1), New(1)), (2,), (1,)),
             "flag_of_block_scope": L((_z(1), _z(1), New(1)), (2,), (1,)),
             "flag_volatile": L((_z(1), _z(1), New(1)), (2,), (1,)),
             "fence_of_block_scope": L((_z(1), _z(1), New(1)), (2,), (1,)),
             "atomics_of_block_scope": L((_i(64), _z(1)), (2,), (32,)),
             "histogram_global_no_atomic": L((60, _b(60), _z(16)), (2,), (32,)),
             "total_no_atomic": L((_i(64), _z(1)), (2,), (32,)),
             "maximum_no_atomic": L((_i(64), _z(1)), (2,), (32,)),
             "block_index_forgotten": L((_i(64), New(64)), (2,), (32,)),
             "rows_overlap": L((_f(65), New(65, _F)), (2,), (32,)),
             "grid_without_sync": L((_i(64), New(2), New(1)), (2,), (32,)),
             "stencil_in_place": L((_f(64), New(64, _F)), (2,), (32,)),
             "lock_without_fence": L((_z(1), _i(64), _z(1)), (2,), (32,)),
             "lock_not_taken": L((_z(1), _i(64), _z(1)), (2,), (32,)),
             "lock_released_early": L((_z(1), _i(64), _z(1)), (2,), (32,)),
             "plain_read_of_atomic": L((_i(64), _z(1), New(64)), (2,), (32,)),
             "block_global_no_barrier": L((_i(64), New(64), New(64)), (1,), (64,))},
    "hopper": {"bulk_no_wait": L((_i(64), New(64)), (1,), (64,)),
               "bulk_wrong_parity": L((_i(64), New(64)), (1,), (64,)),
               "bulk_parity_not_flipped": L((_i(128), New(64)), (1,), (64,)),
               "bulk_one_waits_for_all": L((_i(64), New(64)), (1,), (64,)),
               "bulk_too_few_bytes_expected": L((_i(64), New(64)), (1,), (64,)),
               "bulk_too_many_bytes_expected": L((_i(64), New(64)), (1,), (64,)),
               "mbarrier_counts_too_many": L((_i(64), New(64)), (1,), (64,)),
               "mbarrier_counts_too_few": L((_i(64), New(64)), (1,), (64,)),
               "mbarrier_no_init_barrier": L((_i(64), New(64)), (1,), (64,)),
               "mbarrier_not_initialised": L((_i(64), New(64)), (1,), (64,)),
               "bulk_buffer_reused": L((3, _i(192), New(64)), (1,), (64,)),
               "bulk_store_no_proxy_fence": L((_i(64), New(64)), (1,), (64,)),
               "bulk_store_no_barrier": L((_i(64), New(64)), (1,), (64,)),
               "bulk_store_overwritten": L((_i(128), New(128)), (1,), (64,)),
               "bulk_store_read_back": L((_i(64), New(64), New(1)), (1,), (64,)),
               "bulk_misaligned": L((_i(64), New(32)), (1,), (32,)),
               "bulk_past_the_end": L((_i(128), New(64)), (1,), (64,)),
               "wgmma_no_wait": L((_i(512), New(128, _F)), (1,), (128,)),
               "wgmma_wrong_group": L((_i(512), New(256, _F)), (1,), (128,)),
               "wgmma_no_fence": L((_i(512), New(128, _F)), (1,), (128,)),
               "wgmma_no_proxy_fence": L((_i(512), New(128, _F)), (1,), (128,)),
               "wgmma_no_barrier": L((_i(512), New(128, _F)), (1,), (128,)),
               "wgmma_tile_overwritten": L((_i(513), New(128, _F)), (1,), (128,))},
    "patterns": {
        "scan_look_back": L((_i(128), _z(1), New(4), New(4), _z(4), New(128)), (4,), (32,),
            expected={5: _i(128).cumsum()}),
        "grid_barrier": L((_i(128), _z(1), New(128), New(128)), (4,), (32,),
            expected={3: np.roll(2 * _i(128), -32)}),
        "queue_of_slots": L((_i(8), _z(1), _z(1), New(8), _z(8), New(8)), (4,), (32,)),
        "stack_of_nodes": L((_i(64), _z(1), New(64), New(1)), (1,), (64,), expected={3: 2080}),
        "named_barriers": L((_i(192), New(32)), (1,), (64,),
            expected={1: _i(192).reshape(6, 32)[:, ::-1].sum(0)}),
        "split_barrier": L((_i(64), New(64)), (1,), (64,), expected={1: 3 * _i(64) + _i(64)[::-1]}),
        "async_arrives": L((_i(64), New(64)), (1,), (64,), expected={1: _i(64)[::-1]}),
        "shuffle_of_some": L((_i(32), New(32)), (1,), (32,), expected={1: np.where(_i(32) % 2, 1, _i(32))}),
        "volatile_spin": L((_i(1), New(1)), (1,), (64,), expected={1: 1}),
        "compact_by_votes": L((_i(128) % 5 - 2, New(128), New(1)), (1,), (128,),
            expected={2: (_i(128) % 5 > 2).sum()}),
        "ring_of_flags": L((_i(160), New(32)), (1,), (64,),
            expected={1: _i(160).reshape(5, 32)[:, ::-1].sum(0)}),
        "sequence_lock": L((_z(1), _z(1), _z(1), _z(1), New(2)), (3,), (1,), expected={4: [12, 12]}),
        "prepared_once": L((_z(1), New(8), New(128)), (4,), (32,),
            expected={2: np.repeat(np.arange(4) ** 2, 32)}),
        "one_for_all_alike": L((_i(128), _z(8)), (4,), (32,), expected={1: np.full(8, 16)}),
        "last_warp": L((_i(128), New(1)), (1,), (128,), expected={1: 8256}),
        "wavefront": L((New(32), _z(4)), (4,), (32,),
            expected={0: np.add.outer(np.arange(1, 5), np.arange(8)).ravel()}),
        "ticket_lock": L((_z(1), _z(1), _z(1)), (4,), (32,), expected={2: 10}),
        "group_of_those_here": L((_i(64), _z(1), New(64)), (2,), (32,), expected={1: 21})},
    "pipelines": {
        "ring_of_tiles": L((6, _i(384), New(64)), (1,), (96,),
            expected={2: _i(384).reshape(6, 64)[:, ::-1].sum(0)}),
        "ring_of_wrong_parity": L((6, _i(384), New(64)), (1,), (96,),
            expected={2: _i(384).reshape(6, 64)[:, ::-1].sum(0)}),
        "scaled_in_place": L((3, _i(192), New(192)), (1,), (64,), expected={2: 3 * _i(192)})},
    "idioms": {"add_by_comparison": L((_i(64) / 4, _z(1, np.float64)), (2,), (32,), expected={1: 520}),
               "maximum_by_comparison": L((_f(64), _z(1, _F)), (2,), (32,), expected={1: _f(64).max()}),
               "flag_beside_data": L((_i(32), _z(64), New(32)), (2,), (32,), expected={2: _i(32)}),
               "scan_of_packed_words": L((_i(128), _z(4, np.uint64), New(128)), (4,), (32,),
                   expected={2: _i(128).cumsum()}),
               "sense_reversing": L((_i(128), _z(2), New(128), New(128)), (4,), (32,),
                   expected={3: np.roll(3 * _i(128) + 3, -32)}),
               "last_block_resets": L((_i(128), New(4), _z(1), New(1)), (4,), (32,), expected={2: 0, 3: 196}),
               "tiles_by_ticket": L((_i(384), _z(1), New(384)), (2,), (64,), expected={2: 2 * _i(384)}),
               "two_tiles_one_barrier": L((5, _i(320), New(64)), (1,), (64,),
                   expected={2: _i(320).reshape(5, 64)[:, ::-1].sum(0)}),
               "lock_of_two": L((_z(2), _z(1), _z(1)), (2,), (1,), expected={2: 9}),
               "lock_of_warps": L((_i(128), New(1)), (1,), (128,), expected={1: 196}),
               "queue_with_numbers": L((_i(8), _z(1), _z(1), _i(2) - 1, New(2), New(8)), (4,), (32,)),
               "readers_and_writer": L((_z(1), _z(2), New(2)), (3,), (32,), expected={2: 0}),
               "partial_tiles": L((_i(256), New(256), _z(1), New(64)), (4,), (64,),
                   expected={3: _i(256).reshape(4, 64).sum(0)}),
               "split_k_in_turn": L((_i(256), _z(1), _z(64)), (4,), (64,),
                   expected={2: _i(256).reshape(4, 64).sum(0)}),
               "halos_by_flags": L((4, np.append(_i(128), _z(128)), _z(4)), (4,), (32,),
                   expected={1: _steps(4)}),
               "threads_that_drop_out": L((_i(64), New(1)), (1,), (64,), expected={1: 2080}),
               "until_nothing_changes": L((_i(64)[::-1] * 7 % 50, New(64)), (1,), (64,),
                   expected={1: np.minimum.accumulate(_i(64)[::-1] * 7 % 50)}),
               "halves_of_a_warp": L((_i(32), New(32)), (1,), (32,),
                   expected={1: _i(32).reshape(2, 16)[:, ::-1].ravel()}),
               "ring_of_copies": L((6, _i(384), New(64)), (1,), (64,),
                   expected={2: _i(384).reshape(6, 64)[:, ::-1].sum(0)}),
               "pipeline_of_roles": L((5, _i(160), New(32)), (1,), (64,),
                   expected={2: _i(160).reshape(5, 32)[:, ::-1].sum(0)}),
               "breadth_first": L((60, _z(60) - 1, New(128)), (1,), (64,),
                   expected={1: np.log2(_i(60)).astype(np.int32)}),
               "hash_table": L((_i(64), _z(16), _z(16)), (2,), (32,))},
    "clusters": {
        "stage_and_phase": L((8, _i(512), New(64)), (1,), (96,),
            expected={2: _i(512).reshape(8, 64)[:, ::-1].sum(0)}),
        "ring_of_stores": L((5, _i(320), New(320)), (1,), (64,), expected={2: 3 * _i(320)}),
        "mailbox_of_a_neighbour": L((_i(32), New(32)), (2,), (32,), expected={1: _i(32)[::-1]}),
        "split_barrier_of_a_cluster": L((_i(64), New(64)), (2,), (32,),
            expected={1: 2 * _i(64) + _i(64)[::-1]}),
        "clusters_that_meet": L((_i(256), _z(1), New(256), New(256)), (8,), (32,),
            expected={3: np.roll(2 * _i(256), -64)}),
        "histogram_of_a_cluster": L((300, _b(300), _z(16)), (4,), (32,),
            expected={2: np.bincount(_b(300), minlength=16)})},
    TRITON: {"add_no_mask": _t((_f(100), New(100, _F), 100), 1, BLOCK=128),
             "add_store_off_by_one": _t((_f(100), New(100, _F), 100), 1, BLOCK=128),
             "softmax_wrong_stride": _t((_f(150), New(150, _F), 50, 50), 3, BLOCK=64),
             "matmul_no_k_mask": _t((_f(32 * 40), _f(40 * 32), New(1024, _F), 40), 1, BM=32, BN=32, BK=16),
             "gather_no_check": _t((_i(64), _f(64), New(64, _F), 64), 1, BLOCK=64),
             "rows_one_too_many": _t((_ROWS, _f(128), New(64, _F)), 64, BLOCK=4),
             "stencil_no_edge": _t((_f(100), New(100, _F), 100), 1, BLOCK=128),
             "accumulates_unwritten": _t((_f(100), New(100, _F), 100), 1, BLOCK=128),
             "scatter_no_atomic": _t((_f(200), _i(200) % 8, _z(8, _F), 200), 2, BLOCK=128),
             "sum_of_narrow_scope": _t((_f(256), _z(1, _F)), 2, BLOCK=128),
             "sum_stored_by_all": _t((_f(256), New(2, _F)), 2, BLOCK=128),
             "split_k_no_atomic": _t((_f(256), _z(128, _F)), 2, BLOCK=128),
             "lock_relaxed": _t((_z(1), _f(256), _z(128, _F)), 2, BLOCK=128),
             "lock_released_first": _t((_z(1), _f(256), _z(128, _F)), 2, BLOCK=128),
             "shift_in_place": _t((_f(256), New(256, _F), 256), 2, BLOCK=128)},
}  # fmt: skip
"""Source (without suffix) -> kernel -> launch."""

ARCHIVES: Final[dict[str, str]] = (
    dict.fromkeys(LAUNCHES, "sm_80")
    | dict.fromkeys(("hopper", "pipelines", "clusters"), "sm_90a")
    | {f"{TRITON}_{target}": target for target in ("gfx942", "gfx1100", "gfx1201")}
)
"""Archive of compiled kernels -> their target. The name is that of the source, and of an AMD GPU."""

_IN_CACHE: Final = "atomics of every scope are executed in the second-level cache"
_WAITS: Final = "stores have arrived when the barrier before the release is over"
LEFT_OUT: Final = {
    "triton_gfx942 sum_of_narrow_scope": _IN_CACHE,
    "triton_gfx1100 sum_of_narrow_scope": _IN_CACHE,
    "triton_gfx1201 sum_of_narrow_scope": _IN_CACHE,
    "triton_gfx1100 lock_relaxed": _WAITS,
    "triton_gfx1201 lock_relaxed": _WAITS,
    "triton_gfx1100 matmul_no_k_mask": "refused: its loop lacks the wait between LDS and s_barrier (LLVM)",
}
"""Archive and kernel -> why the kernel is not in the archive."""


def source_of(archive: str) -> str:
    """Return the source of an archive's kernels."""
    return archive.partition("_")[0]


def launches_of(archive: str) -> dict[str, Launch]:
    """Return the kernels of an archive and their launches."""
    every = LAUNCHES[source_of(archive)]
    return {name: launch for name, launch in every.items() if f"{archive} {name}" not in LEFT_OUT}
