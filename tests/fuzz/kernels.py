"""Random kernels for AMD and NVIDIA GPUs: their text for each target, their run in an emulator, the same on the host.

A whole kernel has functions of 4 to 12 statements and up to two exchanges between them. A small one has a few
statements; 25 of them, one a seed, share a kernel, in which each pair of workgroups runs another one: what a launch
and a translation cost is paid once. The first of the 25 is as large as a whole one.

Not here: random functions (`functions`), exchanges (`exchanges`), the command (`__main__`).
"""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

import ctypes
import random
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from compiler.llvm import Machine, emit_assembly, emit_object
from emulator.amd.isa import programs
from emulator.ir import jit
from emulator.nv.ptx.module import launch, load_ptx
from emulator.shared.memory import AddressSpace
from tests.fuzz.exchanges import AMD, BINS, ENTRY, GROUPS, KINDS, NV, PART, PARTS, START, Exchange, State
from tests.fuzz.functions import FunctionWriter, calls
from tools.record.nv.programs import Program, rewritten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emulator.simt.engine import Settings
    from emulator.simt.work import LaunchOptions

TOGETHER: Final = 25
"""Small cases that share a kernel, and the size of its workgroups: those whose seeds have the same quotient."""
_THREADS: Final = (32, 64, 96, 128)
_PARTIAL: Final = {96: 50, 128: 100}
"""Sizes of workgroups of every fourth whole kernel: they leave lanes of a warp idle."""
_HOST_LOOP: Final = """
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


def _host_functions(names: Sequence[str], texts: Sequence[str]) -> Callable[..., Any]:
    """Compile functions for the host; return a function that applies the one of a name to three arrays of u64."""
    target = jit.host()
    text = "".join(texts) + "".join(_HOST_LOOP.replace("NAME", name) for name in names)
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


@dataclass(frozen=True, slots=True)
class Chain:
    """Random functions with exchanges between them, and the inputs: all that a seed determines."""

    seed: int
    names: list[str]
    functions: list[str]
    exchanges: list[Exchange]
    x: Any
    y: Any

    @classmethod
    def whole(cls, seed: int) -> Chain:
        """Return the chain of a whole kernel."""
        rng = random.Random(seed)  # noqa: S311 - a case, not a secret
        threads, steps = rng.choice(_THREADS), rng.randrange(3)
        threads = threads if seed % 4 else _PARTIAL.get(threads, threads)
        return cls._of(rng, seed, threads, cls._whole_sizes(rng, steps), "f")

    @classmethod
    def small(cls, seed: int) -> Chain:
        """Return the chain of a small kernel; the first of those that share one is as large as a whole one."""
        threads = random.Random(f"threads {seed // TOGETHER}").choice(_THREADS)  # noqa: S311
        rng = random.Random(f"small {seed}")  # noqa: S311
        if seed % TOGETHER:
            steps = rng.choice((0, 0, 1))
            sizes = [rng.choice((1, 2, 2)), *(1 for _ in range(steps))]
        else:
            steps = rng.randrange(3)
            sizes = cls._whole_sizes(rng, steps)
        return cls._of(rng, seed, threads, sizes, f"s{seed % TOGETHER}f")

    @staticmethod
    def _whole_sizes(rng: random.Random, steps: int) -> list[int]:
        return [rng.choice((4, 7, 12)), *(rng.choice((2, 4, 6)) for _ in range(steps))]

    @classmethod
    def _of(cls, rng: random.Random, seed: int, threads: int, sizes: list[int], prefix: str) -> Chain:
        names = [f"{prefix}{k}" for k in range(len(sizes))]
        functions = [FunctionWriter(rng, name, size).text() for name, size in zip(names, sizes, strict=True)]
        exchanges: list[Exchange] = []
        for _ in sizes[1:]:
            absent = threads % 32 or any(one.kind == "leave" for one in exchanges)
            kinds = [kind for kind in KINDS if kind != "lane"] if absent else KINDS
            exchanges.append(Exchange(rng.choice(kinds), rng.randrange(1, 32)))
        data = np.random.default_rng(seed)
        shape = (GROUPS, threads)
        x, y = (
            data.integers(0, 2**64, shape, dtype="u8") >> data.integers(0, 64, shape, dtype="u8")
            for _ in range(2)
        )
        return cls(seed, names, functions, exchanges, x, y)

    @property
    def body(self) -> str:
        """The IR from the first function's result on, which it stores."""
        text = ""
        for n, exchange in enumerate(self.exchanges):
            text += f"{exchange.device(n)}  %v{n + 1} = call i64 @{self.names[n + 1]}(i64 %v{n}, i64 %e{n}, i64 %i64)\n"
        return f"{text}  store i64 %v{len(self.exchanges)}, ptr addrspace(1) %outp\n  ret void\n}}\n"

    def on_host(self, functions: Any) -> tuple[Any, Any]:
        """Compute the results with functions of the host and NumPy."""
        index = np.arange(self.x.size, dtype="u8").reshape(self.x.shape)
        state, v = State(index), functions(self.names[0], self.x, self.y, index)
        for n, exchange in enumerate(self.exchanges):
            v = functions(self.names[n + 1], v, exchange.mirror(v, state), index)
        return np.where(state.alive, v, state.out), state.bins


