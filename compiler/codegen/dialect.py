"""The LLVM IR text that differs between targets: a row of callables and strings for the renderer.

Not here: the renderer (`llvm_ir`), the rows (`compiler.targets`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compiler.targets.nvptx.expansion import Expansion


@dataclass(frozen=True, slots=True)
class Dialect:
    """The LLVM IR text that is specific to one target."""

    entry: Callable[[str, int, int], str]
    """(kernel name.

    Pointer arguments, integer arguments) -> the function's head up to and with `{` and `entry:`.
    """
    pointer: Callable[[int, str], list[str]]
    """(argument number, register) -> instructions that put the pointer there."""
    variable: Callable[[int, int, str], list[str]]
    """(integer argument number, pointer arguments, register) -> instructions that put the i64 there."""
    group: Callable[[int, str, int], list[str]]
    """(axis, register, workgroups along it) -> the workgroup's number as i64."""
    thread: Callable[[int, str], list[str]]
    """(axis, register) -> the thread's number in its workgroup as i64."""
    barrier: str = ""
    exchange: Callable[[str, str, int, int], list[str]] | None = None
    """(register, word, distance, threads) -> instructions that get the other thread's word."""
    shared_space: int = 0
    """LLVM's address space of workgroup memory; 0 is a target without."""
    spaces: Mapping[str, int] = field(default_factory=dict[str, int])
    """LLVM's address space of the pointers to each kind of memory: argument, scratch, shared, table.

    A kind that is not listed has generic pointers (address space 0)."""
    expansions: Mapping[tuple[str, str], Callable[[], Expansion]] = field(default_factory=dict)
    """(LLVM's instruction or intrinsic, dtype) -> what stands for it where it would become a call."""
    footer: str = ""
    """Text after the function.

    Attributes and metadata, which must define #0 and !0 = !{i32 1}; THREADS stands for the threads of a
    workgroup, ABSENT for the attributes that `absent` gives."""
    absent: Mapping[str, str] = field(default_factory=dict[str, str])
    """Function -> attribute of kernels that do not call it."""
