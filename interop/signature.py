"""What a kernel image states about its entry: parameters, shared memory, and workgroup size.

Not here: reading images (`interop.nvidia`, `interop.amdgpu`, `interop.host`). Next: `interop.kernel`, which
checks launches against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hcq.errors import UsageError, UsageTypeError
from hcq.program import ArgKind

if TYPE_CHECKING:
    from hcq.program import Dim3

_NUMBERS: Final = {"i": ArgKind.INT, "u": ArgKind.INT, "f": ArgKind.FLOAT}
_POINTER: Final = "pointer"


@dataclass(frozen=True, slots=True)
class KernelParameter:
    """One parameter of an entry."""

    name: str
    offset: int
    """Bytes from the start of the argument block."""
    size: int
    """Bytes. Another size than 1, 2, 4 or 8 is a structure by value, given as `bytes`."""
    kind: ArgKind | None
    """None: the image states only the size, and the value that a launch passes determines the kind."""
    whole: bool = False
    """Used if `kind` is None: whether it is an address or an integer, and no floating-point number."""

    def __str__(self) -> str:
        kind = self.kind.name.lower() if self.kind else "pointer or integer" if self.whole else "value"
        return f"{self.name}: {kind} of {self.size} bytes at {self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What an image states about one entry."""

    entry: str
    parameters: tuple[KernelParameter, ...]
    static_shared: int
    """Bytes of shared memory (LDS) of a workgroup that the image itself declares."""
    required_threads: Dim3 | None = None
    """The only workgroup size that the code supports; None: any."""
    max_threads: int = 1024
    """The most threads of a workgroup that the code was compiled for."""
    max_shape: Dim3 | None = None
    """The most threads of a workgroup along x, y and z on any GPU; None: all that `max_threads` allows."""

    grid_barrier: bool = False
    """Whether its workgroups meet at a barrier whose state is one variable of the loaded module."""

    @property
    def block_bytes(self) -> int:
        """Size of the argument block in bytes, a multiple of 8."""
        end = max((one.offset + one.size for one in self.parameters), default=0)
        return -(-end // 8) * 8

    def describe(self) -> str:
        """Return the parameters as text for errors."""
        return "; ".join(map(str, self.parameters)) or "no parameters"


def declared(types: Sequence[str]) -> tuple[KernelParameter, ...]:
    """Return parameters of the types `types`, each naturally aligned after the previous one.

    A type is "pointer", "i8" to "i64", "u8" to "u64", or "f16" to "f64". Raises `UsageError` for another
    type, `UsageTypeError` for no list of texts.

        declared(["pointer", "pointer", "i32"])
    """
    known = isinstance(types, Sequence) and all(isinstance(one, str) for one in types)
    if isinstance(types, str) or not known:
        raise UsageTypeError(f'wanted a list of types, such as ["pointer", "i32"], saw {types!r}')
    out: list[KernelParameter] = []
    at = 0
    for number, text in enumerate(types):
        bits = text[1:]
        if text == _POINTER:
            kind, size = ArgKind.POINTER, 8
        elif text[:1] in _NUMBERS and bits in {"8", "16", "32", "64"} and text != "f8":
            kind, size = _NUMBERS[text[0]], int(bits) // 8
        else:
            raise UsageError(
                f"argument {number} has the type {text!r}; types are 'pointer', 'i8' to 'i64', 'u8' to "
                "'u64', 'f16' to 'f64'"
            )
        at = -(-at // size) * size
        out.append(KernelParameter(f"arg{number}", at, size, kind))
        at += size
    return tuple(out)


def agree(found: Signature, types: Sequence[str]) -> Signature:
    """Return `found` with the kinds that the caller declares in `types`, for parameters whose kind is None.

    Raises `UsageError` if count, offset, size or kind contradict the image, and as `declared`.
    """
    wanted = declared(types)
    if len(wanted) != len(found.parameters):
        raise UsageError(
            f"kernel {found.entry} has {len(found.parameters)} parameters, {len(wanted)} were declared\n"
            f"hint: the image has: {found.describe()}"
        )
    merged = []
    for own, given in zip(found.parameters, wanted, strict=True):
        same = own.offset == given.offset and own.size == given.size
        wrong = own.kind not in {None, given.kind} or (own.whole and given.kind is ArgKind.FLOAT)
        if not same or wrong:
            raise UsageError(
                f"kernel {found.entry}: the image has {own}; declared was {given}\n"
                f"hint: the image has: {found.describe()}"
            )
        merged.append(KernelParameter(own.name, own.offset, own.size, given.kind))
    return replace(found, parameters=tuple(merged))
