"""PTX to cubin: in process by nvJitLink, or by a `ptxas` program; and the PTX put into the image it became.

The image carries its PTX in a section of its own, so that a dump can show it and an emulated GPU can run
it. Needs no GPU and no kernel driver. Not here: making the PTX (`targets.nvptx`), loading images (the
drivers).
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from hcq.errors import CompileError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PTX_SECTION: Final = ".hcq.ptx"
_INPUT_PTX: Final = 2  # nvJitLinkInputType NVJITLINK_INPUT_PTX, nvJitLink.h
_LIBRARY: Final = "libnvJitLink.so.13"
_CURE: Final = (
    "install the assembler with `pip install 'hcq[nv]'` (nvidia-nvjitlink 13), "
    "or put a CUDA 13 `ptxas` on the PATH"
)
_DECLARATIONS: Final = """
typedef struct nvJitLink *nvJitLinkHandle;
int nvJitLinkCreate(nvJitLinkHandle *, uint32_t, const char **);
int nvJitLinkDestroy(nvJitLinkHandle *);
int nvJitLinkAddData(nvJitLinkHandle, int, const void *, size_t, const char *);
int nvJitLinkComplete(nvJitLinkHandle);
int nvJitLinkGetLinkedCubinSize(nvJitLinkHandle, size_t *);
int nvJitLinkGetLinkedCubin(nvJitLinkHandle, void *);
int nvJitLinkGetErrorLogSize(nvJitLinkHandle, size_t *);
int nvJitLinkGetErrorLog(nvJitLinkHandle, char *);
int nvJitLinkVersion(unsigned int *, unsigned int *);
"""

Assembler = Literal["auto", "nvjitlink", "ptxas"]


def assemble(ptx: str, arch: str, *, assembler: Assembler = "auto", options: Sequence[str] = ()) -> bytes:
    """Assemble PTX for `arch` ("sm_90a") and return the cubin with the PTX inside.

    `auto` takes nvJitLink, and `ptxas` where that is not installed. Raises `CompileError` with the
    assembler's own text, `UnsupportedError` when there is no assembler. Thread-safe, and holds no lock of
    Python while it works.
    """
    return with_ptx(_assembler(assembler)(ptx, arch, options), ptx)


def available() -> str:
    """Say which assembler `auto` takes and its version; empty when there is none."""
    try:
        _assembler("auto")
    except UnsupportedError:
        return ""
    try:
        return nvjitlink_version()
    except UnsupportedError:
        return f"ptxas {_ptxas_path()}"


def _assembler(name: Assembler) -> Callable[[str, str, Sequence[str]], bytes]:
    if name == "ptxas":
        return _by_ptxas
    if name == "nvjitlink":
        return _by_nvjitlink
    if name != "auto":
        raise UsageError(f"assembler {name!r} is not known; there are: auto, nvjitlink, ptxas")
    try:
        _library()
    except UnsupportedError:
        _ptxas_path()
        return _by_ptxas
    return _by_nvjitlink


@cache
def _library() -> tuple[Any, Any]:
    """Return cffi and nvJitLink; neither has static types, and neither leaves this file."""
    try:
        from cffi import FFI  # noqa: PLC0415 - only those who assemble pay for it
    except ImportError as error:
        raise UnsupportedError(
            f"nvJitLink is called through cffi, which is not installed\nhint: {_CURE}"
        ) from error
    ffi = FFI()
    ffi.cdef(_DECLARATIONS)
    tried = []
    for path in _candidates():
        try:
            return ffi, ffi.dlopen(str(path))
        except OSError as error:
            tried.append(f"{path}: {error}")
    raise UnsupportedError(f"nvJitLink is not installed; tried: {'; '.join(tried)}\nhint: {_CURE}")


def _candidates() -> list[Path]:
    """Return where the library may be: the wheel's folder first, then wherever the system's loader looks."""
    found: list[Path] = []
    try:
        spec = find_spec("nvidia")  # a namespace of wheels, which need not be there
    except (ImportError, ValueError):
        spec = None
    for root in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
        found += sorted(root.glob(f"*/lib/{_LIBRARY}"))
    return [*found, Path(_LIBRARY)]


def nvjitlink_version() -> str:
    """Return nvJitLink's version in words; raises `UnsupportedError` when it is not installed."""
    ffi, library = _library()
    major, minor = ffi.new("unsigned int *"), ffi.new("unsigned int *")
    library.nvJitLinkVersion(major, minor)
    return f"nvJitLink {major[0]}.{minor[0]}"


