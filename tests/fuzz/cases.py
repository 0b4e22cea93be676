"""One random kernel, run by the emulator and as host code with NumPy, and the comparison of the results.

A kernel is a chain of random functions (`functions`), with exchanges between threads (`exchange`) between
them. LLVM compiles the kernel to PTX, which the emulator runs. The same LLVM compiles the functions for the
host; NumPy computes the exchanges. The seed determines the kernel and its inputs.

Not here: the command (`tests.fuzz`), random functions (`functions`), exchanges (`exchange`).
"""

# ruff: noqa: E501 - lines of IR are more readable unbroken

from __future__ import annotations

import ctypes
import random
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from compiler.llvm import Machine, emit_assembly
from emulator.ir import jit
from emulator.nv.ptx.module import launch, load_ptx
from emulator.shared.memory import AddressSpace
from emulator.simt.engine import Settings
from emulator.simt.work import LaunchOptions
from tests.fuzz.exchange import BINS, MOST, Exchange, State
from tests.fuzz.exchanges_memory import Atomics, Leave, SharedSwap
from tests.fuzz.exchanges_warp import DivergentReduction, Shuffle, ThinningLoop, Vote
from tests.fuzz.functions import FunctionWriter, calls
from tools.record.nv.programs import Program, rewritten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_KINDS: tuple[type[Exchange], ...] = (
    SharedSwap, SharedSwap, Atomics, Atomics, Shuffle, Vote, Vote, DivergentReduction, ThinningLoop, Leave,
)  # fmt: skip
BLOCKS = 3
ARCH = "sm_80"
_PTX = Machine("nvptx64-nvidia-cuda", ARCH, "+ptx78")

_HEAD = """
target triple = "nvptx64-nvidia-cuda"
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.laneid()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
@cells = internal addrspace(3) global [THREADS x i64] undef, align 16
@words = internal addrspace(3) global [BINS x i64] undef, align 16
define ptx_kernel void @k(ptr addrspace(1) %out, ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %bins) {
entry:
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.laneid()
  %g = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %first = mul i32 %g, THREADS
  %i = add i32 %first, %t
  %i64 = zext i32 %i to i64
  %px = getelementptr i64, ptr addrspace(1) %x, i32 %i
  %py = getelementptr i64, ptr addrspace(1) %y, i32 %i
  %outp = getelementptr i64, ptr addrspace(1) %out, i32 %i
  %own = getelementptr i64, ptr addrspace(3) @cells, i32 %t
  store i64 %i64, ptr addrspace(3) %own
  %a = load i64, ptr addrspace(1) %px
  %b = load i64, ptr addrspace(1) %py
  %v0 = call i64 @f0(i64 %a, i64 %b, i64 %i64)
"""

HOST_LOOP: Final = """
define void @host_NAME(ptr %o, ptr %x, ptr %y, ptr %z, i64 %n) #1 {
entry:
  br label %l
l:
  %k = phi i64 [0, %entry], [%k1, %l]
  %px = getelementptr i64, ptr %x, i64 %k
  %py = getelementptr i64, ptr %y, i64 %k
  %pz = getelementptr i64, ptr %z, i64 %k
  %po = getelementptr i64, ptr %o, i64 %k
  %a = load i64, ptr %px
  %b = load i64, ptr %py
  %i = load i64, ptr %pz
  %r = call i64 @NAME(i64 %a, i64 %b, i64 %i)
  store i64 %r, ptr %po
  %k1 = add i64 %k, 1
  %c = icmp ult i64 %k1, %n
  br i1 %c, label %l, label %e
e:
  ret void
}
"""
"""Runs a function for each element on the host."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The memory that a kernel wrote."""

    out: bytes
    bins: bytes

    def difference(self, wanted: Outcome) -> str:
        """Return the difference from the expected outcome as text, or ""."""
        for what, mine, other in (("out", self.out, wanted.out), ("bins", self.bins, wanted.bins)):
            seen, right = np.frombuffer(mine, "u8"), np.frombuffer(other, "u8")
            wrong = np.nonzero(seen != right)[0]
            if wrong.size:
                at = wrong[0]
                return f"{wrong.size} of {seen.size} in {what} differ, first [{at}]: {seen[at]:#x}, wanted {right[at]:#x}"
        return ""


