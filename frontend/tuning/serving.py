"""The answering side of a search's process: it opens the device and measures the plans that are asked for.

A request is a kernel's text, whose estimated plan is measured, or a choice's text, whose plan is compared
with it. A reply is a cost and a ratio, or an error as text.

Not here: starting and ending the process (`process`). Next: `trial`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

import hcq
from compiler.ir.serialize import parse_kernel
from compiler.plan.choice import Choice, from_text
from frontend.tuning.trial import LoadedTrial, Trial
from hcq.config import override
from hcq.errors import HcqError, UsageError

if TYPE_CHECKING:
    from frontend.tuning.process import Reply

SAMPLES = 4
"""Times of each plan, in turn with those of the estimated plan; the least of each count."""


def serve(device: str, cache: str) -> None:
    """Serve requests on stdin until it is closed; other output goes to stderr. Raises as `hcq.open`."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    settings = override(beam=0, debug=0, cache=Path(cache) if cache else None)
    with settings, hcq.open(device, validate=False, seed=0) as opened:
        _reply(replies, {})
        server = _Server(opened)
        for line in sys.stdin.buffer:
            try:
                reply = server.answer(json.loads(line))
            except HcqError as error:
                reply = {"error": str(error), "lost": opened.refusal is not None}
            _reply(replies, reply)


def _reply(pipe: IO[bytes], reply: Reply) -> None:
    pipe.write(json.dumps(reply).encode() + b"\n")
    pipe.flush()


class _Server:
    """The requests of one process: a kernel at a time, its estimated plan loaded beside each other one."""

    def __init__(self, device: hcq.Device) -> None:
        self.device = device
        self.trial: Trial | None = None
        self.first: LoadedTrial | None = None
        self.wanted: dict[int, bytes] = {}

    def answer(self, request: Reply) -> Reply:
        """Return the reply to a request."""
        if "kernel" in request:
            if self.trial is not None:
                self.trial.close()
            self.trial = self.first = None
            trial = Trial(self.device, parse_kernel(request["kernel"]))
            first = trial.load(None)
            self.wanted = trial.results(first)
            self.trial, self.first = trial, first
            return {"cost": trial.cost(first, None)}
        return self._measure(from_text(request["choice"]))

    def _measure(self, choice: Choice) -> Reply:
        """Return the least time of a plan, relative to that of the estimated plan, measured in turn."""
        trial, first = self.trial, self.first
        if trial is None or first is None:
            raise UsageError("wanted a kernel before its choices, saw a choice; try the kernel again")
        kernel = trial.load(choice)
        difference = trial.difference(self.wanted, trial.results(kernel))
        if difference:
            return {"error": difference}
        mine, other = trial.cost(kernel, choice), trial.cost(first, None)
        for _ in range(0 if trial.emulated else SAMPLES - 1):
            mine, other = min(mine, trial.cost(kernel, choice)), min(other, trial.cost(first, None))
            if mine > 2 * other:
                break
        return {"cost": mine, "ratio": mine / other}
