"""Files of recordings: the journal that a run appends to, and the compact file that is kept.

A journal has a line of JSON for each event, so that an interrupted process loses at most the last line. The
events are a head (device, driver, commit, date), the names of forms that begin, a form's results, and a
form's error. A kept file is compressed by xz: a line of JSON with the head and a table of the forms, then all
results.

Not here: what the results mean (`forms`). Next: `runner`, which writes journals.
"""

from __future__ import annotations

import base64
import json
import lzma
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FORMAT: Final = 1
"""The version of both formats."""
LARGEST: Final = 1_000_000
"""The most bytes of a kept file."""
_XZ: Final = b"\xfd7zXZ\x00"
_AGAIN: Final = "hint: record again into another file, or take the file out of a report's evidence.tar.gz"


@dataclass(slots=True)
class Recording:
    """The results and errors that were recorded on one device."""

    head: dict[str, str]
    """The values of device, arch, driver, commit, date and tool."""
    results: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Name of a form -> (its key, its results)."""
    errors: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name of a form -> (its key, why there are no results)."""
    begun: tuple[str, ...] = ()
    """The forms that began last. One of them without results or an error was running when the process
    ended."""

    def known(self, name: str, key: str) -> bool:
        """Return whether a form has results or an error under this key."""
        return key in (self.results.get(name, ("",))[0], self.errors.get(name, ("",))[0])

    def unfinished(self) -> tuple[str, ...]:
        """Return the forms that were running when the last process ended."""
        return tuple(name for name in self.begun if name not in self.results and name not in self.errors)


class Journal:
    """A journal that is open for appending; each event is written at once. A context manager."""

    def __init__(self, path: Path, head: Mapping[str, str]) -> None:
        """Open or make a journal.

        Raises `UsageError` for a damaged journal, and for one of another device, architecture or driver.
        """
        exists = path.exists() and path.stat().st_size > 0
        self.recording = load(path) if exists else Recording(dict(head))
        found, wanted = self.recording.head, head
        for what in ("arch", "device", "driver"):
            if found.get(what) != wanted[what]:
                raise UsageError(
                    f"{path} was recorded with {what} {found.get(what)!r}, this is {wanted[what]!r}\n"
                    "hint: give another file to --out"
                )
        if exists:
            _cut_last_line(path)
        self._file = path.open("ab")
        if not exists:
            self._append({"format": FORMAT, **head})

    def begin(self, names: Iterable[str]) -> None:
        """Write the names of the forms that begin."""
        self.recording.begun = tuple(names)
        self._append({"begin": self.recording.begun})

    def result(self, name: str, key: str, results: bytes) -> None:
        """Write the results of a form; an earlier error of it is dropped."""
        self.recording.errors.pop(name, None)
        self.recording.results[name] = key, results
        packed = base64.b64encode(zlib.compress(results, 6)).decode()
        self._append({"form": name, "key": key, "results": packed})

    def error(self, name: str, key: str, why: str) -> None:
        """Write why a form has no results."""
        self.recording.errors[name] = key, why
        self._append({"form": name, "key": key, "error": why})

    def _append(self, event: Mapping[str, object]) -> None:
        self._file.write(json.dumps(event).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _cut_last_line(path: Path) -> None:
    """Remove a last line without its end."""
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        with path.open("r+b") as file:
            file.truncate(end)


def load(path: Path) -> Recording:
    """Read a journal or a kept file. Raises `UsageError` for any other file, and for a damaged one."""
    try:
        data = path.read_bytes()
        return _unpacked(data) if data.startswith(_XZ) else _replayed(data)
    except (OSError, lzma.LZMAError, zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is no whole recording: {type(error).__name__}: {error}\n{_AGAIN}") from None


def _head(event: Mapping[str, Any]) -> dict[str, str]:
    if event.get("format") != FORMAT:
        raise ValueError(f"wanted a head of format {FORMAT}, saw {str(event)[:60]}")
    return {str(k): str(v) for k, v in event.items() if k not in ("format", "forms", "errors")}


def _replayed(data: bytes) -> Recording:
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    if not lines:
        raise ValueError("it has no line")
    out = Recording(_head(json.loads(lines[0])))
    for line in lines[1:]:
        event = json.loads(line)
        if "begin" in event:
            out.begun = tuple(event["begin"])
        elif "results" in event:
            packed = base64.b64decode(event["results"], validate=True)
            out.errors.pop(event["form"], None)
            out.results[event["form"]] = event["key"], zlib.decompress(packed)
        else:
            out.errors[event["form"]] = event["key"], event["error"]
    return out


def packed(recording: Recording) -> bytes:
    """Return the content of a recording's kept file. Raises `UsageError` if it is larger than `LARGEST`."""
    table, blob, at = {}, [], 0
    for name, (key, results) in sorted(recording.results.items()):
        table[name] = key, at, len(results)
        blob.append(results)
        at += len(results)
    head = {"format": FORMAT, **recording.head, "forms": table, "errors": recording.errors}
    text = json.dumps(head, sort_keys=True).encode() + b"\n"
    data = lzma.compress(text + b"".join(blob), check=lzma.CHECK_SHA256, preset=9 | lzma.PRESET_EXTREME)
    if len(data) > LARGEST:
        raise UsageError(
            f"the kept file has {len(data):,} bytes, wanted at most {LARGEST:,}\n"
            "hint: give a form fewer rows; `python -m tools.record --forms --only REGEX` counts their bytes"
        )
    return data


def _unpacked(data: bytes) -> Recording:
    text, _, blob = lzma.decompress(data).partition(b"\n")
    head = json.loads(text)
    out = Recording(_head(head))
    for name, (key, at, size) in head["forms"].items():
        if at + size > len(blob):
            raise ValueError(f"results of {name} end at {at + size}, the file at {len(blob)}")
        out.results[name] = key, blob[at : at + size]
    out.errors = {name: (key, why) for name, (key, why) in head["errors"].items()}
    return out
