"""Exchanges of a random kernel across a warp: shuffles, votes, matches, reductions, divergent code.

Not here: exchanges through memory (`exchanges_memory`), their interface (`exchange`).
"""

# ruff: noqa: D102, E501 - `Exchange` documents the methods; lines of IR are more readable unbroken

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.fuzz.exchange import U64, Array, Exchange, State
from tests.fuzz.exchanges_memory import folded

if TYPE_CHECKING:
    import random


def _mask(lanes: Array) -> Array:
    """Return, for every lane, the 32-bit mask of its warp from booleans by warp."""
    weights = U64(1) << np.arange(32, dtype=U64)
    masks = (lanes.astype(U64) * weights).sum(axis=2, dtype=U64)
    return np.broadcast_to(masks[:, :, None], lanes.shape)


class Shuffle(Exchange):
    """Take the value of another lane of the warp, or of a segment of it."""

    def __init__(self, rng: random.Random, n: int) -> None:
        super().__init__(rng, n)
        self.mode = rng.choice(("idx", "up", "down", "bfly"))
        self.variable = rng.random() < 0.5
        self.amount, self.width = rng.randrange(32), rng.choice((32, 32, 16, 8))

    def device(self) -> str:
        clamp = (32 - self.width) << 8 | (0 if self.mode == "up" else 31)
        amount = "%by$" if self.variable else str(self.amount)
        text = """
  %by$.0 = lshr i64 %v$, 7
  %by$.1 = trunc i64 %by$.0 to i32
  %by$ = and i32 %by$.1, 31
  %low$ = trunc i64 %v$ to i32
  %s$ = call {{i32, i1}} @llvm.nvvm.shfl.sync.{mode}.i32p(i32 -1, i32 %low$, i32 {amount}, i32 {clamp})
  %got$ = extractvalue {{i32, i1}} %s$, 0
  %ok$ = extractvalue {{i32, i1}} %s$, 1
  %reach$ = {source}
  %from$.0 = select i1 %ok$, i32 %reach$, i32 %lane
  %from$ = and i32 %from$.0, 31
  %all$ = call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 true)
  %bit$ = lshr i32 %all$, %from$
  %here$ = trunc i32 %bit$ to i1
  %there$ = and i1 %here$, %ok$
  %pick$ = select i1 %there$, i32 %got$, i32 -7
  %e$ = zext i32 %pick$ to i64
"""
        inner = self.width - 1
        source = {
            "idx": "or i32 %base$, %inner$", "up": f"sub i32 %lane, {amount}", "down": f"add i32 %lane, {amount}",
            "bfly": f"xor i32 %lane, {amount}",
        }[self.mode]  # fmt: skip
        text = text.replace(
            "  %reach$",
            f"  %base$ = and i32 %lane, {31 - inner}\n  %inner$ = and i32 {amount}, {inner}\n  %reach$",
        )
        return self.fill(text, mode=self.mode, amount=amount, clamp=clamp, source=source)

    def mirror(self, v: Array, state: State) -> Array:
        low = state.warps(v & U64(0xFFFF_FFFF))
        lane = np.broadcast_to(np.arange(32), low.shape)
        amount = (
            ((state.warps(v) >> U64(7)) & U64(31)).astype(int)
            if self.variable
            else np.full(low.shape, self.amount)
        )
        first = lane & ~(self.width - 1)
        last = first + self.width - 1
        source = {
            "idx": first + (amount & (self.width - 1)), "up": lane - amount, "down": lane + amount, "bfly": lane ^ amount,
        }[self.mode]  # fmt: skip
        good = source >= first if self.mode == "up" else source <= last
        source = np.where(good, source, lane)
        alive = np.take_along_axis(state.warps(state.alive), source, 2)
        found = np.take_along_axis(low, source, 2)
        return np.where(alive & good, found, U64(0xFFFF_FFF9)).reshape(v.shape)


class Vote(Exchange):
    """Vote across the warp, or across the workgroup at a barrier."""

    def __init__(self, rng: random.Random, n: int) -> None:
        super().__init__(rng, n)
        self.how = rng.choice(
            ("ballot", "all", "any", "uni", "match32", "match64", "popc", "barrier_and", "barrier_or")
        )
        self.keep = rng.choice((1, 3, 8))

    def device(self) -> str:
        text = f"""
  %m$ = and i64 %v$, {self.keep}
  %p$ = icmp ne i64 %m$, 0
  %q$ = zext i1 %p$ to i32
  %m$.32 = trunc i64 %m$ to i32
"""
        single = {
            "ballot": ("i32", "vote.ballot.sync(i32 -1, i1 %p$)"), "match32": ("i32", "match.any.sync.i32(i32 -1, i32 %m$.32)"),
            "match64": ("i32", "match.any.sync.i64(i32 -1, i64 %m$)"), "all": ("i1", "vote.all.sync(i32 -1, i1 %p$)"),
            "any": ("i1", "vote.any.sync(i32 -1, i1 %p$)"), "uni": ("i1", "vote.uni.sync(i32 -1, i1 %p$)"),
            "popc": ("i32", "barrier0.popc(i32 %q$)"), "barrier_and": ("i32", "barrier0.and(i32 %q$)"),
            "barrier_or": ("i32", "barrier0.or(i32 %q$)"),
        }  # fmt: skip
        type_, call = single[self.how]
        text += f"  %g$ = call {type_} @llvm.nvvm.{call}\n"
        if self.how.startswith("barrier"):
            return self.fill(text + "  %h$ = icmp ne i32 %g$, 0\n  %e$ = zext i1 %h$ to i64\n")
        return self.fill(text + f"  %e$ = zext {type_} %g$ to i64\n")

    def mirror(self, v: Array, state: State) -> Array:
        kept = v & U64(self.keep)
        yes = (kept != 0) & state.alive
        if self.how in ("popc", "barrier_and", "barrier_or"):
            votes = yes.sum(1)
            asked = state.alive.sum(1)
            result = {"popc": votes, "barrier_and": votes == asked, "barrier_or": votes != 0}[self.how]
            return np.broadcast_to(result.astype(U64)[:, None], v.shape)
        alive, votes = state.warps(state.alive), state.warps(yes)
        if self.how == "ballot":
            return _mask(votes).reshape(v.shape)
        if self.how.startswith("match"):
            values = state.warps(kept)
            same = (values[:, :, :, None] == values[:, :, None, :]) & alive[:, :, None, :]
            return (same * (U64(1) << np.arange(32, dtype=U64))).sum(3, dtype=U64).reshape(v.shape)
        every, some = (votes | ~alive).all(2), votes.any(2)
        result = {"all": every, "any": some, "uni": every | ~some}[self.how]
        return np.broadcast_to(result.astype(U64)[:, :, None], votes.shape).reshape(v.shape)


