"""Kernels whose stores bypass the caches, for buffers of every alignment.

The address of such a store must be a multiple of its size. The device allocates buffers so, but a part of a
buffer (`hcq.Buffer.view`) may start anywhere. The kernel has two versions of its instructions: one bypasses
the caches, the other does not. It takes the first one if the buffers that it stores to are aligned.

Not here: which stores bypass the caches (`compiler.emit.accesses`). Next: `compiler.text.llvm_ir`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.emit.linear import Line
    from compiler.text.llvm_text import Text

LABEL = "streamed"
"""The first basic block of the version that bypasses the caches."""


def places(lines: Sequence[Line]) -> dict[int, int]:
    """Return {argument number: alignment in bytes} of the buffers with stores that bypass the caches."""
    found: dict[int, int] = {}
    for line in lines:
        if line.op == "store" and line.arg == "stream":
            pointer, value = line.src
            while pointer.op == "offset":
                pointer = pointer.src[0]
            assert isinstance(pointer.arg, int)
            size = value.dtype.itemsize * value.lanes
            found[pointer.arg] = max(size, found.get(pointer.arg, 0))
    return found


def versions(text: Text, name: str, head: str, aligned: dict[int, int]) -> tuple[list[str], list[str]]:
    """Return (the function with stores through the caches, the lines of the kernel that selects a version).

    `text` has the rendered lines, from the block `LABEL` on; `head` is the text before them. `aligned` is the
    result of `places`.
    """
    inner = f"{name}_through"
    plain = [text.through.get(number, line) for number, line in enumerate(text.lines)]
    function = [
        head.replace("define", "define internal", 1).replace(f"@{name}(", f"@{inner}(", 1),
        *text.top,
        f"  br label %{LABEL}",
        f"{LABEL}:",
        *plain,
        "  ret void",
        "}",
    ]
    lines = []
    for number in aligned:
        lines += text.dialect.pointer(number, f"%at{number}")
        lines.append(f"  %low{number} = ptrtoint ptr %at{number} to i64")
    every, *others = aligned
    merged = f"%low{every}"
    for number in others:
        lines.append(f"  %any{number} = or i64 {merged}, %low{number}")
        merged = f"%any{number}"
    parameters = head[head.index("(") : head.index(")") + 1]
    lines += [
        f"  %rest = and i64 {merged}, {max(aligned.values()) - 1}",
        "  %whole = icmp eq i64 %rest, 0",
        f"  br i1 %whole, label %{LABEL}, label %through",
        "through:",
        f"  musttail call void @{inner}{parameters}",
        "  ret void",
        f"{LABEL}:",
        *text.lines,
    ]
    fence, declaration = text.dialect.ordered
    if fence:
        lines.append(f"  {fence}")
        text.declared[declaration] = None
    return function, lines
