"""Writes in place: values and gradients as PyTorch 2.13 has them (`data/in_place.json`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontend import Tensor
from hcq.errors import UsageError
from tools.answers.in_place import PROGRAMS, answer

WANT: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "in_place.json").read_text())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(4))
def test_values_and_gradients_are_those_of_pytorch(part: int):
    for text in PROGRAMS[part::4]:
        want = WANT[text]
        if "error" in want:
            with pytest.raises(UsageError):
                answer(text, Tensor)
            continue
        found = answer(text, Tensor)
        np.testing.assert_allclose(found["y"], want["y"], rtol=1e-6, err_msg=text)
        for name, g in want["gradients"].items():  # a tensor whose value was overwritten has none here
            np.testing.assert_allclose(
                found["gradients"].get(name, np.zeros_like(g)), g, rtol=1e-5, err_msg=f"{text}: {name}"
            )


def test_a_leaf_is_changed_without_gradients_or_by_assign():
    x = Tensor([1.0, 2.0], requires_grad=True)
    with Tensor.no_grad():
        x += 1
        x[0] = 5
    x.assign(x * 2)
    assert x.tolist() == [10.0, 6.0]
    x.square().sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [20.0, 12.0]
    x.requires_grad = False
    x.zero_()
    assert x.tolist() == [0.0, 0.0]


def test_values_that_were_used_before_keep_their_gradients():
    """PyTorch raises here: it has not kept the old values."""
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    z = y * y
    y.add_(1)
    (z + y).sum().backward()
    assert x.grad is not None
    assert (y.tolist(), x.grad.tolist()) == ([3.0, 5.0], [10.0, 18.0])
