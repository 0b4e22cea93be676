"""`python -m tools.fuzz.tensors [--cases 200] [--first 0] [--jobs 2] [--mode MODE] [--show SEED]`.

Random tensor programs against NumPy, bit for bit, wherever they are realized: at the end alone, after each
line, and at random lines; as a captured function over changing inputs; in four threads at once; with writes
through views. Prints each program that differs as a test, cut down to the lines that matter, and exits
non-zero when there is one. The device is `HCQ_DEVICE`'s.
"""

from __future__ import annotations

import random
import sys
import traceback
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tools.fuzz import campaign
from tools.fuzz.tensor_programs import Line, Maker, Program, namespace
from tools.fuzz.tensor_values import leaf, near, same_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MODES: Final = ("eager", "jit", "threads", "views")
CALLS: Final = 4
"""Calls of a captured function: it runs, is captured, and is replayed twice."""
_THREADS: Final = 4


class Differs(AssertionError):  # noqa: N818 - what a program does, not an error of the tool
    """A program gave other bits than NumPy."""


def program(seed: int, mode: str) -> Program:
    """Return the program of a seed."""
    return Maker(seed, views=mode == "views").program


def oracle(lines: Sequence[Line], given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run the NumPy dialect; `given` stands for leaves."""
    env = namespace() | (given or {})
    with np.errstate(all="ignore"):
        for line in lines:
            if given is None or line.kind != "leaf":
                exec(line.numpy, env)  # noqa: S102 - lines made by the tool
    return env


def check(program: Program, env: dict[str, Any], wanted: dict[str, Any], what: str) -> None:
    """Compare every name that is bound."""
    kinds = {line.makes: line.kind for line in program.lines if line.kind != "write"}
    for name in program.names():
        found = env[name].numpy()
        if kinds[name] == "sum":
            ok, right = near(found, *wanted[name]), wanted[name][0]
        else:
            ok, right = same_bits(found, wanted[name]), wanted[name]
        if not ok:
            raise Differs(f"{what}: {name} is {found!r}\nwanted {right!r}")


def run(
    program: Program, realize: Callable[[int], bool], given: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Run the tensor dialect; after line number i what it made is realized where `realize(i)`."""
    from frontend import Tensor  # noqa: PLC0415 - `--show` needs none

    env = namespace() | {"Tensor": Tensor} | (given or {})
    for number, line in enumerate(program.lines):
        if given is None or line.kind != "leaf":
            exec(line.tensor, env)  # noqa: S102 - lines made by the tool
        if realize(number):
            env[line.makes].realize()
    return env


def eager(program: Program) -> None:
    """Compare with NumPy: realized at the end alone, after each line, after some."""
    wanted = oracle(program.lines)
    chosen = random.Random(program.seed)  # noqa: S311 - programs, not secrets
    some = {number for number in range(len(program.lines)) if chosen.random() < 0.4}
    for what, realize in (
        ("realized at the end", lambda _: False),
        ("realized after each line", lambda _: True),
        (f"realized after lines {sorted(some)}", some.__contains__),
    ):
        check(program, run(program, realize), wanted, what)


def jit(program: Program) -> None:
    """Compare a captured function of the leaves with NumPy, over changing inputs.

    What is written in place inside are results: an argument must not be assigned.
    """
    from frontend import Tensor, TinyJit  # noqa: PLC0415 - as above

    leaves = [line.makes for line in program.leaves]
    body = tuple(line for line in program.body if not (line.kind == "write" and line.makes in leaves))
    inner = replace(program, lines=(*program.leaves, *body))
    made = list(dict.fromkeys(line.makes for line in body))
    if not made:
        return

    @TinyJit
    def captured(*given: Any) -> list[Any]:
        env = run(inner, lambda _: False, dict(zip(leaves, given, strict=True)))
        return [env[name] for name in made]

    first = oracle(program.leaves)
    for call in range(CALLS):
        rng = np.random.default_rng((program.seed, call))
        data = {
            n: leaf(rng, first[n].shape, str(first[n].dtype)) if call else first[n].copy() for n in leaves
        }
        wanted = oracle(body, {n: x.copy() for n, x in data.items()})
        found = captured(*[Tensor(data[n]) for n in leaves])
        env = dict(zip(made, found, strict=True))
        check(replace(program, lines=body), env, wanted, f"call {call}")


def threads(program: Program) -> None:
    """Run a program in several threads at once."""
    wanted = oracle(program.lines)
    raised: list[BaseException] = []

    def work(number: int) -> None:
        try:
            chosen = random.Random(program.seed * _THREADS + number)  # noqa: S311 - programs, not secrets
            check(program, run(program, lambda _: chosen.random() < 0.3), wanted, f"thread {number}")
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            raised.append(error)

    workers = [Thread(target=work, args=(number,)) for number in range(_THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if raised:
        raise raised[0]


RUNS: Final[dict[str, Callable[[Program], None]]] = {
    "eager": eager, "jit": jit, "threads": threads, "views": eager,
}  # fmt: skip


def failure(program: Program, mode: str) -> str:
    """Return how a program differs, or an empty text."""
    try:
        RUNS[mode](program)
    except Differs as error:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever is raised is a finding: the programs are legal
        return traceback.format_exc(limit=-6)
    return ""


def shrunk(program: Program, fails: Callable[[Program], object]) -> Program:
    """Leave out lines, the last first, as long as the rest still fails."""
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
    """Return a failing program as a test, and what it gave."""
    head = f"def test_program_{program.seed}_{mode}() -> None:"
    told = "\n".join(f"    # {line}" for line in text.splitlines())
    tensor = "\n".join(f"    {line.tensor}" for line in program.lines)
    numpy = "\n".join(f"    # {line.numpy}" for line in program.body)
    return f"{head}\n{tensor}\n    # in NumPy:\n{numpy}\n{told}\n"


def differing(first: int, count: int, mode: str) -> dict[int, str]:
    """Run the programs of some seeds; return those that differ, as tests."""
    found = {}
    for seed in range(first, first + count):
        one = program(seed, mode)
        if failure(one, mode):
            least = shrunk(one, partial(failure, mode=mode))
            found[seed] = as_test(least, mode, failure(least, mode) or failure(one, mode))
    return found


def main() -> int:
    """Parse the command line, run, print."""
    parser = campaign.parser("tools.fuzz.tensors", __doc__)
    parser.add_argument("--mode", choices=MODES, default="eager")
    options = parser.parse_args()
    if options.show is not None:
        sys.stdout.write(as_test(program(options.show, options.mode), options.mode, ""))
        return 0
    return campaign.run(partial(differing, mode=options.mode), options, f"{options.mode} programs agree")


if __name__ == "__main__":
    sys.exit(main())
