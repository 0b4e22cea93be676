"""The text of a linear list in LLVM IR: the `Target.render` of every target that LLVM compiles.

Not here: how the list is made (`compiler.emit`), text that differs between targets (`compiler.targets`).
Next: `llvm_ir`, the renderer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compiler.emit.linear import Line
    from compiler.targets.shared.target import Target
    from hcq.program import Dim3


def render_llvm(  # noqa: PLR0917  # as `Target.render`
    lines: Sequence[Line], name: str, counts: tuple[int, int], target: Target, groups: Dim3, threads: int
) -> str:
    """Return the LLVM IR of a kernel. `counts` are its buffers and variables.

    `lines` must have passed `linear.verify`. The renderer is loaded here: a kernel from the disk cache needs
    none. Raises `CompileError` for a line that has no text.
    """
    from compiler.text.llvm_ir import render  # noqa: PLC0415  # see above

    return render(lines, name, *counts, target.dialect, groups=groups, threads=threads)
