"""Captured functions whose inputs come from names outside, which are bound anew, and that keep results there.

The lines of a program become the source of one function. Each input is an argument or comes from a *place*: a
closure cell, a global, an attribute of an object, of a layer or of `self`, an item of a list or a dictionary.
Some functions also keep a result in such a place.

Not here: the programs (`tensor_programs`), calling and comparing (`tensors`).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz.tensor_programs import namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.fuzz.tensor_programs import Line

PLACES: Final = {
    "argument": "",
    "closure": "cell_{0}",
    "global": "global_{0}",
    "attribute": "box.{0}",
    "inner attribute": "box.inner.{0}",
    "local": "here.{0}",
    "layer": "layer.{0}",
    "layer of a list": "layers[0].{0}",
    "loop": "[part.{0} for part in layers if hasattr(part, '{0}')][0]",
    "self": "self.{0}",
    "property": "self.get_{0}",
    "item": "items['{0}']",
    "item by a variable": "items[name_{0}]",
    "row": "rows[{1}]",
    "helper": "helper_{0}()",
    "getattr": "getattr(box, '{0}')",
}
"""Where an input comes from -> the expression of its name and number."""
KEEPS: Final = (
    "box.kept = {0}",
    "box.inner.kept = {0}",
    "self.kept = {0}",
    "layer.kept = {0}",
    "items['kept'] = {0}",
    "kept.append({0})",
    "global global_kept; global_kept = {0}",
    "nonlocal cell_kept; cell_kept = {0}",
    "box.kept = {0}.detach()",
    "box.kept = [{0}]",
)
"""Statements that keep a result."""


class Function:
    """A function of a program: where its inputs are, and what it keeps.

    `function` is what is captured, `given` the names of its arguments, `keeps` the name of what is kept, "".
    """

    def __init__(
        self, leaves: Sequence[Line], body: Sequence[Line], results: Sequence[str], seed: int
    ) -> None:
        from frontend import Tensor, nn  # noqa: PLC0415 - `--show` needs none

        chosen = random.Random(seed)  # noqa: S311 - programs, not secrets
        self.where = {line.makes: chosen.choice(list(PLACES)) for line in leaves}
        self.given = [name for name, place in self.where.items() if place == "argument"]
        self.keeps = chosen.choice(results) if chosen.random() < 0.3 else ""
        self.keep = chosen.choice(KEEPS) if self.keeps else ""
        self._names = namespace() | {
            "Tensor": Tensor,
            "nn": nn,
            "rows": [None] * len(leaves),
            "items": {},
            "kept": [],
        }
        self.source = self._text(body, results)
        exec(compile(self.source, "<names>", "exec"), self._names)  # noqa: S102 - a program made here
        box_of: Callable[[], Any] = self._names["Box"]
        self._names["box"], self._names["layer"] = box_of(), nn.Linear(1, 1)
        self._names["box"].inner, self._names["layers"] = box_of(), [nn.Linear(1, 1)]
        self.function, self._bind, self._cell = self._names["made"]()

    def _text(self, body: Sequence[Line], results: Sequence[str]) -> str:
        numbered = list(enumerate(self.where.items()))
        inner = [f"{name} = {PLACES[p].format(name, i)}" for i, (name, p) in numbered if PLACES[p]]
        inner += [line.tensor for line in body]
        inner += [self.keep.format(self.keeps).removeprefix("nonlocal cell_kept; ")] if self.keep else []
        cells = [f"cell_{name}" for name, place in self.where.items() if place == "closure"]
        return "\n".join(
            [
                "class Box: pass",
                "class Net(nn.Module):",
                "    kept = None",
                *[f"    get_{n} = property(lambda self: self.{n})" for n in self.where],
                *[f"name_{n} = {n!r}" for n in self.where],
                *[f"def helper_{n}(): return global_{n}" for n in self.where],
                "def made():",
                "    cell_kept = None",
                *[f"    {cell} = None" for cell in cells],
                "    def bind(name, value):",
                *[f"        nonlocal {cell}" for cell in cells],
                *[f"        if 'cell_' + name == {cell!r}: {cell} = value" for cell in cells],
                "        return name",
                "    class Inner(Net):",
                f"        def forward(self, {', '.join(self.given)}):",
                "            nonlocal cell_kept",
                "            global global_kept",
                "            here = box",
                *[f"            {text.removeprefix('global global_kept; ')}" for text in inner],
                f"            return [{', '.join(results)}]",
                "    return Inner(), bind, lambda: cell_kept",
            ]
        )

    def bind(self, name: str, value: Any) -> None:
        """Bind the name of an input that is no argument to a value."""
        place, names = self.where[name], self._names
        if place == "closure":
            self._bind(name, value)
        elif place in {"global", "helper"}:
            names[f"global_{name}"] = value
        elif place.startswith("item"):
            names["items"][name] = value
        elif place == "row":
            names["rows"][list(self.where).index(name)] = value
        else:
            objects = {"inner attribute": names["box"].inner, "layer": names["layer"], "self": self.function}
            objects |= {
                "property": self.function,
                "loop": names["layers"][0],
                "layer of a list": names["layers"][0],
            }
            setattr(objects.get(place, names["box"]), name, value)

    def kept(self) -> Any:
        """Return what the last call kept."""
        names = self._names
        found = (
            names["kept"][-1] if "append" in self.keep
            else names["items"]["kept"] if "items" in self.keep
            else names["global_kept"] if "global" in self.keep
            else self._cell() if "cell" in self.keep
            else self.function.kept if "self" in self.keep
            else names["layer"].kept if "layer" in self.keep
            else names["box"].inner.kept if "inner" in self.keep
            else names["box"].kept
        )  # fmt: skip
        return found[0] if isinstance(found, list) else found
