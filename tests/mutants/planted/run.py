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
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from tests.mutants.planted.wire import WireBug

ROOT: Final = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one run."""

    outcome: str
    """`passed`, `error`, `wrong`, `untyped`, or `hung`."""
    type: str
    text: str
    word: str = ""
    """`named` if the report identifies the bug, `harmless` if it should pass and does, else the outcome."""


def evidence(text: str) -> str:
    """Return an error's text without the arguments of calls that it quotes: a quoted field names nothing."""
    before, quoted = re.sub(r"""\bb(['"]).*?(?<!\\)\1""", "", text), ""
    while quoted != before:
        quoted, before = before, re.sub(r"\b[A-Za-z_]\w*\([^()]*\)", "", before)
    return before


class Wired:
    """A process that has imported the programs, and forks a child for each run. A context manager."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.planted.wired"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._server:  # closes its stdin, which ends it
            pass

    def judge(self, folder: str, bug: WireBug) -> Verdict:
        """Run the program of a driver, by its folder, with a bug on the wire."""
        seen = self.run(folder, bug.device, bug.name)
        named = seen.outcome == "error" and re.search(bug.names, evidence(seen.text), re.IGNORECASE)
        harmless = seen.outcome == "passed" and bug.reason
        word = "named" if named else "harmless" if harmless else seen.outcome
        return Verdict(seen.outcome, seen.type, bug.reason if harmless else seen.text, word)

    def run(self, folder: str, device: str, name: str = "") -> Verdict:
        """Run the program behind an interposed kernel, with the bug of this name; "" changes nothing."""
        seen = self.lines(folder, device, name, 900)[-1]
        return Verdict(seen["outcome"], seen["type"], seen["text"])

    def lines(self, folder: str, device: str, change: object, limit_s: int) -> list[Any]:
        """Return the objects and lists that a run prints; `wired` has the forms of a change."""
        assert self._server.stdin is not None, "it is a pipe"
        assert self._server.stdout is not None, "it is a pipe"
        self._server.stdin.write(json.dumps([folder, device, change, limit_s]) + "\n")
        self._server.stdin.flush()
        lines = list(iter(self._server.stdout.readline, "\n"))
        return [json.loads(line) for line in lines if line.startswith(("{", "["))]
