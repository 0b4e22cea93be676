"""LLVM as the engine uses it: IR text to objects, objects to addresses, and a cache of both on disk.

Not through `compiler.llvm`: linking at run time, a pass pipeline without vectorisers and a function's own
target attributes are needed by this engine only, and that module has none of them.

Next: `engine`, the caller; `hcq.store`, the cache on disk.
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
_serial = itertools.count()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that generated code runs on, as LLVM names it."""

    triple: str
    cpu: str
    features: str
    vector_bits: int

    @property
    def gathers(self) -> bool:
        """Whether vectors of addresses are fast enough to be worth inlining."""
        return self.vector_bits == 512

    @property
    def attributes(self) -> str:
        """The function attributes that make generated code use this machine."""
        return (
            f'nounwind "target-cpu"="{self.cpu}" "target-features"="{self.features}" "prefer-vector-width"="{self.vector_bits}" '
            f'"min-legal-vector-width"="{self.vector_bits}" "no-trapping-math"="true"'
        )


@functools.cache
def host(vector_bits: int = 0) -> Host:
    """Describe this machine; `vector_bits` 256 leaves AVX-512 out."""
    _initialise()
    features = llvm.get_host_cpu_features()
    widest = 512 if features.get("avx512f") and features.get("avx512bw") and features.get("avx512vl") else 256
    if vector_bits and vector_bits < widest:
        widest = vector_bits
        features = {name: on and not name.startswith(("avx512", "avx10")) for name, on in features.items()}
    flat = ",".join(("+" if on else "-") + name for name, on in sorted(features.items()))
    return Host(llvm.get_default_triple(), llvm.get_host_cpu_name(), flat, widest)


@functools.cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def compile_ir(text: str, target: Host, *, optimise: bool) -> bytes:
    """Compile IR text to a relocatable object for `target`. Malformed IR is an `AssertionError` that names the line."""
    _initialise()
    with _lock:
        context = llvm.create_context()
        try:
            module = llvm.parse_assembly(text, context)
            module.verify()
        except RuntimeError as error:
            raise AssertionError(f"the engine wrote bad IR: {error}") from error
        machine = llvm.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=1 if optimise else 0, reloc="pic", codemodel="default",
        )  # fmt: skip
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        if optimise:
            _run_passes(module, machine)
        return bytes(machine.emit_object(module))


def _run_passes(module: Any, machine: Any) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    manager = builder.getModulePassManager()
    manager.run(module, builder)
    # llvmlite's own disposal of this manager does nothing: give it back here.
    llvm.ffi.lib.LLVMPY_DisposeNewModulePassManger(manager)
    manager.detach()


@functools.cache
def _linker() -> Any:
    """Return the linker that lays an object's sections side by side.

    The other one of LLVM maps each where there is room, and code reaches its constants by 32 bits: in a
    process with gigabytes of mappings it aborts, now and then.
    """
    _initialise()
    machine = llvm.Target.from_triple(llvm.get_default_triple()).create_target_machine(jit=True)
    return llvm.create_lljit_compiler(machine, use_jit_link=True)


@dataclass(frozen=True, slots=True)
class Loaded:
    """An object in executable memory; its addresses are good while it lives."""

    addresses: dict[str, int]
    _tracker: object


def load(code: bytes, names: list[str], imports: Mapping[str, int]) -> Loaded:
    """Link an object against absolute addresses and return where `names` lie."""
    library = llvm.JITLibraryBuilder().add_object_img(code)
    for name, address in imports.items():
        library.import_symbol(name, address)
    for name in names:
        library.export_symbol(name)
    with _lock:
        tracker = library.add_current_process().link(_linker(), f"emu{next(_serial)}")
    return Loaded({name: tracker[name] for name in names}, tracker)


@functools.cache
def _source_digest() -> str:
    """Digest of the engine's own sources: a cached translation is only as good as the translator that made it."""
    parts: list[str | bytes] = []
    folder = Path(__file__).parents[1]
    for path in sorted(folder.rglob("*.py")):
        parts += [str(path.relative_to(folder)), path.read_bytes()]
    return key_of(*parts)


class Cache:
    """Compiled objects on disk (`hcq.store`), keyed by everything that decides their bytes. `None` as folder keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._store = store(folder)

    def has(self, text: str, target: Host, *, optimise: bool) -> bool:
        """Return whether a sound object of IR text is kept."""
        return self._kept(key(text, target, optimise=optimise)) is not None

    def object(self, text: str, target: Host, *, optimise: bool) -> bytes:
        """Return the object of IR text, compiled now or before."""
        name = key(text, target, optimise=optimise)
        code = self._kept(name)
        if code is None:
            code = compile_ir(text, target, optimise=optimise)
            self._store.put(KIND, name, code)
        return code

    def _kept(self, name: str) -> bytes | None:
        """Return what the cache holds of a key, or None when that is nothing that can be linked."""
        code = self._store.get(KIND, name)
        return code if code is not None and is_whole(code) else None


def key(text: str, target: Host, *, optimise: bool) -> str:
    """Return the cache's key of IR text."""
    made_by = f"{llvm.llvm_version_info} {platform.machine()}"
    return key_of(_source_digest(), made_by, repr(target), repr(optimise), text)
