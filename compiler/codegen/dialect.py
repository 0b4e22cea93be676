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
    """(kernel name, pointer arguments, integer arguments) -> the function's head, with `{` and `entry:`."""
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
    """(result register, value register, distance, threads) -> instructions that read another thread's value.

    The other thread's number is this one's XOR `distance`; None on a target without shuffles.
    """
    shared_space: int = 0
    """LLVM's address space of shared memory; 0 on a target that has none."""
    spaces: Mapping[str, int] = field(default_factory=dict[str, int])
    """LLVM's address space of the pointers to each kind of memory: argument, scratch, shared, table.

    A kind that is not listed has generic pointers (address space 0)."""
    expansions: Mapping[tuple[str, str], Callable[[], Expansion]] = field(default_factory=dict)
    """(LLVM's instruction or intrinsic, dtype) -> the expansion used where LLVM would call a library."""
    footer: str = ""
    """Attributes and metadata, the text after the function; it must define #0, and !0 = !{i32 1}.

    The renderer replaces THREADS by the workgroup's number of threads, ABSENT by those of `absent`.
    """
    absent: Mapping[str, str] = field(default_factory=dict[str, str])
    """Function name -> attribute that a kernel gets when it does not call that function."""
