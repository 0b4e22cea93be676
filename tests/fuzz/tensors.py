"""`python -m tests.fuzz.tensors [--cases 200] [--first 0] [--jobs 2] [--mode MODE] [--kernels FILE]`.

It compares random tensor programs with NumPy bit by bit. Modes: `eager` realizes at the end, after each line,
and after random lines; `jit` captures a function and changes inputs and variables; `names` does so
with inputs that the function finds outside, which are bound anew; `threads` runs four
threads, which also write rows of one tensor; `views` writes through views; `wide` does so with more of the
API (lists and masks as indices, methods in place, einsum, selections); `gradients` differentiates, with and
without capture; `graphs` computes all values, and all gradients, in one launch, fused and with stored
intermediate values; `chains` computes products of products, whose kernels may be joined, in one launch, and
prints how many different kernels there were, in all runs that name the same `--kernels FILE`; `small` has
lines of `graphs` and `chains` with sizes of 1, 2 and 3 alone. The kernels of every program of `small`, and of
each eighth of the others, are also compared with their operations one by one (`HCQ_CHECK`); in `chains` the
gradients of this eighth alone are computed; `states` captures a function that writes tensors which live
outside; `functions` has functions of floats, with such states, `large` the same at sizes that threads share,
and `slopes` compares their gradients with differences. It prints each differing program as a shrunk test,
and exits with 1 if there is one. `HCQ_DEVICE` names a device, or a mesh such as
`cpu:0,cpu:1`, on which inputs and results are divided along random axes, into parts of random sizes.

Not here: the runs of each mode (`tensor_runs`), making a program (`tensor_programs`).
"""

from __future__ import annotations

import random
import sys
import tempfile
import traceback
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hcq.config import config, override
from hcq.store import key_of
from tests.fuzz import campaign
from tests.fuzz.tensor_functions import LARGE, RAGGED
from tests.fuzz.tensor_graphs import SIZES
from tests.fuzz.tensor_kinds import CHAINS, FUNCTIONS, GRAPHS, KINDS, SLOPES, SMOOTH, STATES, WIDE
from tests.fuzz.tensor_programs import Maker, Program
from tests.fuzz.tensor_runs import RUNS, Differs, kernels, run
from tools.arguments import output

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compiler.ir.uop import UOp

CHECKED: Final = 8
"""Of so many programs the kernels of one are compared with their operations."""
FEW: Final = (1, 2, 3)
"""Sizes of axes in programs of mode `small`."""
_WHOLE: Final = 2.0**12
"""The largest value in a differentiated program, so that all values are exact."""
_SMALL: Final = 2.0**9
"""The largest value in a program of mode `graphs`, so that its sums are exact."""
_EXACT: Final = 2.0**20
"""The largest value in a program of mode `chains`."""
_ELEMENTS: Final = 80_000
"""The largest number of elements of a value in a program of mode `large`."""


def program(seed: int, mode: str) -> Program:
    """Return the program of a seed."""
    if mode == "graphs":
        return Maker(seed, GRAPHS, dtypes=("float32",), sizes=SIZES, most=_SMALL).program
    if mode == "small":
        kinds = CHAINS if seed % 2 else GRAPHS
        return Maker(seed, kinds, dtypes=("float32",), few=FEW, most=_SMALL).program
    if mode == "chains":
        return Maker(seed, CHAINS, dtypes=("float32",), steps=8, most=_EXACT).program
    if mode == "slopes":
        return Maker(seed, SLOPES, steps=12, sizes=RAGGED, wide="float64").program
    if mode in {"functions", "large"}:
        dtype = random.Random(seed).choice(("float32", "float32", "float16", "float64"))  # noqa: S311 - as above
        if mode == "large":
            return Maker(seed, FUNCTIONS, steps=7, sizes=LARGE, wide=dtype, elements=_ELEMENTS).program
        return Maker(seed, FUNCTIONS, steps=12, sizes=RAGGED, wide=dtype).program
    if mode != "gradients":
        kinds = {"wide": WIDE, "states": STATES}.get(mode, KINDS)
        return Maker(seed, kinds, views=mode in {"views", "wide"}).program
    return Maker(seed, SMOOTH, dtypes=("float32", "float64"), most=_WHOLE).program


