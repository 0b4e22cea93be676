"""The direction of imports inside each package, computed from the sources.

At run time no module may import itself through others. Imports inside functions hide such cycles, so each
package may have only as many as it has today. With type-only imports a *knot* is a set of modules of which
each reaches all others: who wants to understand one has to read them all, so they stay small. Bounds are what
was measured; lower them when a package gets better, never raise them.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parents[2]
INSIDE_FUNCTIONS = {
  "hcq": 9, "drivers": 3, "emulator": 3, "compiler": 21, "frontend": 2, "interop": 1, "tools": 0,
}  # fmt: skip
VERIFY = [f"tests/{name}" for name in ("foreign", "fuzz", "guests", "mutants", "oracles", "support")]
INSIDE_FUNCTIONS |= dict.fromkeys(VERIFY, 0) | {"tests/guests": 1}
"""How many imports of the own package stand inside functions: cycles that are cut at run time, and modules
that are loaded only when wanted (validation, fault recovery, LLVM, searches). Not counted: `ON_DEMAND`."""
ON_DEMAND = re.compile(
    r"(drivers|emulator)/\w+/(__init__|driver|machine/(__init__|variants))\.py:|tools/bringup/\w+/table\.py:"
    r"|frontend/evaluation/plan\.py:\d+ frontend\.check"
    r"|compiler/(compile|schedule/scheduler)\.py:\d+ compiler\.(winners|schedule\.threaded)"
    r"|hcq/(registry|queue)\.py:\d+ hcq\.(faults\.(crash|breadcrumbs|limits)|published|deferred)"
    r"|hcq/(__init__|errors|device)\.py:\d+ hcq\.(names|tables|counters)"
)
"""A vendor's first modules, which every listing of devices loads: they load the others when one is opened.
Also what only a setting, a time limit, a call or a GPU loads: `BEAM`, `HCQ_CHECK`, `HCQ_COUNTERS`,
`HCQ_CRASH`, `HCQ_TOP`, `HCQ_BREADCRUMBS`, `submit_later`; what a name of `hcq` or a notebook loads."""
LARGEST_KNOT = {"hcq": 4, "drivers": 5, "emulator": 5, "compiler": 4, "frontend": 2, "interop": 2, "tools": 2}
LARGEST_KNOT |= dict.fromkeys(VERIFY, 3)
"""Modules of the largest knot: five at most."""

Graph = dict[str, set[str]]


@dataclass
class Imports:
    """Who imports whom inside one package."""

    now: Graph = field(default_factory=dict)
    """At module level: run when the module is loaded."""
    all: Graph = field(default_factory=dict)
    """Also for type checkers, and inside functions."""
    inside: list[str] = field(default_factory=list)
    """Imports inside functions: "hcq/device.py:341 hcq.faults.recovery"."""


def imports(package: str, sources: Mapping[str, str]) -> Imports:
    """Return the imports of a package, given its sources by path: "hcq/replay/slot.py"."""
    out = Imports()
    modules = {dotted(path): path for path in sources}
    for module, path in modules.items():
        out.now[module], out.all[module] = set(), set()
        base = module if path.endswith("__init__.py") else module.rpartition(".")[0]
        for node, typed, inside in statements(ast.parse(sources[path])):
            for target in targets(node, base, modules):
                if target == module:
                    continue
                out.all[module].add(target)
                if inside:
                    out.inside.append(f"{path}:{node.lineno} {target}")
                elif not typed:
                    out.now[module].add(target)
    assert dotted(package) in modules
    return out


def dotted(path: str) -> str:
    """Return the module at a path."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def statements(
    tree: ast.AST, *, typed: bool = False, inside: bool = False
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    """Yield each import, whether only type checkers see it, and whether it stands in a function."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, typed, inside
        elif isinstance(child, ast.If) and ast.unparse(child.test) in {
            "TYPE_CHECKING",
            "typing.TYPE_CHECKING",
        }:
            for one in child.body:
                yield from statements(ast.Module([one], []), typed=True, inside=inside)
            for one in child.orelse:
                yield from statements(ast.Module([one], []), typed=typed, inside=inside)
        elif not isinstance(child, ast.expr):  # in which no import stands
            function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from statements(child, typed=typed, inside=inside or function)


def targets(node: ast.Import | ast.ImportFrom, base: str, modules: Mapping[str, str]) -> set[str]:
    """Return the modules of the package that a statement imports."""
    if isinstance(node, ast.Import):
        return {name.name for name in node.names} & modules.keys()
    parts = base.split(".")
    above = parts[: len(parts) - node.level + 1] if node.level else []
    source = ".".join([*above, *([node.module] if node.module else [])])
    names = {f"{source}.{name.name}" for name in node.names}
    plain = {source} if names - modules.keys() else set()
    return (names | plain) & modules.keys()


def knots(graph: Graph) -> list[list[str]]:
    """Return the sets of modules that all reach one another, the largest first."""
    reached = {module: closure(graph, module) for module in graph}
    found = {
        tuple(sorted(other for other in reached[module] if module in reached[other])) for module in graph
    }
    return sorted((list(knot) for knot in found if len(knot) > 1), key=lambda knot: (-len(knot), knot))


def closure(graph: Graph, start: str) -> set[str]:
    """Return what is reached from a module in one step or more."""
    out: set[str] = set()
    todo = [start]
    while todo:
        for other in graph[todo.pop()]:
            if other not in out:
                out.add(other)
                todo.append(other)
    return out


@cache
def of(package: str) -> Imports:
    paths = sorted((ROOT / package).rglob("*.py"))
    return imports(package, {str(path.relative_to(ROOT)): path.read_text() for path in paths})


@pytest.mark.parametrize("package", sorted(LARGEST_KNOT))
def test_no_module_imports_itself_through_others_at_run_time(package: str):
    assert knots(of(package).now) == []


@pytest.mark.parametrize("package", sorted(INSIDE_FUNCTIONS))
def test_imports_inside_functions_do_not_become_more(package: str):
    inside = [one for one in of(package).inside if not ON_DEMAND.match(one)]
    assert len(inside) <= INSIDE_FUNCTIONS[package], "\n".join(inside)


@pytest.mark.parametrize("package", sorted(LARGEST_KNOT))
def test_knots_of_modules_do_not_grow(package: str):
    found = knots(of(package).all)
    text = "\n".join(f"{len(knot)} modules: {', '.join(knot)}" for knot in found)
    assert len(found[0] if found else []) <= LARGEST_KNOT[package], text


SMALL = {
    "p/__init__.py": "",
    "p/a.py": "from p import b\nimport p.c",
    "p/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import thing\n",
    "p/c.py": "def f():\n    from . import d\n",
    "p/d.py": "from .c import f",
}


def test_imports_are_classified_by_when_they_happen():
    found = imports("p", SMALL)
    assert found.now == {"p": set(), "p.a": {"p.b", "p.c"}, "p.b": set(), "p.c": set(), "p.d": {"p.c"}}
    assert found.inside == ["p/c.py:2 p.d"]
    assert knots(found.now) == []
    assert knots(found.all) == [["p.a", "p.b"], ["p.c", "p.d"]]


def test_a_cycle_at_run_time_is_found():
    found = imports("p", SMALL | {"p/b.py": "from p.a import thing"})
    assert knots(found.now) == [["p.a", "p.b"]]
