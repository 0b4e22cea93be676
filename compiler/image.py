"""Compiled kernels: the image with its launch size, and their bytes in a cache or on a pipe."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcq.program import ArgKind, ArgSlot, Dim3, KernelImage

if TYPE_CHECKING:
    from compiler.codegen import Arguments


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """What `compile_kernel` returns: an image and how many workgroups and threads to launch."""

    image: KernelImage
    groups: Dim3
    threads: Dim3


def slots(arguments: Arguments) -> tuple[ArgSlot, ...]:
    """The argument block: a pointer a buffer, then an int64 a variable."""
    out = []
    for k, access in enumerate(arguments.access):
        mode = "rw" if access == "rw" else "w" if access == "w" else "r"
        out.append(ArgSlot(f"b{k}", ArgKind.POINTER, 8 * k, 8, mode))  # type: ignore[arg-type]  # one of three literals
    base = len(out)
    out += [ArgSlot(name, ArgKind.INT, 8 * (base + k), 8, "r") for k, name in enumerate(arguments.variables)]
    return tuple(out)


def to_bytes(kernel: CompiledKernel) -> bytes:
    """One line of JSON with the facts, then the code."""
    image = kernel.image
    facts = {
        "name": image.name,
        "arch": image.arch,
        "args": [[a.name, a.kind.name, a.offset, a.size, a.access] for a in image.args],
        "kernarg_size": image.kernarg_size,
        "shared_bytes": image.shared_bytes,
        "scratch_bytes": image.scratch_bytes,
        "max_threads": image.max_threads,
        "group_ns": image.group_ns,
        "groups": kernel.groups,
        "threads": kernel.threads,
    }
    return json.dumps(facts, separators=(",", ":")).encode() + b"\n" + image.code


def from_bytes(data: bytes) -> CompiledKernel:
    """Inverse of `to_bytes`."""
    head, _, code = data.partition(b"\n")
    facts = json.loads(head)
    groups, threads = _dim3(facts.pop("groups")), _dim3(facts.pop("threads"))
    args = tuple(
        [
            ArgSlot(name, ArgKind[kind], offset, size, access)
            for name, kind, offset, size, access in facts.pop("args")
        ]
    )
    return CompiledKernel(KernelImage(code=code, args=args, **facts), groups, threads)


def _dim3(sizes: list[int]) -> Dim3:
    x, y, z = sizes
    return x, y, z
