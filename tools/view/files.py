"""The files that the viewer reads, and the data of its page: one object of JSON with a list for each part.

| part | an element |
|---|---|
| `spans` | [name, queue, start, end]: nanoseconds of CLOCK_MONOTONIC |
| `graphs` | `device`, `arch`, `text`, `kernels`: name, bytes moved, what it stores and loads |
| `kernels` | `device`, `name`, `label`, `nest`, `lines`, `ir`, `assembly`, `nbytes` |
| `submissions` | `n`, `queue`, `label`, `at`, `state`, `commands`, `kernels`, `packets` |
| `memory` | `device`, `points`: [time, bytes in use], `peak`, `largest`: the buffers at the peak |
| `counters` | the counts of a kernel (`hcq.counters.KernelCounters.data`) |
| `findings` | a finding of `interop.sanitize`, a fault of a capture, or a crash report; races first |
| `reports` | a hardware report (docs/hardware/README.md): its head, stages and measured rows |

Not here: the page (`tools/view/page.html`), the run of a program (`record`).
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Final

from hcq.capture import log
from hcq.errors import UsageError, size_text
from hcq.faults.crash import VERSION as CRASH_VERSION
from tools.trace.text import Symbols, crash_text, decoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Data = dict[str, Any]

VERSION: Final = 1
PARTS: Final = ("spans", "graphs", "kernels", "submissions", "memory", "counters", "findings", "reports")
MOST: Final = {"spans": 20_000, "graphs": 500, "kernels": 1_000, "submissions": 1_000, "counters": 1_000,
               "findings": 1_000, "reports": 20, "points": 20_000, "packets": 100_000}  # fmt: skip
"""Elements of each part, points of a curve and lines of packets that a page shows: the first ones."""
MOST_BYTES: Final = 1 << 28
"""The largest file that is read."""
_LARGEST: Final = 12
"""Buffers that are named at the peak of the memory's use."""
_WANTED: Final = (
    "a trace (HCQ_TRACE), capture (HCQ_CAPTURE), crash report (HCQ_CRASH), counters (HCQ_COUNTERS=FILE), "
    "findings (hcq sanitize --json), a hardware report, or data of hcq view --json"
)


def empty(title: str) -> Data:
    """Return data without elements."""
    return {"hcq-view": VERSION, "title": title, "files": [], "notes": []} | {part: [] for part in PARTS}


def add(data: Data, path: Path) -> None:
    """Add what a file holds to `data`, which a refused file leaves as it was.

    Raises `UsageError` for a file that is none of these, damaged, too large, or of another version; `OSError`
    if it cannot be read.
    """
    size = path.stat().st_size
    if size > MOST_BYTES:
        limit = size_text(MOST_BYTES)
        raise UsageError(f"{path}: wanted at most {limit}, saw {size_text(size)}\nhint: record a shorter run")
    found = empty("")
    kind = "file"
    try:
        with path.open("rb") as file:
            head = file.read(512)
        if b'"hcq-capture"' in head.partition(b"\n")[0]:
            kind = "capture"
            _capture(found, log.read(path))
        else:
            objects = _objects(path.read_bytes())
            kind = _kind(objects[0])
            _READERS[kind](found, objects)
    except UsageError as error:
        raise UsageError(f"{error}\nhint: record it again with this version of hcq") from None
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        IndexError,
        OverflowError,
        RecursionError,
        zlib.error,
    ) as error:
        seen = f"{type(error).__name__}: {error}"[:200]
        wanted = _WANTED if kind == "file" else f"a whole {kind}"
        raise UsageError(f"{path}: wanted {wanted}; saw {seen}\nhint: record it again") from None
    for one in found["reports"]:
        one.setdefault("file", path.stem)
    merge(data, found)
    data["files"].append([path.name, kind])


