"""Exchanges of a random kernel through memory: shared cells, atomics, and threads that exit early.

Not here: exchanges across a warp (`exchanges_warp`), their interface (`exchange`).
"""

# ruff: noqa: D102, E501 - `Exchange` documents the methods; lines of IR are more readable unbroken

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.fuzz.exchange import BINS, CELL_BYTES, U64, WIDTHS, Array, Exchange, State

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

BARRIER = "  call void @llvm.nvvm.barrier0()\n"


class SharedSwap(Exchange):
    """Store to the thread's own cell at one width, wait at a barrier, load another cell at another width."""

    def __init__(self, rng: random.Random, n: int) -> None:
        super().__init__(rng, n)
        self.write, self.read = rng.choice(tuple(WIDTHS)), rng.choice(tuple(WIDTHS))
        self.piece = rng.randrange(CELL_BYTES * 8 // WIDTHS[self.read])
        self.step, self.by = rng.choice((1, 5, 7, 11)), rng.randrange(32)

    def device(self) -> str:
        text = """
  %w$.0 = zext i64 %v$ to i65
  %w$ = trunc i65 %w$.0 to {write}
  %mine$ = getelementptr i64, ptr addrspace(3) @cells, i32 %t
  store {write} %w$, ptr addrspace(3) %mine$, align {wsize}
{barrier}  %u$.0 = mul i32 %t, {step}
  %u$.1 = add i32 %u$.0, {by}
  %u$ = urem i32 %u$.1, THREADS
  %cell$ = getelementptr i64, ptr addrspace(3) @cells, i32 %u$
  %piece$ = getelementptr {read}, ptr addrspace(3) %cell$, i32 {piece}
  %r$ = load {read}, ptr addrspace(3) %piece$, align {rsize}
  %e$.0 = zext {read} %r$ to i65
  %e$ = trunc i65 %e$.0 to i64
{barrier}"""
        return self.fill(
            text, write=self.write, wsize=WIDTHS[self.write] // 8, barrier=BARRIER, step=self.step, by=self.by, read=self.read,
            piece=self.piece, rsize=WIDTHS[self.read] // 8,
        )  # fmt: skip

    def mirror(self, v: Array, state: State) -> Array:
        groups, lanes = v.shape
        cells = state.cells.reshape(groups, lanes, CELL_BYTES)
        raw = v.view("u1").reshape(groups, lanes, 8)
        size = WIDTHS[self.write] // 8
        cells[state.alive, :size] = raw[state.alive, :size]
        other = (np.arange(lanes) * self.step + self.by) % state.threads
        size = WIDTHS[self.read] // 8
        found = cells[:, other, self.piece * size : (self.piece + 1) * size]
        result = np.zeros((groups, lanes, 8), "u1")
        result[:, :, :size] = found
        return result.view("<u8")[:, :, 0].copy()


def _extreme(kind: str, bits: int, values: Iterable[int]) -> int:
    signed = [
        int(x) - (1 << bits) if kind in ("min", "max") and int(x) >> (bits - 1) else int(x) for x in values
    ]
    return (min if kind.endswith("min") else max)(signed) % (1 << bits)


def folded(op: str, bits: int, start: int, values: Iterable[int]) -> int:
    """Return the result of atomic operations of one kind on a word, in any order."""
    top = (1 << bits) - 1
    if op in ("umin", "umax", "min", "max"):
        return _extreme(op, bits, [start, *values])
    total = start
    for value in map(int, values):
        if op == "uinc_wrap":  # the limit is the same for all
            total = 0 if total >= value else total + 1
        else:
            total = {
                "add": total + value,
                "sub": total - value,
                "and": total & value,
                "or": total | value,
                "xor": total ^ value,
            }[op]
        total &= top
    return total


class Atomics(Exchange):
    """Every thread changes one of BINS words by the same atomic operation.

    Words in shared memory are read back.
    """

    def __init__(self, rng: random.Random, n: int) -> None:
        super().__init__(rng, n)
        self.shared = shared = rng.random() < 0.7
        self.type = rng.choice(
            ("i8", "i16", "i32", "i64", "i32", "i64", "float", "double") if shared else ("i32", "i64")
        )
        kinds: tuple[str, ...] = ("add", "sub", "and", "or", "xor")
        if (
            self.type
            in (
                "i32",
                "i64",
            )
        ):  # LLVM's loops for narrower minima and maxima are wrong: they compare with the first loaded value only
            kinds = (*kinds, "umin", "umax", "min", "max")
        self.op = "fadd" if self.type in ("float", "double") else rng.choice(kinds)
        if self.type in ("i32", "i64") and shared and rng.random() < 0.2:
            self.op = "uinc_wrap"
        self.start, self.limit = rng.randrange(128), rng.randrange(3, 99)

    def device(self) -> str:
        space = "addrspace(3)" if self.shared else "addrspace(1)"
        text = "\n"
        name = "@words" if self.shared else "%own$"
        if self.shared:
            for k in range(BINS):
                text += f"  %z$.{k} = getelementptr i64, ptr addrspace(3) @words, i32 {k}\n"
                text += f"  store i64 {self._first()}, ptr addrspace(3) %z$.{k}, align 8\n"
            text += BARRIER
        else:
            text += f"  %own$ = getelementptr i64, ptr addrspace(1) %bins, i32 {BINS * self.n}\n"
        text += f"  %b$ = and i64 %v$, {BINS - 1}\n  %at$ = getelementptr i64, ptr {space} {name}, i64 %b$\n"
        if self.op == "fadd":
            text += f"  %n$ = and i64 %v$, 15\n  %n$.1 = uitofp i64 %n$ to {self.type}\n"
        elif self.op == "uinc_wrap":
            text += f"  %n$.1 = add {self.type} {self.limit}, 0\n"
        else:
            text += "  %n$ = lshr i64 %v$, 3\n" + (
                f"  %n$.1 = trunc i64 %n$ to {self.type}\n"
                if self.type != "i64"
                else "  %n$.1 = add i64 %n$, 0\n"
            )
        scope = self.rng.choice(("", 'syncscope("block") ' if self.shared else 'syncscope("device") '))
        text += f"  %old$ = atomicrmw {self.op} ptr {space} %at$, {self.type} %n$.1 {scope}monotonic\n"
        if self.shared:
            text += f"{BARRIER}  %bo$ = and i64 %i64, {BINS - 1}\n"
            text += "  %ao$ = getelementptr i64, ptr addrspace(3) @words, i64 %bo$\n"
            text += f"  %e$ = load i64, ptr addrspace(3) %ao$, align 8\n{BARRIER}"
        else:
            text += "  %e$ = add i64 %v$, 1\n"
        return self.fill(text.replace("{", "{{").replace("}", "}}"))

    def _first(self) -> int:
        if self.type == "float":
            return int(np.float32(self.start).view("u4"))
        return int(np.float64(self.start).view("u8")) if self.type == "double" else self.start

    def mirror(self, v: Array, state: State) -> Array:
        if not self.shared:
            for k in range(BINS):
                at = BINS * self.n + k
                state.bins[at] = self._outcome(int(state.bins[at]), v[state.alive], k)
            return v + U64(1)
        result = np.zeros(v.shape, U64)
        for group in range(v.shape[0]):
            mine = v[group][state.alive[group]]
            words = np.array([self._outcome(self._first(), mine, k) for k in range(BINS)], U64)
            result[group] = words[(state.index[group] & U64(BINS - 1)).astype(int)]
        return result

    def _outcome(self, start: int, values: Array, k: int) -> int:
        mine = values[(values & U64(BINS - 1)) == k]
        if self.op == "fadd":
            total = self.start + int((mine & U64(15)).sum())
            return int(np.float32(total).view("u4") if self.type == "float" else np.float64(total).view("u8"))
        bits = WIDTHS[self.type]
        given = (
            [self.limit] * len(mine) if self.op == "uinc_wrap" else (mine >> U64(3)) & U64((1 << bits) - 1)
        )
        low = folded(self.op, bits, start & ((1 << bits) - 1), given)
        return start >> bits << bits | low


class Leave(Exchange):
    """Some threads store their value and exit the kernel."""

    def __init__(self, rng: random.Random, n: int) -> None:
        super().__init__(rng, n)
        self.keep, self.value = rng.choice((3, 7, 15)), rng.randrange(3)

    def device(self) -> str:
        text = """
  %m$ = and i64 %v$, {keep}
  %p$ = icmp eq i64 %m$, {value}
  br i1 %p$, label %leave$, label %stay$
leave$:
  store i64 %v$, ptr addrspace(1) %outp
  ret void
stay$:
  %e$ = xor i64 %v$, %i64
"""
        return self.fill(text, keep=self.keep, value=self.value)

    def mirror(self, v: Array, state: State) -> Array:
        leaves = state.alive & ((v & U64(self.keep)) == self.value)
        state.out[leaves] = v[leaves]
        state.alive = state.alive & ~leaves
        return v ^ state.index
