"""Random tensor programs: made, run on tensors and in NumPy, and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from frontend import Tensor, TinyJit
from tests.house.random_program import Array, Maker, Program, ideal, leaf_data
from tests.house.random_steps import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

GROWN = 2000
"""Values of states beyond this are compared no further: they would leave float16."""


def make(seed: int, *, steps: int = 12, large: bool = False, calm: bool = False) -> Program:
    """Return the program of a seed: see `Maker`."""
    return Maker(seed, KINDS, steps=steps, large=large, calm=calm).program


def run_numpy(program: Program, leaves: Sequence[Array]) -> list[Array]:
    """Return all values, those of leaves as they are in the end."""
    values = [ideal(x) for x in leaves]
    with np.errstate(all="ignore"):
        for step in program.steps:
            if step.realize:
                continue
            data = np.asarray(step.numpy(*[values[s] for s in step.sources]))
            dtype = program.dtypes[step.assign if step.assign >= 0 else len(values)]
            data = ideal(data.astype(dtype) if dtype[0] in "iu" else data)  # integers wrap
            if step.assign >= 0:
                values[step.assign] = data
            else:
                values.append(data)
    return values


def run_tensors(program: Program, leaves: Sequence[Any], *, realize: bool = True) -> list[Any]:
    """Return all values as tensors."""
    values = list(leaves)
    for step in program.steps:
        if step.realize:
            if realize:
                values[step.sources[0]].realize(*[values[s] for s in step.sources[1:]])
        elif step.assign >= 0:
            values[step.assign].assign(step.tensor(*[values[s] for s in step.sources]))
        else:
            values.append(step.tensor(*[values[s] for s in step.sources]))
    return values


def data_for(program: Program, seed: int) -> list[Array]:
    """Return data for the leaves; seed 0 is the data that the program was made with."""
    rng = np.random.default_rng(program.seed if not seed else (program.seed, seed))
    return [leaf_data(shape, dtype, rng) for shape, dtype in program.leaves]


def assigned(program: Program) -> list[int]:
    """Return the leaves that get new values."""
    return sorted({s.assign for s in program.steps if s.assign >= 0})


def run_states(program: Program, calls: int) -> None:
    """Run a program as a captured function whose assigned leaves live outside; compare each call."""
    states = assigned(program)
    first = data_for(program, 0)
    kept = tensors_of(program, first)
    data = [ideal(x) for x in first]

    @TinyJit
    def captured(*given: Any) -> list[Any]:
        arguments = iter(given)
        values = run_tensors(program, [kept[i] if i in states else next(arguments) for i in range(len(kept))])
        return [values[o] for o in program.outputs]

    for call in range(calls):
        new = data_for(program, call)
        data = [data[i] if i in states else new[i] for i in range(len(new))]
        fed = tensors_of(program, new)
        found = captured(*[t for i, t in enumerate(fed) if i not in states])
        wanted = run_numpy(program, data)
        if any(np.max(np.abs(x.astype(np.float64)), initial=0) > GROWN for x in wanted):
            break
        data[: len(new)] = wanted[: len(new)]
        slack = float(4**call)
        for o, t in zip(program.outputs, found, strict=True):
            check(program, t, wanted[o], o, f"call {call}", slack=slack)
        for i in states:
            check(program, kept[i], wanted[i], i, f"state after call {call}", slack=slack)


def run_eager(program: Program) -> None:
    """Run a program and compare every value that is looked at, last first."""
    data = data_for(program, 0)
    wanted = run_numpy(program, data)
    values = run_tensors(program, tensors_of(program, data))
    for o in reversed(program.outputs):
        check(program, values[o], wanted[o], o, "eager")


def tensors_of(program: Program, data: Sequence[Array]) -> list[Any]:
    return [Tensor(x.astype(dtype), dtype=dtype) for x, (_, dtype) in zip(data, program.leaves, strict=True)]


def check(program: Program, found: Any, wanted: Array, number: int, what: str, *, slack: float = 1.0) -> None:
    """Compare one value."""
    assert found.dtype.name == program.dtypes[number], f"{what} v{number}: {found.dtype.name}\n{program}"
    seen = found.numpy()
    assert seen.shape == wanted.shape, (
        f"{what} v{number}: shape {seen.shape}, wanted {wanted.shape}\n{program}"
    )
    tolerance = min(0.05, program.tolerances[number] * slack)
    if tolerance:
        scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
        worst = float(np.max(np.abs(seen.astype(np.float64) - wanted), initial=0.0))
        ok = worst <= tolerance * scale
    else:
        worst, ok = float("nan"), bool(np.array_equal(seen.astype(wanted.dtype), wanted))
    assert ok, f"{what} v{number}: off by {worst}\n{program}\nseen {seen}\nwanted {wanted}"
