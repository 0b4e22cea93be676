"""A graph of ATen operators as captured launches: one for each combination of shapes, dtypes and numbers.

A call passes the memory of PyTorch's tensors to the launch of their shapes. At the first call of its shapes
the operators are applied to tensors of the frontend, whose expressions are captured as one launch. A size
that PyTorch keeps symbolic is a number by then, so that dynamic graphs have a capture for each size.

Results that are inputs, or views of inputs, are PyTorch's own: no launch copies them. Each other result has
memory of its own, in the order of axes that PyTorch inferred.

Not here: the operators (`operators`), the memory (`memory`). Next: `frontend.capture.jit`, captures.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._ops import OpOverload

from frontend.capture.jit import TinyJit
from frontend.evaluation.expr import PARAM
from frontend.tensor import Tensor
from frontend.torch_compile import memory
from frontend.torch_compile.functions import name_of
from frontend.torch_compile.operators import CHECKS, CREATED, DRAWN, TABLE, row
from hcq.errors import HcqError, UnsupportedError
from hcq.names import nearest

if TYPE_CHECKING:
    from frontend.device import TensorDevice

_PLACES: Final = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking", "generator"})
"""Arguments that say where a result lies, not what it is."""


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """A place where TorchDynamo ends a graph: the reason, and "file:line" of the user's code."""

    reason: str
    where: str

    @classmethod
    def of(cls, found: Any) -> GraphBreak:
        """Return the break of a reason of `torch._dynamo.explain`."""
        frame = found.user_stack[-1] if found.user_stack else None
        first = str(found.reason).strip().partition("\n")[0]
        return cls(first, "" if frame is None else f"{frame.filename}:{frame.lineno}")


def _known(node: Any) -> bool:
    if isinstance(node.target, OpOverload):
        return row(node.target) is not None or _short(node) in CHECKS or _is_stride(node)
    return node.target is operator.getitem or _symbolic(node)


def _symbolic(node: Any) -> bool:
    """Return whether a node computes a number from sizes."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


def _line(node: Any) -> str:
    """Return the line of the user's program that a node comes from."""
    lines = [line.strip() for line in (node.stack_trace or "").strip().splitlines()]
    return ": ".join(lines[-2:]) or "no line known"


