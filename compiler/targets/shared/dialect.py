"""The LLVM IR text that differs between targets, as functions and strings for the renderer.

Not here: the dialects of the targets (`compiler.targets`). Next: `compiler.text.llvm_ir`, the renderer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from compiler.targets.nvptx.expansion import Expansion
    from compiler.targets.shared.matrix import MatrixOp, SharedProducts


@dataclass(frozen=True, slots=True)
class Staging:
    """The text of asynchronous copies to shared memory, and of loads of matrix fragments from there."""

    copy: Callable[[str, str, str, str], tuple[list[str], str]]
    """(prefix, shared address, global address, i64 with the number of bytes to read, or "" for 16) ->
    instructions that write these bytes and zeros, 16 bytes together, and the intrinsic's declaration."""
    commit: tuple[str, str]
    """The instruction that makes a group of all copies since the last group, and its declaration."""
    wait: Callable[[int], tuple[str, str]]
    """(number) -> the instruction that waits until at most that many groups are in flight, and its
    declaration."""
    fragments: Callable[..., tuple[list[str], str]]
    """(result register, address, turned=) -> instructions that load four 8 x 8 matrices of 16-bit values, of
    which each lane addresses a row, and the intrinsic's declaration. `turned` transposes the matrices."""
    publish: str
    """The instruction after which matrix operations see what this thread has written to shared memory."""
    issue: Callable[[str, str, str, str, SharedProducts], list[str]]
    """(result register, address of A, address of B, register of the accumulators, operations) -> instructions
    that start matrix operations on tiles in shared memory."""
    settle: Callable[[str, str, int], list[str]]
    """(result register, register of the accumulators, their number) -> instructions that wait for them."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The LLVM IR text that is specific to one target."""

    entry: Callable[[str, int, int], str]
    """(kernel name, number of pointers, number of integers) -> the function's head, with `{` and `entry:`."""
    pointer: Callable[[int, str], list[str]]
    """(argument number, register) -> instructions that load the pointer into the register."""
    variable: Callable[[int, int, str], list[str]]
    """(integer argument number, number of pointers, register) -> instructions that load the i64."""
    group: Callable[[int, str, int], list[str]]
    """(axis, register, number of workgroups along it) -> instructions for the workgroup's index as i64."""
    thread: Callable[[int, str], list[str]]
    """(axis, register) -> instructions for the thread's index in its workgroup as i64."""
    barrier: str = ""
    """The instruction at which all threads of a workgroup wait; "" on a target without threads."""
    exp2: str = ""
    """LLVM's intrinsic of the instruction that approximates 2 to the power of a float32; "" without one."""
    phase: str = ""
    """The instruction across which LLVM's scheduler moves nothing; "" where a later assembler schedules."""
    ordered: tuple[str, str] = ("", "")
    """The instruction that orders stores which bypass the caches before the kernel's return, and its
    declaration; empty if these stores are ordered like all others."""
    exchange: Callable[[str, str, int, int], list[str]] | None = None
    """(result register, value register, distance, threads) -> instructions that read another thread's value.

    The other thread's index is this thread's index XOR `distance`. None on a target without such exchanges.
    """
    matrix: Callable[[MatrixOp, str, list[str], str], tuple[list[str], str]] | None = None
    """(operation, result register, registers of the words of A and B, register of the accumulators) ->
    instructions, and the intrinsic's declaration. None on a target without matrix operations."""
    staging: Staging | None = None
    """None on a target without asynchronous copies."""
    shared_space: int = 0
    """LLVM's address space of shared memory; 0 on a target without shared memory."""
    spaces: Mapping[str, int] = field(default_factory=dict[str, int])
    """LLVM's address space of the pointers to each kind of memory: argument, scratch, shared, table.

    Other kinds have generic pointers (address space 0)."""
    opaque: str = ""
    """The constraint of inline assembly for a vector register, on a target on which `llvm_ir.read_mask` must
    hide from LLVM how a mask was made; "" on other targets."""
    half: str = ""
    """LLVM's intrinsic that rounds float32 to float16, without its types; "" for the instruction fptrunc."""
    expansions: Mapping[tuple[str, str], Callable[[], Expansion]] = field(default_factory=dict)
    """(LLVM's instruction or intrinsic, dtype) -> the expansion that replaces a library call."""
    footer: str = ""
    """The text after the function: declarations, attributes and metadata. It must define #0, and !0 as
    !{i32 1}. The renderer replaces THREADS by the number of threads of a workgroup, and ABSENT by attributes
    of `absent`."""
    absent: Mapping[str, str] = field(default_factory=dict[str, str])
    """Function name -> the attribute of kernels that do not call that function."""
