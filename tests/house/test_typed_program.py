"""The typed program of a user runs, and stands as every type checker reads it the same."""

import ast
import inspect

from frontend import operators
from tests.house import typed_program


def test_the_typed_program_runs():
    typed_program.main()


def assigned(body: list[ast.stmt]) -> set[str]:
    """Return the names that statements of a class assign, as type checkers read them."""
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.Assign):
            names |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
        elif isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            names |= assigned(statement.body)
    return names


def test_comparison_operators_have_tensor_types():
    # pyright keeps the type that `object` declares for a name that is only assigned: `tensor == x` is a bool.
    (one,) = ast.parse(inspect.getsource(operators.Operators)).body
    assert isinstance(one, ast.ClassDef)
    assert not assigned(one.body) & {"__eq__", "__ne__"}
    assert {"__lt__", "__add__"} <= assigned(one.body)
