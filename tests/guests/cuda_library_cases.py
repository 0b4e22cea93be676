"""Cases of the kernels made of CUB's parts.

Not here: the kernels (`tests/guests/cuda_library.cu`), what a case is (`tests.guests.cuda_cases`).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.guests.cases import Data
from tests.guests.cuda_cases import CudaCase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.guests.cuda_cases import Array

    Made = tuple[Mapping[str, Any], Mapping[str, Any]]


def _i(r: np.random.Generator, *shape: int, low: int = -99, high: int = 100) -> Array:
    return r.integers(low, high, shape).astype(np.int32)


def _zeros(*shape: int, kind: Any = np.int32) -> Data:
    return Data(np.zeros(shape, kind))


def _states(tiles: int) -> Data:
    """Return the words of a look-back: 32 in front, then a tile's status "not yet" and its value."""
    words = np.zeros((32 + tiles, 2), np.uint32)
    words[32:, 0] = 99
    return Data(words)


def _warp_reduce(r: np.random.Generator) -> Made:
    x = _i(r, 256)
    rows = x.reshape(32, 8)
    heads = np.full((32, 8), -1)
    heads[:, 0], heads[:, 3] = rows[:, :3].sum(1), rows[:, 3:].sum(1)
    return {"x": Data(x), "sums": _zeros(8), "heads": _zeros(32, 8)}, {
        "sums": x.reshape(8, 32).sum(1), "heads": heads
    }  # fmt: skip


def _warp_scan(r: np.random.Generator) -> Made:
    x = _i(r, 8, 32)
    total = np.cumsum(x, 1) + 5
    return {"x": Data(x), "inclusive": _zeros(8, 32), "exclusive": _zeros(8, 32)}, {
        "inclusive": total, "exclusive": total - x
    }  # fmt: skip


def _warp_sort(r: np.random.Generator) -> Made:
    x = _i(r, 8, 64)
    return {"x": Data(x), "out": _zeros(8, 64)}, {"out": np.sort(x, 1)}


def _block_reduce(r: np.random.Generator) -> Made:
    x = r.standard_normal((2, 128)).astype(np.float32)
    return {"x": Data(x), "warps": _zeros(2, kind=np.float32), "raked": _zeros(2, kind=np.float32)}, {
        "warps": x[:, :100].sum(1), "raked": x.max(1)
    }  # fmt: skip


def _block_scan(r: np.random.Generator) -> Made:
    x = _i(r, 2, 512)
    total = np.cumsum(x, 1)
    return {"x": Data(x), "out": _zeros(2, 512), "totals": _zeros(2)}, {
        "out": total - x, "totals": total[:, -1]
    }  # fmt: skip


def _radix(r: np.random.Generator) -> Made:
    keys = r.permutation(np.linspace(-9, 9, 192)).astype(np.float32)
    values = np.arange(192, dtype=np.int32)
    order = np.argsort(-keys, kind="stable")
    return {
        "keys": Data(keys), "values": Data(values),
        "sorted": _zeros(192, kind=np.float32), "moved": _zeros(192),
    }, {"sorted": keys[order], "moved": values[order]}  # fmt: skip


def _merge(r: np.random.Generator) -> Made:
    x = _i(r, 150)
    return {"n": 150, "x": Data(x), "out": _zeros(150)}, {"out": np.sort(x)}


def _histogram(r: np.random.Generator) -> Made:
    x = r.integers(0, 256, 256).astype(np.uint8)
    bins = np.bincount(x & 31, minlength=32)
    return {"x": Data(x), "sorting": _zeros(32), "counting": _zeros(32)}, {"sorting": bins, "counting": bins}


def _neighbours(r: np.random.Generator) -> Made:
    x = _i(r, 128, low=0, high=3)
    before = np.concatenate([[x[0] + 1], x[:-1]])
    difference = np.diff(x, prepend=0)
    striped = x.reshape(2, 64).T  # item i of thread t is element 64 i + t
    return {"x": Data(x), "heads": _zeros(128), "difference": _zeros(128), "striped": _zeros(64, 2)}, {
        "heads": (x != before).astype(int), "difference": difference, "striped": striped
    }  # fmt: skip


