"""Values of the parameters of a direct submission: checked, and written into its words and arguments.

Not here: the parameters (`params`), the values of a replay (`hcq.replay.relocations`). Next: `queue`, the
caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.commands import check_ranges, opened
from hcq.errors import UsageTypeError
from hcq.memory import Buffer
from hcq.params import check_reach, look_up, piece, reaches, resolve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hcq.commands import Command
    from hcq.kernarg_ring import ArgumentRing
    from hcq.memory import Owner
    from hcq.params import Param, Value
    from hcq.pushbuffer import PushBuffer


def write_values(
    pushbuffer: PushBuffer,
    arguments: ArgumentRing,
    commands: Sequence[Command],
    values: Mapping[Param, Value] | None,
    device: Owner,
) -> list[Value]:
    """Write the values of Params into the encoded words of `commands`, and into their argument memory.

    Returns the values, to be kept while the submission is in flight. Raises `UsageError` for a Param without
    a value, or with one that does not fit; `UsageTypeError` for one of another class.
    """
    given: list[Value] = []
    pointers, _ = opened(commands)
    if values:
        for command in commands:
            check_ranges(command, values)
    for patch, reach in zip(pushbuffer.patches, reaches(pushbuffer.patches), strict=True):
        param = patch.expr.param
        value = look_up(param, values)
        if isinstance(value, Buffer) is not (param in pointers):
            wanted = "a Buffer" if param in pointers else "a number"
            raise UsageTypeError(f"{param.name}: wanted {wanted}, seen {value!r}")
        number = resolve(param, value, device, least=pointers.get(param, 0))
        check_reach(patch, reach, number)
        given.append(value)
        bits = piece(patch, number)
        if patch.target == "memory":
            arguments.write(patch.offset, patch.lo, patch.width, bits)
        else:
            pushbuffer.words[8 * patch.offset // pushbuffer.word_bits] |= bits << patch.lo
    return given
