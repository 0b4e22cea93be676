"""Settings: typed values of environment variables. No other module reads the environment.

`config()` returns the settings of the process, read at its first call; `override(...)` replaces some inside a
`with` block, for tests. An invalid value raises `UsageError`, which names the variable and its valid values.

Not here: the effect of a setting, which the module that uses it describes; docs/environment.md lists all of
them, and `doctor` reports the values that are set.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from hcq.errors import CacheWarning, UsageError, UsageTypeError
from hcq.names import nearest


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


def _count(name: str, text: str) -> int:
    if (number := _number(name, text)) == 0:
        raise UsageError(f"{name} must be at least 1, it is {text!r}")
    return number


def _ring(name: str, text: str) -> int:
    number = _number(name, text)
    if number and (number.bit_count() != 1 or not 1 << 14 <= number <= 1 << 26):
        raise UsageError(f"{name} must be 0 or a power of two from 16384 to 67108864, it is {text!r}")
    return number


def _text(_name: str, text: str) -> str:
    return text


def _file(name: str, text: str) -> str:
    folder = os.path.dirname(text) or "."  # noqa: PTH120 - of os.path, which answers for folders of others
    if os.path.isdir(text) or not os.path.isdir(folder):  # noqa: PTH112
        why = "is a folder" if os.path.isdir(text) else f"lies in {folder!r}, which is no folder"  # noqa: PTH112
    elif not os.access(text if os.path.exists(text) else folder, os.W_OK):  # noqa: PTH110
        why = "may not be written by this user"
    else:
        return text
    raise UsageError(f"{name} must be a file that can be written, {text!r} {why}")


def _report(name: str, text: str) -> str:
    if text in {"0", "1"}:
        return "" if text == "0" else text
    return _file(name, text)


def _path(name: str, text: str) -> Path | None:
    return Path(_file(name, text)) if text else None


def _names(_name: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _setting(
    default: object, variable: str, meaning: str, take: Callable[[str, str], object] | None = None
) -> Any:
    """Declare a setting: its variable, what the variable means, and the function that converts its text.

    `take(variable, text)` returns the value, or raises `UsageError`.
    """
    return field(default=default, metadata={"variable": variable, "meaning": meaning, "take": take})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of a process, each declared with its variable; `variables` lists them."""

    device: str = _setting(
        "", "HCQ_DEVICE", 'what "auto" opens; empty: the first GPU, without one cpu', _text
    )
    validate: bool = _setting(False, "HCQ_VALIDATE", "1: check every submission before it is sent", _flag)
    check: bool = _setting(
        False, "HCQ_CHECK", "1: compare the first run of each kernel with its operations one by one", _flag
    )
    trace: str = _setting(
        "", "HCQ_TRACE", "file that gets a Chrome trace of all spans when a device closes", _file
    )
    capture: str = _setting(
        "", "HCQ_CAPTURE", "file that gets every submission, for hcq trace", _file
    )
    profile: bool = _setting(
        False, "HCQ_PROFILE", "1: time each kernel, copy and fill; costs device time", _flag
    )
    breadcrumbs: bool = _setting(
        False,
        "HCQ_BREADCRUMBS",
        "1: name the command that finished last, and the next, of each queue in errors; costs device time",
        _flag,
    )
    top: bool = _setting(
        False, "HCQ_TOP", "1: publish queues and memory in shared memory, for hcq top", _flag
    )
    crash: str = _setting("", "HCQ_CRASH", "file that gets a report of each fault, a line of JSON", _file)
    cache: Path | None = _setting(  # noqa: RUF009 - makes a field, like those around it
        None, "HCQ_CACHE", "absolute folder of compiled code; default $XDG_CACHE_HOME/hcq, or ~/.cache/hcq"
    )
    """None keeps nothing: the user has no home folder."""
    cache_bytes: int = _setting(
        2 << 30,
        "HCQ_CACHE_BYTES",
        "most bytes of that folder; the entries unused for longest go first",
        _number,
    )
    seed: int = _setting(
        0, "HCQ_SEED", "order of unbarriered Execs and of emulated queues; 0 keeps program order", _number
    )
    debug: int = _setting(
        0,
        "DEBUG",
        "1: verify passes, print compiled kernels; also 2 schedules, 3 nests, 4 lines, 5 LLVM IR, 6 assembly",
        _number,
    )
    plain: bool = _setting(False, "NO_COLOR", "any text: no colours on a terminal", lambda _name, _text: True)
    beam: int = _setting(
        0, "BEAM", "width of the search for the plan of each kernel on its device; 0: plans are estimated",
        _number,
    )  # fmt: skip
    winograd: bool = _setting(
        True,
        "HCQ_WINOGRAD",
        "0: no convolution on the cpu device is computed by Winograd's algorithm, which rounds otherwise",
        _flag,
    )
    jit: bool = _setting(True, "JIT", "0: TinyJit calls its function every time", _flag)
    plan_bytes: int = _setting(
        256 << 20,
        "HCQ_PLAN_BYTES",
        "most bytes of the plans that tensors keep; beyond, the oldest are dropped",
        _number,
    )
    ring_bytes: int = _setting(
        0,
        "HCQ_RING_BYTES",
        "bytes of each queue's ring of arguments, and on a GPU of its ring of commands; 0: the usual size",
        _ring,
    )
    emu_report: Path | None = _setting(  # noqa: RUF009 - makes a field, like those around it
        None,
        "HCQ_EMU_REPORT",
        "file that gets a line of JSON when an emulated GPU closes: how exact its instructions are",
        _path,
    )
    emu_checked: bool = _setting(
        False,
        "HCQ_EMU_CHECKED",
        "1: emulated GPUs run kernels with all sanitizers, as if named with :checked",
        _flag,
    )
    emu_timeout_s: int = _setting(
        60,
        "HCQ_EMU_TIMEOUT",
        "seconds of CPU time after which a kernel on an emulated GPU is ended as a hang; at least 1",
        _count,
    )
    counters: str = _setting(
        "",
        "HCQ_COUNTERS",
        "1: print counts of the kernels of emulated GPUs when a device closes; else a file that gets JSON",
        _report,
    )
    workers: int | None = _setting(
        None,
        "HCQ_WORKERS",
        "worker threads of the cpu device besides its queues'; default cores - 1",
        _number,
    )
    cpu_devices: int = _setting(
        1,
        "HCQ_CPU_DEVICES",
        "how many cpu devices there are, cpu:0 on, which divide the cores; at least 1",
        _count,
    )
    conformance: tuple[str, ...] = _setting(
        ("cpu",), "HCQ_CONFORMANCE", "devices that tests/conformance runs on, separated by commas", _names
    )


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    """An environment variable: the field of `Config` that it sets, its meaning and default."""

    name: str
    field: str
    meaning: str
    default: object