def merge(data: Data, found: Data) -> None:
    """Add the elements of `found` to `data`, within `MOST`; a note says what was left out."""
    data["notes"] += found["notes"]
    for part in PARTS:
        whole = data[part] + found[part]
        data[part] = _first(data, part, whole)
    data["findings"].sort(
        key=lambda one: "race" not in one["kind"]
    )  # stable: what a race leads to follows it


def _first(data: Data, what: str, whole: list[Any]) -> list[Any]:
    """Return the elements that a page shows, with a note if that is not all of them."""
    most = MOST.get(what, len(whole))
    if len(whole) > most:
        data["notes"].append(f"only the first {most:,} of {len(whole):,} {what} are shown")
    return whole[:most]


def _objects(raw: bytes) -> list[Any]:
    """Return the value of a file, or of its lines. Raises `ValueError` for no JSON, and for NaN."""

    def refuse(text: str) -> None:
        raise ValueError(f"wanted a finite number, saw {text}")

    try:
        return [json.loads(raw, parse_constant=refuse)]
    except json.JSONDecodeError as error:
        if "Extra data" not in error.msg:
            raise
    return [json.loads(line, parse_constant=refuse) for line in raw.splitlines() if line.strip()]


def _kind(first: Any) -> str:
    """Return what a file is, by its first value. Raises `ValueError` for another."""
    if isinstance(first, list) and first and "launches" in first[0]:
        return "counters"
    for key, kind in (("traceEvents", "trace"), ("stages", "report"), ("crash", "crash report"),
                      ("hcq-view", "view"), ("message", "findings")):  # fmt: skip
        if isinstance(first, dict) and key in first:
            return kind
    raise ValueError(f"{json.dumps(first)[:60]}")


def _version(seen: object, wanted: int, what: str) -> None:
    if seen != wanted:
        raise UsageError(f"wanted {what} of version {wanted}, saw version {seen!r}")


def _trace(found: Data, objects: list[Any]) -> None:
    """Read a Chrome trace: complete events alone, in microseconds."""
    names: dict[tuple[str, int, int], str] = {}
    for event in objects[0]["traceEvents"]:
        if event["ph"] == "M" and event["name"] in {"process_name", "thread_name"}:
            key = (event["name"], event["pid"], event["tid"] if event["name"] == "thread_name" else 0)
            names[key] = str(event["args"]["name"])
    for event in objects[0]["traceEvents"]:
        if event["ph"] == "X":
            process, thread = event["pid"], event["tid"]
            device = names.get(("process_name", process, 0), f"process {process}")
            queue = names.get(("thread_name", process, thread), f"thread {thread}")
            start = round(event["ts"] * 1000)
            end = start + round(event["dur"] * 1000)
            found["spans"].append([str(event["name"]), f"{queue} of {device}", start, end])


def _capture(found: Data, records: Iterable[Data]) -> None:
    """Read a capture: submissions with their packets, memory in use, and faults."""
    symbols = Symbols()
    use: dict[int, _Use] = {}
    shown: dict[int, Data] = {}
    left = MOST["packets"]
    for at, record in enumerate(records):
        symbols.take(record)
        kind, time = record["t"], record.get("ns", at)
        if kind == "device":
            use[record["id"]] = _Use(record["name"])
        elif kind == "buffer":
            use[record["device"]].change(time, record["id"], record["label"] or "buffer", record["size"])
        elif kind == "closed":
            use[symbols.buffers[record["buffer"]]["device"]].change(time, record["buffer"], "", 0)
        elif kind == "submit":
            shown[record["n"]] = one = {
                "n": record["n"], "queue": record["queue"], "label": record["label"], "at": time,
                "state": "not sent", "commands": [], "kernels": [], "packets": [],
            }  # fmt: skip
            found["submissions"].append(one)
            if len(shown) <= MOST["submissions"]:
                one["commands"] = [symbols.command(command) for command in record["commands"]]
                programs = [symbols.programs[c["program"]] for c in record["commands"] if c["c"] == "Exec"]
                one["kernels"] = [program["image"]["name"] for program in programs]
        elif kind == "sent":
            one = shown[record["n"]]
            one["state"] = f"done when {symbols.signal(record['signal'], record['value'])}"
            if len(shown) <= MOST["submissions"] and left:
                lines = decoded(record, symbols)
                one["packets"], left = lines[:left], max(0, left - len(lines))
        elif kind == "dropped":
            shown[record["n"]]["state"] = "refused: it was not sent"
        elif kind == "fault":
            device = symbols.devices[record["device"]]["name"]
            found["findings"].append(_fault("fault", record["text"], device))
    if not left:
        found["notes"].append(f"only the first {MOST['packets']:,} packets are shown")
    found["memory"] += [one.data(found) for one in use.values() if one.points]


