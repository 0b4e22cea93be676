"""Run a driver's program with a bug on the wire, in a child process.

Not here: the bugs and their program (`catalogs`).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def evidence(text: str) -> str:
    """Return an error's text without the arguments of calls that it quotes: a quoted field names nothing."""
    before, quoted = re.sub(r"""\bb(['"]).*?(?<!\\)\1""", "", text), ""
    while quoted != before:
        quoted, before = before, re.sub(r"\b[A-Za-z_]\w*\([^()]*\)", "", before)
    return before


def judge(folder: str, bug: WireBug) -> Verdict:
    """Run the program of a driver, by its folder, with a bug on the wire."""
    seen = wired(folder, bug.device, bug.name)
    named = seen.outcome == "error" and re.search(bug.names, evidence(seen.text), re.IGNORECASE)
    return Verdict(seen.outcome, seen.type, seen.text, "named" if named else seen.outcome)


def wired(folder: str, device: str, name: str = "") -> Verdict:
    """Run the program behind an interposed kernel, with the bug of this name; without one nothing changes."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.mutants.planted.wired", folder, name, device],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
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
    seen: Mapping[str, Any] = json.loads(lines[-1])
    return Verdict(seen["outcome"], seen["type"], seen["text"])
