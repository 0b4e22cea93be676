"""Programs with operations in place, with their values read in between and without: all else is equal.

A program is a few statements that a seed draws, over two tensors with requires_grad and two that are changed
in place. Read or not, its tensors have the same values, gradients and `requires_grad`.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from frontend import Tensor
from hcq.errors import UsageError

START = (
    "w, u = marked([0.5, -1.5, 2.0]), marked([[1.0, 2.0, -0.5], [0.3, 0.7, 1.1]])\n"
    "a, b = zeros(3), zeros(2, 3)"
)  # fmt: skip
END = "backward((a * a).sum() + (b * 1.5).sum())"
VECTORS = ("w", "u[0]", "u[1]", "a", "w * w", "w.sin()")
MATRICES = ("u", "w", "b", "a", "u * w", "u.cos()")
STATEMENTS = (
    "{v}.{op}({x})",
    "{v}.{op}({x})",
    "{v} = {v} * 0.5 + {x}",
    "a.lerp_({vector}, 0.3)",
    "b[{row}] = {vector}",
    "b[:, {column}] += {number}",
    "row = b[{row}]; row.mul_({vector})",
    "a = b[{row}].clone()",
    "a = a.detach().clone()",
    "{v}.copy_({x})",
    "with Tensor.no_grad(): w.mul_(0.9)",
    "with Tensor.no_grad(): {v}.add_(w)",
    "backward(a.sum() + b.sum())",
)


def program(seed: int) -> list[str]:
    """Return the statements of a program; after each of them a value may be read."""
    draw = random.Random(seed)
    lines = [START]
    for _ in range(draw.randrange(3, 9)):
        v = draw.choice("ab")
        words = {
            "v": v, "x": draw.choice(VECTORS if v == "a" else MATRICES),
            "vector": draw.choice(VECTORS), "op": draw.choice(("add_", "sub_", "mul_")),
            "row": draw.randrange(2), "column": draw.randrange(3),
            "number": draw.choice(("a[1]", "w[0]", "u[:, 0]")),
        }  # fmt: skip
        lines.append(draw.choice(STATEMENTS).format(**words))
    return [*lines, END]


def run(lines: list[str], reads: random.Random | None) -> list[Any]:
    """Run a program, and read a value after some statements; return values, gradients and requires_grad."""

    def backward(loss: Tensor) -> None:
        if loss.requires_grad:
            loss.backward(retain_graph=True)

    names: dict[str, Any] = {
        "Tensor": Tensor, "zeros": Tensor.zeros, "backward": backward,
        "marked": lambda values: Tensor(values, requires_grad=True),
    }  # fmt: skip
    found = []
    for line in lines:
        exec(line, names)
        found.append([bool(names[n].requires_grad) for n in "ab"])
        if reads is not None and reads.random() < 0.6:
            names[reads.choice("abwu")].tolist()
    found += [names[n].flatten().tolist() for n in "abwu"]
    zeros = {"w": [0.0] * 3, "u": [0.0] * 6}
    found += [zeros[n] if names[n].grad is None else names[n].grad.flatten().tolist() for n in "wu"]
    return found


def compared(seeds: range) -> int:
    """Return how many runs with reads were compared; the others raise, as an update ended a history."""
    count = 0
    for seed in seeds:
        lines = program(seed)
        plain = run(lines, None)
        for number in range(2):
            try:
                read = run(lines, random.Random(number))
            except UsageError as error:
                if "its history is gone" not in str(error) or not any("no_grad" in line for line in lines):
                    raise
                continue
            count += 1
            for got, wanted in zip(read, plain, strict=True):
                assert got == pytest.approx(wanted, rel=1e-4, abs=1e-4), (seed, number, lines)
    return count


def test_reading_values_changes_no_gradient():
    assert compared(range(16)) > 24


@pytest.mark.landing
def test_reading_values_changes_no_gradient_of_many_programs():
    assert compared(range(16, 130)) > 190
