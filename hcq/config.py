"""The configuration of the whole project: one typed object, read from the environment in this file alone.

| variable | meaning |
|--|--|
| `HCQ_DEVICE` | what "auto" opens: "cpu", "nv:0", "nv-emu:sm_90" |
| `HCQ_VALIDATE` | 1: check every submission for hazards, use after free, limits, waits that cannot be met |
| `HCQ_TRACE` | a file: devices write what their queues ran, as a Chrome trace, when they close |
| `HCQ_CACHE` | the folder of compiled kernels; default: `~/.cache/hcq` (or below `XDG_CACHE_HOME`) |
| `HCQ_SEED` | reorder Execs between Barriers by this seed, so that nothing comes to rely on luck |
| `DEBUG` | 0 (quiet) to 5: how much is said on stderr |
| `BEAM` | width of the search for kernel schedules; 0 is off |
| `JIT` | 0: `TinyJit` runs functions as they are |
"""

from __future__ import annotations

import difflib
import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What the user chose; see the module's table."""

    device: str | None = None
    validate: bool = False
    trace: Path | None = None
    cache: Path = Path()
    seed: int | None = None
    debug: int = 0
    beam: int = 0
    jit: bool = True


_OURS = ("HCQ_DEVICE", "HCQ_VALIDATE", "HCQ_TRACE", "HCQ_CACHE", "HCQ_SEED")


def read(environ: Mapping[str, str]) -> Config:
    """Return the configuration that an environment describes. A misspelt or malformed variable is a
    `UsageError`.
    """
    for name in environ:
        if name.startswith("HCQ_") and name not in _OURS:
            near = difflib.get_close_matches(name, _OURS, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are: {', '.join(_OURS)}"
            raise UsageError(f"the environment variable {name} means nothing{hint}")
    trace = environ.get("HCQ_TRACE", "")
    seed = environ.get("HCQ_SEED", "")
    return Config(
        device=environ.get("HCQ_DEVICE") or None,
        validate=bool(_number(environ, "HCQ_VALIDATE", 0)),
        trace=Path(trace) if trace else None,
        cache=_cache(environ),
        seed=_number(environ, "HCQ_SEED", 0) if seed else None,
        debug=_number(environ, "DEBUG", 0),
        beam=_number(environ, "BEAM", 0),
        jit=bool(_number(environ, "JIT", 1)),
    )


@functools.cache
def current() -> Config:
    """Return the configuration of this process, read once."""
    return read(os.environ)


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal():
        raise UsageError(f"{name}={text!r}: wanted a number, 0 or more")
    return int(text)


def _cache(environ: Mapping[str, str]) -> Path:
    if environ.get("HCQ_CACHE"):
        return Path(environ["HCQ_CACHE"])
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "/tmp") / ".cache"  # noqa: S108 - no home
    return Path(base) / "hcq"
