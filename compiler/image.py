"""Compiled kernels: an image with its launch size, and its serialization for caches and pipes.

Not here: making images (`compile`), the caches (`cache`). Next: `hcq.program`, which loads images.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcq.errors import UsageError
from hcq.objectfile import is_whole
from hcq.program import ArgKind, ArgSlot, Dim3, KernelImage

if TYPE_CHECKING:
    from compiler.pipeline import Arguments


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel's image, with the workgroups of its launch and the threads of a workgroup, by axis."""

    image: KernelImage
    groups: Dim3
    threads: Dim3


def slots(arguments: Arguments) -> tuple[ArgSlot, ...]:
    """Return the slots of the argument block: a pointer for each buffer, then an int64 for each variable."""
    out = []
    for k, access in enumerate(arguments.access):
        mode = "rw" if access == "rw" else "w" if access == "w" else "r"
        out.append(ArgSlot(f"b{k}", ArgKind.POINTER, 8 * k, 8, mode))  # type: ignore[arg-type]  # one of three literals
    base = len(out)
    out += [ArgSlot(name, ArgKind.INT, 8 * (base + k), 8, "r") for k, name in enumerate(arguments.variables)]
    return tuple(out)


def to_bytes(kernel: CompiledKernel) -> bytes:
    """Serialize a kernel as one line of JSON with its facts, followed by its code."""
    image = kernel.image
    sizes = {"groups": kernel.groups, "threads": kernel.threads}
    facts = {name: sizes[name] if name in sizes else getattr(image, name) for name in _FACTS}
    facts["args"] = [[a.name, a.kind.name, a.offset, a.size, a.access] for a in image.args]
    return json.dumps(facts, separators=(",", ":")).encode() + b"\n" + image.code


class MalformedError(ValueError):
    """The bytes are not a compiled kernel; the message names the first defect."""


def from_bytes(data: bytes, *, arch: str) -> CompiledKernel:
    """Return the kernel of bytes that `to_bytes` made for `arch`. Raises `MalformedError` for other bytes."""
    head, _, code = data.partition(b"\n")
    try:
        facts = json.loads(head)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"the facts of a kernel are not JSON: {error}") from error
    if not isinstance(facts, dict) or facts.keys() != _FACTS.keys():
        raise MalformedError(f"a kernel has the facts {', '.join(_FACTS)}, not {head[:200]!r}")
    for name, kind in _FACTS.items():
        if type(facts[name]) is not kind or (kind is int and facts[name] < 0):
            raise MalformedError(f"{name} of a kernel is {facts[name]!r}")
    if not is_whole(code):
        raise MalformedError(f"the code of a kernel, {len(code)} bytes, is not a complete object file")
    if facts["arch"] != arch:
        raise MalformedError(f"the kernel is for {facts['arch']!r}, not for {arch!r}")
    groups, threads = _dim3(facts.pop("groups")), _dim3(facts.pop("threads"))
    args = tuple([_slot(words) for words in facts.pop("args")])
    image = KernelImage(code=code, args=args, **facts)
    try:
        image.verify()
    except UsageError as error:
        raise MalformedError(str(error)) from error
    return CompiledKernel(image, groups, threads)


_FACTS: dict[str, type] = {
    "name": str, "arch": str, "args": list, "kernarg_size": int, "shared_bytes": int, "scratch_bytes": int,
    "max_threads": int, "group_ns": int, "groups": list, "threads": list,
}  # fmt: skip
"""Name of a fact of an image or of its launch -> its type in JSON."""


def _slot(words: object) -> ArgSlot:
    match words:
        case [str(name), str(kind), int(offset), int(size), "r" | "w" | "rw" as access] if (
            kind in ArgKind.__members__ and offset >= 0 and size > 0
        ):
            return ArgSlot(name, ArgKind[kind], offset, size, access)
    raise MalformedError(f"an argument of a kernel is {words!r}")


def _dim3(sizes: object) -> Dim3:
    match sizes:
        case [int(x), int(y), int(z)] if min(x, y, z) > 0:
            return x, y, z
    raise MalformedError(f"three sizes of at least 1 are expected, not {sizes!r}")
