"""A process that measures plans of kernels on a device: the side that sends requests.

A plan may abort LLVM, hang, or fault its device. Therefore each search runs in a spawned interpreter that
opens the device for itself. Requests and replies are lines of JSON on its pipes. A request that is not
answered within the limit, and one at which the process ends, becomes a failure with its reason; a new process
replaces it.

Not here: the side that answers (`serving`), which plans are measured (`tune`).
"""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any

from compiler.workers import Interpreter
from hcq.config import config

LIMIT_S = 20.0
"""Seconds for one plan: compilation, a launch for its results, and samples."""
START_S = 120.0
"""Seconds to start a process, and then for the estimated plan; as many as for one plan, if those are more."""
SHOWN = 1000
"""Characters of a malformed answer that a reason shows."""

Reply = dict[str, Any]


class FailedError(Exception):
    """A request without an answer; the text is the reason. Internal to `frontend.tuning`."""


class TuningProcess:
    """A spawned interpreter that serves one device. Not thread-safe.

    Raises `FailedError` if it does not start; `close` ends it.
    """

    def __init__(self, device: str, *, limit_s: float = LIMIT_S, prelude: str = "") -> None:
        """Start the process; `prelude` is Python code that it runs first, for tests."""
        cache = str(config().cache or "")
        self.device = device
        self._limit_s = limit_s
        self._start_s = max(START_S, limit_s)
        self._left = b""
        self._interpreter = Interpreter(
            f"from frontend.tuning.serving import serve; serve({device!r}, {cache!r})", prelude
        )
        try:
            self._answer(self._start_s)
        except BaseException:
            self.close()
            raise

    @property
    def dead(self) -> bool:
        """Whether the process has ended, or is no longer used; another one must take its place."""
        return self._interpreter.dead

    def begin(self, text: str) -> Reply:
        """Measure the estimated plan of the kernel of a canonical text, to which others are compared.

        Raises `FailedError` as `ask`.
        """
        return self.ask({"kernel": text}, self._start_s)

    def measure(self, choice: str) -> Reply:
        """Measure the plan of a choice's text: `ratio` is its time, with that of the estimated plan as 1.

        Raises `FailedError` where it does not compile, does not end within the limit, or gives other results.
        """
        return self.ask({"choice": choice}, self._limit_s)

    def ask(self, request: Reply, limit_s: float) -> Reply:
        """Send a request and return its reply. Raises `FailedError`, after which `dead` may be true."""
        stdin = self._interpreter.process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        return self._answer(limit_s)

    def _answer(self, limit_s: float) -> Reply:
        stdout = self._interpreter.process.stdout
        assert stdout is not None
        until = time.monotonic() + limit_s
        while b"\n" not in self._left:
            ready, _, _ = select.select([stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                self._kill()
                raise FailedError(f"wanted an answer within {limit_s:g} s, saw none; the process was ended")
            data = os.read(stdout.fileno(), 1 << 16)
            if not data:
                raise self._ended()
            self._left += data
        line, _, self._left = self._left.partition(b"\n")
        try:
            reply = json.loads(line)
        except ValueError:  # also of bytes that are no text
            reply = None
        if not isinstance(reply, dict):
            self._kill()
            seen = f"saw {line[:SHOWN]!r}; the process was ended"
            raise FailedError(f"wanted an object of JSON as the answer, {seen}")
        if "error" in reply:
            self._interpreter.dead = bool(reply.get("lost"))
            raise FailedError(reply["error"])
        return reply

    def _kill(self) -> None:
        self._interpreter.process.kill()
        self._interpreter.dead = True

    def _ended(self) -> FailedError:
        how, output = self._interpreter.ended()
        return FailedError(f"the process ended ({how}); its output: {output}")

    def close(self) -> None:
        """End the process."""
        self._interpreter.close(self._limit_s)
