"""One configuration of the engine: the compiled core library for its settings, and kernels linked against it.

Not here: LLVM (`emulator.ir.jit`), the helpers (`emulator.ir.library`). Next: `launch`, which runs a program.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from emulator.ir import jit
from emulator.ir.library import Library, Sanitizers
from emulator.simt import access, dispatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from emulator.simt.blocks import Translation

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
QUICK, OPTIMISED = "quick", "optimised"
"""The tiers of a kernel's code."""
_PLANS_KEPT = 64
"""The most plans that a program keeps."""
_PROMOTE_AFTER_S, _PROMOTE_AFTER_S_PER_BYTE = 0.05, 2e-6
"""Seconds that a kernel runs before it is optimised: at least, and for each byte of IR. About the time of the
optimisation."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The parameters of generated code, apart from the kernel."""

    lanes: int = 32
    """The number of lanes of a warp, 32 or 64."""
    vector_bits: int = 0
    """The largest width of host vectors in bits; 0 means the widest of this host."""
    checks: Sanitizers = field(default_factory=Sanitizers)
    cache: Path | None = None
    """Folder of the cache of compiled code; None disables the cache."""
    shapes: tuple[tuple[int, int], ...] = access.SHAPES
    """Accesses (bits, count) that the core library contains; others are compiled with the kernels that use
    them."""
    strips: bool = False
    """Whether code that is not optimised loops over strips of lanes (`emulator.ir.strips`): LLVM compiles it
    in a third of the time, and it runs slower if the kernel's blocks are short."""
    brings: tuple[Callable[[Library], object], ...] = ()
    """Functions that define helpers of a front end in the core library."""


class SimtEngine:
    """The helper library of one `Settings`, compiled and loaded."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.library = self._new_library()
        text, names = self.library.core_module()
        self.library.sealed = True
        self._cache = jit.ObjectCache(settings.cache)
        self._loaded = jit.load(self._cache.object(text, self.library.target, optimise=True), names, {})
        self.run = _RUN(self._loaded.addresses["emu.run"])

    def _new_library(self) -> Library:
        library = Library(
            self.settings.lanes, jit.host(self.settings.vector_bits), self.settings.checks,
            in_strips=self.settings.strips,
        )  # fmt: skip
        access.define_core(library, self.settings.shapes)
        dispatch.run(library)
        for define in self.settings.brings:
            define(library)
        return library

    def link(self, translation: Translation, *, optimise: bool) -> jit.LoadedObject:
        """Compile one kernel's warp function, unless it is cached, and link it against the core library.

        Raises as `ObjectCache.object` and `jit.load`.
        """
        text, imports = self._module(translation, optimise=optimise)
        code = self._cache.object(text, self.library.target, optimise=optimise)
        wanted = {name: self._loaded.addresses[name] for name in imports}
        return jit.load(code, [f"warp.{translation.name}"], wanted)

    def compiled(self, translation: Translation, *, optimise: bool) -> bool:
        """Return whether the cache on disk holds the object that `link` needs."""
        return self._cache.has(
            self._module(translation, optimise=optimise)[0], self.library.target, optimise=optimise
        )

    def _module(self, translation: Translation, *, optimise: bool) -> tuple[str, list[str]]:
        return self.library.module(translation.text, translation.called, optimise=optimise)


_making = threading.Lock()


def engine(settings: Settings) -> SimtEngine:
    """Return the engine for some settings. The process keeps the 16 used last.

    Thread-safe: other callers wait while an engine is created.
    """
    with _making:
        return _made(settings)


@functools.lru_cache(maxsize=16)
def _made(settings: Settings) -> SimtEngine:
    return SimtEngine(settings)


class TranslatedProgram:
    """A translated kernel with two tiers of code: compiled quickly at first, optimised once it runs long.

    Thread-safe.
    """

    def __init__(self, engine_: SimtEngine, translation: Translation) -> None:
        self.engine = engine_
        self.translation = translation
        self.seconds = 0.0
        """Elapsed time of its launches so far in seconds, multiplied by their host threads."""
        self.plans: dict[object, object] = {}
        """Key of a launch's shape -> its `work.LaunchLayout`."""
        self._tiers: dict[str, jit.LoadedObject] = {}
        self._lock = threading.Lock()

    def keep_plan(self, key: object, plan: object) -> None:
        """Keep a plan; drop the oldest one if there are 64."""
        with self._lock:
            if len(self.plans) >= _PLANS_KEPT:
                del self.plans[next(iter(self.plans))]
            self.plans[key] = plan

    @property
    def promote_after_s(self) -> float:
        """The value of `seconds` from which on the kernel is worth optimising."""
        return max(_PROMOTE_AFTER_S, _PROMOTE_AFTER_S_PER_BYTE * len(self.translation.text))

    def has(self, tier: str) -> bool:
        """Return whether the code of a tier is loaded."""
        return tier in self._tiers

    def on_disk(self, tier: str) -> bool:
        """Return whether the code of a tier is in the cache on disk, so that loading it is cheap."""
        return self.engine.compiled(self.translation, optimise=tier == OPTIMISED)

    def entry(self, tier: str) -> int:
        """Return the address of the warp function of a tier; compile it if necessary. Raises as `link`."""
        with self._lock:
            if tier not in self._tiers:
                self._tiers[tier] = self.engine.link(self.translation, optimise=tier == OPTIMISED)
            return self._tiers[tier].addresses[f"warp.{self.translation.name}"]