def _decode(r: np.random.Generator) -> Made:
    values, lengths = _i(r, 64), _i(r, 64, low=1, high=7)
    out = np.repeat(values, lengths)
    return {"values": Data(values), "lengths": Data(lengths), "out": _zeros(len(out))}, {"out": out}


def _device_reduce(r: np.random.Generator) -> Made:
    x = r.standard_normal(3000).astype(np.float32)
    tiles = np.pad(x, (0, 72)).reshape(3, 4, 256)  # tile after tile, a workgroup each
    out = tiles.sum((0, 2), dtype=np.float64)
    return {"n": 3000, "x": Data(x), "out": _zeros(4, kind=np.float32)}, {"out": out}


def _device_scan(r: np.random.Generator) -> Made:
    x = _i(r, 2000)
    return {"n": 2000, "x": Data(x), "out": _zeros(2000), "states": _states(8)}, {"out": np.cumsum(x)}


def _select(r: np.random.Generator) -> Made:
    x = _i(r, 1000)
    kept = x[x > 0]
    return {"n": 1000, "x": Data(x), "out": _zeros(len(kept)), "count": _zeros(1), "states": _states(16)}, {
        "out": kept, "count": np.array([len(kept)])
    }  # fmt: skip


def _onesweep(r: np.random.Generator) -> Made:
    keys = r.integers(0, 1 << 32, 2500).astype(np.uint32)
    values = np.arange(2500, dtype=np.int32)
    digits = keys >> 8 & 255
    order = np.argsort(digits, kind="stable")
    count = np.bincount(digits, minlength=256)
    after = np.cumsum(count)
    after[255] = 3072  # with the keys of all ones that fill the last tile
    return {
        "n": 2500, "states": _zeros(3 * 256), "tile": _zeros(1), "after": _zeros(256),
        "before": Data((np.cumsum(count) - count).astype(np.int32)),
        "out": _zeros(2500, kind=np.uint32), "keys": Data(keys),
        "moved": _zeros(2500), "values": Data(values),
    }, {"out": keys[order], "moved": values[order], "after": after}  # fmt: skip


def _segments(r: np.random.Generator) -> Made:
    start = np.array([0, 1, 70, 70, 300, 512], np.int32)
    x = _i(r, 512)
    out = [x[a:b].max(initial=-(1 << 31)) for a, b in itertools.pairwise(start)]
    return {"start": Data(start), "x": Data(x), "out": _zeros(5)}, {"out": np.array(out)}


C = CudaCase
CASES: Final = (
    C("cub_warp_reduce", _warp_reduce, (2,), (128,)),
    C("cub_warp_scan", _warp_scan, (2,), (128,)),
    C("cub_warp_merge_sort", _warp_sort, (2,), (64,)),
    C("cub_block_reduce", _block_reduce, (2,), (128,), 1e-5),
    C("cub_block_scan", _block_scan, (2,), (128,)),
    C("cub_block_radix_sort", _radix, (1,), (64,)),
    C("cub_block_merge_sort", _merge, (1,), (64,)),
    C("cub_block_histogram", _histogram, (1,), (64,)),
    C("cub_block_neighbours", _neighbours, (1,), (64,)),
    C("cub_run_length_decode", _decode, (1,), (32,)),
    C("cub_device_reduce", _device_reduce, (4,), (64,), 1e-5),
    C("cub_device_scan", _device_scan, (8,), (64,)),
    C("cub_device_select", _select, (16,), (64,)),
    C("cub_device_onesweep", _onesweep, (3,), (128,)),
    C("cub_segmented_reduce", _segments, (5,), (64,)),
)
"""Every kernel of the file."""