def unsupported(graph: Any) -> list[str]:
    """Return a text for each operator of a graph that the table lacks: its node, line and nearest name."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        if node.op != "call_function" or _known(node):
            continue
        name = name_of(node.target)
        near = nearest(name.partition(".")[0], TABLE)
        text = f"{node.target}, node {node.name}, {_line(node)}"
        found.setdefault(name, text + (f"; the nearest is {near}" if near else ""))
    return list(found.values())


@dataclass(slots=True)
class _Capture:
    """The launch of one combination of shapes."""

    function: TinyJit[Any, Any]
    numbers: dict[Any, Any]
    """The values of the nodes that are numbers."""


class CompiledGraph:
    """A compiled FX graph of ATen operators: called with its inputs, it returns a list of its outputs.

    `captures` has the captures of the combinations of inputs so far; none is dropped before the graph is.
    Raises `UnsupportedError` for operators that the table lacks. A call raises `UnsupportedError` for tensors
    that are not dense on the host and for what the row of an operator refuses, and as `frontend.TinyJit`.
    """

    def __init__(self, module: Any, device: TensorDevice) -> None:
        missing = unsupported(module.graph)
        if missing:
            raise UnsupportedError(
                "\n  ".join(["torch.compile: hcq lacks", *missing])
                + "\nhint: torch.compiler.disable keeps a function out of the graph; "
                "docs/torch-compile.md says what runs"
            )
        self.device = device
        self.captures: dict[tuple[Any, ...], _Capture] = {}
        nodes = list(module.graph.nodes)
        self.inputs = [n for n in nodes if n.op == "placeholder"]
        self.constants = {n: _attribute(module, n.target) for n in nodes if n.op == "get_attr"}
        self.calls = [n for n in nodes if n.op == "call_function" and n.target is not None]
        drawn = [n for n in self.calls if isinstance(n.target, OpOverload)]
        self.draws = [n for n in drawn if row(n.target, DRAWN) is not None]
        self.results: list[Any] = list(nodes[-1].args[0])
        wanted = [n for n in dict.fromkeys(self.results) if isinstance(n, torch.fx.Node)]
        views = self._views()
        self.needed = _before([n for n in wanted if n in views], views, self.calls)
        """The views of inputs that are results, and those that they are taken from, in order."""
        self.computed = [n for n in wanted if n not in views and n.op == "call_function" and not _symbolic(n)]
        self.orders = [_order(n) for n in self.computed]
        wanted = [*self.computed, *[n for n in self.calls if _symbolic(n)]]
        self.applied = _before(wanted, {*self.calls}, self.calls)
        """The calls that the launch needs; views that are results alone are PyTorch's."""
        self.strides = [n for n in self.calls if _is_stride(n)]

    def _views(self) -> set[Any]:
        """Return the inputs, and the nodes that are views of them: AOTAutograd reads their strides."""
        found = {*self.inputs, *self.constants}
        for node in self.calls:
            viewing = node.target is operator.getitem or getattr(node.target, "is_view", False)
            if viewing and node.args[0] in found:
                found.add(node)
        return found

    def __call__(self, inputs: list[Any]) -> list[Any]:
        """Run the graph; `inputs` is emptied."""
        values: dict[Any, Any] = {**dict(zip(self.inputs, inputs, strict=True)), **self.constants}
        inputs.clear()
        numbers = {n: v for n, v in values.items() if not isinstance(v, torch.Tensor)}
        tensors = {n: v for n, v in values.items() if n not in numbers}
        numbers |= {n: tensors[n.args[0]].stride(n.args[1]) for n in self.strides}
        tensors |= {n: _drawn(n) for n in self.draws}
        forms = [memory.form_of(t) for t in tensors.values()]
        key = (*forms, *numbers.values())
        capture = self.captures.get(key)
        if capture is None:
            capture = self.captures[key] = self._capture(list(tensors), forms, numbers)
        given = [memory.shared(t, f, self.device) for t, f in zip(tensors.values(), forms, strict=True)]
        if self.computed or not capture.numbers:
            values |= self._results(capture.function(*given))
        values |= capture.numbers
        for node in self.needed:
            args, names = torch.fx.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
            values[node] = node.target(*args, **names)
        return [values[r] if isinstance(r, torch.fx.Node) else r for r in self.results]

    def _results(self, found: tuple[Tensor, ...]) -> dict[Any, Any]:
        """Return PyTorch's tensors of the computed results, each with memory of its own."""
        made: dict[Any, Any] = {}
        taken: set[int] = set()
        for node, order, t in zip(self.computed, self.orders, found, strict=True):
            out = memory.given_back(t, order)
            made[node] = out.clone() if out.data_ptr() in taken else out
            taken.add(out.data_ptr())
        return made

    def _capture(self, nodes: list[Any], forms: list[memory.Form], numbers: dict[Any, Any]) -> _Capture:
        made: dict[Any, Any] = {}

        def graph(*tensors: Tensor) -> tuple[Tensor, ...]:
            given = [memory.in_order(t, form) for t, form in zip(tensors, forms, strict=True)]
            values = {**numbers, **dict(zip(nodes, given, strict=True))}
            drawn = {n: values.pop(n) for n in self.draws}
            for node in [n for n in self.applied if n not in numbers]:
                values[node] = self._value(node, values, [drawn[node]] if node in drawn else [])
            made.update({n: values[n] for n in self.applied if _symbolic(n)})
            return tuple(
                starmap(_laid_out, zip(map(values.__getitem__, self.computed), self.orders, strict=True))
            )

        function: TinyJit[Any, Any] = TinyJit(partial(_call, graph))
        function.calls = 1  # its first call is captured
        return _Capture(function, made)

    def _value(self, node: Any, values: dict[Any, Any], more: list[Any]) -> Any:
        """Return the result of a node."""
        args, names = torch.fx.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
        try:
            if not isinstance(node.target, OpOverload):
                return node.target(*args, **names)
            apply = row(node.target)
            if apply is None:  # a check
                return None
            seen = node.meta.get("val")
            names = {k: v for k, v in names.items() if k not in _PLACES}
            kind = names.pop("dtype", None)
            if _short(node) in {"as_strided", "as_strided_scatter"}:
                names["seen"] = node.args[0].meta["val"]
            if _short(node) in CREATED:
                names |= {"dtype": memory.dtype_of(seen.dtype), "device": self.device.name}
            elif kind is not None and isinstance(args[0], Tensor):
                args = (args[0].cast(memory.dtype_of(kind)), *args[1:])
            return _checked(apply(*_promoted(node, args), *more, **names), seen, node)
        except HcqError as error:
            error.add_note(f"in {node.target}, node {node.name}, {_line(node)}")
            raise


