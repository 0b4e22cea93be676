"""Graphs of a model file as steps: each a row of the table, with its attributes, on named values.

`GraphBuilder` makes them: names are resolved, operators looked up, functions put in place of their
calls, and what depends only on constants is computed once. Malformed graphs raise `UsageError`, operators
that the table lacks `UnsupportedError`, all of them at once.

Not here: operators (`table`), the call of a model (`model`).
"""

from __future__ import annotations

import math
from collections import ChainMap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from frontend.evaluation.realize import realize_many
from frontend.onnx.initialisers import NARROW, Initialisers
from frontend.onnx.rows import OperatorRow
from frontend.onnx.table import DOMAINS, MOVES, find
from frontend.onnx.values import as_tensor, dtype_of, is_host
from frontend.onnx.wire import AttributeKind
from frontend.tensor import Tensor
from hcq.errors import HcqError, UnsupportedError, UsageError
from hcq.names import nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, MutableMapping, Sequence

    from frontend.onnx.values import Value
    from frontend.onnx.wire import Attribute, OperatorSet, StoredFunction, StoredGraph, StoredNode

_MOST_STEPS: Final = 1 << 18
_DEEPEST: Final = 32
"""Functions and subgraphs within each other."""
_FREELY: Final = 1 << 16
"""Bytes that a folded value may have; a larger one may have as many as its inputs together."""


@dataclass(slots=True)
class ModelStep:
    """One node."""

    row: OperatorRow
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    label: str

    def run(self, scope: MutableMapping[str, Value | None]) -> None:
        """Compute the outputs from the values of a scope, and put them there.

        Raises `UsageError` for values that the operator does not take, and as the methods of `Tensor`.
        """
        keywords = dict(self.attributes)
        if "_scope" in self.row.takes:
            keywords["_scope"] = scope
        try:
            found = self.row.run([scope[n] if n else None for n in self.inputs], keywords)
        except HcqError as error:
            error.add_note(f"at {self.label}")
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{self.label}: {type(error).__name__}: {error}") from error
        for name, value in zip(self.outputs, found, strict=False):
            if name:
                scope[name] = value
        if missing := [n for n in self.outputs[len(found) :] if n]:
            raise UsageError(f"{self.label}: there is no output {missing[0]!r}")


