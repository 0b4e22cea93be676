"""Loading of kernels of other compilers: PTX, cubins, AMDGPU code objects and host objects.

Not here: the reading of each format (`interop.nvidia`, `interop.amdgpu`, `interop.host`). Next:
`interop.kernel`, which launches.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from drivers.elf import Elf, ElfMachine
from hcq.device import Device
from hcq.errors import UnsupportedError, UsageError, UsageTypeError
from interop import amdgpu, host, nvidia
from interop.device_library import with_library
from interop.kernel import LoadedKernel
from interop.output import OUTPUT_BYTES, OutputRing
from interop.signature import agree

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from interop.signature import Signature


def load(
    device: Device,
    source: bytes | str | os.PathLike[str],
    *,
    entry: str = "",
    arguments: Sequence[str] | None = None,
    ptx: str = "",
    output_bytes: int = OUTPUT_BYTES,
) -> LoadedKernel:
    """Load one entry of an image for a device.

    Return the kernel, whose code is freed with its last reference.

    - `source`: PTX text, or the bytes of PTX, a cubin, an AMDGPU code object or a host object; or the path of
      a file that holds one of these. A `str` with a line break is PTX, any other `str` a path.
    - `entry`: the kernel's name; may be left out if the image has only one, but not for a host object.
    - `arguments`: the types of the parameters ("pointer", "i32", "f64"), checked against the image. Images
      without a record of their parameters need it: host objects, and code objects without metadata.
    - `ptx`: the PTX of a cubin. Emulated NVIDIA GPUs need it if the cubin does not contain it; hardware needs
      it only if the kernel prints or asserts.
    - `output_bytes`: size of the memory for the text that the kernel prints between two waits, a multiple of
      8 of at least 2048; text that does not fit is lost. Other sizes are refused only if the kernel prints or
      asserts.

    `printf` and `assert` of PTX write to memory on the host. The text is printed when a wait ends and the
    device is idle, at `Device.sync` and at `Device.close`. A failed assertion raises a `DeviceFault` that
    names it.

    Raises `UsageError` for a closed device if the kernel prints or asserts, a file that cannot be read, bytes
    of no known format, a malformed image, an unknown entry, and arguments that contradict the image;
    `UsageTypeError` for an argument of another type; `UnsupportedError` for an image of another GPU, for a
    bundle of several images and for a kernel that needs what the device lacks; `CompileError` for PTX that
    does not assemble; `OutOfMemoryError` and `DeviceFault` as `Device.alloc`.

        kernel = interop.load(device, "add.ptx")
    """
    if not isinstance(device, Device):
        raise UsageTypeError(f"wanted an open device, saw {device!r}\nhint: interop.load(device, source)")
    if not isinstance(ptx, str) or not isinstance(entry, str):
        raise UsageTypeError(f"wanted texts as entry= and ptx=, saw {entry!r} and {ptx!r}")
    if not isinstance(output_bytes, int) or output_bytes < 0:
        raise UsageTypeError(f"output_bytes: wanted an int of at least 0, saw {output_bytes!r}")
    data = _bytes(source)
    nvidia.refuse_fat(data)
    amdgpu.refuse_bundle(data)
    text = nvidia.printing(data, ptx)
    if text:
        _expect(device, "sm_", "PTX")
        ring = OutputRing(device, entry or "the module", output_bytes)
        data, ptx = with_library(text, ring.va, ring.size).encode(), ""
    code, found = _read(device, data, entry, arguments, ptx)
    if arguments is not None:
        found = agree(found, arguments)
    return LoadedKernel(device, code, found, ring if text else None)


def _bytes(source: bytes | str | os.PathLike[str]) -> bytes:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if isinstance(source, str) and "\n" in source:
        return source.encode()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise UsageError(f"wanted the path of an image, saw {source!r}: {error}") from error
    except TypeError:
        wanted = "the path of an image, its bytes, or PTX as text"
        raise UsageTypeError(f"wanted {wanted}, saw {source!r}") from None


def _read(
    device: Device, data: bytes, entry: str, types: Sequence[str] | None, text: str
) -> tuple[bytes, Signature]:
    info = device.info
    if nvidia.is_ptx(data):
        _expect(device, "sm_", "PTX")
        return nvidia.from_ptx(nvidia.text_of(data), info, entry)
    if not data.startswith(b"\x7fELF"):
        hint = "\nhint: interop.cuda.to_ptx(source, device.info.arch) compiles CUDA C++"
        raise UsageError(
            f"wanted PTX, a cubin, an AMDGPU code object or a host object, saw bytes that begin with "
            f"{data[:16]!r}{hint if b'__global__' in data else ''}"
        )
    elf = Elf(data)
    if nvidia.is_cubin(elf):
        _expect(device, "sm_", "a cubin")
        return nvidia.from_cubin(data, info, entry, text)
    if amdgpu.is_code_object(elf):
        _expect(device, "gfx", "an AMDGPU code object")
        return amdgpu.from_code_object(data, info, entry, types)
    if elf.machine in {ElfMachine.X86_64, ElfMachine.AARCH64} and info.driver == "cpu":
        return host.from_object(data, entry, types)
    raise UnsupportedError(f"the image is for ELF machine {elf.machine}, {device.name} is {info.arch}")


def _expect(device: Device, prefix: str, what: str) -> None:
    if not device.info.arch.startswith(prefix):
        names = {"sm_": "nv or nv-emu", "gfx": "amd or amd-emu"}[prefix]
        raise UnsupportedError(
            f"{what} does not run on {device.name}, which is {device.info.arch}\nhint: open {names}"
        )
