"""The binding to LLVM: it compiles IR text to object bytes or to assembly text.

It calls the C functions of llvmlite's shared library through cffi. It does not import the package `llvmlite`,
which takes a process-wide lock around every call and leaks pass managers. Every call has its own LLVM
context, so threads compile in parallel (cffi releases the GIL). The functions are no stable ABI: the library
is loaded only if its version is in `SUPPORTED`.

Code that LLVM cannot select (an intrinsic that the target lacks, an unknown library call) ends the *process*.
Kernels that may contain such code are compiled in a worker (`workers`).

Not here: the IR text (`compiler.text.llvm_ir`). Next: `compiler.targets.nvptx.assembler`, PTX to cubin.
"""

from __future__ import annotations

import functools
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hcq.errors import CompileError, UnsupportedError
from hcq.installed import folder_of, version_of

if TYPE_CHECKING:
    from pathlib import Path

SUPPORTED = ("0.50.",)
"""Prefixes of the supported llvmlite versions."""

_PROTOTYPES = """
void LLVMPY_InitializeAllTargetInfos(void); void LLVMPY_InitializeAllTargets(void);
void LLVMPY_InitializeAllTargetMCs(void); void LLVMPY_InitializeAllAsmPrinters(void);
void LLVMPY_InitializeNativeAsmParser(void); void *LLVMPY_ContextCreate(void);
void LLVMPY_ContextDispose(void *); void *LLVMPY_ParseAssembly(void *, const char *, char **);
void LLVMPY_DisposeModule(void *); bool LLVMPY_VerifyModule(void *, char **);
void *LLVMPY_GetTargetFromTriple(const char *, char **);
void *LLVMPY_CreateTargetMachine(void *, const char *, const char *, const char *, int, const char *, const
    char *, int, int, const char *); void LLVMPY_DisposeTargetMachine(void *);
void *LLVMPY_CreatePipelineTuningOptions(void); void LLVMPY_DisposePipelineTuningOptions(void *);
void *LLVMPY_CreatePassBuilder(void *, void *); void LLVMPY_DisposePassBuilder(void *);
void *LLVMPY_buildPerModuleDefaultPipeline(void *, int);
void LLVMPY_RunNewModulePassManager(void *, void *, void *); void LLVMPY_DisposeNewModulePassManger(void *);
void *LLVMPY_TargetMachineEmitToMemory(void *, void *, int, char **); void *LLVMPY_GetBufferStart(void *);
size_t LLVMPY_GetBufferSize(void *); void LLVMPY_DisposeMemoryBuffer(void *);
void *LLVMPY_CreateTargetMachineData(void *); void LLVMPY_CopyStringRepOfTargetData(void *, char **);
void LLVMPY_DisposeTargetData(void *); void LLVMPY_DisposeString(const char *);
void LLVMPY_SetDataLayout(void *, const char *); void LLVMPY_SetTarget(void *, const char *);
void LLVMPY_GetHostCPUName(char **); int LLVMPY_GetHostCPUFeatures(char **);
void LLVMPY_GetDefaultTargetTriple(char **); unsigned int LLVMPY_GetVersionInfo(void);
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine for which LLVM generates code."""

    triple: str
    """LLVM's target triple: "nvptx64-nvidia-cuda"."""
    cpu: str
    """LLVM's name of the processor: "sm_90a"."""
    features: str = ""
    """Features that are added or removed, in LLVM's form: "+a,-b"."""
    reloc: str = "pic"
    codemodel: str = "small"


@functools.cache
def library_path() -> Path:
    """Return the path of llvmlite's shared library. Raises `UnsupportedError` without llvmlite."""
    folder = folder_of("llvmlite")
    if folder is None:
        raise UnsupportedError(
            "the compiler needs llvmlite 0.50, which is not installed; "
            "try: pip install 'llvmlite>=0.50,<0.51'"
        )
    return folder / "binding" / "libllvmlite.so"


def version() -> str:
    """Return llvmlite's version from its installation metadata, without loading the library."""
    return version_of("llvmlite")


@functools.cache
def major() -> int:
    """Return LLVM's major version, which determines the supported processors. The library is loaded.

    Raises `UnsupportedError` if llvmlite is missing or of another version than `SUPPORTED`.
    """
    _, lib = _library()
    return int(lib.LLVMPY_GetVersionInfo()) >> 16


@functools.cache
def _load() -> tuple[Any, Any]:
    """Open and initialize the library; the caller holds `_LOADING`."""
    import cffi  # noqa: PLC0415  # needed only to compile

    if not version().startswith(SUPPORTED):
        raise UnsupportedError(
            f"llvmlite {version()} is installed; its library functions are known for {', '.join(SUPPORTED)}* "
            "only; "
            "try: pip install 'llvmlite>=0.50,<0.51'"
        )
    ffi = cffi.FFI()
    ffi.cdef(_PROTOTYPES)
    library = ffi.dlopen(str(library_path()))
    for part in ("TargetInfos", "Targets", "TargetMCs", "AsmPrinters"):
        getattr(library, "LLVMPY_InitializeAll" + part)()
    library.LLVMPY_InitializeNativeAsmParser()
    return ffi, library


_LOADING = threading.Lock()


def _library() -> tuple[Any, Any]:
    with _LOADING:
        return _load()


def _take(ffi: Any, lib: Any, out: Any) -> str:
    """Return a string that LLVM allocated, and free it; "" for a null pointer."""
    if out[0] == ffi.NULL:
        return ""
    text: str = ffi.string(out[0]).decode(errors="replace")
    lib.LLVMPY_DisposeString(out[0])
    return text


