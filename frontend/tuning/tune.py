"""The search that `BEAM=n` asks for: the fastest plan of each kernel on a device, measured and stored.

Kernels with a stored result are not searched again. A plan that fails is counted (`compiler.stats.failed`)
and printed from DEBUG=1 on, as is a kernel that cannot be measured (`unsearched`): it keeps the estimated
plan.

Not here: the beam (`beam`), the use of winners (`compiler.compile`). Next: `process`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from compiler import stats, winners
from compiler.ir.naming import kernel_name
from compiler.ir.serialize import kernel_key
from compiler.plan.choice import brief, to_text
from compiler.targets import target_of
from frontend.tuning.beam import search
from frontend.tuning.process import FailedError, TuningProcess
from frontend.tuning.space import Space
from hcq.config import config
from hcq.errors import UsageError

if TYPE_CHECKING:
    from compiler.ir.uop import UOp
    from compiler.plan.proposal import Proposal
    from compiler.targets.shared.target import Target
    from compiler.winners import Found


def tune(
    asts: Iterable[UOp], device: str, arch: str, *, start: Callable[[str], TuningProcess] = TuningProcess
) -> list[Found]:
    """Search the plans of the kernels that have no stored result; return what was found, in order.

    Kernels that cannot be measured are left out. `device` is a name for `hcq.open`, `arch` its
    `DeviceInfo.arch`. Kernels are measured one after another, in a process of their own. The width is the
    setting `BEAM`. Raises `UnsupportedError` for an architecture without a target.
    """
    width, target = config().beam, target_of(arch)
    found: list[Found] = []
    process: TuningProcess | None = None
    try:
        for ast in dict.fromkeys(asts):
            text = kernel_key(ast)
            known = winners.get(text, target, width)
            if known is not None:
                continue
            search_of = _Search(ast, text, device, process, start)
            try:
                space = search_of.begin(target)
                result = None if space is None else search(space, width, search_of.measure)
            finally:
                process = search_of.process
            if result is not None:
                winners.put(text, target, width, result)
                found.append(result)
                _report(ast, result)
    finally:
        if process is not None:
            process.close()
    return found


class _Search:
    """The measurements of one kernel; `process` is replaced when it ends."""

    def __init__(  # called here only
        self,
        ast: UOp,
        text: str,
        device: str,
        process: TuningProcess | None,
        start: Callable[[str], TuningProcess],
    ) -> None:
        self.process = process
        self._ast = ast
        self._name = kernel_name(ast)
        self._text = text
        self._device = device
        self._start = start

    def begin(self, target: Target) -> Space | None:
        """Return the space, after a measurement of the estimated plan; None where that is not possible."""
        try:
            space = Space(self._ast, target)
            self._started().begin(self._text)
        except (FailedError, UsageError) as error:
            stats.unsearched += 1
            _print(f"BEAM: {self._name} is not searched: {error}")
            return None
        return space

    def measure(self, candidate: Proposal) -> float | None:
        """Return the time of a candidate relative to that of the estimated plan; None for a failure."""
        stats.tried += 1
        try:
            if self.process is None or self.process.dead:
                self._started().begin(self._text)
            assert self.process is not None
            ratio: float = self.process.measure(to_text(candidate.choice))["ratio"]
        except FailedError as error:
            stats.failed += 1
            _print(f"BEAM: {self._name}: {brief(candidate.choice)} failed: {error}")
            return None
        return ratio

    def _started(self) -> TuningProcess:
        if self.process is not None and self.process.dead:
            self.process.close()
            self.process = None
        if self.process is None:
            self.process = self._start(self._device)
        return self.process


def _report(ast: UOp, found: Found) -> None:
    """Print the result of a search from DEBUG=1 on."""
    won = "the estimated plan won"
    if found.choice is not None:
        won = f"{brief(found.choice)} takes {found.ratio:.2f} of the time of the estimated plan"
    _print(f"BEAM: {kernel_name(ast)}: {won}; {found.tries} plans, {found.failed} failed")


def _print(text: str) -> None:
    if config().debug:
        print(text, file=sys.stderr)  # noqa: T201  # DEBUG output goes to stderr