class _Use:
    """The memory in use on one device."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.points: list[list[int]] = []
        self.live: dict[int, tuple[str, int]] = {}
        self.total = 0
        self.peak = 0
        self.largest: list[tuple[str, int]] = []

    def change(self, time: int, number: int, label: str, size: int) -> None:
        """Note a buffer that is allocated, or with size 0 closed."""
        self.total += size - self.live.pop(number, ("", 0))[1]
        if size:
            self.live[number] = label, size
        self.points.append([time, self.total])
        if self.total > self.peak:
            self.peak = self.total
            self.largest = sorted(self.live.values(), key=lambda one: -one[1])[:_LARGEST]

    def data(self, found: Data) -> Data:
        """Return the curve as data of the page."""
        points = _first(found, "points", self.points)
        return {"device": self.device, "points": points, "peak": self.peak, "largest": self.largest}


def _fault(kind: str, text: str, device: str) -> Data:
    return {"kind": kind, "message": text.partition("\n")[0], "device": device, "text": text}


def _counters(found: Data, objects: list[Any]) -> None:
    """Read counters; adds what the roofline needs: operations and bytes of global memory."""
    for one in objects[0]:
        one["operations"] = sum(one["flops"].values()) + sum(one["matrix"].values())
        one["nbytes"] = one["read"] + one["written"]
        found["counters"].append(one)


def _findings(found: Data, objects: list[Any]) -> None:
    """Read lines of `interop.sanitize --json`."""
    found["findings"] += [one | {"kind": str(one["kind"]), "message": str(one["message"])} for one in objects]


def _crashes(found: Data, objects: list[Any]) -> None:
    """Read lines of HCQ_CRASH."""
    for one in objects:
        _version(one["crash"], CRASH_VERSION, "a crash report")
        found["findings"].append(_fault("crash", crash_text(one), str(one["device"])))


def _report(found: Data, objects: list[Any]) -> None:
    """Read a report of `tools.hardware_run`: its head, its stages, and what was measured."""
    for one in objects:
        stages = [{key: one[key] for key in ("name", "status", "seconds")} for one in one["stages"]]
        rows = [row for stage in one["stages"] for row in (stage["facts"] or {}).get("rows", [])]
        kept = (
            "bench",
            "case",
            "unit",
            "median",
            "p25",
            "p75",
            "device",
            "measured_us",
            "estimated_us",
            "ratio",
        )
        found["reports"].append(
            {key: value for key, value in one.items() if isinstance(value, (str, int, float))}
            | {"stages": stages, "rows": [{key: row[key] for key in kept if key in row} for row in rows]}
        )


def _view(found: Data, objects: list[Any]) -> None:
    """Read data of `hcq view --json`."""
    for one in objects:
        _version(one["hcq-view"], VERSION, "data of hcq view")
        merge(found, one)


_READERS: Final[dict[str, Callable[[Data, list[Any]], None]]] = {
    "trace": _trace, "counters": _counters, "findings": _findings, "crash report": _crashes,
    "report": _report, "view": _view,
}  # fmt: skip
