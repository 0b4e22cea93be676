"""`python -m tools.mutants.corpus [--json FILE]`: kernels without one of their barriers.

Every barrier, fence and wait for copies in a corpus of PTX kernels is left out, one at a time, and the kernel
is run by the emulator under eight orders with the sanitizers on. The corpus: kernels that the compiler makes
of tensor programs for sm_90a, the kernels of the bring-up ladder and of the emulator's benchmark, two by
hand.

Not here: mutants of the driver (`judge`). Next: `handmade`, two of the kernels.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from compiler.compile import compile_kernel
from compiler.schedule.scheduler import schedule
from drivers.emu.memory import AddressSpace
from drivers.emu.simt.engine import Settings
from drivers.emu.simt.launch import Options
from drivers.emu.simt.library import Sanitizers
from drivers.nv.emu.engines.cubins import Cubin
from drivers.nv.emu.ptx import module as ptx
from frontend import Tensor
from frontend.expr import uops
from hcq.config import config
from hcq.errors import HcqError
from tools.bench import emu as bench
from tools.bringup.nv import kernels
from tools.mutants.handmade import LAST_BLOCK, PIPELINE
from tools.mutants.verdicts import CAUGHT, SEEDS, Outcome, Verdict, overall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ARCH: Final = "sm_90a"
_BARRIER: Final = re.compile(
    r"(?:@!?%\w+\s+)?\b(?:bar|barrier|fence|membar|mbarrier|cp\.async\.(?:commit|wait)\w*)\b[\w.:]*[^;{}]*;"
)
_LIMIT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kernel, how it is launched, and its buffers: bytes of those it writes, seeds of those it reads."""

    name: str
    text: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    sizes: tuple[tuple[int, bool], ...]
    """(floats, whether it is filled) of each pointer."""
    words: tuple[int, ...] = ()
    """What follows the pointers."""
    shared: int = 0


def compiled() -> Iterator[Case]:
    """Yield the kernels of tensor programs."""
    programs: dict[str, Callable[[Tensor], Tensor]] = {
        "softmax": lambda x: x.softmax(-1),
        "sum": lambda x: x.sum(),
        "max": lambda x: x.amax(-1),
        "variance": lambda x: ((x - x.mean(-1, keepdim=True)) ** 2).mean(-1),
    }
    for name, program in programs.items():
        result = program(Tensor(np.zeros((4, 2048), "f4")))
        graph = uops([(result.expr, tuple(range(len(result.leaves))))])
        for number, item in enumerate(schedule(graph)):
            kernel = compile_kernel(item.ast, ARCH)
            sizes = tuple(
                (int(np.prod(buffer.shape)), arg.access == "r")
                for buffer, arg in zip(item.bufs, kernel.image.args, strict=True)
            )
            yield Case(
                name=f"{name} {number}",
                text=Cubin.parse(kernel.image.code).ptx,
                entry=kernel.image.name,
                grid=kernel.groups,
                block=kernel.threads,
                sizes=sizes,
            )


def written() -> Iterator[Case]:
    """Yield the kernels written as PTX."""
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


def without_one(text: str) -> Iterator[tuple[str, str]]:
    """Yield (what was left out, the text without it) for every barrier of a kernel."""
    for number, found in enumerate(_BARRIER.finditer(text)):
        line = text.count("\n", 0, found.start()) + 1
        label = f"{number} of line {line}: {' '.join(found.group().split())}"
        yield label, text[: found.start()] + text[found.end() :]


def run(case: Case, text: str, seed: int) -> tuple[str, bytes]:
    """Launch a kernel under one order; return what was reported, if anything, and its buffers' bytes."""
    space, params = AddressSpace(), b""
    chosen = np.random.default_rng(7)
    arrays = []
    for floats, filled in case.sizes:
        array = chosen.random(floats, "f4") if filled else np.zeros(floats, "f4")
        arrays.append(array)
        space.map(array.ctypes.data, array.nbytes, label=f"buffer {len(arrays)}")
        params += array.ctypes.data.to_bytes(8, "little")
    params += b"".join(word.to_bytes(4, "little") for word in case.words)
    order = random.Random(seed)  # noqa: S311 - an order, not a secret
    options = Options(
        warp_order=order.randrange(1 << 30), group_seed=order.randrange(1, 1 << 30), timeout_s=_LIMIT_S
    )
    settings = Settings(cache=config().cache, checks=Sanitizers.all())
    module = ptx.load_ptx(text, arch=ARCH, settings=settings)
    kernel = module.kernel(case.entry, module.place(space))
    done = ptx.launch(
        kernel,
        case.grid,
        case.block,
        params[: kernel.param_bytes],
        case.shared,
        memory=space,
        options=options,
    )
    reports = [done.fault] if done.fault is not None else [*done.findings]
    return str(reports[0]) if reports else "", b"".join(array.tobytes() for array in arrays)


def judge(case: Case, text: str, expected: bytes) -> Verdict:
    """Return what becomes of a kernel that lacks a barrier."""
    seen: dict[int, Verdict] = {}
    for seed in SEEDS:
        try:
            report, result = run(case, text, seed)
        except HcqError as error:
            return Verdict(Outcome.REFUSED, str(error))
        same = Outcome.EQUIVALENT if result == expected else Outcome.WRONG
        seen[seed] = Verdict(Outcome.REPORTED, report) if report else Verdict(same)
        verdict = overall(seen)
        if verdict is not None:
            return verdict
    raise AssertionError("eight seeds decide")


def main(arguments: Sequence[str]) -> int:
    """Check the corpus; print a line a kernel and the survivors."""
    parser = argparse.ArgumentParser(prog="tools.mutants.corpus", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--minimum", type=float, default=0.95)
    given = parser.parse_args(arguments)
    rows: list[dict[str, str]] = []
    for case in (*compiled(), *written()):
        expected = run(case, case.text, SEEDS[0])[1]
        for seed in SEEDS:
            report, result = run(case, case.text, seed)
            if report or result != expected:
                raise HcqError(f"{case.name} under seed {seed}: {report or 'other results'}; it must pass")
        for label, text in without_one(case.text):
            verdict = judge(case, text, expected)
            rows.append({"mutant": f"{case.name}: {label}", **asdict(verdict)})
            if verdict.outcome is not Outcome.REPORTED:
                sys.stdout.write(f"{verdict.outcome}: {case.name}: {label}\n")
    caught = sum(row["outcome"] in CAUGHT for row in rows)
    told = sum(row["outcome"] == Outcome.REPORTED for row in rows)
    sys.stdout.write(f"score {caught / len(rows):.3f}: {caught} of {len(rows)} ({told} reported)\n")
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if caught / len(rows) >= given.minimum else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
