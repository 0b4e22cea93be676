"""NVIDIA images: PTX, which is assembled, and cubins, its assembled form.

Not here: reading PTX text (`interop.ptx`). Next: `drivers.nv.program`, uploading.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from compiler.targets.nvptx.assembler import assemble, ptx_of, with_ptx
from drivers.elf import UNDEFINED, Elf, ElfMachine, malformed
from drivers.nv import cubin
from drivers.nv.layouts.cubin import FIRST_SM_WITH_RESERVE, PTX_SECTION, RESERVED_SHARED, Section
from hcq import registry
from hcq.errors import UnsupportedError, UsageError
from interop import device_library, ptx
from interop.signature import KernelParameter, Signature

if TYPE_CHECKING:
    from hcq.hardware import DeviceInfo

_FATBIN: Final = b"\x50\xed\x55\xba"
_MOST_THREADS: Final = 1024
_MOST_SHAPE: Final = (1024, 1024, 64)
"""Threads of a workgroup along each axis: CUDA C++ Programming Guide, technical specifications."""
_SM: Final = re.compile(r"sm_(\d+)([af]?)")
_LIBCUDA: Final = frozenset({"vprintf", "__assertfail"})
"""Functions that libcuda defines at load time, and `interop.device_library` before assembly."""


def is_ptx(data: bytes) -> bool:
    """Return whether `data` is PTX text: its first statement is `.version`."""
    head = data[:65536].decode("latin-1")
    lines = (line.strip() for line in head.splitlines())
    first = next((line for line in lines if line and not line.startswith("//")), "")
    return first.startswith(".version")


def is_cubin(elf: Elf) -> bool:
    """Return whether an ELF file is for NVIDIA GPUs."""
    return elf.machine == ElfMachine.CUDA


def refuse_fat(data: bytes) -> None:
    """Raise `UnsupportedError` for a fat binary, which holds cubins of several architectures."""
    if data.startswith(_FATBIN):
        raise UnsupportedError(
            "this is a fat binary of several cubins\n"
            "hint: take out one with `cuobjdump -xelf all`, or the PTX with `cuobjdump -xptx all`"
        )


def text_of(data: bytes) -> str:
    """Return PTX as text. Raises `UsageError` for bytes that are no UTF-8."""
    try:
        return data.rstrip(b"\0").decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"wanted PTX as UTF-8: {error}") from None


@malformed("the cubin")
def printing(data: bytes, text: str) -> str:
    """Return the PTX of an image that prints or has assertions; empty for other images.

    `text` is the PTX of a cubin, if the caller has it. Raises `UnsupportedError` for a cubin that prints and
    has no PTX, and for a kernel that allocates memory; `UsageError` for a malformed image (`ElfError`).
    """
    if is_ptx(data):
        text = text_of(data)
    elif data.startswith(b"\x7fELF") and is_cubin(Elf(data)):
        elf = Elf(data)
        if not text and elf.section(PTX_SECTION) is not None:
            text = ptx_of(data)
        missing = sorted({one.name for one in elf.symbols if one.section == UNDEFINED} & _LIBCUDA)
        if missing and not text:
            raise UnsupportedError(
                f"this cubin wants {' and '.join(missing)} of libcuda, and is already assembled\n"
                "hint: load its PTX, or pass it: load(..., ptx=text)"
            )
    else:
        return ""
    device_library.refuse_heap(text)
    return text if device_library.wanted(text) else ""


def from_ptx(text: str, info: DeviceInfo, entry: str) -> tuple[bytes, Signature]:
    """Assemble PTX for a device; return the cubin, which contains the PTX, and the signature of `entry`.

    `entry` "" means the only entry. Raises `CompileError` with the assembler's message; `UnsupportedError` if
    no assembler is installed, for PTX of a later architecture and for a kernel that uses what the device
    lacks; `UsageError` for an unknown entry, for "" with several entries, and for malformed parameters.
    """
    name = _chosen([one.name for one in ptx.entries(text)], entry, "the PTX")
    _refuse_target(text, info)
    _refuse_addresses(text, info)
    text = ptx.with_grid_barrier(text)
    _refuse_lacking(text, name, info)
    code = assemble(text, info.arch)
    return code, _signature(code, name, text)


@malformed("the cubin")
def from_cubin(data: bytes, info: DeviceInfo, entry: str, text: str) -> tuple[bytes, Signature]:
    """Return a cubin, with its PTX if that is known, and the signature of `entry`; "": of its only kernel.

    `text` is the PTX from which the cubin was assembled, or "": then the copy in the cubin is used, if there
    is one. Raises `UnsupportedError` for a cubin without PTX on an emulated GPU, and for a cubin of another
    architecture: machine code runs on its own architecture and on later minor revisions of it. Raises
    `UsageError` for an unknown entry, for PTX with other parameters, and for a malformed cubin (`ElfError`).
    """
    elf = Elf(data)
    own = elf.section(PTX_SECTION) is not None
    if text and not own:
        data, own = with_ptx(data, text), True
    if not own and not registry.parse(info.driver)[0].hardware:
        raise UnsupportedError(
            f"{info.driver} runs PTX, and this cubin has none; machine code of NVIDIA runs on hardware only\n"
            "hint: load the PTX, or pass the PTX of which the cubin was assembled: load(..., ptx=text)"
        )
    _refuse_addresses(text or (ptx_of(data) if own else ""), info)
    names = [one.name.removeprefix(Section.TEXT) for one in elf.sections if one.name.startswith(Section.TEXT)]
    known = [one for one in names if elf.section(f"{Section.CONSTANT0}{one}") is not None]
    name = _chosen(known, entry, "the cubin")
    _refuse_machine(data, name, info)
    _refuse_lacking(text or (ptx_of(data) if own else ""), name, info)
    return data, _signature(data, name, ptx_of(data) if own else "")


def _refuse_target(text: str, info: DeviceInfo) -> None:
    """Raise `UnsupportedError` for PTX of a later architecture, or of another than its own ("sm_90a")."""
    wanted, own = _SM.fullmatch(ptx.target(text)), _SM.fullmatch(info.arch)
    if wanted is None or own is None:
        return
    if int(wanted[1]) > int(own[1]) or (wanted[2] and wanted[1] != own[1]):
        raise UnsupportedError(
            f"the PTX is for {wanted[0]}, the device is {own[0]}, which runs PTX of its own and of earlier "
            f"architectures without a letter\nhint: compile for {info.arch}, or open a GPU of {wanted[0]}"
        )


def _refuse_machine(data: bytes, name: str, info: DeviceInfo) -> None:
    """Raise `UnsupportedError` for machine code of another major architecture, or of a later minor one."""
    own = _SM.fullmatch(info.arch)
    sm = cubin.read(data, name)[2].sm
    if own is not None and (sm // 10 != int(own[1]) // 10 or sm > int(own[1])):
        raise UnsupportedError(
            f"the cubin is for sm_{sm}, the device is {info.arch}, which runs machine code of its own and of "
            f"earlier minor revisions\nhint: load the PTX, compile for {info.arch}, or open a GPU of sm_{sm}"
        )


def _refuse_addresses(text: str, info: DeviceInfo) -> None:
    """Raise `UnsupportedError` on hardware for code that takes generic addresses of kernel parameters."""
    if registry.parse(info.driver)[0].hardware and ptx.takes_addresses(text):
        raise UnsupportedError(
            "the PTX takes the address of a kernel parameter (cvta.param), as tensor descriptors made on the "
            f"host do; {info.driver} does not know the generic address of the parameters\n"
            "hint: make the descriptor in the kernel (tl.make_tensor_descriptor), or pass it in memory; "
            f"nv-emu:{info.arch} runs it"
        )


def _refuse_lacking(text: str, name: str, info: DeviceInfo) -> None:
    """Raise `UnsupportedError` for a kernel that uses what its device lacks."""
    found = ptx.lacking(text, name, emulated=not registry.parse(info.driver)[0].hardware)
    if found is not None:
        raise UnsupportedError(
            f"kernel {name} uses {found[0]}: {info.driver} does not support it\nhint: {found[1]}"
        )


def _chosen(names: list[str], entry: str, what: str) -> str:
    """Return the entry to load: the one named, or the only one. Raises `UsageError`."""
    have = ", ".join(names) or "none"
    if entry and entry not in names:
        mangled = any(one.startswith("_Z") for one in names)
        hint = f'\nhint: declare it extern "C" __global__ void {entry}(...)' if mangled else ""
        raise UsageError(f"{what} has no entry {entry!r}; it has: {have}{hint}")
    if not entry and len(names) != 1:
        raise UsageError(f"{what} has {len(names)} entries: {have}\nhint: load(..., entry=NAME)")
    return entry or names[0]


def _signature(code: bytes, name: str, text: str) -> Signature:
    """Return what the cubin states, with the names and kinds of parameters that its PTX states.

    Raises `UsageError` if the PTX and the cubin have different parameters.
    """
    _, _, kernel = cubin.read(code, name)
    own = next((one for one in ptx.entries(text, kernel.parameter_base) if one.name == name), None)
    if own is not None:
        parameters = own.parameters
    else:
        parameters = tuple(
            KernelParameter(f"param_{one.ordinal}", one.offset, one.size, None) for one in kernel.parameters
        )
    records = tuple((one.offset, one.size) for one in kernel.parameters)
    if own is not None and records and records != tuple((one.offset, one.size) for one in parameters):
        raise UsageError(
            f"kernel {name}: the PTX has parameters (offset, size) "
            f"{[(one.offset, one.size) for one in parameters]}, the cubin has {list(records)}\n"
            "hint: pass the PTX from which this cubin was assembled"
        )
    reserve = RESERVED_SHARED if kernel.sm >= FIRST_SM_WITH_RESERVE else 0
    return Signature(
        entry=name,
        parameters=parameters,
        static_shared=max(0, kernel.shared_bytes - reserve),
        required_threads=kernel.required_threads,
        max_threads=min(kernel.max_threads or _MOST_THREADS, _MOST_THREADS),
        max_shape=_MOST_SHAPE,
        grid_barrier=ptx.has_grid_barrier(text, name),
    )
