"""Values and gradients of every differentiable method at kinks, edges and ties, against PyTorch.

`tests.oracles.gradients` says what is asked; `tests.oracles.gradients.oracle` recorded the answers.
"""

from __future__ import annotations

import copy
import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest

from frontend import Tensor
from frontend.later import loaded
from frontend.members import Methods
from frontend.methods import MAKER, METHODS, SIZED_MAKER
from tests.oracles.expressions import EXPRESSIONS
from tests.oracles.gradients import oracle
from tests.oracles.gradients.cases import CASES, DATA
from tests.oracles.gradients.compare import compared, inputs_of

if TYPE_CHECKING:
    from tests.oracles.gradients.cases import Case

PROBES = {f"{case.case} {dtype}": (case, dtype) for case in CASES for dtype in case.records}
RECORDED = {case.method for case in CASES}
ABOUT = """
    shape dtype device ndim is_realized numel nbytes size is_floating_point __len__ __repr__ __hash__ __init__
    realize data numpy tolist item __iter__ __contains__ __bool__ __float__ __int__ __array__
    operand parameter manual_seed allclose train no_grad __index__ __format__ __pos__ __reversed__
    requires_grad requires_grad_ retain_grad grad gradient backward detach __copy__ __deepcopy__ __reduce__
    is_cpu is_cuda is_leaf tobytes __dir__ register_hook register_post_accumulate_grad_hook grad_fn
"""
"""They describe a tensor, its contents or its gradients."""
OWN = ("shard", "shard_", "replicate", "replicate_")
"""No methods of PyTorch: `test_many_devices` has their gradients."""
FLAT = {
    name
    for row in METHODS
    if row.kind in {MAKER, SIZED_MAKER} or not row.differentiable
    for name in row.plain + row.changing
}
"""They are made of no tensor, or have values without a slope."""
ANSWERED = {
    name
    for text in EXPRESSIONS
    for name in re.findall(r"\.([a-zA-Z]\w*)", text)
    if getattr(Tensor, name, False) is not False and "data_ptr" not in name  # another class is its home
} - RECORDED
"""They are compared with PyTorch in `tests.oracles`."""
NO_GRADIENT = {*ABOUT.split(), *OWN, *FLAT, *ANSWERED}


@pytest.mark.sampled(36)
@pytest.mark.parametrize("probe", PROBES)
def test_values_and_gradients_match_pytorch(probe: str):
    case, dtype = PROBES[probe]
    inputs = inputs_of(case, dtype)
    wrong = compared(case, inputs, case.records[dtype])
    assert not wrong, "\n".join([str([x.tolist() for x in inputs.values()]), *wrong])


def test_a_wrong_gradient_is_reported():
    case: Case = next(case for case in CASES if case.case == "tanh")
    want = copy.deepcopy(case.records["float32"])
    place = next(i for i, one in enumerate(want["gradients"][0]) if float(one) not in (0.0, 1.0))
    want["gradients"][0][place] = str(float(want["gradients"][0][place]) + 0.5)
    want.pop("closer gradients", None)
    assert "gradient 0" in str(compared(case, inputs_of(case, "float32"), want))


def test_a_given_case_replaces_one_of_its_name_and_leaves_the_others():
    assert [oracle.line(case) for case in CASES] == DATA.read_text().splitlines()
    text = '{"case": "tanh", "inputs": "points", "ours": "x.tanh()", "theirs": "torch.sinh(x)"}'
    for recorded in (CASES, [case for case in CASES if case.case != "tanh"]):
        found = oracle.wanted(recorded, [text])
        assert {case.case for case in found} == {case.case for case in CASES}
        assert [case.theirs for case in found if None in case.records.values()] == ["torch.sinh(x)"]
    assert "torch.tanh(x)" in [case.theirs for case in oracle.wanted([], [])], "the table of methods has it"


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
    unknown = [sorted(names) for names in methods() if not names & (RECORDED | NO_GRADIENT)]
    assert not unknown, "record cases by tests.oracles.gradients.oracle, or say above why there is none"
    assert set().union(*methods()) >= RECORDED | NO_GRADIENT, "there is no such method"
    assert not RECORDED & NO_GRADIENT
    assert len(PROBES) == sum(len(case.records) for case in CASES), "two cases have one name"