def host_functions(names: Sequence[str], texts: Sequence[str]) -> Callable[..., Any]:
    """Compile functions for the host; return a function that applies the one of a name to three arrays of u64."""
    target = jit.host()
    text = "".join(texts) + "".join(HOST_LOOP.replace("NAME", name) for name in names)
    text += "\n".join(sorted(calls(text)))
    text += f"\nattributes #0 = {{ alwaysinline {target.attributes} }}\nattributes #1 = {{ {target.attributes} }}\n"
    loaded = jit.load(jit.compile_ir(text, target, optimise=False), [f"host_{name}" for name in names], {})
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_uint64)

    def call(name: str, *arrays: Any) -> Any:
        out = np.zeros(arrays[0].shape, "u8")
        inputs = [np.ascontiguousarray(a) for a in arrays]
        kind(loaded.addresses[f"host_{name}"])(out.ctypes.data, *(a.ctypes.data for a in inputs), out.size)
        return out

    return call


class Case:
    """The kernel of one seed."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)  # noqa: S311 - a case, not a secret
        self.seed = seed
        self.threads = rng.choice((32, 64, 96, 128, 50, 100))
        steps = rng.randrange(1, MOST + 1)
        sizes = [rng.choice((4, 7, 12)), *(rng.choice((2, 4, 6)) for _ in range(steps))]
        self._functions = [FunctionWriter(rng, f"f{k}", size).text() for k, size in enumerate(sizes)]
        self._inlined = [rng.random() < 0.8 for _ in sizes]
        self._exchanges: list[Exchange] = [rng.choice(_KINDS)(rng, k) for k in range(steps)]
        data = np.random.default_rng(seed)
        count = self.threads * BLOCKS
        self._x, self._y = (
            data.integers(0, 2**64, count, dtype="u8") >> data.integers(0, 64, count, dtype="u8")
            for _ in range(2)
        )
        self.ptx = emit_assembly(self._device_text(), _PTX, level=2)

    def _device_text(self) -> str:
        text, block = _HEAD, "entry"
        for n, exchange in enumerate(self._exchanges):
            part = exchange.device().replace("%PREVIOUS", f"%{block}")
            labels = [
                line[:-1] for line in part.splitlines() if line.endswith(":") and not line.startswith(" ")
            ]
            block = labels[-1] if labels else block
            text += f"{part}  %v{n + 1} = call i64 @f{n + 1}(i64 %v{n}, i64 %e{n}, i64 %i64)\n"
        text += f"  store i64 %v{len(self._exchanges)}, ptr addrspace(1) %outp\n  ret void\n}}\n"
        text = text.replace("THREADS", str(self.threads)).replace("BINS", str(BINS))
        for function, inlined in zip(self._functions, self._inlined, strict=True):
            text += function.replace(" #0 {", " alwaysinline {" if inlined else " noinline {")
        return text + "\n".join(sorted(calls(text) - set(text.splitlines())))

    def on_device(self, settings: Settings, options: LaunchOptions) -> Outcome:
        """Run the kernel in the emulator; `AssertionError` for a fault."""
        out, bins, x, y = np.zeros(len(self._x), "u8"), np.zeros(BINS * MOST, "u8"), self._x, self._y
        memory = AddressSpace()
        for array in (out, x, y, bins):
            memory.map(array.ctypes.data, array.nbytes)
        params = struct.pack("<4Q", *(array.ctypes.data for array in (out, x, y, bins)))
        module = load_ptx(self.ptx, arch=ARCH, settings=settings)
        kernel = module.kernel("k", module.place(memory))
        done = launch(kernel, (BLOCKS, 1, 1), (self.threads, 1, 1), params, memory=memory, options=options)
        if done.fault is not None:
            raise AssertionError(f"seed {self.seed}: {done.fault}")
        return Outcome(out.tobytes(), bins.tobytes())

    def on_host(self) -> Outcome:
        """Compute the same outcome with host code and NumPy."""
        functions = host_functions([f"f{k}" for k in range(len(self._functions))], self._functions)
        lanes = -(-self.threads // 32) * 32
        index = np.arange(BLOCKS, dtype="u8")[:, None] * np.uint64(self.threads) + np.arange(
            lanes, dtype="u8"
        )
        alive = np.broadcast_to(np.arange(lanes) < self.threads, index.shape).copy()
        state = State(
            self.threads,
            index,
            alive,
            index.copy().view("u1"),
            np.zeros(BINS * MOST, "u8"),
            np.zeros(index.shape, "u8"),
        )
        values = [np.zeros(index.shape, "u8") for _ in range(2)]
        for padded, data in zip(values, (self._x, self._y), strict=True):
            padded[:, : self.threads] = data.reshape(BLOCKS, self.threads)
        v = functions("f0", values[0], values[1], index)
        for n, exchange in enumerate(self._exchanges):
            v = functions(f"f{n + 1}", v, exchange.mirror(v, state), index)
        state.out[state.alive] = v[state.alive]
        return Outcome(state.out[:, : self.threads].tobytes(), state.bins.tobytes())

    def program(self) -> Program:
        """Return the kernel as one that the recorder keeps, with the recorder's inputs, not this case's."""
        count = len(self._x)
        places = [("out", 0), ("in", 0), ("in", 8 * count), ("out", 8 * count)]
        return Program(
            name=f"random {self.seed}", text=rewritten(self.ptx, places), groups=(BLOCKS, 1, 1),
            threads=(self.threads, 1, 1), type="u64", count=count + BINS * MOST, inputs="bits", words=2 * count,
        )  # fmt: skip

    def wanted(self, given: Any) -> bytes:
        """Return what `program` computes for the recorder's inputs, by the host."""
        self._x, self._y = given[: len(self._x)], given[len(self._x) :]
        found = self.on_host()
        return found.out + found.bins


