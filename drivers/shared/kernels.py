"""Checks of a kernel's image against its code, which are the same for every vendor.

Not here: reading code (`drivers.nv.cubin`, `drivers.amd.code`). Next: `drivers.nv.program`, a user.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from hcq.errors import UnsupportedError, UsageError
from hcq.program import KernelImage

_SLOT_SIZES: Final = (1, 2, 4, 8)
"""Valid sizes of an argument slot in bytes (`hcq.program.ArgSlot`)."""


class CodeParameter(Protocol):
    """One parameter of the code; offset and size are in bytes."""

    @property
    def offset(self) -> int: ...  # noqa: D102 - see the class
    @property
    def size(self) -> int: ...  # noqa: D102 - see the class


def check_stack(image: KernelImage, *, bounded: bool) -> None:
    """Raise `UnsupportedError` if neither the code (`bounded`) nor the image states the size of the stack."""
    if not bounded:
        raise UnsupportedError(
            f"kernel {image.name}: the code does not say how much stack it needs\n"
            "hint: give KernelImage.scratch_bytes, or compile without recursion and indirect calls"
        )


def check_arguments(image: KernelImage, read: int, parameters: Sequence[CodeParameter] | None) -> None:
    """Raise `UsageError` if the argument slots of an image contradict its code, which reads `read` bytes.

    A parameter of 1, 2, 4 or 8 bytes is one slot; one of another size, passed by value, may consist of
    several. `parameters` None: the code has no record of them.
    """
    name = f"kernel {image.name}"
    if read > image.kernarg_size:
        raise UsageError(
            f"{name}: the code reads {read} bytes of arguments, its image declares {image.kernarg_size}"
        )
    if parameters is None:
        return
    texts = {one.offset: f"{one.size} bytes at {one.offset}" for one in parameters}
    numbers = {one.offset: f"parameter {i} of the code" for i, one in enumerate(parameters)}
    hint = f"\nhint: the code takes {', '.join(texts.values()) or 'no arguments'}"
    filled: set[int] = set()
    for ordinal, slot in enumerate(image.args):
        what, seen = f"{name}, argument slot {ordinal} ({slot.name})", f"{slot.size} bytes at {slot.offset}"
        before = [one for one in parameters if one.offset <= slot.offset < one.offset + one.size]
        if not before:
            raise UsageError(f"{what}: seen {seen}, where the code has no parameter{hint}")
        one = before[0]
        within = slot.offset + slot.size <= one.offset + one.size
        if not within or (one.size in _SLOT_SIZES and slot.size != one.size):
            raise UsageError(f"{what}: wanted {numbers[one.offset]}, {texts[one.offset]}, seen {seen}{hint}")
        filled.add(one.offset)
    for at, text in texts.items():
        if at not in filled:
            raise UsageError(f"{name}: wanted an argument slot for {numbers[at]}, {text}, seen none{hint}")