class DivergentReduction(Exchange):
    """In a branch, reduce over the lanes that took it, or broadcast the value of the first one."""

    def __init__(self, rng: random.Random, n: int) -> None:
        super().__init__(rng, n)
        self.op = rng.choice(("add", "umin", "umax", "min", "max", "and", "or", "xor", "first"))
        self.keep = rng.choice((1, 2, 5))

    def device(self) -> str:
        inner = (
            "%first$ = call i32 @llvm.cttz.i32(i32 %took$, i1 true)\n"
            "  %red$ = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 %took$, i32 %low$, i32 %first$, i32 31)"
            if self.op == "first"
            else f"%red$ = call i32 @llvm.nvvm.redux.sync.{self.op}(i32 %low$, i32 %took$)"
        )
        text = """
  %m$ = and i64 %v$, {keep}
  %p$ = icmp ne i64 %m$, 0
  %low$.0 = lshr i64 %v$, 9
  %low$ = trunc i64 %low$.0 to i32
  %took$ = call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 %p$)
  br i1 %p$, label %in$, label %out$
in$:
  {inner}
  br label %join$
out$:
  %other$ = xor i32 %low$, 77
  br label %join$
join$:
  %both$ = phi i32 [ %red$, %in$ ], [ %other$, %out$ ]
  %e$ = zext i32 %both$ to i64
"""
        return self.fill(text, keep=self.keep, inner=inner)

    def mirror(self, v: Array, state: State) -> Array:
        low = (v >> U64(9)) & U64(0xFFFF_FFFF)
        took = ((v & U64(self.keep)) != 0) & state.alive
        result = low ^ U64(77)
        by_warp, lanes, values = state.warps(result), state.warps(took), state.warps(low)
        for group, warp in np.ndindex(*lanes.shape[:2]):
            mine = values[group, warp][lanes[group, warp]]
            if mine.size:
                start = {"and": 0xFFFF_FFFF, "umin": 0xFFFF_FFFF, "min": 0x7FFF_FFFF, "max": 0x8000_0000}.get(
                    self.op, 0
                )
                reduced = int(mine[0]) if self.op == "first" else folded(self.op, 32, start, mine)
                by_warp[group, warp][lanes[group, warp]] = reduced
        return result


class ThinningLoop(Exchange):
    """Loop as often as a lane's value says; each iteration counts the remaining lanes."""

    def device(self) -> str:
        text = """
  %times$.0 = lshr i64 %v$, 5
  %times$.1 = trunc i64 %times$.0 to i32
  %times$ = and i32 %times$.1, 7
  %every$ = call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 true)
  br label %head$
head$:
  %k$ = phi i32 [ 0, %PREVIOUS ], [ %k$.1, %tail$ ]
  %with$ = phi i32 [ %every$, %PREVIOUS ], [ %with$.1, %tail$ ]
  %sum$ = phi i32 [ 0, %PREVIOUS ], [ %sum$.1, %tail$ ]
  %more$ = icmp ult i32 %k$, %times$
  %with$.1 = call i32 @llvm.nvvm.vote.ballot.sync(i32 %with$, i1 %more$)
  br i1 %more$, label %tail$, label %end$
tail$:
  %count$ = call i32 @llvm.ctpop.i32(i32 %with$.1)
  %sum$.0 = mul i32 %sum$, 37
  %sum$.1 = add i32 %sum$.0, %count$
  %k$.1 = add i32 %k$, 1
  br label %head$
end$:
  %e$ = zext i32 %sum$ to i64
"""
        return self.fill(text)

    def mirror(self, v: Array, state: State) -> Array:
        times, alive = state.warps((v >> U64(5)) & U64(7)), state.warps(state.alive)
        total = np.zeros(times.shape, U64)
        for k in range(8):
            here = alive & (times > k)
            count = np.broadcast_to(here.sum(2).astype(U64)[:, :, None], here.shape)
            total = np.where(here, (total * U64(37) + count) & U64(0xFFFF_FFFF), total)
        return total.reshape(v.shape)
