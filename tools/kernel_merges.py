"""Count the kernels of a corpus in whose optimised IR three ways or more meet in a block.

    python -m tools.kernel_merges KERNELS gfx1100 gfx1201 gfx942 [--every 10] [--json]

LLVM 22.1.0 miscompiles some such meetings for AMD (docs/amd.md). The IR is that which LLVM's passes make of
the compiler's; the passes of the code generator, which may change branches, come later. KERNELS is a file of
`tools.kernel_corpus`. Prints the numbers of kernels and the names of those that have such a block, and exits
with 1 if there are any.

Next: `kernel_corpus`, which records the kernels.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Final

import llvmlite.binding as llvm

from compiler.compile import OPT_LEVEL
from compiler.ir.serialize import parse_kernel
from compiler.pipeline import steps
from compiler.targets import target_of
from tools.arguments import command, existing, positive
from tools.kernel_corpus import read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.llvm import Machine

_WAYS: Final = re.compile(r"^([\w.$-]+):\s*; preds = (.+)$", re.MULTILINE)


def optimised(ir: str, machine: Machine) -> str:
    """Return IR text after LLVM's passes for a machine, at the compiler's level."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    found = llvm.Target.from_triple(machine.triple)
    made = found.create_target_machine(cpu=machine.cpu, features=machine.features, opt=2)
    module = llvm.parse_assembly(ir, llvm.create_context())
    module.triple, module.data_layout = machine.triple, str(made.target_data)
    builder = llvm.create_pass_builder(made, llvm.create_pipeline_tuning_options(speed_level=OPT_LEVEL))
    builder.getModulePassManager().run(module, builder)
    return str(module)


def ways(text: str) -> dict[str, int]:
    """Return the ways into each block of IR text that has any, as LLVM's printer states them, by block."""
    return {match[1]: match[2].count(",") + 1 for match in _WAYS.finditer(text)}


def meetings(kernels: Sequence[str], arch: str) -> dict[str, int]:
    """Return the kernels with a block that three ways or more enter, by name, with the most ways."""
    target, found = target_of(arch), {}
    for kernel in kernels:
        made = steps(parse_kernel(kernel), target)
        most = max(ways(optimised(made.ir, target.machine())).values(), default=0)
        if most > 2:
            found[made.name] = most
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = command("tools.kernel_merges", __doc__)
    parser.add_argument("kernels", type=existing, help="a file that `tools.kernel_corpus record` wrote")
    parser.add_argument("archs", nargs="+", metavar="ARCH", help="such as gfx1100")
    parser.add_argument("--every", type=positive, default=1, help="look at each n-th kernel only")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(arguments)
    kernels = read(chosen.kernels)[:: chosen.every]
    found = {}
    for arch in chosen.archs:
        found[arch] = meetings(kernels, arch)
        row = f"{arch:10} {len(kernels):6} kernels {len(found[arch]):5} in which three ways or more meet"
        print(row, file=sys.stderr if chosen.json else sys.stdout, flush=True)
        for name, most in list(found[arch].items())[:10]:
            print(f"  {name}: {most} ways", file=sys.stderr)
    if chosen.json:
        print(json.dumps(found))
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
