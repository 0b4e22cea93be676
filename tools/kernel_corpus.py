"""The kernels that a run of tests asks for, and what a target makes of each.

    python -m tools.kernel_corpus record KERNELS -- tests/frontend/test_views.py -q
    python -m tools.kernel_corpus compile KERNELS gfx1100 gfx942 gfx1201 [--every 10] [--json]

`record` runs pytest in this process and writes every kernel that is looked up, as text, once, a JSON string
a line (an existing file is added to). `compile` compiles them in worker processes for each arch and counts:
kernels, failures, kernels with private memory (spills), with names from outside, and bytes. It exits with 1
when a kernel failed or names something from outside.

Next: `compiler.compile`, which makes the code.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.image import CompiledKernel
from compiler.targets import target_of
from compiler.workers import compile_texts
from drivers.elf import UNDEFINED, Elf

if TYPE_CHECKING:
    from collections.abc import Sequence

EVENT = "compiler.kernel"
"""The compiler's audit event: (text, arch)."""


@dataclass(slots=True)
class Count:
    """What became of a corpus on one arch."""

    arch: str
    kernels: int = 0
    failures: list[str] = field(default_factory=list)
    """The first line of each error."""
    private: list[str] = field(default_factory=list)
    """Kernels with private memory, with its bytes a thread."""
    outside: list[str] = field(default_factory=list)
    """Kernels that name what they do not define."""
    code_bytes: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Whether every kernel became code that needs nothing else."""
        return not self.failures and not self.outside


def read(path: Path) -> list[str]:
    """The kernels of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def record(path: Path, arguments: Sequence[str]) -> int:
    """Run pytest and add the kernels that it asks for to the file; returns pytest's exit status."""
    import pytest  # noqa: PLC0415  # only this command needs it

    seen = dict.fromkeys(read(path))
    before = len(seen)

    def hook(event: str, values: tuple[object, ...]) -> None:
        if event == EVENT:
            seen[str(values[0])] = None

    sys.addaudithook(hook)
    status = int(pytest.main(list(arguments)))
    path.write_text("".join(json.dumps(text) + "\n" for text in seen))
    print(f"{len(seen)} kernels, {len(seen) - before} of them new, in {path}")
    return status


def compile_for(texts: Sequence[str], arch: str) -> Count:
    """Compile all kernels for an arch."""
    count, start = Count(target_of(arch).arch if ":" not in arch else arch), time.perf_counter()
    for made in compile_texts(texts, arch):
        count.kernels += 1
        if not isinstance(made, CompiledKernel):
            count.failures.append(str(made).partition("\n")[0])
            continue
        image = made.image
        count.code_bytes += len(image.code)
        if image.scratch_bytes:
            count.private.append(f"{image.name} {image.scratch_bytes}")
        if any(s.section == UNDEFINED and s.name for s in Elf(image.code).symbols):
            count.outside.append(image.name)
    count.seconds = round(time.perf_counter() - start, 1)
    return count


def line_of(count: Count) -> str:
    """The row of a table."""
    return (
        f"{count.arch:16} {count.kernels:6} kernels {len(count.failures):4} failed "
        f"{len(count.private):4} with private memory {len(count.outside):4} with names from outside "
        f"{count.code_bytes:10} bytes {count.seconds:7.1f} s"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(prog="python -m tools.kernel_corpus", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record", help="write the kernels that a run of pytest asks for")
    one.add_argument("kernels", type=Path)
    one.add_argument("pytest", nargs=argparse.REMAINDER)
    two = commands.add_parser("compile", help="compile them")
    two.add_argument("kernels", type=Path)
    two.add_argument("archs", nargs="+")
    two.add_argument("--every", type=int, default=1, help="take each n-th kernel only")
    two.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.command == "record":
        return record(chosen.kernels, [a for a in chosen.pytest if a != "--"])
    texts = read(chosen.kernels)[:: chosen.every]
    counts = []
    for arch in chosen.archs:
        counts.append(compile_for(texts, arch))
        print(line_of(counts[-1]), file=sys.stderr if chosen.json else sys.stdout, flush=True)
        for failure in counts[-1].failures[:10]:
            print(f"  {failure}", file=sys.stderr)
    if chosen.json:
        print(json.dumps([asdict(count) for count in counts]))
    return 0 if all(count.good for count in counts) else 1


if __name__ == "__main__":
    sys.exit(main())
