"""The back end "hcq" of `torch.compile`, its options, and a list of the places where a graph breaks.

AOTAutograd gives graphs without effects: values of inputs that are written in place are further results,
which PyTorch copies into them; gradients are a graph of their own.

Not here: graphs (`graph`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from functorch.compile import min_cut_rematerialization_partition
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._dynamo import explain
from torch._dynamo.backends.common import aot_autograd
from torch._ops import OpOverload

from frontend.device import Device
from frontend.torch_compile.graph import CompiledGraph, GraphBreak
from frontend.torch_compile.operators import row
from hcq.errors import UsageError


@dataclass(frozen=True, slots=True)
class CompileSettings:
    """What `torch.compile(..., options={...})` takes."""

    device: str = "cpu"
    """The device that computes; on others than "cpu" all tensors are copied at each call."""

    @classmethod
    def of(cls, options: Mapping[str, Any] | None) -> CompileSettings:
        """Return the settings of options. Raises `UsageError` for another option or an unknown device."""
        unknown = sorted(set(options or {}) - set(cls.__slots__))
        if unknown:
            raise UsageError(
                f"torch.compile, options of hcq: wanted {', '.join(cls.__slots__)}, saw {', '.join(unknown)}"
            )
        made = cls(**(options or {}))
        return cls(Device.canonical(made.device))


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions of the operators that the table lacks."""
    every = {**decomposition_table, **core_aten_decompositions()}
    return {op: rule for op, rule in every.items() if isinstance(op, OpOverload) and row(op) is None}


def hcq(
    module: Any, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph of TorchDynamo; `torch.compile(model, backend="hcq")` calls it.

    Returns the compiled function of the graph. Raises `UnsupportedError` for an operator or dtype that is
    not supported, `UsageError` as `CompileSettings.of`; PyTorch wraps both in `BackendCompilerFailed`.
    """
    settings = CompileSettings.of(options)

    def compiled(graph: Any, _inputs: Sequence[Any]) -> Callable[..., Any]:
        run = CompiledGraph(graph, Device[settings.device])

        def boxed(given: list[Any]) -> list[Any]:
            return run(given)

        # AOTAutograd's sign of a function that takes a list
        boxed._boxed_call = True  # type: ignore[attr-defined]  # noqa: SLF001 - as above
        return boxed

    made: Callable[..., Any] = aot_autograd(
        fw_compiler=compiled,
        bw_compiler=compiled,
        inference_compiler=compiled,
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )(module, inputs)
    return made


def graph_breaks(function: Callable[..., Any], *args: Any, **names: Any) -> list[GraphBreak]:
    """Return the places where TorchDynamo splits a call of a function or module into several graphs.

    It runs the function without a back end, and drops what TorchDynamo has compiled before. Raises the
    errors of the function.
    """
    found = explain(function)(*args, **names)
    return [GraphBreak.of(reason) for reason in found.break_reasons]
