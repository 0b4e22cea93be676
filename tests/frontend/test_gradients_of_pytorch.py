"""Values and gradients of every differentiable method at kinks, edges and ties, against PyTorch.

`tests.oracles.gradients` says what is asked; `tests.oracles.gradients.oracle` recorded the answers.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from frontend import Tensor
from frontend.later import loaded
from frontend.members import Methods
from tests.oracles.gradients.cases import CASES, NO_GRADIENT
from tests.oracles.gradients.compare import compared, inputs_of

if TYPE_CHECKING:
    from tests.oracles.gradients.case import Case

DATA = Path(__file__).parent / "data" / "gradients.jsonl"
RECORDS = {(r["case"], r["dtype"]): r for r in map(json.loads, DATA.read_text().splitlines())}
PROBES = [(case, dtype) for case in CASES for dtype in case.dtypes]


@pytest.mark.sampled(36)
@pytest.mark.parametrize(("case", "dtype"), PROBES, ids=[f"{c.name} {d}" for c, d in PROBES])
def test_values_and_gradients_match_pytorch(case: Case, dtype: str):
    inputs = inputs_of(case, dtype)
    wrong = compared(case, inputs, RECORDS[case.name, dtype])
    assert not wrong, "\n".join([str([x.tolist() for x in inputs]), *wrong])


def test_a_wrong_gradient_is_reported():
    case = next(case for case in CASES if case.name == "tanh")
    want = json.loads(json.dumps(RECORDS["tanh", "float32"]))
    place = next(i for i, one in enumerate(want["gradients"][0]) if float(one) not in (0.0, 1.0))
    want["gradients"][0][place] = str(float(want["gradients"][0][place]) + 0.5)
    want.pop("closer gradients", None)
    assert "gradient 0" in str(compared(case, inputs_of(case, "float32"), want))


def methods() -> list[set[str]]:
    """The names of each function that is a method, property or operator of tensors."""
    found: dict[Any, set[str]] = {}
    for cls in (Tensor, Methods):
        for name, member in loaded((cls,)).items():
            value = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            public = not name.startswith("_") or name.endswith("__")
            if public and (member is value or inspect.isfunction(value)) and callable(value):
                found.setdefault(inspect.unwrap(value), set()).add(name)
    return list(found.values())


def test_every_differentiable_method_is_recorded():
    recorded = {case.method for case in CASES}
    unknown = [sorted(names) for names in methods() if not names & (recorded | NO_GRADIENT.keys())]
    assert not unknown, "add cases to tests/oracles/gradients and record, or give the reason in NO_GRADIENT"
    every = set().union(*methods())
    assert recorded | NO_GRADIENT.keys() <= every, "there is no such method"
    assert not recorded & NO_GRADIENT.keys()


def test_every_record_has_its_case():
    assert RECORDS.keys() == {(case.name, dtype) for case, dtype in PROBES}
    assert len(PROBES) == len(RECORDS), "two cases have one name"