class Case:
    """A kernel: one whole chain, or several small ones."""

    def __init__(self, chains: Sequence[Chain], *, whole: bool) -> None:
        self.chains, self._whole = list(chains), whole
        self.threads = self.chains[0].x.shape[1]
        self._functions = [text for chain in self.chains for text in chain.functions]

    @classmethod
    def whole(cls, seed: int) -> Case:
        """Return the whole kernel of a seed."""
        return cls([Chain.whole(seed)], whole=True)

    @classmethod
    def small(cls, seeds: Sequence[int]) -> Case:
        """Return the kernel that small cases share; their seeds have the same quotient by `TOGETHER`."""
        return cls([Chain.small(seed) for seed in seeds], whole=False)

    def text(self, target: str) -> str:
        """Return the IR for a target."""
        words, amd = (NV, False) if target.startswith("sm") else (AMD, True)
        if self._whole:
            body = ENTRY + self.chains[0].body
        else:
            body = "".join(
                PART.replace("NUMBER", str(n)).replace("FIRST", chain.names[0]) + chain.body
                for n, chain in enumerate(self.chains)
            )
            ways = " ".join(f"i32 {n}, label %c{n}" for n in range(len(self.chains)))
            body += PARTS.replace("WAYS", ways) + "".join(
                f"c{n}:\n  call void @case{n}(ptr addrspace(1) %o, ptr addrspace(1) %px, ptr addrspace(1) %py, ptr addrspace(1) %pb, i32 %t, i32 %g)\n  br label %end\n"
                for n in range(len(self.chains))
            ) + "end:\n  ret void\n}\n"  # fmt: skip
        for name, value in (
            ("THREADS", str(self.threads)), ("BINS", str(BINS)), ("START", str(START)), ("KERNEL", words.kernel), ("ITEM", words.item),
            ("GROUP", words.group), ("BARRIER", words.barrier), ("SCOPE", 'syncscope("agent")' if amd else ""),
        ):  # fmt: skip
            body = body.replace(name, value)
        if amd:
            body = body.replace("@k(ptr addrspace(1) %out, ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %bins) {",
                                f'@k(ptr addrspace(1) %out, ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %bins) "amdgpu-flat-work-group-size"="{self.threads},{self.threads}" {{')  # fmt: skip
        functions = "".join(self._functions).replace(" #0 {", " alwaysinline {")
        if amd:
            functions = functions.replace("  %local = alloca [64 x i8], align 8\n",
                                          "  %private = alloca [64 x i8], align 8, addrspace(5)\n"
                                          "  %local = addrspacecast ptr addrspace(5) %private to ptr\n")  # fmt: skip
        found = words.head + body + words.exchange + functions
        return found + "\n".join(sorted(calls(found) - set(found.splitlines())))

    def ptx(self, target: str) -> str:
        """Return the PTX for a target of NVIDIA's."""
        return emit_assembly(self.text(target), Machine("nvptx64-nvidia-cuda", target, "+ptx78"), level=2)

    def code(self, target: str) -> programs.KernelCode:
        """Return the machine code for an AMD target."""
        made = emit_object(self.text(target), Machine("amdgcn-amd-amdhsa", target, ""), level=2)
        return programs.kernels(made, target)["k"]

    def on_device(self, target: str, settings: Settings, options: LaunchOptions) -> list[tuple[Any, Any]]:
        """Run the kernel in the emulator of a target; return what each chain left. A fault is an `AssertionError`."""
        x, y = (np.stack([getattr(chain, name) for chain in self.chains]) for name in "xy")
        out, bins = np.zeros_like(x), np.zeros((len(self.chains), BINS), "u8")
        params = np.zeros(512, "u1")
        params[:32] = np.frombuffer(struct.pack("<4Q", *(a.ctypes.data for a in (out, x, y, bins))), "u1")
        memory = AddressSpace()
        for array in (out, x, y, bins, params):
            memory.map(array.ctypes.data, array.nbytes)
        grid, block = (GROUPS * len(self.chains), 1, 1), (self.threads, 1, 1)
        if target.startswith("sm"):
            module = load_ptx(self.ptx(target), arch=target, settings=settings)
            kernel = module.kernel("k", module.place(memory))
            done = launch(kernel, grid, block, params[:32].tobytes(), memory=memory, options=options)
        else:
            found = self.code(target)
            done = programs.run(
                programs.program(found, settings), found, grid, block, params.ctypes.data, memory, options
            )
        if done.fault is not None:
            raise AssertionError(str(done.fault))
        return list(zip(out, bins, strict=True))

    def on_host(self) -> list[tuple[Any, Any]]:
        """Compute the same with host code and NumPy."""
        functions = _host_functions([name for chain in self.chains for name in chain.names], self._functions)
        return [chain.on_host(functions) for chain in self.chains]

    def program(self) -> Program:
        """Return the kernel as one that the recorder keeps, with the recorder's inputs, not this case's."""
        count = self.chains[0].x.size
        places = [("out", 0), ("in", 0), ("in", 8 * count), ("out", 8 * count)]
        return Program(
            name=f"random {self.chains[0].seed}", text=rewritten(self.ptx("sm_80"), places), groups=(GROUPS, 1, 1),
            threads=(self.threads, 1, 1), type="u64", count=count + BINS, inputs="bits", words=2 * count,
        )  # fmt: skip

    def wanted(self, given: Any) -> bytes:
        """Return what `program` computes for the recorder's inputs, by the host."""
        x, y = given.reshape(2, GROUPS, self.threads)
        self.chains[0] = replace(self.chains[0], x=x, y=y)
        return b"".join(part.tobytes() for part in self.on_host()[0])
