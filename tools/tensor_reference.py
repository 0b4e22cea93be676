"""The reference page of `Tensor`: each method with its arguments and its summary, grouped by module.

It is made of signatures and docstrings, so it agrees with the code; `python -m tools.reference` writes it,
and the stub with the methods' names for type checkers.

Not here: `hcq` and `interop` (`tools.model_reference`). Next: `tools.reference`, the command.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

from frontend.arguments.aliases import ALIASES
from frontend.later import loaded
from frontend.members import Methods
from frontend.methods import FALSE, MAKER, METHODS, SIZED_MAKER, STATIC, MethodRow
from frontend.tensor import Tensor

HEAD = """# `Tensor`

Every method of `frontend.Tensor`, by the file that documents it. Operators: `frontend/methods.py`.
Values and gradients at kinks, ties, zeros and infinities are PyTorch's unless a method notes a difference.
Slices and what only moves elements are views: a write to one changes the tensor that it was taken from
([ADR 12](../adr/0012-views-share-elements-writes-copy-by-versions.md) lists what is a view and what is not).
Reading a value (`item`, `numpy`, ...) keeps its history for `backward`; `realize()` ends it
([ADR 14](../adr/0014-reading-a-value-keeps-its-gradient.md)).
Written by `python -m tools.reference`.
"""
DIFFERS = {
    "softplus": "Exact above 20, where PyTorch gives self.",
    "pow": "As C's pow also for 0.5 and -0.5, where PyTorch takes a square root.",
    "mod": "Exact also where the quotient overflows; in PyTorch NaN.",
    "prod": "Beside an infinity the gradient is the product of the others; PyTorch divides: NaN.",
    "logsumexp": "Equal numbers beside which log(n) is lost share the gradient; "
    "in PyTorch each gets all of it.",
    "std": "Distances are squared in their dtype; PyTorch squares in float64, so that 1e30 and 1e-30 count.",
    "var_mean": "The mean of infinities is that of mean(); in PyTorch's var_mean it is NaN.",
    "normalize": "Where a norm is infinite or NaN, elements that are 0 have the gradient 0; in PyTorch NaN.",
    "cumsum": "Numbers of 32 and 64 bits are added up in their dtype; PyTorch adds up float32 in float64.",
    "cumprod": "Beside zeros, infinities and NaN gradients are products of the others; PyTorch divides: NaN.",
    "layernorm": "A row whose variance overflows gives 0; in PyTorch NaN.",
}
"""Method -> how its values or gradients differ from those of PyTorch, as recorded."""
NAMES = """## Other names of arguments

Where a method has no argument of the name on the left, it is read as the one on the right: `x.sum(dim=1)` is
`x.sum(axis=1)`. Type checkers use the names on the right.

| also understood | means |
|---|---|
"""


def _function(value: Any) -> Any:
    """Return the function that documents a method or property; None for any other member."""
    if isinstance(value, property):
        value = value.fget
    value = inspect.unwrap(getattr(value, "__func__", value))
    return value if inspect.isfunction(value) else None


def _call(name: str, member: Any, fn: Any) -> str:
    """Return a member as a call: its arguments with defaults and without types."""
    if isinstance(member, property):
        return name
    parameters = list(inspect.signature(fn).parameters.values())
    if not isinstance(member, staticmethod):
        parameters = parameters[1:]
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return f"{name}{inspect.Signature(plain)}"


def _members() -> dict[str, dict[Any, list[str]]]:
    """Return the public functions of each module, each with its calls, one for each of its names."""
    found: dict[str, dict[Any, list[str]]] = {}
    changing = {name for row in METHODS for name in row.changing}
    for cls in (Tensor, Methods):
        for name, member in loaded((cls,)).items():
            fn = None if name.startswith("_") or name in changing else _function(member)
            if fn is not None:
                found.setdefault(fn.__module__, {}).setdefault(fn, []).append(_call(name, member, fn))
    return found


def _differences(calls: list[str]) -> str:
    """Return the differences of a function with these calls from PyTorch, as text; "" if there is none."""
    names = {re.split(r"\W", call)[0] for call in calls}
    return "".join([f" *Unlike PyTorch:* {reason}" for name, reason in DIFFERS.items() if name in names])


def _first(text: str | None) -> str:
    """Return the first paragraph of a docstring, and its later notes about PyTorch, on one line."""
    first, *more = [" ".join(part.split()) for part in (text or "").strip().split("\n\n")]
    apart = [part[part.index("Unlike PyTorch") :] for part in more if "Unlike PyTorch" in part]
    return " ".join([first, *apart]).replace("|", "\\|")


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for module, functions in sorted(_members().items()):
        lines = [f"## `{module}`", "", _first(import_module(module).__doc__), "", "| method | |", "|---|---|"]
        for fn, calls in functions.items():
            shown = ", ".join([f"`{call}`" for call in calls]).replace("|", "\\|")
            lines.append(f"| {shown} | {_first(fn.__doc__)}{_differences(calls)} |")
        parts.append("\n".join(lines) + "\n")
    rows = [f"| `{n}` | {' or '.join([f'`{own}`' for own in owns])} |" for n, owns in ALIASES.items() if owns]
    parts.append(NAMES + "\n".join(rows) + "\n")
    return "\n".join(parts)


STUB = '''"""The methods of `Tensor` for type checkers and editors. Written by `python -m tools.reference`.

The table is `frontend.methods`; at run time `frontend.members` makes the class.
"""

# ruff: noqa: PYI017 - the types of members follow from the functions

from typing import Literal, Self

from frontend.members import Maker
{imports}

class Methods:
    """The methods that `frontend.ops` implements."""

    __slots__ = ()
    def __eq__(self, other: object) -> Self: ...  # type: ignore[override]  # elementwise
    def __ne__(self, other: object) -> Self: ...  # type: ignore[override]  # as above
    __hash__ = object.__hash__
'''
_STUB_FORMS = {MAKER: "Maker({})", SIZED_MAKER: "Maker({})", STATIC: "staticmethod({})"}


def _declared(row: MethodRow) -> str:
    """Return the declaration of a row's names in the stub."""
    names = [name for name in [*row.plain, *row.changing] if name not in {"__eq__", "__ne__"}]
    function = row.function.removeprefix("torch.")
    return f"    {' = '.join(names)} = {_STUB_FORMS.get(row.kind, '{}').format(function)}"


def stub() -> str:
    """Return the stub of the class of methods, `frontend/tensor_methods.pyi`."""
    modules = sorted({row.function.rpartition(".")[0] for row in METHODS})
    lines: list[str] = []
    for home in ("ops", "torch"):
        of_home = [name.rpartition(".")[2] for name in modules if ("." in name) == (home != "ops")]
        lines += [f"from frontend.{home} import (", *[f"    {name}," for name in of_home], ")"]
    declared = [_declared(row) for row in METHODS]
    absent = [f"    {name}: Literal[False]" for name in FALSE]
    return "\n".join([STUB.format(imports="\n".join(lines)).rstrip(), *declared, *absent, ""])