def _by_nvjitlink(ptx: str, arch: str, options: Sequence[str]) -> bytes:
    ffi, lib = _library()
    texts = [ffi.new("char[]", text.encode()) for text in (f"-arch={arch}", *(options or ("-O3",)))]
    handle = ffi.new("nvJitLinkHandle *")
    code: int = lib.nvJitLinkCreate(handle, len(texts), ffi.new("char *[]", texts))
    if code:
        raise CompileError(f"nvJitLink refused arch {arch} or options {list(options)} (error {code})")
    try:
        data = ptx.encode() + b"\0"
        code = lib.nvJitLinkAddData(handle[0], _INPUT_PTX, data, len(data), b"kernel.ptx")
        if code or (code := lib.nvJitLinkComplete(handle[0])):
            raise CompileError(f"nvJitLink could not assemble for {arch} (error {code}):\n{_log(handle[0])}")
        size = ffi.new("size_t *")
        lib.nvJitLinkGetLinkedCubinSize(handle[0], size)
        cubin = ffi.new("char[]", size[0])
        lib.nvJitLinkGetLinkedCubin(handle[0], cubin)
        return bytes(ffi.buffer(cubin, size[0]))
    finally:
        lib.nvJitLinkDestroy(handle)


def _log(handle: object) -> str:
    ffi, lib = _library()
    size = ffi.new("size_t *")
    lib.nvJitLinkGetErrorLogSize(handle, size)
    text = ffi.new("char[]", size[0] + 1)
    lib.nvJitLinkGetErrorLog(handle, text)
    return bytes(ffi.string(text)).decode(errors="replace").strip()


def _ptxas_path() -> str:
    candidates = [str(path) for path in _nvidia_programs("ptxas")]
    found = next(iter(candidates), None) or shutil.which("ptxas")
    if found is None:
        raise UnsupportedError(f"there is neither nvJitLink nor ptxas\nhint: {_CURE}")
    return found


def _nvidia_programs(name: str) -> list[Path]:
    folders = [path.parent.parent / "bin" for path in _candidates()[:-1]]
    return [folder / name for folder in folders if (folder / name).exists()]


def _by_ptxas(ptx: str, arch: str, options: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="hcq-ptxas-") as folder:
        source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        command = [_ptxas_path(), f"-arch={arch}", *(options or ("-O3",)), "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileError(
                f"ptxas could not assemble for {arch}:\n{done.stderr.strip() or done.stdout.strip()}"
            )
        return target.read_bytes()


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_PROGBITS, _SECTION_ALIGN = 1, 8


def with_ptx(cubin: bytes, ptx: str) -> bytes:
    """Return the cubin with one more section, PTX_SECTION, which is not loaded by the vendor's tools.

    What was there stays where it is: names, the text and a new section table are appended.
    """
    head = list(_HEADER.unpack_from(cubin))
    table, size, count, names = head[6], head[11], head[12], head[13]
    if cubin[:4] != b"\x7fELF" or size != _SECTION.size:
        raise UsageError(f"no cubin: it begins with {cubin[:4]!r}")
    sections = [list(_SECTION.unpack_from(cubin, table + i * size)) for i in range(count)]
    text = ptx.encode() + b"\0"
    old = cubin[sections[names][4] : sections[names][4] + sections[names][5]]
    out = bytearray(cubin)
    out += bytes(-len(out) % _SECTION_ALIGN)
    sections[names][4:6] = [len(out), len(old) + len(PTX_SECTION) + 1]
    out += old + PTX_SECTION.encode() + b"\0"
    out += bytes(-len(out) % _SECTION_ALIGN)
    sections.append([len(old), _PROGBITS, 0, 0, len(out), len(text), 0, 0, 1, 0])
    out += text
    out += bytes(-len(out) % _SECTION_ALIGN)
    head[6], head[12] = len(out), len(sections)
    for section in sections:
        out += _SECTION.pack(*section)
    out[: _HEADER.size] = _HEADER.pack(*head)
    return bytes(out)


def ptx_of(cubin: bytes) -> str:
    """Return the PTX that `with_ptx` put in; raises `UsageError` when there is none."""
    from struct import unpack_from  # noqa: PLC0415 - beside its use

    head = _HEADER.unpack_from(cubin)
    sections = [_SECTION.unpack_from(cubin, head[6] + i * head[11]) for i in range(head[12])]
    start = sections[head[13]][4]
    for section in sections:
        end = cubin.index(b"\0", start + section[0])
        if cubin[start + section[0] : end].decode() == PTX_SECTION:
            return bytes(unpack_from(f"{section[5]}s", cubin, section[4])[0]).rstrip(b"\0").decode()
    raise UsageError(f"the cubin has no section {PTX_SECTION}: it was not assembled here")
