"""AMDGPU code objects: entries, arguments and limits of a kernel, read from the metadata note.

Source: LLVM AMDGPUUsage, code object V5 metadata. Not here: NVIDIA's images (`interop.nvidia`). Next:
`drivers.amd.program`, uploading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from drivers.amd import code, metadata
from drivers.amd.layouts import chips
from drivers.amd.layouts.code import DESCRIPTOR_SUFFIX, HIDDEN_PREFIX
from drivers.elf import Elf, ElfMachine, malformed
from hcq.errors import UnsupportedError, UsageError
from hcq.program import ArgKind
from interop.signature import KernelParameter, Signature, declared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hcq.hardware import DeviceInfo

_BUNDLE: Final = b"__CLANG_OFFLOAD_BUNDLE__"
_POINTERS: Final = ("global_buffer", "dynamic_shared_pointer")
_OPTIONAL: Final = ("hidden_multigrid_sync_arg", "hidden_heap_v1", "hidden_default_queue")
"""Hidden arguments that a compiler leaves out if it detects which hidden arguments the kernel uses."""
_NO_SLOT: Final = ("sampler", "image", "pipe", "queue")


def is_code_object(elf: Elf) -> bool:
    """Return whether an ELF file is for AMD GPUs."""
    return elf.machine == ElfMachine.AMDGPU


def refuse_bundle(data: bytes) -> None:
    """Raise `UnsupportedError` for clang's bundle of several code objects."""
    if data.startswith(_BUNDLE):
        raise UnsupportedError(
            "this is a bundle of code objects\n"
            "hint: take out one with `clang-offload-bundler --unbundle --type=o --targets=...`"
        )


@malformed("the code object")
def from_code_object(
    data: bytes, info: DeviceInfo, entry: str, types: Sequence[str] | None
) -> tuple[bytes, Signature]:
    """Return the code object and the signature of `entry`; "": of its only kernel.

    `types` declare the parameters if the code object has no metadata. Raises `UsageError` for an unknown
    entry, for "" with several kernels, without metadata and types, and for a malformed file (`ElfError`).
    Raises `UsageTypeError` for types that are no list of texts, `UnsupportedError` for another architecture,
    and for a kernel that calls the host or takes images.
    """
    elf = Elf(data)
    kernels = [one for one in metadata.note(elf).get("amdhsa.kernels", ()) if isinstance(one, dict)]
    names = [str(one.get(".name", "")) for one in kernels]
    if not kernels:
        names = [
            one.name.removesuffix(DESCRIPTOR_SUFFIX)
            for one in elf.symbols
            if one.name.endswith(DESCRIPTOR_SUFFIX)
        ]
    have = ", ".join(names) or "none"
    if entry and entry not in names:
        raise UsageError(f"the code object has no kernel {entry!r}; it has: {have}")
    if not entry and len(names) != 1:
        raise UsageError(f"the code object has {len(names)} kernels: {have}\nhint: load(..., entry=NAME)")
    name = entry or names[0]
    _, kernel = code.read(data, name, chips.CHIPS[info.arch])
    own = next((one for one in kernels if one.get(".name") == name), None)
    if own is None and types is None:
        raise UsageError(
            f"kernel {name}: the code object has no metadata about its arguments\n"
            "hint: declare them: load(..., arguments=['pointer', 'i32'])"
        )
    _refuse_output(name, own or {})
    return data, Signature(
        entry=name,
        parameters=declared(types or ()) if own is None else _parameters(name, own),
        static_shared=kernel.fields.group_segment_fixed_size,
        required_threads=_required(own or {}),
        max_threads=kernel.max_threads or 1024,
    )


def _refuse_output(name: str, own: Mapping[str, Any]) -> None:
    """Raise `UnsupportedError` for a kernel that calls the host: `printf`, `assert`, `malloc`.

    A compiler that does not detect which hidden arguments are used lists all of them. Such code is accepted.
    """
    kinds = {str(one[".value_kind"]) for one in own.get(".args", ())}
    calls = "hidden_hostcall_buffer" in kinds and not kinds.issuperset(_OPTIONAL)
    if "hidden_printf_buffer" not in kinds and not calls:
        return
    what, buffer = "printf", "hidden_printf_buffer"
    if calls:
        what, buffer = "printf, assert or malloc", "hidden_hostcall_buffer"
    raise UnsupportedError(
        f"kernel {name} calls the host for {what} ({buffer}), which no service answers here\n"
        "hint: compile it without (-DNDEBUG for assert); PTX with printf and assert runs on nv and nv-emu"
    )


def _required(own: Mapping[str, Any]) -> tuple[int, int, int] | None:
    size = own.get(".reqd_workgroup_size")
    return (int(size[0]), int(size[1]), int(size[2])) if isinstance(size, list) and len(size) == 3 else None


def _parameters(name: str, own: Mapping[str, Any]) -> tuple[KernelParameter, ...]:
    """Return the explicit arguments, ordered by offset. Images and samplers raise `UnsupportedError`."""
    out = []
    for number, one in enumerate(own.get(".args", ())):
        kind = str(one[".value_kind"])
        if kind.startswith(HIDDEN_PREFIX):
            continue
        if kind in _NO_SLOT:
            raise UnsupportedError(f"kernel {name}: an argument is a {kind}, which is not supported")
        pointer = ArgKind.POINTER if kind in _POINTERS and int(one[".size"]) == 8 else None
        title = str(one.get(".name") or f"arg{number}")
        out.append(KernelParameter(title, int(one[".offset"]), int(one[".size"]), pointer))
    return tuple(sorted(out, key=lambda one: one.offset))
