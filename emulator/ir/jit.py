"""LLVM for the engine: compile IR text to objects, link objects to addresses, and cache objects on disk.

It does not use `compiler.llvm`, which lacks three things that only this engine needs: linking at run time, a pass
pipeline without vectorisers, and target attributes on functions.

Not here: the IR (`library`), the files of the cache (`hcq.store`). Next: `emulator.simt.engine`, the caller.
"""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import functools
import itertools
import platform
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm

from hcq.objectfile import is_whole
from hcq.store import key_of, store

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND = "emu"
"""The kind of these objects in `hcq.store`."""
_serial = itertools.count()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class HostCpu:
    """The host that generated code runs on, in LLVM's terms."""

    triple: str
    cpu: str
    features: str
    vector_bits: int
    """Width in bits of the vector registers that generated code uses: 512 or fewer."""

    @property
    def gathers(self) -> bool:
        """Whether gathers and scatters are fast enough to be inlined."""
        return self.vector_bits == 512

    @property
    def attributes(self) -> str:
        """The function attributes that make LLVM generate code for this host."""
        return (
            f'nounwind "target-cpu"="{self.cpu}" "target-features"="{self.features}" "prefer-vector-width"="{self.vector_bits}" '
            f'"min-legal-vector-width"="{self.vector_bits}" "no-trapping-math"="true"'
        )


@functools.cache
def host(vector_bits: int = 0) -> HostCpu:
    """Describe this host. `vector_bits` limits the width of vectors (256 disables AVX-512); 0 means no limit."""
    _initialise()
    features = llvm.get_host_cpu_features()
    widest = 512 if features.get("avx512f") and features.get("avx512bw") and features.get("avx512vl") else 256
    if vector_bits and vector_bits < widest:
        widest = vector_bits
        features = {name: on and not name.startswith(("avx512", "avx10")) for name, on in features.items()}
    flat = ",".join(("+" if on else "-") + name for name, on in sorted(features.items()))
    return HostCpu(llvm.get_default_triple(), llvm.get_host_cpu_name(), flat, widest)


@functools.cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.cache
def _machine(target: HostCpu, *, optimise: bool) -> Any:
    """Return LLVM's code generator for a host; making one is slow, so it is kept. Use it with `_lock` held."""
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=1 if optimise else 0, reloc="pic", codemodel="default",
    )  # fmt: skip


def compile_ir(text: str, target: HostCpu, *, optimise: bool) -> bytes:
    """Compile IR text to a relocatable object for `target`. Raises `AssertionError` with LLVM's message if the IR is malformed."""
    _initialise()
    with _lock:
        context = llvm.create_context()
        try:
            module = llvm.parse_assembly(text, context)
            module.verify()
        except RuntimeError as error:
            raise AssertionError(f"the engine wrote bad IR: {error}") from error
        machine = _machine(target, optimise=optimise)
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        if optimise:
            _run_passes(module, machine)
        return bytes(machine.emit_object(module))


def _run_passes(module: Any, machine: Any) -> None:
    """Optimise a module in place, without vectorising or unrolling loops."""
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    manager = builder.getModulePassManager()
    manager.run(module, builder)
    # llvmlite does not free this manager, so it is freed here.
    llvm.ffi.lib.LLVMPY_DisposeNewModulePassManger(manager)
    manager.detach()


@functools.cache
def _linker() -> Any:
    """Return LLVM's JITLink linker, which places the sections of an object next to each other.

    LLVM's other linker (RuntimeDyld) maps each section separately, while code addresses its constants with 32-bit
    offsets: in a process with gigabytes of mappings it sometimes aborts.
    """
    _initialise()
    machine = llvm.Target.from_triple(llvm.get_default_triple()).create_target_machine(jit=True)
    return llvm.create_lljit_compiler(machine, use_jit_link=True)


@dataclass(frozen=True, slots=True)
class LoadedObject:
    """An object in executable memory. Its addresses are valid while this object is referenced."""

    addresses: dict[str, int]
    """Name of a function -> its host address."""
    _tracker: object


def load(code: bytes, names: list[str], imports: Mapping[str, int]) -> LoadedObject:
    """Link an object against absolute addresses (`imports`) and load it; the result has the addresses of `names`.

    Symbols of this process, such as libm's, are found too. Raises `RuntimeError` with LLVM's message if linking fails.
    """
    library = llvm.JITLibraryBuilder().add_object_img(code)
    for name, address in imports.items():
        library.import_symbol(name, address)
    for name in names:
        library.export_symbol(name)
    with _lock:
        tracker = library.add_current_process().link(_linker(), f"emu{next(_serial)}")
    return LoadedObject({name: tracker[name] for name in names}, tracker)


@functools.cache
def _source_digest() -> str:
    """Return a digest of the engine's sources: a change of the sources invalidates cached objects."""
    parts: list[str | bytes] = []
    folder = Path(__file__).parents[1]
    for path in sorted(path for room in ("ir", "sanitizers", "shared", "simt") for path in (folder / room).glob("*.py")):
        parts += [str(path.relative_to(folder)), path.read_bytes()]
    return key_of(*parts)


class ObjectCache:
    """Compiled objects on disk (`hcq.store`), keyed by all inputs of the compilation. With `folder` None nothing is cached."""

    def __init__(self, folder: Path | None) -> None:
        self._store = store(folder)

    def has(self, text: str, target: HostCpu, *, optimise: bool) -> bool:
        """Return whether the cache holds a valid object for IR text."""
        return self._kept(key(text, target, optimise=optimise)) is not None

    def object(self, text: str, target: HostCpu, *, optimise: bool) -> bytes:
        """Return the object for IR text, from the cache or compiled now. Raises as `compile_ir` does."""
        name = key(text, target, optimise=optimise)
        code = self._kept(name)
        if code is None:
            code = compile_ir(text, target, optimise=optimise)
            self._store.put(KIND, name, code)
        return code

    def _kept(self, name: str) -> bytes | None:
        """Return the cached object of a key, or None if there is none or it is damaged."""
        code = self._store.get(KIND, name)
        return code if code is not None and is_whole(code) else None


def key(text: str, target: HostCpu, *, optimise: bool) -> str:
    """Return the cache key for IR text."""
    made_by = f"{llvm.llvm_version_info} {platform.machine()}"
    return key_of(_source_digest(), made_by, repr(target), repr(optimise), text)