@functools.cache
def host() -> Machine:
    """Return this machine with LLVM's triple, CPU name and features. Raises as `major`."""
    ffi, lib = _library()

    def read(function: Any) -> str:
        out = ffi.new("char **")
        function(out)
        return _take(ffi, lib, out)

    return Machine(
        read(lib.LLVMPY_GetDefaultTargetTriple),
        read(lib.LLVMPY_GetHostCPUName),
        read(lib.LLVMPY_GetHostCPUFeatures),
    )


def emit_object(ir: str, machine: Machine, *, level: int = 0, codegen: int = 2) -> bytes:
    """Compile IR text to the bytes of an ELF object.

    `level` is the optimisation level of the passes, 0 to 3; 0 runs none. `codegen` is the level of the code
    generator, 0 to 3. Raises `CompileError` if the text does not parse or verify or no code is emitted,
    `UnsupportedError` for an unknown triple, and as `major`. Ends the process if LLVM cannot select the code.
    """
    return _emit(ir, machine, level, codegen, assembly=False)


def emit_assembly(ir: str, machine: Machine, *, level: int = 0, codegen: int = 2) -> str:
    """Compile IR text to assembly text, PTX for NVPTX.

    Arguments and errors (`CompileError`) are as in `emit_object`.
    """
    return _emit(ir, machine, level, codegen, assembly=True).decode()


def _emit(ir: str, machine: Machine, level: int, codegen: int, *, assembly: bool) -> bytes:
    """Return the code of an object or assembly text; see `emit_object`."""
    ffi, lib = _library()
    message = ffi.new("char **")
    with ExitStack() as undo:
        context = lib.LLVMPY_ContextCreate()
        undo.callback(lib.LLVMPY_ContextDispose, context)
        module = lib.LLVMPY_ParseAssembly(context, ir.encode(), message)
        if module == ffi.NULL:
            raise CompileError(f"LLVM refuses the IR text: {_take(ffi, lib, message)}", ast=ir)
        undo.callback(lib.LLVMPY_DisposeModule, module)
        target_machine = _target_machine(ffi, lib, undo, machine, codegen)
        lib.LLVMPY_SetTarget(module, machine.triple.encode())
        _set_layout(ffi, lib, module, target_machine)
        if lib.LLVMPY_VerifyModule(module, message):
            raise CompileError(f"LLVM's verifier refuses the IR: {_take(ffi, lib, message)}", ast=ir)
        _take(ffi, lib, message)
        if level:
            _optimise(lib, undo, module, target_machine, level)
        memory = lib.LLVMPY_TargetMachineEmitToMemory(target_machine, module, 0 if assembly else 1, message)
        if memory == ffi.NULL:
            raise CompileError(f"LLVM could not emit code: {_take(ffi, lib, message)}", ast=ir)
        undo.callback(lib.LLVMPY_DisposeMemoryBuffer, memory)
        return bytes(ffi.buffer(lib.LLVMPY_GetBufferStart(memory), lib.LLVMPY_GetBufferSize(memory)))


_idle: dict[tuple[Machine, int], list[Any]] = {}
"""Target machines that no thread uses, by machine and level of the code generator."""


def _target_machine(ffi: Any, lib: Any, undo: ExitStack, machine: Machine, codegen: int) -> Any:
    """Take an idle target machine, or create one; `undo` gives it back. One thread at a time may use it.

    It holds nothing of a module. Creating it, and the subtarget that it keeps, takes 0.2 of a compilation.
    """
    idle = _idle.setdefault((machine, codegen), [])
    try:
        made = idle.pop()
    except IndexError:
        made = _new_target_machine(ffi, lib, machine, codegen)
    undo.callback(idle.append, made)
    return made


def _new_target_machine(ffi: Any, lib: Any, machine: Machine, codegen: int) -> Any:
    message = ffi.new("char **")
    target = lib.LLVMPY_GetTargetFromTriple(machine.triple.encode(), message)
    if target == ffi.NULL:
        raise UnsupportedError(f"LLVM has no target for {machine.triple!r}: {_take(ffi, lib, message)}")
    return lib.LLVMPY_CreateTargetMachine(
        target, machine.triple.encode(), machine.cpu.encode(), machine.features.encode(), codegen,
        machine.reloc.encode(), machine.codemodel.encode(), 0, 0, b"",
    )  # fmt: skip


def _set_layout(ffi: Any, lib: Any, module: Any, target_machine: Any) -> None:
    data = lib.LLVMPY_CreateTargetMachineData(target_machine)
    out = ffi.new("char **")
    lib.LLVMPY_CopyStringRepOfTargetData(data, out)
    lib.LLVMPY_SetDataLayout(module, out[0])
    lib.LLVMPY_DisposeString(out[0])
    lib.LLVMPY_DisposeTargetData(data)


def _optimise(lib: Any, undo: ExitStack, module: Any, target_machine: Any, level: int) -> None:
    """Run LLVM's default passes of a level, by a new pass manager: none may run twice."""
    tuning = lib.LLVMPY_CreatePipelineTuningOptions()
    undo.callback(lib.LLVMPY_DisposePipelineTuningOptions, tuning)
    builder = lib.LLVMPY_CreatePassBuilder(target_machine, tuning)
    undo.callback(lib.LLVMPY_DisposePassBuilder, builder)
    passes = lib.LLVMPY_buildPerModuleDefaultPipeline(builder, level)
    undo.callback(lib.LLVMPY_DisposeNewModulePassManger, passes)
    lib.LLVMPY_RunNewModulePassManager(passes, module, builder)