def variables() -> tuple[EnvironmentVariable, ...]:
    """Return every environment variable that `read` uses, as declared in `Config`."""
    return tuple(
        EnvironmentVariable(item.metadata["variable"], item.name, item.metadata["meaning"], item.default)
        for item in fields(Config)
    )


def _home_of_user(uid: int | None = None) -> str:
    """Return the home folder of a user, by default that of this process; empty when it has none."""
    import pwd  # noqa: PLC0415  # only without HOME

    try:
        return pwd.getpwuid(os.getuid() if uid is None else uid).pw_dir
    except KeyError:
        return ""


def _cache(environment: Mapping[str, str], home_of_user: Callable[[], str]) -> Path | None:
    """Return the folder of compiled code; None without a home folder. "/" counts as none."""
    if chosen := environment.get("HCQ_CACHE"):
        if not (folder := Path(chosen)).is_absolute():
            text = f"HCQ_CACHE must be the absolute path of a folder, it is {chosen!r}"
            raise UsageError(f"{text}\nhint: {str(Path.cwd() / folder)!r}; an empty folder compiles all anew")
        return folder
    if (base := Path(environment.get("XDG_CACHE_HOME", ""))).is_absolute():  # relative paths must be ignored
        return base / "hcq"
    home = Path(environment.get("HOME") or home_of_user())
    return home / ".cache" / "hcq" if home.is_absolute() and home != Path("/") else None


def read(environment: Mapping[str, str], *, home_of_user: Callable[[], str] = _home_of_user) -> Config:
    """Return the settings of `environment`; an empty variable counts as absent.

    Raises `UsageError` for an invalid one, and for a name that differs from a setting's by a slip.
    """
    values: dict[str, Any] = {}
    known = [item.metadata["variable"] for item in fields(Config)]
    for name in environment:
        if name.startswith("HCQ_") and name not in known and (near := nearest(name, known, alike=0.85)):
            raise UsageError(f"no setting is called {name}\nhint: did you mean {near}?")
    for item in fields(Config):
        name, take = item.metadata["variable"], item.metadata["take"]
        text = environment.get(name, "")
        if text and take is not None:
            values[item.name] = take(name, text)
    return Config(**values, cache=_cache(environment, home_of_user))


def process_environment() -> Mapping[str, str]:
    """Return the environment of this process, for the modules that show it."""
    return os.environ


_current: list[Config] = []


def config() -> Config:
    """Return the settings of this process, read from the environment at the first call.

    Raises `UsageError` for an invalid value; warns (`CacheWarning`) when compiled code cannot be kept.
    """
    if not _current:
        _current.append(read(process_environment()))
        if _current[0].cache is None:
            text = "compiled code is not kept: this user has no home\nhint: HCQ_CACHE names a folder for it"
            warnings.warn(text, CacheWarning, stacklevel=2)
    return _current[-1]


@contextlib.contextmanager
def override(**values: Any) -> Iterator[Config]:
    """Replace settings of the process, by field of `Config`, inside a `with` block. Not thread-safe.

    Values have the types of the fields, or are texts as in the environment; others are not checked. What a
    device needs when it opens, such as `validate`, holds for those that open inside. Raises `UsageTypeError`
    for a name that is no field, `UsageError` for a text that is no value.
    """
    known = {item.name: item.metadata for item in fields(Config)}
    if unknown := values.keys() - known.keys():
        names = ", ".join(sorted(unknown))
        raise UsageTypeError(f"no setting is called {names}; there are {', '.join(known)}")
    for name, value in values.items():
        if isinstance(value, str) and value and (take := known[name]["take"]):
            values[name] = take(known[name]["variable"], value)
    _current.append(replace(config(), **values))
    try:
        yield _current[-1]
    finally:
        _current.pop()
