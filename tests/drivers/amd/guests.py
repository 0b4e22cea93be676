"""Kernels of other compilers as images: code objects in `triton` and `opencl`, and what their tables say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hcq.program import ArgKind, ArgSlot, KernelImage

_HERE = Path(__file__).parent
TRITON, OPENCL = _HERE / "triton", _HERE / "opencl"
_SIZES = {"*": 8, "i32": 4, "fp32": 4}


@dataclass(frozen=True, slots=True)
class Guest:
    """A compiled kernel of another compiler."""

    image: KernelImage
    threads: int
    """Work-items of a workgroup, 0 where the launch decides."""


def guest(folder: Path, name: str, arch: str) -> Guest:
    """Return a kernel of a folder's table. Slots lie at their natural alignment."""
    row = json.loads((folder / "kernels.json").read_text())[f"{name}_{arch}"]
    slots: list[ArgSlot] = []
    end = 0
    for number, type_ in enumerate(row["arguments"]):
        size = _SIZES[type_ if type_ in _SIZES else type_[0]]
        kind = ArgKind.POINTER if type_[0] == "*" else ArgKind.FLOAT if type_[0] == "f" else ArgKind.INT
        at = -(-end // size) * size
        slots.append(ArgSlot(f"a{number}", kind, at, size))
        end = at + size
    image = KernelImage(
        name=row["kernel"], arch=arch, code=(folder / row["file"]).read_bytes(), args=tuple(slots),
        kernarg_size=-(-end // 8) * 8, shared_bytes=row["shared_bytes"],
    )  # fmt: skip
    return Guest(image, row.get("threads", 0))


def names(folder: Path) -> list[str]:
    """Return every row of a folder's table."""
    return list(json.loads((folder / "kernels.json").read_text()))