@dataclass(slots=True)
class ModelGraph:
    """Steps in their order, with the names of inputs and outputs, and constants by name."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: dict[str, Value | None] = field(default_factory=dict)
    steps: list[ModelStep] = field(default_factory=list)

    def run(
        self, scope: Mapping[str, Value | None], arguments: Mapping[str, Value | None]
    ) -> list[Value | None]:
        """Return the outputs; `scope` has the values of the graphs around this one."""
        around = scope.maps if isinstance(scope, ChainMap) else [dict(scope)]
        inner: ChainMap[str, Value | None] = ChainMap(dict(arguments), self.constants, *around)
        for step in self.steps:
            step.run(inner)
        return [inner[name] for name in self.outputs]

    def call(self, scope: Mapping[str, Value | None], values: Sequence[Value | None]) -> list[Value | None]:
        """Return the outputs for inputs by position. Raises `UsageError` for another number of them."""
        if len(values) != len(self.inputs):
            raise UsageError(f"graph {self.name!r}: wanted {len(self.inputs)} inputs, saw {len(values)}")
        return self.run(scope, dict(zip(self.inputs, values, strict=True)))

    def fold(self, variable: Collection[str]) -> None:
        """Compute what depends on constants alone, but for values that are larger than those.

        `variable` has the names of constants that a call may replace.
        """
        left = []
        for step in self.steps:
            known = all(not n or (n in self.constants and n not in variable) for n in step.inputs)
            if known and not step.row.random and "_scope" not in step.row.takes:
                found: dict[str, Value | None] = {}
                step.run(ChainMap(found, self.constants))
                given = [self.constants[n] for n in step.inputs if n]
                if _bytes(found.values()) <= max(_FREELY, _bytes(given)):
                    self.constants |= found
                    continue
            left.append(step)
        self.steps = left
        used = {n for step in left for n in step.inputs} | set(self.outputs)
        used |= {n for step in left for g in _graphs(step) for n in g.free()}
        self.constants = {n: v for n, v in self.constants.items() if n in used}
        for step in left:  # a capture finds the tensors of small constants
            for i, value in enumerate([self.constants.get(n) for n in step.inputs]):
                wanted = i not in step.row.host and not step.row.mixed
                if is_host(value) and wanted and not (step.row.both and dtype_of(value).is_int):
                    as_tensor(value)
        realize_many([v for v in self.constants.values() if isinstance(v, Tensor)])

    def free(self) -> set[str]:
        """Return the names that are read from the graphs around this one, or have the name of such."""
        read = {n for step in self.steps for n in step.inputs} | set(self.outputs)
        return read.union(*[g.free() for step in self.steps for g in _graphs(step)])


def _graphs(step: ModelStep) -> list[ModelGraph]:
    return [v for v in step.attributes.values() if isinstance(v, ModelGraph)]


def _bytes(values: Any) -> int:
    return sum([math.prod(v.shape) * dtype_of(v).itemsize for v in values if v is not None])


class GraphBuilder:
    """Makes the graphs of one file; `unknown` collects operators that the table lacks."""

    def __init__(
        self, initialisers: Initialisers, opsets: Sequence[OperatorSet], functions: Sequence[StoredFunction]
    ) -> None:
        self._initialisers = initialisers
        self._opsets = _versions(opsets)
        self._functions = {(_domain(f.domain), f.name): f for f in functions}
        self._steps = 0
        self._unknown: dict[str, None] = {}

    def build(self, stored: StoredGraph) -> ModelGraph:
        """Return the graph of a model. Raises `UsageError`, `UnsupportedError`."""
        graph = self._graph(stored, self._opsets, frozenset(), {}, 0)
        if self._unknown:
            hint = "hint: docs/onnx.md says what runs"
            raise UnsupportedError(f"operators that are not supported: {'; '.join(self._unknown)}\n{hint}")
        return graph

    def _graph(
        self,
        stored: StoredGraph,
        opsets: Mapping[str, int],
        around: frozenset[str],
        given: Mapping[str, Any],
        depth: int,
    ) -> ModelGraph:
        if depth > _DEEPEST:
            raise UsageError(f"more than {_DEEPEST} functions and subgraphs within each other")
        if stored.sparse_initializer:
            raise UnsupportedError(f"graph {stored.name!r}: sparse initialisers are not supported")
        constants = {t.name: self._initialisers.read(t) for t in stored.initializer}
        types: dict[str, int | None] = {t.name: t.data_type for t in stored.initializer}
        for v in stored.input:
            types[v.name] = v.type.tensor_type.elem_type if v.type and v.type.tensor_type else None
        inputs = tuple([v.name for v in stored.input])
        outputs = tuple([v.name for v in stored.output])
        graph = ModelGraph(stored.name, inputs, outputs, dict(constants))
        known = {*around, *inputs, *constants}
        self._nodes(graph, stored.node, opsets, known, types, given, depth)
        for name in outputs:
            if name not in known:
                raise UsageError(f"graph {stored.name!r}: nothing computes the output {name!r}")
        return graph

    def _nodes(  # noqa: PLR0917 - the state of a graph that is built
        self,
        graph: ModelGraph,
        nodes: Sequence[StoredNode],
        opsets: Mapping[str, int],
        known: set[str],
        types: dict[str, int | None],
        given: Mapping[str, Any],
        depth: int,
    ) -> None:
        for node in nodes:
            label = f"{node.op_type} ({node.name or ', '.join(node.output)!r})"
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise UsageError(f"wanted at most {_MOST_STEPS} nodes, those of functions at each call")
            for name in node.input:
                if name and name not in known:
                    raise UsageError(f"{label} reads {name!r}, which no node before it computes")
            domain = _domain(node.domain)
            attributes = {}
            for a in node.attribute:
                value = self._attribute(a, opsets, frozenset(known), given, depth, label)
                if value is not None:
                    attributes[a.name] = value
            if function := self._functions.get((domain, node.op_type)):
                row: OperatorRow | None = self._called(function, attributes, label, depth)
                attributes = {}
            else:
                row = self._row(domain, node, opsets)
            if row is not None:
                graph.steps.append(_step(row, node, attributes, types, label))
            known.update(node.output)

    def _row(self, domain: str, node: StoredNode, opsets: Mapping[str, int]) -> OperatorRow | None:
        version = opsets.get(domain)
        if version is None and domain in DOMAINS:
            raise UsageError(f"{node.op_type}: the model imports no opset of the domain {domain!r}")
        row = find(domain, node.op_type, version or 0)
        if row is None:
            near = nearest(node.op_type, DOMAINS.get(domain, DOMAINS[""]))
            name = f"{domain}.{node.op_type}" if domain else node.op_type
            hint = f" (nearest: {near})" if near not in {"", node.op_type} else ""
            self._unknown[f"{name} of opset {version}{hint}"] = None
        return row

    def _called(
        self, function: StoredFunction, attributes: Mapping[str, Any], label: str, depth: int
    ) -> OperatorRow | None:
        """Return a row that runs a function of the file with the attributes of one call."""
        if depth > _DEEPEST:
            raise UsageError(f"{label}: more than {_DEEPEST} functions and subgraphs within each other")
        given = dict(attributes)
        opsets = self._opsets | _versions(function.opset_import)
        for a in function.attribute_proto:
            given.setdefault(a.name, self._attribute(a, opsets, frozenset(), {}, depth, label))
        allowed = {*function.attribute, *[a.name for a in function.attribute_proto]}
        if extra := [n for n in attributes if n not in allowed]:
            raise UsageError(f"{label}: the function has no attribute {extra[0]!r}")
        body = ModelGraph(function.name, tuple(function.input), tuple(function.output))
        known = set(function.input)
        self._nodes(body, function.node, opsets, known, {}, given, depth + 1)
        if missing := [n for n in function.output if n not in known]:
            raise UsageError(f"{label}: nothing computes the output {missing[0]!r}")

        def run(*inputs: Value | None) -> tuple[Value | None, ...]:
            padded = [*inputs, *[None] * (len(body.inputs) - len(inputs))]
            return tuple(body.call({}, padded))

        return OperatorRow(function.name, 1, run, mixed=True, random=any(s.row.random for s in body.steps))

    def _attribute(  # noqa: PLR0917 - the state of a graph that is built
        self,
        a: Attribute,
        opsets: Mapping[str, int],
        known: frozenset[str],
        given: Mapping[str, Any],
        depth: int,
        label: str,
    ) -> Any:
        """Return the value of an attribute: a number, text, list, value or graph; None if it has none."""
        if a.ref_attr_name:
            return given.get(a.ref_attr_name)
        kind = AttributeKind
        if a.type == kind.TENSOR and a.t is not None:
            return self._initialisers.read(a.t)
        if a.type == kind.GRAPH and a.g is not None:
            return self._graph(a.g, opsets, known, given, depth + 1)
        if a.type in {kind.STRING, kind.STRINGS}:
            try:
                texts = [str(s, "utf-8") for s in ([a.s] if a.type == kind.STRING else a.strings)]
            except UnicodeDecodeError:
                raise UsageError(f"{label}: the attribute {a.name!r} is no text") from None
            return texts[0] if a.type == kind.STRING else texts
        numbers = {kind.FLOAT: a.f, kind.INT: a.i, kind.FLOATS: a.floats, kind.INTS: a.ints}
        if a.type in numbers:
            return numbers[kind(a.type)]
        raise UnsupportedError(f"{label}: the attribute {a.name!r} of type {a.type} is not supported")


def _step(
    row: OperatorRow, node: StoredNode, attributes: dict[str, Any], types: dict[str, int | None], label: str
) -> ModelStep:
    """Return the step of a node, and note the types of its outputs that are known."""
    inputs = list(node.input)
    while inputs and not inputs[-1]:
        inputs.pop()
    seen = [types.get(n) for n in inputs]
    try:
        row.check(len(inputs), attributes)
    except UsageError as error:
        raise UsageError(f"{label}: {error}") from None
    found = attributes.get("to") or attributes.get("output_dtype")
    if row.name == "CastLike" or (row.name == "QuantizeLinear" and not found):
        found = seen[-1] if row.name == "CastLike" or len(seen) > 2 else None
    elif row.name in MOVES and seen:
        found = seen[0]
    if node.output:
        types[node.output[0]] = found if found in NARROW or found in {17, 18, 19, 20} else None
    if "_types" in row.takes:
        attributes = {**attributes, "_types": tuple(seen)}
    if "_outputs" in row.takes:
        attributes = {**attributes, "_outputs": len(node.output)}
    return ModelStep(row, tuple(inputs), tuple(node.output), attributes, label)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _versions(opsets: Sequence[OperatorSet]) -> dict[str, int]:
    return {_domain(o.domain): o.version for o in opsets}
