"""The corpus of kernels from which barriers are removed.

It has the kernels of softmax, sum, maximum and variance, compiled for sm_90a, kernels of the bring-up ladder
and of the emulator's benchmark, and two hand-written ones.

Not here: running them (`tests.mutants.corpus`). Next: `handmade`, the hand-written kernels.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from emulator.nv.engines.cubins import Cubin
from emulator.nv.ptx import module as ptx
from emulator.shared.memory import AddressSpace
from emulator.simt.engine import Settings
from emulator.simt.library import Sanitizers
from emulator.simt.work import Options
from hcq.config import config
from tests.mutants import programs
from tests.mutants.nv.handmade import LAST_BLOCK, PIPELINE
from tools.bench import emu as bench
from tools.bringup.nv import kernels

if TYPE_CHECKING:
    from collections.abc import Iterator

ARCH: Final = "sm_90a"
_BARRIER: Final = re.compile(
    r"(?:@!?%\w+\s+)?\b(?:bar|barrier|fence|membar|mbarrier|cp\.async\.(?:commit|wait)\w*)\b[\w.:]*[^;{}]*;"
)
_LIMIT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kernel with its launch shape and buffers."""

    name: str
    text: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    sizes: tuple[tuple[int, bool], ...]
    """(number of floats, whether it is filled with random numbers) of the buffer of each pointer argument."""
    words: tuple[int, ...] = ()
    """The u32 arguments after the pointers."""
    shared: int = 0

    def without_one(self) -> Iterator[tuple[str, Case]]:
        """Yield (description, the kernel without it) for every barrier of the kernel."""
        text = self.text
        for number, found in enumerate(_BARRIER.finditer(text)):
            line = text.count("\n", 0, found.start()) + 1
            label = f"{number} of line {line}: {' '.join(found.group().split())}"
            yield label, replace(self, text=text[: found.start()] + text[found.end() :])

    def run(self, seed: int) -> tuple[str, bytes]:
        """Launch it under one order; return the first report, or "", and the bytes of its buffers."""
        space, params = AddressSpace(), b""
        chosen = np.random.default_rng(7)
        arrays = []
        for floats, filled in self.sizes:
            array = chosen.random(floats, "f4") if filled else np.zeros(floats, "f4")
            arrays.append(array)
            space.map(array.ctypes.data, array.nbytes, label=f"buffer {len(arrays)}")
            params += array.ctypes.data.to_bytes(8, "little")
        params += b"".join(word.to_bytes(4, "little") for word in self.words)
        order = random.Random(seed)  # noqa: S311 - an order, not a secret
        options = Options(
            warp_order=order.randrange(1 << 30), group_seed=order.randrange(1, 1 << 30), timeout_s=_LIMIT_S
        )
        settings = Settings(cache=config().cache, checks=Sanitizers.all(in_step=False))
        module = ptx.load_ptx(self.text, arch=ARCH, settings=settings)
        kernel = module.kernel(self.entry, module.place(space))
        done = ptx.launch(
            kernel,
            self.grid,
            self.block,
            params[: kernel.param_bytes],
            self.shared,
            memory=space,
            options=options,
        )
        reports = [done.fault] if done.fault is not None else [*done.findings]
        return str(reports[0]) if reports else "", b"".join(array.tobytes() for array in arrays)


def corpus() -> Iterator[Case]:
    """Yield all kernels."""
    yield from compiled()
    yield from written()


def compiled() -> Iterator[Case]:
    """Yield the compiled kernels of tensor programs."""
    for name, kernel, sizes in programs.compiled(ARCH):
        yield Case(
            name=name,
            text=Cubin.parse(kernel.image.code).ptx,
            entry=kernel.image.name,
            grid=kernel.groups,
            block=kernel.threads,
            sizes=sizes,
        )


def written() -> Iterator[Case]:
    """Yield the kernels that are written in PTX."""
    yield Case(
        name="ladder shared", text=kernels.ptx("shared", ARCH), entry="shared", grid=(1, 1, 1),
        block=(256, 1, 1), sizes=((256, False),), words=(2048,), shared=4096,
    )  # fmt: skip
    yield Case(
        name="bench reduce", text=bench.REDUCE, entry="reduce", grid=(4, 1, 1), block=(256, 1, 1),
        sizes=((4, False), (4096, True)),
    )  # fmt: skip
    yield Case(
        name="bench matmul", text=bench.matmul(), entry="matmul", grid=(2, 2, 1), block=(16, 16, 1),
        sizes=((128 * 128, False), (128 * 128, True), (128 * 128, True)), words=(128,),
    )  # fmt: skip
    yield Case(
        name="copy pipeline", text=PIPELINE, entry="pipeline", grid=(2, 1, 1), block=(64, 1, 1),
        sizes=((128, False), (1024, True)),
    )  # fmt: skip
    yield Case(
        name="last block", text=LAST_BLOCK, entry="last", grid=(8, 1, 1), block=(64, 1, 1),
        sizes=((1, False), (8, False), (1, False), (512, True)),
    )  # fmt: skip
