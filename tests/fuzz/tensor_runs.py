"""The modes of `tests.fuzz.tensors`: each runs a program in some ways and compares the results with NumPy.

A difference raises `Differs`. Not here: making a program (`tensor_programs`), shrinking and the command line
(`tensors`).
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hcq.config import config
from tests.fuzz import slopes
from tests.fuzz.tensor_functions import COARSEST, ERRORS, plain
from tests.fuzz.tensor_names import Function
from tests.fuzz.tensor_places import moved, placed
from tests.fuzz.tensor_programs import Line, Program, grown, namespace
from tests.fuzz.tensor_values import leaf, near, same_bits
from tests.fuzz.tensor_writes import of_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compiler.ir.uop import UOp

CALLS: Final = 4
"""Calls of a captured function: the first runs, the second is captured, two are replays."""
_THREADS: Final = 4
_STATEMENTS: Final = 8
"""Writes of each thread to its row of a tensor of all threads."""
_SWITCH_S: Final = 1e-4
"""Interval, in seconds, at which Python switches between the threads."""
_NUDGE: Final = (1e-5, 1e-6)
"""Distances of differences; where the two do not agree, a kink lies between."""
_STEEP: Final = 2.0**18
"""Calls with greater slopes are skipped, because sums round in float32."""
_NEAR: Final = 2.0**-20
"""Error, relative to the greatest slope, of slopes divided by three at ties."""


class Differs(AssertionError):  # noqa: N818 - a result, not an error of the tool
    """A result of a program differs from NumPy's."""


def loss_of(program: Program) -> Line:
    """Return the line of the loss: the sum of all exact values, weighted by element."""
    env = oracle(program.lines)
    inexact = {line.makes for line in program.lines if line.kind == "sum"}
    names = tuple(name for name in program.names() if name not in inexact)
    terms, same = [], []
    for name in names:
        weights = f"arange({np.size(env[name])}) % 5 - 1).reshape({np.shape(env[name])})"
        terms.append(f"({name}.cast('float64') * (Tensor.{weights}).sum()")
        same.append(f"np.sum({name} * (np.{weights})")
    return Line("loss", names, f"loss = {' + '.join(terms)}", f"loss = {' + '.join(same)}")


