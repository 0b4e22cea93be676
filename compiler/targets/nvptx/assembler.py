"""Assembly of PTX to cubins, in process by nvJitLink or by the program `ptxas`.

The cubin contains its PTX in an additional section, which dumps show and emulated GPUs execute, and the
assembler's table of PTX lines, with which reports of faults name a line. Neither a GPU nor a kernel driver is
needed.

Not here: making the PTX (`target`). Next: `drivers.nv`, which loads cubins.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from hcq.errors import CompileError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PTX_SECTION: Final = ".hcq.ptx"
_LINES: Final = "-lineinfo"
"""The option of both assemblers that keeps the table of PTX lines; it does not change instructions."""
_INPUT_PTX: Final = 2  # nvJitLinkInputType NVJITLINK_INPUT_PTX, nvJitLink.h
_LIBRARY: Final = "libnvJitLink.so.13"
_HINT: Final = (
    "install the assembler with `pip install 'nvidia-nvjitlink>=13.0,<14'`, "
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
    """Assemble PTX for `arch` ("sm_90a") and return the cubin, which contains the PTX.

    `auto` uses nvJitLink, or `ptxas` if nvJitLink is not installed. Raises `CompileError` with the
    assembler's message, `UnsupportedError` if there is no such assembler, `UsageError` for another name.
    Several threads may call it; the GIL is released while the assembler runs.
    """
    return with_ptx(without_text(_assembler(assembler)(ptx, arch, options)), ptx)


def available() -> str:
    """Return the name and version of the assembler that `auto` selects; empty if there is none."""
    for name in (nvjitlink_version, lambda: f"ptxas {_ptxas_path()}"):
        with suppress(UnsupportedError):
            return name()
    return ""


@cache
def identity() -> str:
    """Return a text that identifies the assemblers that `auto` may select, without loading them.

    Files with equal names, sizes and modification times count as the same assembler.
    """
    program = shutil.which("ptxas")
    files = [*_candidates()[:-1], *_nvidia_programs("ptxas"), *([Path(program)] if program else [])]
    return "; ".join(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files)


def _assembler(name: Assembler) -> Callable[[str, str, Sequence[str]], bytes]:
    if name == "ptxas":
        return _by_ptxas
    if name == "nvjitlink":
        return _by_nvjitlink
    if name != "auto":
        raise UsageError(f"assembler {name!r} is not known; there are: auto, nvjitlink, ptxas")
    with suppress(UnsupportedError):
        _library()
        return _by_nvjitlink
    with suppress(UnsupportedError):
        _ptxas_path()
        return _by_ptxas
    raise UnsupportedError(f"there is neither nvJitLink nor ptxas\nhint: {_HINT}")


@cache
def _library() -> tuple[Any, Any]:
    """Return cffi's interface and nvJitLink, both untyped. Raises `UnsupportedError` if one is missing."""
    try:
        from cffi import FFI  # noqa: PLC0415 - needed only to assemble
    except ImportError as error:
        raise UnsupportedError(
            f"nvJitLink is called through cffi, which is not installed\nhint: {_HINT}"
        ) from error
    ffi = FFI()
    ffi.cdef(_DECLARATIONS)
    tried = []
    for path in _candidates():
        try:
            return ffi, ffi.dlopen(str(path))
        except OSError as error:
            tried.append(f"{path}: {error}")
    raise UnsupportedError(f"nvJitLink is not installed; tried: {'; '.join(tried)}\nhint: {_HINT}")


def _candidates() -> list[Path]:
    """Return the possible paths of the library: in the wheel's folder, then in the loader's search path."""
    found: list[Path] = []
    try:
        spec = find_spec("nvidia")  # a namespace package of wheels; it may be missing
    except (ImportError, ValueError):
        spec = None
    for root in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
        found += sorted(root.glob(f"*/lib/{_LIBRARY}"))
    return [*found, Path(_LIBRARY)]


def nvjitlink_version() -> str:
    """Return nvJitLink's name and version. Raises `UnsupportedError` if it is not installed."""
    ffi, library = _library()
    major, minor = ffi.new("unsigned int *"), ffi.new("unsigned int *")
    library.nvJitLinkVersion(major, minor)
    return f"nvJitLink {major[0]}.{minor[0]}"


