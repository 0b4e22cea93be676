"""Special registers. Source: PTX ISA chapter 10.

Next: `core`, which reads them as operands; `drivers.emu.simt.state`, the records behind them.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivers.emu.simt.vector import Value
    from drivers.nv.emu.ptx.core import Translator

_AXES = {"x": 0, "y": 1, "z": 2}
_OF_CLUSTER = ("%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid")
_OF_BLOCK = {"%ntid": "visible_block", "%nctaid": "visible_grid"}
_CONSTANTS = {
    "%nsmid": 132, "%smid": 0, "%gridid": 0,
    "%reserved_smem_offset_begin": 0, "%reserved_smem_offset_end": 0, "%reserved_smem_offset_cap": 0, "%current_graph_exec": 0,
}  # fmt: skip


def read_special(t: Translator, name: str) -> Value:
    """Return a special register as i32, or i64 for the 64-bit clocks."""
    base, _, axis = name.partition(".")
    c, wf = t.c, t.wf
    if axis in _AXES:
        if base == "%tid":
            return wf.thread_id(_AXES[axis])
        if base == "%ctaid":
            return wf.uniform(wf.of_group(axis))
        if base in _OF_CLUSTER:
            return wf.uniform(_of_cluster(t, base, axis))
        if base in _OF_BLOCK:
            return wf.uniform(wf.of_thread(f"{_OF_BLOCK[base]}_{axis}"))
    if not axis and name in _CONSTANTS:
        return c.const(t.v("i32"), _CONSTANTS[name])
    if name.startswith("%lanemask_"):
        return _lane_mask(t, name.removeprefix("%lanemask_"))
    simple: dict[str, Callable[[], Value]] = {
        "%laneid": wf.lane_id, "%warpid": lambda: wf.uniform(wf.of_warp("index")), "%nwarpid": lambda: wf.uniform(wf.of_thread("warps")),
        "%cluster_ctarank": lambda: wf.uniform(wf.of_group("rank")), "%cluster_nctarank": lambda: wf.uniform(wf.of_thread("cluster")),
        "%dynamic_smem_size": lambda: wf.uniform(wf.of_thread("dynamic_shared")),
        "%total_smem_size": lambda: wf.uniform(wf.of_thread("shared_bytes")),
        "%aggr_smem_size": lambda: wf.uniform(wf.of_thread("shared_bytes")),
        "%clock": lambda: _clock(t, 0, 32), "%clock_hi": lambda: _clock(t, 32, 32), "%clock64": lambda: _clock(t, 0, 64),
        "%globaltimer": lambda: _clock(t, 0, 64), "%globaltimer_lo": lambda: _clock(t, 0, 32), "%globaltimer_hi": lambda: _clock(t, 32, 32),
    }  # fmt: skip
    if name not in simple:
        raise t.error(f"special register {name} is not supported")
    return simple[name]()


def _of_cluster(t: Translator, base: str, axis: str) -> Value:
    """Return a register of a cluster with an axis, as a scalar."""
    size = t.wf.of_thread(f"cluster_{axis}")
    if base == "%cluster_nctaid":
        return size
    whole = t.wf.of_thread(f"grid_{axis}") if base == "%nclusterid" else t.wf.of_group(axis)
    return t.c.op("urem" if base == "%cluster_ctaid" else "udiv", whole, size)


def _clock(t: Translator, shift: int, bits: int) -> Value:
    """Return the host's cycle counter, which is monotonic; its rate has no meaning."""
    now = t.c.call("llvm.readcyclecounter", "i64")
    return t.wf.uniform(t.c.resize(t.c.op("lshr", now, shift) if shift else now, bits))


def _lane_mask(t: Translator, how: str) -> Value:
    values: dict[str, Callable[[int], int]] = {
        "eq": lambda lane: 1 << lane, "lt": lambda lane: (1 << lane) - 1, "le": lambda lane: (2 << lane) - 1,
        "gt": lambda lane: ~((2 << lane) - 1) & 0xFFFF_FFFF, "ge": lambda lane: ~((1 << lane) - 1) & 0xFFFF_FFFF,
    }  # fmt: skip
    if how not in values:
        raise t.error(f"special register %lanemask_{how} is not supported")
    return t.c.ints(t.v("i32"), [values[how](lane) for lane in range(t.wf.lanes)])