def _call(graph: Callable[..., Any], *tensors: Tensor) -> Any:
    return graph(*tensors)


def _short(node: Any) -> str:
    return name_of(node.target).partition(".")[0]


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _before(nodes: list[Any], among: set[Any], calls: list[Any]) -> list[Any]:
    """Return the calls of `among` that nodes need, themselves included, in order."""
    wanted = set(nodes)
    for node in reversed(calls):
        if node in wanted:
            wanted |= among.intersection(node.all_input_nodes)
    return [n for n in calls if n in wanted]


def _fixed(sizes: Any) -> bool:
    return all(isinstance(n, int) for n in sizes)


def _is_stride(node: Any) -> bool:
    """Return whether a node is a symbolic stride of an input."""
    return _short(node) == "sym_stride" and node.args[0].op == "placeholder"


def _order(node: Any) -> tuple[int, ...] | None:
    """Return the order of axes that PyTorch inferred; a symbolic size counts as that of the first call."""
    seen = node.meta["val"]
    shape, strides = (
        [n if isinstance(n, int) else n.node.hint for n in listed] for listed in (seen.shape, seen.stride())
    )
    return None if None in {*shape, *strides} else memory.order_of(shape, strides)


def _laid_out(t: Tensor, order: tuple[int, ...] | None) -> Tensor:
    """Return a new tensor of the value, whose axes lie in `order`; an input is copied."""
    t = t if order is None else t.permute(order)
    return t.clone() if len(t.leaves) == 1 and t.expr.op is PARAM else Tensor.of_part((t.expr, t.leaves))


def _drawn(node: Any) -> Any:
    """Return the random values of a node, drawn by PyTorch on the host."""
    seen = node.meta["val"]
    numbers = torch.fx.map_arg(node.args, lambda n: n.meta["val"])
    first = seen[0] if isinstance(seen, (tuple, list)) else seen
    if not _fixed(first.shape):
        raise UnsupportedError(
            f"torch.compile: hcq draws random numbers of fixed shapes, saw {tuple(first.shape)} in "
            f"{node.target}, {_line(node)}\nhint: torch.compile(..., dynamic=False)"
        )
    draw = row(node.target, DRAWN)
    assert draw is not None  # it is a node of `draws`
    return draw(seen, *numbers, **{k: v for k, v in node.kwargs.items() if k not in {"dtype", *_PLACES}})


def _promoted(node: Any, args: Any) -> Any:
    """Return arguments of an elementwise operator; floats of shape () get the dtype of the others."""
    if torch.Tag.pointwise not in node.target.tags:
        return args
    kinds = [a.dtype for a in args if isinstance(a, Tensor) and a.shape and a.dtype.is_float]
    if not kinds:
        return args
    return [
        a.cast(kinds[0]) if isinstance(a, Tensor) and not a.shape and a.dtype.is_float else a for a in args
    ]


def _checked(found: Any, seen: Any, node: Any) -> Any:
    """Return a result in the dtype that PyTorch inferred. Raises `UnsupportedError` for another shape."""
    if isinstance(seen, (tuple, list)):
        return tuple([_checked(x, s, node) for x, s in zip(found, seen, strict=True)])
    if not isinstance(found, Tensor) or seen is None:
        return found
    if _fixed(seen.shape) and found.shape != tuple(seen.shape):
        raise UnsupportedError(
            f"torch.compile: hcq gives the shape {found.shape}, wanted {tuple(seen.shape)}"
        )
    dtype = memory.dtype_of(seen.dtype)
    return found if found.dtype is dtype else found.cast(dtype)
