"""`python -m tools.fuzz.tensors [--cases 200] [--first 0] [--jobs 2] [--mode MODE] [--show SEED]`.

Random tensor programs against NumPy, bit for bit, wherever they are realized: at the end alone, after each
line, and at random lines; as a captured function over changing inputs and variables; in four threads at once;
with writes through views; differentiated, captured and not. Prints each program that differs as a test, cut
down to the lines that matter, and exits non-zero when there is one. The device is `HCQ_DEVICE`'s.

Not here: making a program (`tensor_programs`), the kinds of lines (`tensor_kinds`).
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

from tools.fuzz import campaign, slopes
from tools.fuzz.tensor_kinds import KINDS, SMOOTH
from tools.fuzz.tensor_programs import Line, Maker, Program, namespace
from tools.fuzz.tensor_values import leaf, near, same_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MODES: Final = ("eager", "jit", "threads", "views", "gradients")
CALLS: Final = 4
"""Calls of a captured function: it runs, is captured, and is replayed twice."""
_THREADS: Final = 4
_WHOLE: Final = 2.0**12
"""Values in programs that are differentiated are no greater; they are whole numbers, or halves and so on."""
_STEEP: Final = 2.0**18
"""Programs with greater slopes are left out: sums round in float32."""
_NEAR: Final = 2.0**-20
"""Of the greatest slope: what thirds, of three that tie, may lose."""


class Differs(AssertionError):  # noqa: N818 - what a program does, not an error of the tool
    """A program gave other bits than NumPy."""


def program(seed: int, mode: str) -> Program:
    """Return the program of a seed."""
    if mode != "gradients":
        return Maker(seed, KINDS, views=mode == "views").program
    return Maker(seed, SMOOTH, dtypes=("float32", "float64"), most=_WHOLE).program


def loss_of(program: Program) -> Line:
    """Return the line that adds up every value, each element with a weight of its own."""
    env = oracle(program.lines)
    terms, same = [], []
    for name in program.names():
        weights = f"arange({np.size(env[name])}) % 5 - 1).reshape({np.shape(env[name])})"
        terms.append(f"({name}.cast('float64') * (Tensor.{weights}).sum()")
        same.append(f"np.sum({name} * (np.{weights})")
    return Line("loss", program.names(), f"loss = {' + '.join(terms)}", f"loss = {' + '.join(same)}")


def oracle(lines: Sequence[Line], given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run the NumPy dialect; `given` stands for leaves."""
    env = namespace() | (given or {})
    with np.errstate(all="ignore"):
        for line in lines:
            if given is None or not line.given:
                exec(line.numpy, env)  # noqa: S102 - lines made by the tool
    return env


def check(program: Program, env: dict[str, Any], wanted: dict[str, Any], what: str) -> None:
    """Compare every name that is bound."""
    kinds = {line.makes: line.kind for line in program.lines if line.kind not in {"write", "bound"}}
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
    from frontend import Tensor, Variable  # noqa: PLC0415 - `--show` needs none

    env = namespace() | {"Tensor": Tensor, "Variable": Variable} | (given or {})
    for number, line in enumerate(program.lines):
        if given is None or not line.given:
            exec(line.tensor, env)  # noqa: S102 - lines made by the tool
        if line.kind != "bound" and realize(number):
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


def inputs(program: Program, call: int) -> dict[str, Any]:
    """Return what NumPy gets as inputs in one call; those of the program itself in the first."""
    first = oracle(program.leaves)
    if call == 0:
        return {line.makes: first[line.makes] for line in program.leaves}
    rng = np.random.default_rng((program.seed, call))
    found: dict[str, Any] = {}
    for line in program.leaves:
        x = first[line.makes]
        found[line.makes] = (
            int(rng.integers(0, line.bounds[1] + 1)) if line.kind == "bound"
            else leaf(rng, x.shape, str(x.dtype))
        )  # fmt: skip
    return found


def passed(program: Program, data: dict[str, Any]) -> list[Any]:
    """Return inputs as tensors and bound variables."""
    from frontend import Tensor, Variable  # noqa: PLC0415 - as above

    return [
        Variable(line.makes, *line.bounds).bind(data[line.makes])
        if line.kind == "bound"
        else Tensor(data[line.makes].copy())
        for line in program.leaves
    ]


def jit(program: Program) -> None:
    """Compare a captured function of the inputs with NumPy, over changing inputs.

    What is written in place inside are results: an argument must not be assigned.
    """
    from frontend import TinyJit  # noqa: PLC0415 - as above

    given = [line.makes for line in program.leaves]
    body = tuple(line for line in program.body if not (line.kind == "write" and line.makes in given))
    inner = replace(program, lines=(*program.leaves, *body))
    made = list(dict.fromkeys(line.makes for line in body))
    if not made:
        return

    @TinyJit
    def captured(*values: Any) -> list[Any]:
        env = run(inner, lambda _: False, dict(zip(given, values, strict=True)))
        return [env[name] for name in made]

    for call in range(CALLS):
        data = inputs(program, call)
        wanted = oracle(body, {n: x if isinstance(x, int) else x.copy() for n, x in data.items()})
        env = dict(zip(made, captured(*passed(program, data)), strict=True))
        check(replace(program, lines=body), env, wanted, f"call {call}")


def gradients(program: Program) -> None:
    """Compare a loss and its gradients with forward differentiation, captured and not; inputs change."""
    from frontend import TinyJit  # noqa: PLC0415 - as above

    names = [line.makes for line in program.leaves if line.kind == "leaf"]
    given = [line.makes for line in program.leaves]
    if not names:
        return
    loss_line = loss_of(program)
    program = replace(program, lines=(*program.lines, loss_line))

    def found(*values: Any) -> list[Any]:
        env = run(program, lambda _: False, dict(zip(given, values, strict=True)))
        return [env["loss"], *env["loss"].gradient(*[env[n] for n in names])]

    captured = TinyJit(found)
    for call in range(CALLS):
        data = inputs(program, call)
        if call:
            rng = np.random.default_rng((program.seed, call))
            data |= {n: slopes.leaf(rng, data[n].shape, str(data[n].dtype)) for n in names}
        loss = oracle(program.lines, data | slopes.duals({n: data[n] for n in names}))["loss"]
        value, slope = slopes.parts(loss)
        most = max(1.0, abs(value), float(np.abs(slope).max(initial=0)))
        if most > _STEEP:
            continue
        wanted, at = [np.asarray(value)], 0
        slope = np.broadcast_to(slope, sum(data[n].size for n in names))
        for n in names:
            size = data[n].size
            wanted.append(slope[at : at + size].reshape(data[n].shape))
            at += size
        for what, function in (("computed", found), ("captured", captured)):
            results = function(*passed(program, data))
            for name, one, right in zip(["the loss", *names], results, wanted, strict=True):
                if one.shape != right.shape or (abs(one.numpy() - right) > most * _NEAR).any():
                    told = f"{loss_line.tensor}\ncall {call}, {what}: {name}: {one.numpy()!r}"
                    raise Differs(f"{told}\nwanted {right!r}")


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
    "eager": eager, "jit": jit, "threads": threads, "views": eager, "gradients": gradients,
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
