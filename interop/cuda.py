"""CUDA C++ to PTX by NVRTC, in process: neither a GPU nor libcuda nor nvcc is needed.

The library and the headers come from the extra `hcq[cuda]`. Not here: Triton (`interop.triton_backend`).
Next: `interop.load`, assembly and loading.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hcq.errors import CompileError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LIBRARY: Final = "libnvrtc.so.13"
_HINT: Final = (
    "hint: pip install 'nvidia-nvjitlink>=13.0,<14' 'nvidia-cuda-nvrtc>=13,<14' "
    "'nvidia-cuda-runtime>=13,<14' 'nvidia-cuda-cccl>=13,<14' 'nvidia-cuda-crt>=13,<14'"
)
_DECLARATIONS: Final = """
typedef struct _nvrtcProgram *nvrtcProgram;
const char *nvrtcGetErrorString(int);
int nvrtcVersion(int *, int *);
int nvrtcCreateProgram(nvrtcProgram *, const char *, const char *, int, const char **, const char **);
int nvrtcDestroyProgram(nvrtcProgram *);
int nvrtcCompileProgram(nvrtcProgram, int, const char **);
int nvrtcGetPTXSize(nvrtcProgram, size_t *);
int nvrtcGetPTX(nvrtcProgram, char *);
int nvrtcGetProgramLogSize(nvrtcProgram, size_t *);
int nvrtcGetProgramLog(nvrtcProgram, char *);
"""

_ASSERT: Final = """#undef assert
#ifdef NDEBUG
#define assert(...) ((void)0)
#else
#define assert(...) ((__VA_ARGS__) ? (void)0 : __assertfail(#__VA_ARGS__, __FILE__, __LINE__, __func__, 1))
#endif
"""
"""The header assert.h, which NVRTC lacks. NVRTC declares `__assertfail` itself."""


def to_ptx(source: str, arch: str, *, name: str = "kernel.cu", options: Sequence[str] = ()) -> str:
    """Compile CUDA C++ for `arch` ("sm_90a"); return the PTX, with line information.

    Declare entries `extern "C" __global__`; else the compiler changes their names. `name` is the file name in
    messages and line information. `options` are those of nvcc's front end ("-I...", "-DN=4",
    "--use_fast_math"). The headers of CUDA, libcu++ and cooperative groups are found.

    Raises `CompileError` with the compiler's messages; `UnsupportedError` if NVRTC is not installed, and for
    an architecture that is not NVIDIA's. Thread-safe.

        interop.load(device, interop.cuda.to_ptx(source, device.info.arch))
    """
    if not arch.startswith("sm_"):
        hint = "hint: without such a GPU the device 'nv-emu' runs it"
        raise UnsupportedError(f"NVRTC compiles for NVIDIA GPUs (sm_80, sm_90a, ...), saw {arch!r}\n{hint}")
    ffi, library = _library()
    flags = [f"--gpu-architecture=compute_{arch.removeprefix('sm_')}", "-std=c++17", "--generate-line-info"]
    flags += [f"-I{folder}" for folder in _headers()] + list(options)
    texts = [ffi.new("char[]", flag.encode()) for flag in flags]
    program = ffi.new("nvrtcProgram *")
    header, file = ffi.new("char[]", _ASSERT.encode()), ffi.new("char[]", b"assert.h")
    code: int = library.nvrtcCreateProgram(
        program,
        source.encode(),
        name.encode(),
        1,
        ffi.new("const char *[]", [header]),
        ffi.new("const char *[]", [file]),
    )
    if code:
        raise CompileError(f"NVRTC made no program of {name}: {_reason(code)}")
    try:
        code = library.nvrtcCompileProgram(program[0], len(texts), ffi.new("char *[]", texts))
        if code:
            raise CompileError(
                f"NVRTC could not compile {name} for {arch} ({_reason(code)}):\n{_log(program[0])}"
            )
        size = ffi.new("size_t *")
        library.nvrtcGetPTXSize(program[0], size)
        text = ffi.new("char[]", size[0])
        library.nvrtcGetPTX(program[0], text)
        return bytes(ffi.string(text)).decode()
    finally:
        library.nvrtcDestroyProgram(program)


def version() -> str:
    """Return NVRTC's name and version. Raises `UnsupportedError` if it is not installed."""
    ffi, library = _library()
    major, minor = ffi.new("int *"), ffi.new("int *")
    library.nvrtcVersion(major, minor)
    return f"NVRTC {major[0]}.{minor[0]}"


def _reason(code: int) -> str:
    ffi, library = _library()
    return bytes(ffi.string(library.nvrtcGetErrorString(code))).decode()


def _log(program: object) -> str:
    ffi, library = _library()
    size = ffi.new("size_t *")
    library.nvrtcGetProgramLogSize(program, size)
    text = ffi.new("char[]", size[0])
    library.nvrtcGetProgramLog(program, text)
    return bytes(ffi.string(text)).decode(errors="replace").strip()


@cache
def _library() -> tuple[Any, Any]:
    """Return cffi's interface and NVRTC, both untyped. Raises `UnsupportedError` if no library is found."""
    from cffi import FFI  # noqa: PLC0415 - needed only to compile

    ffi = FFI()
    ffi.cdef(_DECLARATIONS)
    tried = []
    for path in [
        *(one for root in _roots() for one in sorted(root.glob(f"*/lib/{_LIBRARY}"))),
        Path(_LIBRARY),
    ]:
        try:
            return ffi, ffi.dlopen(str(path))
        except OSError as error:
            tried.append(f"{path}: {error}")
    raise UnsupportedError(f"NVRTC is not installed; tried: {'; '.join(tried)}\n{_HINT}")


def _roots() -> list[Path]:
    """Return the folders of NVIDIA's wheels."""
    try:
        spec = find_spec("nvidia")  # a namespace package of wheels; it may be missing
    except (ImportError, ValueError):
        spec = None
    return [Path(one) for one in (spec.submodule_search_locations or ())] if spec else []


def _headers() -> list[Path]:
    """Return the include folders of the wheels, libcu++ included."""
    found = [folder for root in _roots() for folder in sorted(root.glob("*/include"))]
    return found + [folder / "cccl" for folder in found if (folder / "cccl").is_dir()]
