"""The one place that reads the environment: typed settings, read once, never at import.

`config()` gives the process's settings; `override(...)` replaces some for a block of code (tests). A value
that cannot be read is a `UsageError` that names the variable and what it may hold.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcq.errors import CacheWarning, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of this process; the field's comment names its variable."""

    device: str = ""
    """HCQ_DEVICE: what "auto" opens; empty lets it choose."""
    validate: bool = False
    """HCQ_VALIDATE: check every submission before it is sent."""
    trace: str = ""
    """HCQ_TRACE: write a Chrome trace of all spans to this file when a device closes."""
    profile: bool = False
    """HCQ_PROFILE: time each kernel, copy and fill of every submission and replay; costs device time."""
    cache: Path | None = None
    """HCQ_CACHE: folder of compiled code; default is $XDG_CACHE_HOME/hcq or ~/.cache/hcq. None keeps none."""
    cache_bytes: int = 2 << 30
    """HCQ_CACHE_BYTES: bytes that the folder may hold; the entries unused for longest go first."""
    seed: int = 0
    """HCQ_SEED: order of unbarriered Execs and interleaving of emulated queues; 0 keeps program order."""
    debug: int = 0
    """DEBUG: 1 tells compilations and verifies passes, 2 prints schedules, 3 linear code, 4 LLVM IR."""
    jit: bool = True
    """JIT: 0 makes TinyJit call its function every time."""
    plan_bytes: int = 256 << 20
    """HCQ_PLAN_BYTES: bytes of the plans that tensors keep; beyond, the oldest are dropped."""
    workers: int | None = None
    """HCQ_WORKERS: worker threads of the cpu device besides its queues'; default is cores - 1."""
    conformance: tuple[str, ...] = ("cpu",)
    """HCQ_CONFORMANCE: devices that tests/conformance runs on, separated by commas."""


def _flag(name: str, text: str) -> bool:
    if text not in {"0", "1"}:
        raise UsageError(f"{name} must be 0 or 1, it is {text!r}")
    return text == "1"


def _number(name: str, text: str) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if number < 0:
        raise UsageError(f"{name} must be a whole number of at least 0, it is {text!r}")
    return number


def _text(_name: str, text: str) -> str:
    return text


def _names(_name: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


_READERS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "HCQ_DEVICE": ("device", _text),
    "HCQ_VALIDATE": ("validate", _flag),
    "HCQ_TRACE": ("trace", _text),
    "HCQ_PROFILE": ("profile", _flag),
    "HCQ_SEED": ("seed", _number),
    "HCQ_CACHE_BYTES": ("cache_bytes", _number),
    "DEBUG": ("debug", _number),
    "JIT": ("jit", _flag),
    "HCQ_PLAN_BYTES": ("plan_bytes", _number),
    "HCQ_WORKERS": ("workers", _number),
    "HCQ_CONFORMANCE": ("conformance", _names),
}


def _home_of_user(uid: int | None = None) -> str:
    """Return the home of a user (this process's) as the system lists it; empty when it lists none."""
    import pwd  # noqa: PLC0415  # only without HOME

    try:
        return pwd.getpwuid(os.getuid() if uid is None else uid).pw_dir
    except KeyError:
        return ""


def _cache(environment: Mapping[str, str], home_of_user: Callable[[], str]) -> Path | None:
    """Return the folder of compiled code, or None without a home. The root folder is nobody's home."""
    if chosen := environment.get("HCQ_CACHE"):
        return Path(chosen)
    if (base := Path(environment.get("XDG_CACHE_HOME", ""))).is_absolute():  # others are to be ignored
        return base / "hcq"
    home = Path(environment.get("HOME") or home_of_user())
    return home / ".cache" / "hcq" if home.is_absolute() and home != Path("/") else None


def read(environment: Mapping[str, str], *, home_of_user: Callable[[], str] = _home_of_user) -> Config:
    """Read settings from `environment`; empty variables count as absent."""
    values: dict[str, Any] = {}
    for name, (field, reader) in _READERS.items():
        text = environment.get(name, "")
        if text:
            values[field] = reader(name, text)
    return Config(**values, cache=_cache(environment, home_of_user))


_current: list[Config] = []


def config() -> Config:
    """Return the settings, read from the environment at the first call."""
    if not _current:
        _current.append(read(os.environ))
        if _current[0].cache is None:
            text = "compiled code is not kept: this user has no home\nhint: HCQ_CACHE names a folder for it"
            warnings.warn(text, CacheWarning, stacklevel=2)
    return _current[-1]


@contextlib.contextmanager
def override(**values: Any) -> Iterator[Config]:
    """Replace some settings inside a `with` block."""
    _current.append(replace(config(), **values))
    try:
        yield _current[-1]
    finally:
        _current.pop()
