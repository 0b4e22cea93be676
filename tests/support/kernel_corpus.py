"""Record the kernels that tests compile, and compile such a corpus for other targets.

    python -m tests.support.kernel_corpus record KERNELS -- tests/frontend/test_views.py -q
    python -m tests.support.kernel_corpus compile KERNELS gfx1100 gfx942 gfx1201 [--every 10] [--json]
    python -m tests.support.kernel_corpus merges KERNELS gfx1100 gfx942 gfx1201 [--every 10] [--json]

`record` runs pytest in this process and adds every new kernel that the compiler looks up to a file, as text,
one JSON string per line.

`compile` compiles the kernels in worker processes for each architecture. It counts kernels, failures, kernels
with private memory (spills), kernels with undefined symbols, and code bytes. It exits with 1 if a kernel
failed or has an undefined symbol.

`merges` counts the kernels that have a block with three predecessors or more after LLVM's optimisation.
LLVM 22.1.0 miscompiles some of these blocks for AMD (docs/amd.md). The passes of the code generator come
later and may change branches: they are not seen. It exits with 1 if there is such a kernel.

Not here: the tests whose kernels are recorded. Next: `compiler.compile`, which makes the code.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import llvmlite.binding as llvm

from compiler.compile import OPT_LEVEL
from compiler.image import CompiledKernel
from compiler.ir.serialize import parse_kernel
from compiler.pipeline import steps
from compiler.targets import target_of
from compiler.workers import compile_texts
from drivers.elf import UNDEFINED, Elf
from tools.arguments import command, existing, positive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.llvm import Machine

_PREDECESSORS: Final = re.compile(r"^([\w.$-]+):\s*; preds = (.+)$", re.MULTILINE)
EVENT = "compiler.kernel"
"""The compiler's audit event: (text, arch)."""


@dataclass(slots=True)
class Count:
    """The results of a corpus on one architecture."""

    arch: str
    kernels: int = 0
    failures: list[str] = field(default_factory=list)
    """The first line of each error."""
    private: list[str] = field(default_factory=list)
    """"NAME BYTES" of each kernel with private memory; BYTES is its size for one thread."""
    undefined: list[str] = field(default_factory=list)
    """Names of kernels with undefined symbols."""
    code_bytes: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Whether every kernel compiled and has no undefined symbol."""
        return not self.failures and not self.undefined


def read(path: Path) -> list[str]:
    """Return the kernels of a file; an empty list if it does not exist."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def record(path: Path, arguments: Sequence[str]) -> int:
    """Run pytest, add the kernels that it compiles to the file, and return pytest's exit status."""
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
    """Compile all kernels for an architecture and return the counts."""
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
            count.undefined.append(image.name)
    count.seconds = round(time.perf_counter() - start, 1)
    return count


def line_of(count: Count) -> str:
    """Return the counts as a line of text."""
    return (
        f"{count.arch:16} {count.kernels:6} kernels {len(count.failures):4} failed "
        f"{len(count.private):4} with private memory {len(count.undefined):4} with undefined symbols "
        f"{count.code_bytes:10} bytes {count.seconds:7.1f} s"
    )


def optimised(ir: str, machine: Machine) -> str:
    """Return IR text after LLVM's passes for a machine, at the compiler's level."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(machine.triple)
    generator = target.create_target_machine(cpu=machine.cpu, features=machine.features, opt=2)
    module = llvm.parse_assembly(ir, llvm.create_context())
    module.triple, module.data_layout = machine.triple, str(generator.target_data)
    builder = llvm.create_pass_builder(generator, llvm.create_pipeline_tuning_options(speed_level=OPT_LEVEL))
    builder.getModulePassManager().run(module, builder)
    return str(module)


def predecessors(text: str) -> dict[str, int]:
    """Return the number of predecessors of each block of IR text that LLVM printed, by the block's name.

    Blocks without predecessors are left out.
    """
    return {match[1]: match[2].count(",") + 1 for match in _PREDECESSORS.finditer(text)}


def merges(texts: Sequence[str], arch: str) -> dict[str, int]:
    """Return the kernels with a block of three predecessors or more: name -> the most predecessors."""
    target, found = target_of(arch), {}
    for text in texts:
        compiled = steps(parse_kernel(text), target)
        most = max(predecessors(optimised(compiled.ir, target.machine())).values(), default=0)
        if most > 2:
            found[compiled.name] = most
    return found


def _count_merges(texts: Sequence[str], archs: Sequence[str], *, json_out: bool) -> int:
    """Print the kernels of `merges` for each architecture; return the exit status."""
    found = {}
    for arch in archs:
        found[arch] = merges(texts, arch)
        line = f"{arch:10} {len(texts):6} kernels {len(found[arch]):5} with a block of three predecessors"
        print(line, file=sys.stderr if json_out else sys.stdout, flush=True)
        for name, most in list(found[arch].items())[:10]:
            print(f"  {name}: {most} predecessors", file=sys.stderr)
    if json_out:
        print(json.dumps(found))
    return 1 if any(found.values()) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = command("tests.support.kernel_corpus", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record", help="write the kernels that a pytest run compiles")
    one.add_argument("kernels", type=Path, help="the file that gets the kernels")
    one.add_argument("pytest", nargs=argparse.REMAINDER, help="arguments of pytest, after --")
    for name, text in (("compile", "compile them"), ("merges", "count those that LLVM may miscompile")):
        two = commands.add_parser(name, help=text)
        two.add_argument("kernels", type=existing, help="a file that `record` wrote")
        two.add_argument("archs", nargs="+", metavar="ARCH", help="such as gfx1100, sm_90a")
        two.add_argument("--every", type=positive, default=1, help="take each n-th kernel only")
        two.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(arguments)
    if chosen.command == "record":
        return record(chosen.kernels, [a for a in chosen.pytest if a != "--"])
    texts = read(chosen.kernels)[:: chosen.every]
    if chosen.command == "merges":
        return _count_merges(texts, chosen.archs, json_out=chosen.json)
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
