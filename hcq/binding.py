"""Values of Params: what may be given for one, and how many bits a number may have where it is stored.

Not here: what a `Param` or `Patch` is (`params`), storing the values in encoded words
(`hcq.replay.relocations` for graphs, `queue` for direct submissions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.errors import UsageError
from hcq.memory import Buffer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hcq.memory import Owner
    from hcq.params import Param, Patch

Value = Buffer | int | float


def resolve(param: Param, value: object, device: Owner) -> float:
    """Return the number that a value stands for, or refuse it: too small, closed, invisible, out of range."""
    if isinstance(value, Buffer):
        value.live()
        if value.size < param.size:
            raise UsageError(f"{param.name}: wanted at least {param.size} bytes, seen {value!r}")
        if not value.visible_to(device):
            raise UsageError(f"{param.name}: seen {value!r}, {value.unseen_by(device)}")
        return value.va
    if isinstance(value, int):
        lowest, highest = param.range()
        if not lowest <= value <= highest:
            raise UsageError(f"{param.name}: wanted {lowest} to {highest}, seen {value}")
        return value
    if isinstance(value, float):
        return value
    raise UsageError(f"{param.name}: wanted a Buffer or a number, seen {value!r}")


def look_up(param: Param, values: Mapping[Param, Value] | None) -> Value:
    """Return what was given for `param`. Raises `UsageError` if nothing was."""
    value = None if values is None else values.get(param)
    if value is None:
        given = ", ".join(other.name for other in values or ()) or "nothing"
        raise UsageError(f"no value was given for the parameter {param.name}; given: {given}")
    return value


def piece(patch: Patch, value: float) -> int:
    """Return the bits that a patch stores for a value."""
    return patch.expr.evaluate(value) & ((1 << patch.width) - 1)


def reaches(patches: Sequence[Patch]) -> list[int]:
    """Return for each patch how many bits its number may have; long ones are patched lowest piece first."""
    out: list[int] = []
    first = 0
    for i, patch in enumerate(patches):
        if i:
            last = patches[i - 1]
            joined = (
                patch.expr.param is last.expr.param
                and patch.expr.add == last.expr.add
                and patch.expr.shift == last.expr.shift + last.width
            )
            if not joined:
                out += [patches[i - 1].expr.shift + patches[i - 1].width] * (i - first)
                first = i
    if patches:
        out += [patches[-1].expr.shift + patches[-1].width] * (len(patches) - first)
    return out


def check_reach(patch: Patch, reach: int, value: float) -> None:
    """Refuse a number that does not fit the place it lands in."""
    patch.expr.evaluate(value)  # refuses a float where an integer belongs, and one too large
    if patch.expr.float_bits or not isinstance(value, int):
        return
    number, signed = value + patch.expr.add, patch.expr.param.signed
    lowest, end = (-(1 << reach - 1), 1 << reach - 1) if signed else (0, 1 << reach)
    if not lowest <= number < end:
        raise UsageError(f"{patch.expr.param.name}: {number} does not fit the {reach} bits where it is used")
