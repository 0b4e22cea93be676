"""Random kernels for AMD and NVIDIA GPUs: their text for each target, their run in an emulator, the same on the host.

A whole kernel has functions of 4 to 12 statements and up to two exchanges between them. A small one has a few
statements; 25 of them, one a seed, share a kernel, in which each pair of workgroups runs another one: what a launch
and a translation cost is paid once. The first of the 25 is as large as a whole one.

Not here: random functions (`functions`), exchanges (`amd_exchanges`), the command (`amd`).
"""

# ruff: noqa: E501 - lines of IR read best on one line

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from compiler.llvm import Machine, emit_assembly, emit_object
from emulator.amd.isa import programs
from emulator.nv.ptx.module import launch, load_ptx
from emulator.shared.memory import AddressSpace
from tests.fuzz.amd_exchanges import AMD, BINS, ENTRY, GROUPS, KINDS, NV, PART, PARTS, Exchange
from tests.fuzz.cases import host_functions
from tests.fuzz.functions import FunctionWriter, calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emulator.simt.engine import Settings
    from emulator.simt.work import LaunchOptions

TOGETHER: Final = 25
"""Small cases that share a kernel, and the size of its workgroups: those whose seeds have the same quotient."""
_THREADS: Final = (32, 64, 96, 128)


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
        exchanges = [Exchange(rng.choice(KINDS), rng.randrange(1, 32)) for _ in sizes[1:]]
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
        words, bins = np.zeros((GROUPS, BINS), "u8"), np.zeros(BINS, "u8")
        v = functions(self.names[0], self.x, self.y, index)
        for n, exchange in enumerate(self.exchanges):
            v = functions(self.names[n + 1], v, exchange.mirror(v, words, bins), index)
        return v, bins


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
            ("THREADS", str(self.threads)), ("BINS", str(BINS)), ("KERNEL", words.kernel), ("ITEM", words.item),
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
            text = emit_assembly(self.text(target), Machine("nvptx64-nvidia-cuda", target, "+ptx78"), level=2)
            module = load_ptx(text, arch=target, settings=settings)
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
        functions = host_functions([name for chain in self.chains for name in chain.names], self._functions)
        return [chain.on_host(functions) for chain in self.chains]