def _by_nvjitlink(ptx: str, arch: str, options: Sequence[str]) -> bytes:
    """Assemble with nvJitLink; see `assemble`. By default optimise with -O3."""
    ffi, lib = _library()
    texts = [ffi.new("char[]", text.encode()) for text in (f"-arch={arch}", _LINES, *(options or ("-O3",)))]
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
    for found in (*_nvidia_programs("ptxas"), shutil.which("ptxas")):
        if found is not None:
            return str(found)
    raise UnsupportedError(f"there is no ptxas on the PATH\nhint: {_HINT}")


def _nvidia_programs(name: str) -> list[Path]:
    folders = [path.parent.parent / "bin" for path in _candidates()[:-1]]
    return [folder / name for folder in folders if (folder / name).exists()]


def _by_ptxas(ptx: str, arch: str, options: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="hcq-ptxas-") as folder:
        source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        command = [_ptxas_path(), f"-arch={arch}", _LINES, *(options or ("-O3",))]
        command += ["-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileError(
                f"ptxas could not assemble for {arch}:\n{done.stderr.strip() or done.stdout.strip()}"
            )
        return target.read_bytes()


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_PROGBITS, _SECTION_ALIGN, _LARGEST_ALIGN = 1, 8, 128
_SEGMENT_TYPE_AND_FLAGS = 8
_TEXT_SECTION: Final = ".nv_debug_ptx_txt"
"""The section in which the assemblers store a copy of the PTX without comments, beside the table of lines."""


def without_text(cubin: bytes) -> bytes:
    """Return the cubin without the assembler's copy of the PTX; `with_ptx` adds the complete text.

    The bytes after the copy move forward by a multiple of the largest alignment. Raises `UsageError` for a
    file that is no cubin.
    """
    head, sections, names = _tables(cubin)
    out = bytearray(cubin)
    for index, section in enumerate(sections):
        if not names[index].startswith(_TEXT_SECTION):
            continue
        start, size = section[4:6]
        cut = size & -_LARGEST_ALIGN
        out[start : start + size] = bytes(size - cut)
        section[5] = 0
        for other in sections:
            other[4] -= cut if other[4] >= start + size else 0
        for at in (5, 6):
            head[at] -= cut if head[at] >= start + size else 0
        for number in range(head[10]):
            at = head[5] + number * head[9] + _SEGMENT_TYPE_AND_FLAGS
            (offset,) = struct.unpack_from("<Q", out, at)
            if offset >= start + size:
                struct.pack_into("<Q", out, at, offset - cut)
    for index, section in enumerate(sections):
        _SECTION.pack_into(out, head[6] + index * _SECTION.size, *section)
    _HEADER.pack_into(out, 0, *head)
    return bytes(out)


def _tables(cubin: bytes) -> tuple[list[Any], list[list[int]], list[str]]:
    """Return the ELF header's fields, the section headers and the names of the sections.

    Raises `UsageError` if the bytes are no 64-bit ELF file.
    """
    head = list(_HEADER.unpack_from(cubin))
    table, size, count, names = head[6], *head[11:14]
    if cubin[:4] != b"\x7fELF" or size != _SECTION.size:
        raise UsageError(f"not a cubin: it begins with {cubin[:4]!r}")
    sections = [list(_SECTION.unpack_from(cubin, table + i * size)) for i in range(count)]
    text = sections[names][4]
    words = [cubin[text + one[0] : cubin.index(b"\0", text + one[0])].decode() for one in sections]
    return head, sections, words


def with_ptx(cubin: bytes, ptx: str) -> bytes:
    """Return the cubin with the additional section PTX_SECTION, which the vendor's tools ignore.

    Existing contents keep their offsets; section names, the text and a new section table are appended. Raises
    `UsageError` for a file that is no cubin.
    """
    head, sections, _ = _tables(cubin)
    names = head[13]
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
    """Return the PTX that `with_ptx` added. Raises `UsageError` if there is none."""
    _, sections, names = _tables(cubin)
    for section, name in zip(sections, names, strict=True):
        if name == PTX_SECTION:
            return cubin[section[4] : section[4] + section[5]].rstrip(b"\0").decode()
    raise UsageError(f"the cubin has no section {PTX_SECTION}: it was not assembled here")
