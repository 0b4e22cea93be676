"""The typed program of a user runs, and stands as every type checker reads it the same."""

import ast
from pathlib import Path

from tests.house import typed_program

STUB = Path(__file__).parents[2] / "frontend/tensor_methods.pyi"


def test_the_typed_program_runs():
    typed_program.main()


def test_comparison_operators_have_tensor_types():
    # pyright keeps the type that `object` declares for a name that is only assigned: `tensor == x` is a bool.
    (one,) = (node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ClassDef))
    declared = {node.name for node in one.body if isinstance(node, ast.FunctionDef)}
    targets = [name for node in one.body if isinstance(node, ast.Assign) for name in node.targets]
    assigned = {name.id for name in targets if isinstance(name, ast.Name)}
    assert {"__eq__", "__ne__"} <= declared - assigned
    assert {"__lt__", "__add__"} <= declared | assigned