def check(seed: int, settings: Settings) -> str:
    """Compare emulator and host on one case; return the difference as text, or "".

    Each third seed runs optimised code.
    """
    case = Case(seed)
    tier = "quick" if seed % 3 else "optimised"
    return case.on_device(settings, LaunchOptions(tier=tier)).difference(case.on_host())  # type: ignore[arg-type]


def check_relations(seed: int, settings: Sequence[Settings]) -> str:
    """Compare a case with itself under all settings, tiers, orders, and numbers of threads."""
    case, first = Case(seed), None
    for one in settings:
        for tier in ("quick", "optimised"):
            for order, threads, group_seed in (("forward", 1, 0), ("reverse", 2, 5), (seed + 1, 1, 9)):
                options = LaunchOptions(tier=tier, warp_order=order, threads=threads, group_seed=group_seed)  # type: ignore[arg-type]
                found = case.on_device(one, options)
                first = first or found
                different = found.difference(first)
                if different:
                    return f"vectors of {one.vector_bits or 'all'} bits, {options}: {different}"
    return ""


def disagreements(first: int, count: int, *, relations: bool) -> dict[int, str]:
    """Return the failures of `count` seeds, as text by seed; an exception of a case is a failure."""
    found = {}
    for seed in range(first, first + count):
        try:
            if relations:
                wrong = check_relations(seed, (Settings(), Settings(vector_bits=256)))
            else:
                wrong = check(seed, Settings())
        except Exception as error:  # noqa: BLE001 - any exception of a case is its result
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            found[seed] = f"{seed}: {wrong}"
    return found