def oracle(lines: Sequence[Line], given: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run the NumPy dialect and return its names; `given` replaces the inputs."""
    env = namespace() | (given or {})
    with np.errstate(all="ignore"):
        for line in lines:
            if given is None or not line.given:
                exec(line.numpy, env)  # noqa: S102 - lines made by the tool
    return env


def check(
    program: Program,
    env: dict[str, Any],
    wanted: dict[str, Any],
    what: str,
    *,
    signs: bool = True,
    slack: float = 1.0,
) -> None:
    """Compare all tensors with the expected arrays; `Differs` at the first difference.

    Without `signs`, 0 and -0 are equal. `slack` multiplies the errors of a program with a dtype.
    """
    if program.dtype:
        _check_near(program, env, wanted, what, slack)
        return
    kinds = {line.makes: line.kind for line in program.lines if line.kind not in {"write", "bound"}}
    for name in program.names():
        found = env[name].numpy() if signs else env[name].numpy() + 0
        if kinds[name] == "sum":
            ok, right = near(found, *wanted[name]), wanted[name][0]
        else:
            ok, right = same_bits(found, wanted[name] if signs else wanted[name] + 0), wanted[name]
        if not ok:
            raise Differs(f"{what}: {name} is {found!r}\nwanted {right!r}")


def _check_near(
    program: Program, env: dict[str, Any], wanted: dict[str, Any], what: str, slack: float
) -> None:
    weights = {line.makes: line.weight for line in program.lines}
    for name in program.names():
        found, right = env[name].numpy(), wanted[name]
        error = min(COARSEST, ERRORS[program.dtype] * weights[name] * slack)
        most = error * max(1.0, float(np.abs(right).max(initial=0.0)))
        alike = (str(found.dtype), found.shape) == (program.dtype, right.shape)
        if not alike or not bool((np.abs(found.astype(np.float64) - right) <= most).all()):
            raise Differs(f"{what}: {name} is {found.dtype} {found!r}\nwanted {right!r}, to {most}")


def run(
    program: Program,
    realize: Callable[[int], bool],
    given: dict[str, Any] | None = None,
    *,
    store: Callable[[int], bool] = lambda _: False,
) -> dict[str, Any]:
    """Run the tensor dialect; realize the result of line i if `realize(i)`. `given` replaces the inputs.

    If `store(i)`, the result of line i is made contiguous, so that it gets a buffer within the launch.
    """
    from frontend import Tensor, Variable  # noqa: PLC0415 - `--show` needs none

    env = namespace() | {"Tensor": Tensor, "Variable": Variable} | (given or {})
    for number, line in enumerate(program.lines):
        if given is None or not line.given:
            exec(line.tensor, env)  # noqa: S102 - lines made by the tool
            if line.kind == "leaf":
                env[line.makes] = placed(env[line.makes], program.seed, number)
            elif line.kind == "new" and program.movable:
                env[line.makes] = moved(env[line.makes], program.seed, number)
        if line.kind != "bound" and store(number):
            env[line.makes] = env[line.makes].clone()
        if line.kind != "bound" and realize(number):
            env[line.makes].realize()
    return env


def eager(program: Program) -> None:
    """Compare with NumPy, realizing at the end, after each line, and after random lines.

    The memory that NumPy sees by DLPack outlives the tensors, also where others get new memory.
    """
    wanted = oracle(program.lines)
    chosen = random.Random(program.seed)  # noqa: S311 - programs, not secrets
    some = {number for number in range(len(program.lines)) if chosen.random() < 0.4}
    for what, realize in (
        ("realized at the end", lambda _: False),
        ("realized after each line", lambda _: True),
        (f"realized after lines {sorted(some)}", some.__contains__),
    ):
        env = run(program, realize)
        check(program, env, wanted, what)
        outlive(env, program.names())


def outlive(env: dict[str, Any], names: Sequence[str]) -> None:
    """Check that exported memory keeps its bytes when the tensors are dropped and others are made."""
    seen = {name: np.from_dlpack(env[name]) for name in names}
    before = {name: array.copy() for name, array in seen.items()}
    for name in names:
        new = env[name].ones_like()
        del env[name]
        new.numpy()  # waits until it is written
        env[f"new_{name}"] = new
    for name, array in seen.items():
        if not same_bits(array, before[name]):
            raise Differs(f"the exported {name} became {array!r}\nwas {before[name]!r}")


def graphs(program: Program) -> None:
    """Compare programs in one launch with NumPy: fused, with stored values, and each line by itself.

    The gradients of all exact values are computed in one launch, too, fused and with stored values.
    """
    wanted = oracle(program.lines)
    chosen = random.Random(program.seed)  # noqa: S311 - programs, not secrets
    some = {number for number in range(len(program.lines)) if chosen.random() < 0.4}
    check(program, run(program, lambda _: True), wanted, "unfused", signs=False)
    leaves = [line.makes for line in program.leaves if line.kind == "leaf"]
    given = {line.makes for line in program.leaves}
    differentiable = not any(line.kind == "write" and line.makes in given for line in program.lines)
    with_loss = replace(program, lines=(*program.lines, loss_of(program))) if differentiable else program
    slopes_of: dict[str, list[Any]] = {}
    for what, store in (("fused", frozenset[int]()), (f"with stored lines {sorted(some)}", some)):
        env = run(program, lambda _: False, store=store.__contains__)
        values = [env[name] for name in program.names()]
        values[0].realize(*values[1:])
        check(program, env, wanted, what, signs=False)
        if differentiable:
            env = run(with_loss, lambda _: False, store=store.__contains__)
            found = [env["loss"], *env["loss"].gradient(*[env[name] for name in leaves])]
            found[0].realize(*found[1:])
            slopes_of[what] = [x.numpy() for x in found]
    if differentiable:
        fused, stored = slopes_of.values()
        most = max(float(np.abs(x).max(initial=1.0)) for x in fused)
        for name, one, other in zip(["the loss", *leaves], fused, stored, strict=True):
            if one.shape != other.shape or not (abs(one - other) <= most * _NEAR).all():
                text = f"gradient of {name}: fused {one!r}"
                raise Differs(f"{text}\nwith stored lines {sorted(some)} {other!r}")


def chains(program: Program) -> None:
    """Compare products of products in one launch with NumPy, which computes each product by itself.

    The gradients have no such oracle: they are computed where kernels are compared with their operations.
    """
    if not program.body:  # as one may be that is shrunk
        return
    env = run(program, lambda _: False)
    launch([env[line.makes] for line in program.body])
    check(program, env, oracle(program.lines), "joined", signs=False)
    if config().check:
        env = run(replace(program, lines=(*program.lines, loss_of(program))), lambda _: False)
        leaves = [env[line.makes] for line in program.leaves]
        launch([env["loss"], *env["loss"].gradient(*leaves)])


def kernels(values: Sequence[Any]) -> list[UOp]:
    """Return the verified ASTs of the kernels of one launch that computes tensors on the default device."""
    from compiler.schedule.scheduler import limits_on, schedule  # noqa: PLC0415 - `--show` needs none
    from compiler.targets import target_of  # noqa: PLC0415 - as above
    from frontend import Device  # noqa: PLC0415 - as above
    from frontend.evaluation.expr import uops  # noqa: PLC0415 - as above

    slots: dict[int, int] = {}
    parts = [(x.expr, tuple([slots.setdefault(id(s), len(slots)) for s in x.leaves])) for x in values]
    limits = limits_on(target_of(Device[Device.DEFAULT].arch))
    return [item.ast for item in schedule(uops(parts), limits=limits, verify=True)]


def launch(values: Sequence[Any]) -> None:
    """Compute tensors in one launch, whose kernels are verified, and compiled in this process.

    For targets on which LLVM may abort, three new kernels are else compiled by processes that are started for
    them, which takes longer than the rest of a small program. An abort ends the run of the fuzzer.
    """
    from compiler.compile import compile_kernel  # noqa: PLC0415 - `--show` needs none
    from compiler.targets import target_of  # noqa: PLC0415 - as above
    from frontend import Device  # noqa: PLC0415 - as above

    if Device[Device.DEFAULT].devices:  # the kernels of a mesh are planned by its layouts
        values[0].realize(*values[1:])
        return
    arch = Device[Device.DEFAULT].arch
    for ast in kernels(values):
        if target_of(arch).may_abort:
            compile_kernel(ast, arch)
    values[0].realize(*values[1:])


def inputs(program: Program, call: int) -> dict[str, Any]:
    """Return the NumPy inputs of a call; those of the program in the first."""
    first = oracle(program.leaves)
    if call == 0:
        return {line.makes: first[line.makes] for line in program.leaves}
    rng = np.random.default_rng((program.seed, call))
    found: dict[str, Any] = {}
    for line in program.leaves:
        x = first[line.makes]
        found[line.makes] = (
            int(rng.integers(0, line.bounds[1] + 1)) if line.kind == "bound"
            else plain(rng, x.shape) if program.dtype
            else leaf(rng, x.shape, str(x.dtype))
        )  # fmt: skip
    return found


def passed(program: Program, data: dict[str, Any]) -> list[Any]:
    """Return inputs as tensors and bound variables."""
    from frontend import Tensor, Variable  # noqa: PLC0415 - as above

    return [
        Variable(line.makes, *line.bounds).bind(data[line.makes])
        if line.kind == "bound"
        else placed(Tensor(data[line.makes].astype(program.dtype or data[line.makes].dtype)), program.seed, n)
        for n, line in enumerate(program.leaves)
    ]


def jit(program: Program) -> None:
    """Compare a captured function of the inputs with NumPy, over changing inputs.

    Lines that write inputs in place are left out, because arguments must not be assigned.
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


def states(program: Program) -> None:
    """Compare a captured function that writes some of its inputs, which then live outside, with NumPy."""
    from frontend import TinyJit  # noqa: PLC0415 - as above

    given = [line.makes for line in program.leaves]
    written = {line.makes for line in program.body if line.kind == "write"} & {*given}
    fed = [name for name in given if name not in written]
    made = list(dict.fromkeys(line.makes for line in program.body if line.makes not in written))
    if not made:
        return
    data = inputs(program, 0)
    tensors = dict(zip(given, passed(program, data), strict=True))
    kept = {name: tensors[name] for name in written}

    @TinyJit
    def captured(*values: Any) -> list[Any]:
        env = run(program, lambda _: False, kept | dict(zip(fed, values, strict=True)))
        return [env[name] for name in made]

    for call in range(CALLS):
        data |= {name: x for name, x in inputs(program, call).items() if name in fed}
        tensors = dict(zip(given, passed(program, data), strict=True))
        results = captured(*[tensors[name] for name in fed])
        wanted = oracle(program.lines, data)  # writes the states in `data`
        arrays = [wanted[name] for name in (*made, *written)]
        if program.dtype and any(grown(x, program.dtype) for x in arrays):
            return
        env = dict(zip(made, results, strict=True)) | kept
        some = [line for line in program.lines if line.makes in env]
        check(replace(program, lines=tuple(some)), env, wanted, f"call {call}", slack=4.0**call)


def functions(program: Program) -> None:
    """Compare functions of floats with NumPy: at once, in parts, and captured with states."""
    wanted = oracle(program.lines)
    chosen = random.Random(program.seed)  # noqa: S311 - programs, not secrets
    some = {number for number in range(len(program.lines)) if chosen.random() < 0.4}
    check(program, run(program, lambda _: False), wanted, "realized at the end")
    check(program, run(program, some.__contains__), wanted, f"realized after lines {sorted(some)}")
    states(program)


def directed(program: Program) -> None:
    """Compare the slope of a loss along a random direction with differences in NumPy."""
    from frontend import Tensor  # noqa: PLC0415 - as above

    rng = np.random.default_rng(program.seed)
    given = oracle(program.leaves)
    names = [line.makes for line in program.leaves]
    ways = {name: rng.standard_normal(given[name].shape) for name in names}
    start = {name: given[name] + rng.uniform(-0.06, 0.06, given[name].shape) for name in names}  # off ties
    weights = {name: rng.standard_normal(np.shape(x)) for name, x in oracle(program.lines, start).items()
               if name in program.names()}  # fmt: skip

    def loss(distance: float) -> float:
        env = oracle(program.lines, {name: start[name] + distance * ways[name] for name in names})
        return float(sum((env[name] * weights[name]).sum() for name in weights))

    env = run(program, lambda _: False, {name: Tensor(np.asarray(start[name])) for name in names})
    total = sum((env[name] * Tensor(np.asarray(weights[name]))).sum() for name in weights)
    slopes_of = total.gradient(*[env[name] for name in names])
    found = sum(float((x.numpy() * ways[name]).sum()) for name, x in zip(names, slopes_of, strict=True))
    near_by = [(loss(e) - loss(-e)) / (2 * e) for e in _NUDGE]
    scale = max(1.0, abs(found), abs(near_by[0]))
    if abs(near_by[0] - near_by[1]) < 1e-3 * scale and min(abs(found - x) for x in near_by) >= 2e-4 * scale:
        raise Differs(f"the slope of the loss is {found}\nwanted one of {near_by}")


def names(program: Program) -> None:
    """Compare a captured function that reads inputs from names outside with NumPy.

    Between the calls, values are written in place, or names bound anew. Such a call is right, or refused;
    then the function is captured again. A kept result is right, or refused at the capture.
    """
    from frontend import Tensor, TinyJit  # noqa: PLC0415 - as above
    from hcq.errors import UsageError  # noqa: PLC0415 - as above

    leaves = [line.makes for line in program.leaves]
    body = tuple(line for line in program.body if not (line.kind == "write" and line.makes in leaves))
    made = list(dict.fromkeys(line.makes for line in body))
    if not made:
        return
    maker = Function(program.leaves, body, made, program.seed)
    captured, chosen = TinyJit(maker.function), random.Random(program.seed)  # noqa: S311 - as above
    data, tensors, anew = inputs(program, 0), dict[str, Any](), True
    for call in range(2 * CALLS):
        for name, value in inputs(program, call).items():
            what = chosen.choice(("stays", "stays", "written", "bound"))
            if name in maker.given:
                data[name] = value
            elif call == 0 or what == "bound" or (what == "written" and isinstance(value, int)):
                anew = anew or not (call and isinstance(value, int) and value == data[name])
                data[name] = value
                tensors[name] = value if isinstance(value, int) else Tensor(value.copy())
                maker.bind(name, tensors[name])
            elif what == "written":
                data[name] = value
                tensors[name].assign(Tensor(value.copy())).realize()
        args = [x if isinstance(x := data[n], int) else Tensor(x.copy()) for n in maker.given]
        wanted = oracle(body, {n: x if isinstance(x, int) else x.copy() for n, x in data.items()})
        try:
            results = captured(*args)
        except UsageError as error:
            if maker.keeps and "kept outside" in str(error):
                return
            changing = any(isinstance(data[n], int) for n in maker.given) and "arguments" in str(error)
            if not (changing or (anew and "captured, and is" in str(error))):
                raise
            captured.reset()
            results = captured(*args)
        if captured.calls < 3:
            anew = captured.captured is None
        check(replace(program, lines=body), dict(zip(made, results, strict=True)), wanted, f"call {call}")
        if maker.keeps:
            kept = replace(program, lines=tuple(line for line in body if line.makes == maker.keeps))
            check(kept, {maker.keeps: maker.kept()}, wanted, f"call {call}, kept by {maker.keep!r}")


def gradients(program: Program) -> None:
    """Compare a loss and its gradients with forward differentiation, with and without capture."""
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
                    text = f"{loss_line.tensor}\ncall {call}, {what}: {name}: {one.numpy()!r}"
                    raise Differs(f"{text}\nwanted {right!r}")


def threads(program: Program) -> None:
    """Run a program in four threads at the same time; each also writes its rows of a tensor of all.

    The other rows of that tensor are read, pending, realized and dropped meanwhile.
    """
    from frontend import Tensor  # noqa: PLC0415 - as above

    wanted = oracle(program.lines)
    raised: list[BaseException] = []
    chosen = random.Random(program.seed)  # noqa: S311 - programs, not secrets
    shape = (_THREADS, *[chosen.choice((1, 1, 2, 3, 16)) for _ in range(chosen.randint(1, 2))])
    right = np.zeros(shape, chosen.choice(("float32", "int32")))
    rows = Tensor(right.copy())
    statements = [of_row(chosen, number, _STATEMENTS) for number in range(_THREADS)]

    def work(number: int) -> None:
        try:
            drawn = random.Random(program.seed * _THREADS + number)  # noqa: S311 - programs, not secrets
            for count, (text, same) in enumerate(statements[number]):
                exec(text, {"rows": rows, "Tensor": Tensor})  # noqa: S102 - lines made by the tool
                exec(same, {"rows": right})  # noqa: S102 - lines made by the tool
                if not np.array_equal(found := rows[number].numpy(), right[number]):
                    lines = "\n".join(line for line, _ in statements[number][: count + 1])
                    seen = f"row {number} of {shape} is {found!r}\nwanted {right[number]!r}\n{lines}"
                    raise Differs(seen)  # noqa: TRY301 - as by `check`
                if count == _STATEMENTS // 2:
                    check(program, run(program, lambda _: drawn.random() < 0.3), wanted, f"thread {number}")
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            raised.append(error)

    workers = [Thread(target=work, args=(number,)) for number in range(_THREADS)]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(usual)
    if raised:
        raise raised[0]
    if not np.array_equal(rows.numpy(), right):
        raise Differs(f"rows of threads are {rows.numpy()!r}\nwanted {right!r}\n{statements}")


RUNS: Final[dict[str, Callable[[Program], None]]] = {
    "eager": eager, "jit": jit, "names": names, "threads": threads, "views": eager, "wide": eager,
    "gradients": gradients, "graphs": graphs, "chains": chains, "small": graphs, "states": states,
    "functions": functions, "large": functions, "slopes": directed,
}  # fmt: skip