def failure(program: Program, mode: str) -> str:
    """Return the failure of a program as text, or ""."""
    checked = mode == "small" or program.seed % CHECKED == 0 or config().check
    try:
        with override(check=checked):
            RUNS[mode](program)
    except Differs as error:
        return str(error)
    except Exception:  # noqa: BLE001 - the programs are legal, so any exception is a finding
        return traceback.format_exc(limit=-6)
    return ""


def is_joined(kernel: UOp) -> bool:
    """Return whether a kernel is a chain of kernels (`compiler.schedule.chains`)."""
    from compiler.ir.ops import Ops  # noqa: PLC0415 - `--show` needs none

    return kernel.src[0].op is Ops.SINK


def record(programs: Sequence[Program], file: Path) -> None:
    """Append a line for each different kernel of some programs to a file: `joined` or `alone`, a digest."""
    from compiler.ir.serialize import kernel_key  # noqa: PLC0415 - `--show` needs none

    lines = set()
    for one in programs:
        env = run(one, lambda _: False)
        for ast in kernels([env[line.makes] for line in one.body]):
            lines.add(f"{'joined' if is_joined(ast) else 'alone'} {key_of(kernel_key(ast))}\n")
    with file.open("ab", buffering=0) as out:  # one write, because several processes append
        out.write("".join(sorted(lines)).encode())


def shrunk(program: Program, fails: Callable[[Program], object]) -> Program:
    """Remove lines, from the last to the first, as long as the rest still fails."""
    kept = list(program.lines)
    number = len(kept) - 1
    while number >= 0:
        line = kept[number]
        rest = kept[:number] + kept[number + 1 :]
        alone = line.kind == "write" or not any(line.makes in other.needs for other in rest)
        if alone and fails(replace(program, lines=tuple(rest))):
            kept = rest
        number -= 1
    return replace(program, lines=tuple(kept))


def as_test(program: Program, mode: str, text: str) -> str:
    """Return a failing program as the text of a test, with its failure as a comment."""
    head = f"def test_program_{program.seed}_{mode}() -> None:"
    comment = "\n".join(f"    # {line}" for line in text.splitlines())
    tensor = "\n".join(f"    {line.tensor}" for line in program.lines)
    numpy = "\n".join(f"    # {line.numpy}" for line in program.body)
    return f"{head}\n{tensor}\n    # in NumPy:\n{numpy}\n{comment}\n"


def differing(first: int, count: int, mode: str, file: Path | None = None) -> dict[int, str]:
    """Run the programs of `count` seeds; return the failing ones as tests, by seed.

    With a file, the kernels of the others are recorded there.
    """
    found = {}
    programs = [program(seed, mode) for seed in range(first, first + count)]
    for one in programs:
        if text := failure(one, mode):
            least = shrunk(one, partial(failure, mode=mode))
            found[one.seed] = as_test(least, mode, failure(least, mode) or text)
    if file is not None:
        record([one for one in programs if one.seed not in found], file)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = campaign.parser("tests.fuzz.tensors", __doc__)
    parser.add_argument("--mode", choices=tuple(RUNS), default="eager", help="(default eager)")
    text = "keep digests of the kernels of `chains` here, and count those of earlier runs, too"
    parser.add_argument("--kernels", type=output, metavar="FILE", help=text)
    options = parser.parse_args(argv)
    if options.show is not None:
        sys.stdout.write(as_test(program(options.show, options.mode), options.mode, ""))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        alone = options.mode == "chains" and "," not in config().device
        file = (options.kernels or Path(folder, "kernels")) if alone else None
        check_ = partial(differing, mode=options.mode, file=file)
        status = campaign.run(check_, options, f"{options.mode} programs agree")
        if file is not None:
            lines = set(file.read_text().splitlines())
            joined = sum(1 for line in lines if line.startswith("joined "))
            sys.stdout.write(f"{len(lines)} different kernels, of which {joined} are joined\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
