"""Operators that run graphs: If, Loop, Scan.

Conditions and trip counts that are not on the host are read from the device by the call. Loops are unrolled.

Raises `UsageError` for other numbers of values than a graph has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from frontend.onnx.values import as_array, as_tensor, axis_in, is_host
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.onnx.rows import Callee


def branch(condition: Any, *, then_branch: Callee, else_branch: Callee, _scope: Any) -> Any:
    """If: runs one of two graphs."""
    found = as_array(condition).reshape(-1)
    if len(found) != 1:
        raise UsageError(f"wanted one condition, saw {len(found)}")
    return tuple((then_branch if found[0] else else_branch).call(_scope, []))


def stacked(parts: list[Any], axis: int = 0) -> Any:
    """Return values joined along a new axis."""
    if all(is_host(p) for p in parts):
        return np.stack(parts, axis)
    return Tensor.stack([as_tensor(p) for p in parts], axis=axis)


def loop(count: Any, condition: Any = None, *carried: Any, body: Callee, _scope: Any) -> Any:
    """Loop: runs a graph up to `count` times, while its first output is true."""
    most = None if count is None else int(as_array(count).reshape(-1)[0])
    going = condition is None or bool(as_array(condition).reshape(-1)[0])
    values, rows, n = list(carried), [], 0
    while going and (most is None or n < most):
        again, *found = body.call(_scope, [np.array(n, np.int64), np.array(True), *values])
        values = found[: len(values)]
        rows.append(found[len(values) :])
        going = again is None or bool(as_array(again).reshape(-1)[0])
        n += 1
    wide = len(body.outputs) - 1 - len(values)
    if wide and not rows:
        raise UsageError("a loop without a turn has no shapes for what it collects")
    return *values, *[stacked([row[i] for row in rows]) for i in range(wide)]


def scan(
    *given: Any, body: Callee, num_scan_inputs: int, scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None, scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None, _scope: Any,
) -> Any:  # fmt: skip
    """Scan: runs a graph for the slices of its last inputs."""
    states = list(given[: len(given) - num_scan_inputs])
    scanned = given[len(given) - num_scan_inputs :]
    axes = scan_input_axes or [0] * num_scan_inputs
    back = scan_input_directions or [0] * num_scan_inputs
    along = [axis_in(a, len(x.shape)) for a, x in zip(axes, scanned, strict=True)]
    if not scanned or len({x.shape[a] for x, a in zip(scanned, along, strict=True)}) != 1:
        raise UsageError("wanted inputs of one length")
    count, rows = scanned[0].shape[along[0]], []
    for n in range(count):
        parts = [
            x[(*(slice(None),) * a, count - 1 - n if b else n)]
            for x, a, b in zip(scanned, along, back, strict=True)
        ]
        found = body.call(_scope, [*states, *parts])
        states = found[: len(states)]
        rows.append(found[len(states) :])
    wide = len(body.outputs) - len(states)
    if wide and not rows:
        raise UsageError("a scan of no slice has no shapes for what it collects")
    axes, back = scan_output_axes or [0] * wide, scan_output_directions or [0] * wide
    joined = [stacked([row[i] for row in (rows[::-1] if back[i] else rows)], axes[i]) for i in range(wide)]
    return *states, *joined


def scan_batched(
    _lengths: Any, *given: Any, body: Callee, num_scan_inputs: int, directions: list[int] | None = None,
    _scope: Any,
) -> Any:  # fmt: skip
    """Scan of opset 8: each row of a batch."""
    if _lengths is not None:
        raise UsageError("lengths of sequences are not supported")
    rows = [
        scan(*[x[b] for x in given], body=body, num_scan_inputs=num_scan_inputs,
             scan_input_directions=directions, _scope=_scope)
        for b in range(given[0].shape[0])
    ]  # fmt: skip
    return tuple([stacked([row[i] for row in rows]) for i in range(len(rows[0]))])
