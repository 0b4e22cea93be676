"""Models of ONNX files: `load`, and the call.

Raises `OSError` for a file that cannot be read, `UsageError` for a malformed one, `UnsupportedError` for an
opset, an operator or an element type that is not supported.

Not here: the file's format (`wire`), graphs (`graph`), operators (`table`).
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from frontend.device import Device
from frontend.nn.state.tensor_file import Contents
from frontend.onnx.graph import GraphBuilder, ModelGraph
from frontend.onnx.initialisers import Initialisers, element_type
from frontend.onnx.table import OPSETS
from frontend.onnx.values import CONSTANTS, Constants, Value, as_tensor, cast, dtype_of, is_host
from frontend.onnx.wire import StoredModel, ValueInfo, parse_model
from frontend.tensor import Tensor
from hcq.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from compiler.dtype import DType

_HOST: Final = 64
"""The most elements of an integer array that stays on the host, so that conditions and sizes may use it."""


@dataclass(frozen=True, slots=True)
class Described:
    """An input or output of a model: its dtype, and its shape, in which a name or None is any size."""

    dtype: DType | None
    shape: tuple[int | str | None, ...] | None


def load(path: str | Path, *, device: str | None = None) -> OnnxModel:
    """Return the model of an ONNX file, with its weights on a device (None: the default one).

    What depends on constants alone is computed here. Nothing of a file is executed but operators of the
    table; files with weights beside it are read from its folder only.

    Raises `OSError`, `UsageError` and `UnsupportedError` as the module says, `OutOfMemoryError` as `Tensor`.
    """
    path = Path(path)
    with Contents(path, "ONNX file") as file:
        data = file.read()
    constants = Constants(Device.named(device))
    token = CONSTANTS.set(constants)
    try:
        return _loaded(path, parse_model(data), constants)
    except (UsageError, UnsupportedError) as error:
        note = "".join(f"\n{n}" for n in getattr(error, "__notes__", ()))
        raise type(error)(f"{path}: {error}{note}") from error
    finally:
        CONSTANTS.reset(token)


def _loaded(path: Path, stored: StoredModel, constants: Constants) -> OnnxModel:
    """Return the model of a file's message."""
    if stored.graph is None:
        raise UsageError("there is no graph")
    version = max([o.version for o in stored.opset_import if o.domain in {"", "ai.onnx"}], default=0)
    if version and version not in OPSETS:
        raise UnsupportedError(f"wanted an opset of {OPSETS[0]} to {OPSETS[-1]}, saw {version}")
    with ExitStack() as files:
        initialisers = Initialisers(path.parent, constants.device, files)
        graph = GraphBuilder(initialisers, stored.opset_import, stored.functions).build(stored.graph)
    own = {t.name for t in stored.graph.initializer}
    defaults = {v.name: _described(v) for v in stored.graph.input if v.name in own}
    defaults = {} if stored.ir_version < 4 else defaults  # older files list all initialisers as inputs
    graph.fold(defaults)
    inputs = {v.name: _described(v) for v in stored.graph.input if v.name not in own}
    outputs = {v.name: _described(v) for v in stored.graph.output}
    return OnnxModel(str(path), graph, constants, inputs, defaults, outputs)


class OnnxModel:
    """A model of an ONNX file, which is called with its inputs by name; any thread may call it.

        model = onnx.load("model.onnx")
        print(model.inputs)                         # name -> dtype and shape
        found = model(x=Tensor.rand(1, 3, 224, 224))["y"]

    An input is a tensor, an array of NumPy, or data as `Tensor` takes it. The result maps the names of
    outputs to tensors of the file's dtypes, which are computed when they are read. Sizes, conditions of `If`
    and trip counts of `Loop` that are computed from shapes, constants or small integer arrays among the
    inputs are known without the device; others are read from it by the call.

    Capture: `TinyJit(model)` or `frontend.compile(model)`, after one call of the model itself, replays one
    submission for tensors of the same shapes, if the call reads no value from the device. Arrays that decide
    sizes or branches come from outside: `TinyJit(lambda x: model(x=x, rate=rate))`.

    Raises `UsageError` for inputs that are missing, unknown, or of another dtype or shape, and as the methods
    of `Tensor`.
    """

    def __init__(  # noqa: PLR0917 - made by `load` alone
        self,
        path: str,
        graph: ModelGraph,
        constants: Constants,
        inputs: dict[str, Described],
        defaults: dict[str, Described],
        outputs: dict[str, Described],
    ) -> None:
        self.path = path
        self.inputs, self.defaults, self.outputs = inputs, defaults, outputs
        self._graph, self._constants = graph, constants

    def __call__(self, **given: Any) -> dict[str, Tensor]:
        """Return the outputs by name; see the class."""
        known = self.inputs | self.defaults
        missing = [n for n in self.inputs if n not in given]
        if missing or (extra := [n for n in given if n not in known]):
            what = f"{missing[0]!r} is missing" if missing else f"there is no {extra[0]!r}"
            raise UsageError(f"{self.path}: {what}; the inputs are {', '.join(self.inputs)}")
        token = CONSTANTS.set(self._constants)
        try:
            values = {n: self._input(n, known[n], v) for n, v in given.items()}
            found = self._graph.run({}, values)
            return {n: self._output(n, v) for n, v in zip(self.outputs, found, strict=True)}
        finally:
            CONSTANTS.reset(token)

    def _input(self, name: str, wanted: Described, value: Any) -> Value:
        """Return an input as a value of the wanted dtype and shape."""
        if not isinstance(value, (Tensor, np.ndarray)):
            value = np.asarray(value)
            if wanted.dtype is not None and value.dtype.kind in "biuf":
                value = cast(value, wanted.dtype)
        small = is_host(value) and value.size <= _HOST and value.dtype.kind in "biu"
        if not small and not isinstance(value, Tensor):
            value = Tensor(value, device=self._constants.device)
        if wanted.dtype is not None and dtype_of(value) is not wanted.dtype:
            raise UsageError(
                f"{self.path}, {name}: wanted {wanted.dtype.name}, saw {dtype_of(value).name}\n"
                f'hint: x.cast("{wanted.dtype.name}") converts'
            )
        if wanted.shape is not None and (
            len(wanted.shape) != len(value.shape)
            or any(isinstance(n, int) and n != m for n, m in zip(wanted.shape, value.shape, strict=True))
        ):
            seen = tuple(value.shape)
            raise UsageError(f"{self.path}, {name}: wanted the shape {wanted.shape}, saw {seen}")
        found: Value = value
        return found

    def _output(self, name: str, value: Value | None) -> Tensor:
        if value is None:
            raise UsageError(f"{self.path}: the output {name!r} has no value")
        wanted = self.outputs[name].dtype
        return as_tensor(value if wanted is None or wanted is dtype_of(value) else cast(value, wanted))

    def __repr__(self) -> str:
        return f"OnnxModel({self.path!r}, inputs={list(self.inputs)}, outputs={list(self.outputs)})"


def _described(info: ValueInfo) -> Described:
    """Return the dtype and shape that a file states. Raises `UnsupportedError` for no tensor."""
    if info.type is None:
        return Described(None, None)
    kind = info.type.tensor_type
    if kind is None:
        raise UnsupportedError(f"{info.name!r} is no tensor: sequences, maps and optionals are not supported")
    dtype = element_type(kind.elem_type, repr(info.name)) if kind.elem_type else None
    if kind.shape is None:
        return Described(dtype, None)
    sizes = [d.dim_param or (None if (d.dim_value or 0) < 0 else d.dim_value) for d in kind.shape.dim]
    return Described(dtype, tuple(sizes))
