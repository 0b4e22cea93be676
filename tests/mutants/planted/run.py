"""Plant a bug in a copy of the driver and run the program on it in a child process.

Not here: the bugs and their program (`catalogs`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.mutants.planted.bug import Bug, Catalog
    from tests.mutants.planted.wire import WireBug

ROOT: Final = Path(__file__).resolve().parents[3]
_LIMIT_S: Final = 900.0
"""Seconds after which a child counts as hung."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one run."""

    outcome: str
    """`passed`, `error`, `wrong`, `untyped`, or `hung`."""
    type: str
    text: str
    word: str = ""
    """`named` if the report identifies the bug, else the outcome."""


def patched(bug: Bug, source: str) -> str:
    """Return a file's text with the bug planted; `UsageError` unless `old` occurs exactly once."""
    count = source.count(bug.old)
    if count != 1:
        raise UsageError(
            f"planted bug {bug.name!r}: its text occurs {count} times in {bug.file}, expected once\n"
            "hint: the driver has changed; adapt the bug's `old` and `new`"
        )
    return source.replace(bug.old, bug.new)


def unchanged(catalog: Catalog, device: str) -> Verdict:
    """Run the program on the unchanged driver."""
    return _run(catalog, ROOT, device)


def judge(catalog: Catalog, bug: Bug, *, device: str | None = None) -> Verdict:
    """Run the program with one bug planted, on the bug's device or on `device`."""
    with tempfile.TemporaryDirectory() as folder:
        drivers = Path(folder) / "drivers"
        shutil.copytree(ROOT / "drivers", drivers, ignore=shutil.ignore_patterns("__pycache__"))
        file = drivers / catalog.folder / bug.file
        file.write_text(patched(bug, file.read_text()))
        seen = _run(catalog, Path(folder), device or catalog.device_of(bug), bug.parts, bug.rung)
    named = seen.outcome == "error" and re.search(bug.names, evidence(seen.text), re.IGNORECASE)
    return Verdict(seen.outcome, seen.type, seen.text, "named" if named else seen.outcome)


def evidence(text: str) -> str:
    """Return an error's text without the arguments of calls that it quotes: a quoted field names nothing."""
    before, quoted = re.sub(r"""\bb(['"]).*?(?<!\\)\1""", "", text), ""
    while quoted != before:
        quoted, before = before, re.sub(r"\b[A-Za-z_]\w*\([^()]*\)", "", before)
    return before


def judge_wire(folder: str, bug: WireBug) -> Verdict:
    """Run the program of a driver, by its folder, with a bug on the wire."""
    seen = wired(folder, bug.device, bug.name)
    named = seen.outcome == "error" and re.search(bug.names, evidence(seen.text), re.IGNORECASE)
    return Verdict(seen.outcome, seen.type, seen.text, "named" if named else seen.outcome)


def wired(folder: str, device: str, name: str = "") -> Verdict:
    """Run the program behind an interposed kernel, with the bug of this name; without one nothing changes."""
    seen = _started(["-m", "tests.mutants.planted.wired", folder, name, device], str(ROOT))
    if isinstance(seen, Verdict):
        return seen
    return Verdict(seen["outcome"], seen["type"], seen["text"])


def _run(catalog: Catalog, first: Path, device: str, parts: Sequence[str] = (), rung: int = -1) -> Verdict:
    path = os.pathsep.join((str(first), str(ROOT)))
    command = [str(catalog.program), device, *parts]
    if rung >= 0:
        variant = device.partition(":")[2]
        command = [
            "-m",
            "tools.bringup",
            "--child",
            str(rung),
            "--device",
            catalog.folder,
            "--emulate",
            variant,
        ]
    seen = _started(command, path)
    if isinstance(seen, Verdict):
        return seen
    if rung >= 0:
        return Verdict("passed" if seen["passed"] else "error", "", seen["error"])
    return Verdict(seen["outcome"], seen["type"], seen["text"])


def _started(command: Sequence[str], path: str) -> Mapping[str, Any] | Verdict:
    """Run Python in a child; return the last object that it printed, or the verdict without one."""
    try:
        done = subprocess.run(
            [sys.executable, *command],
            env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Verdict("hung", "", f"no result in {_LIMIT_S:.0f} s")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return Verdict("untyped", f"exit {done.returncode}", done.stderr[-2000:])
    result: Mapping[str, Any] = json.loads(lines[-1])
    return result
