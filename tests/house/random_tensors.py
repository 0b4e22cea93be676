"""Random tensor programs: made, run on tensors and in NumPy, and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from frontend import Tensor, TinyJit
from tests.house.random_program import Array, Maker, Program, ideal, leaf_data, shares
from tests.house.random_steps import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

GROWN = 2000
"""Values of states beyond this are compared no further: they would leave float16."""


def make(seed: int, *, steps: int = 12, large: bool = False, calm: bool = False) -> Program:
    """Return the program of a seed: see `Maker`."""
    return Maker(seed, KINDS, steps=steps, large=large, calm=calm).program


def run_numpy(program: Program, leaves: Sequence[Array]) -> list[Array]:
    """Return all values as they are in the end, of leaves and of what shares elements with them."""
    values = [ideal(x) for x in leaves]
    places: dict[int, tuple[int, Array]] = {
        i: (i, np.arange(x.size).reshape(x.shape)) for i, x in enumerate(values)
    }
    with np.errstate(all="ignore"):
        for step in program.steps:
            if step.realize:
                continue
            data = np.asarray(step.numpy(*[values[s] for s in step.sources]))
            dtype = program.dtypes[step.assign if step.assign >= 0 else len(values)]
            data = ideal(data.astype(dtype) if dtype[0] in "iu" else data)  # integers wrap
            if step.assign >= 0:
                for i, (leaf, where) in places.items():
                    if leaf == step.assign:
                        values[i] = data.reshape(-1)[where]
                continue
            first = step.sources[0]
            if first in places and shares(step.name, program.dtypes[first], dtype):
                leaf, where = places[first]
                places[len(values)] = leaf, where if step.name.startswith("cast") else step.numpy(where)
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


GRADED = tuple([k for k in KINDS if k[0].__name__ not in {"cast", "compare", "logic", "assign", "realize"}])
"""Steps that a gradient passes through, or that are constant to it."""


def check_gradient(seed: int) -> None:
    """Compare the gradient of a random weighted sum along a random direction with two differences."""
    program = Maker(seed, GRADED, steps=10, large=False, calm=True, floats=("float64",)).program
    r = np.random.default_rng(seed)
    outputs = [o for o in program.outputs if program.dtypes[o] == "float64"]
    floats = [i for i, (_, dtype) in enumerate(program.leaves) if dtype == "float64"]
    data = [ideal(x) for x in data_for(program, 0)]
    ways = {i: r.standard_normal(program.leaves[i][0]) for i in floats}
    for i in floats:
        data[i] = data[i] + r.uniform(-0.06, 0.06, data[i].shape)  # away from where maxima are shared
    weights = {o: r.standard_normal(x.shape) for o, x in enumerate(run_numpy(program, data)) if o in outputs}

    def total(distance: float) -> tuple[Any, list[Any]]:
        moved = [x + distance * ways[i] if i in ways else x for i, x in enumerate(data)]
        leaves = tensors_of(program, moved)
        for i in floats:
            leaves[i].requires_grad = True
        values = run_tensors(program, leaves)
        parts = [(values[o] * Tensor(weights[o])).sum() for o in outputs]
        return sum(parts[1:], parts[0]), leaves

    if not floats or not outputs:
        return
    loss, leaves = total(0.0)
    loss.backward()
    found = sum(float((leaves[i].grad.numpy() * ways[i]).sum()) for i in floats if leaves[i].grad is not None)
    near = [(total(e)[0].item() - total(-e)[0].item()) / (2 * e) for e in (1e-5, 1e-6)]
    scale = max(1.0, abs(found), abs(near[0]))
    if abs(near[0] - near[1]) < 1e-3 * scale:  # else a kink lies between
        assert min(abs(found - x) for x in near) < 2e-4 * scale, f"{found}, wanted {near}\n{program}"


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
    """Run a program and compare the selected values, the last first."""
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
