"""`python -m tools.fuzz.interrupts [--probe NAME] [--every K] [--first N] [--bound S] [--json FILE]`.

Raises at every executed line of realize, replay, submit, wait, assign, alloc, free and close, and at every
call into the driver, one place a run. After each the next use must give the right values, or an error of
`hcq.errors`, and must end. Prints each place after which it does not, then the counts; exits non-zero when
there is one.

A place is the n-th line executed by an act, in the files of `hcq`, `drivers`, `frontend` and `contextlib`.
`KeyboardInterrupt` is raised there, as Ctrl-C does; at calls into the driver also `OutOfMemoryError`, before
the call, and `KeyboardInterrupt` after it. One kind of line is left out: the end of a `with` block, where
CPython delivers no signal before the manager's `__exit__` has begun (bpo-29988), but tracing reports a line.
`--bound` is how many seconds the use after an interrupt may take: an alarm ends it, and it counts as hung.
"""

from __future__ import annotations

import argparse
import contextlib
import dis
import gc
import json
import signal
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from hcq.errors import HcqError, OutOfMemoryError
from tools.fuzz.interrupt_probes import PROBES, Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import CodeType, FrameType

_ROOT: Final = Path(__file__).resolve().parents[2]
_FOLDERS: Final = tuple(f"{_ROOT / name}/" for name in ("hcq", "drivers", "frontend"))
_DRIVERS: Final = f"{_ROOT / 'drivers'}/"
_HCQ: Final = f"{_ROOT / 'hcq'}/"
_CONTEXTLIB: Final = contextlib.__file__
Kind = Literal["line", "driver short of memory", "driver interrupted after"]
KINDS: Final[tuple[Kind, ...]] = ("line", "driver short of memory", "driver interrupted after")
_EXIT_BEGINS: Final = frozenset({"NOP", "SWAP"})


class Interrupted(KeyboardInterrupt):
    """What is raised in place of Ctrl-C."""


class Hung(BaseException):
    """The use after an interrupt did not end in time."""


@dataclass(frozen=True)
class Finding:
    """A place after which the next use was not right."""

    probe: str
    kind: Kind
    place: int
    where: str
    outcome: Literal["hang", "wrong", "untyped"]
    what: str


@cache
def _without_cleanup(code: CodeType) -> frozenset[int]:
    """Return the offsets of lines at which a tracer's exception skips clean-up that a signal's does not.

    They are where the exit of a `with` block begins without an exception, and from Python 3.12 on the steps
    of loops: in a comprehension, which is inlined there, an exception of the tracer leaves a `with` around it
    unexited; one of a signal handler does not.
    """
    instructions = list(dis.get_instructions(code))
    steps = ("FOR_ITER", "JUMP_BACKWARD") if sys.version_info >= (3, 12) else ()
    found = {one.offset for one in instructions if one.opname in steps}
    for i in range(len(instructions)):
        j = i
        while j < len(instructions) and instructions[j].opname in _EXIT_BEGINS:
            j += 1
        three = instructions[j : j + 3]
        if len(three) == 3 and all(one.opname == "LOAD_CONST" and one.argval is None for one in three):
            found.add(instructions[i].offset)
    return frozenset(found)


def _inside(path: str) -> bool:
    return path.startswith(_FOLDERS) or path == _CONTEXTLIB


class Tracer:
    """Counts the places of an act, and raises at one of them. A context manager around the act."""

    def __init__(self, kind: Kind, at: int) -> None:
        self.kind = kind
        self.at = at
        self.seen = 0
        self.fired = ""
        """The line at which it was raised; empty: nowhere yet."""

    def __enter__(self) -> Self:
        sys.settrace(self._called)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, _event: str, _arg: object) -> Any:
        path = frame.f_code.co_filename
        if self.kind == "line":
            return self._line if _inside(path) else None
        back = frame.f_back
        if not path.startswith(_DRIVERS) or back is None or not back.f_code.co_filename.startswith(_HCQ):
            return None
        if self.kind == "driver interrupted after":
            return self._returned
        self._count(frame)
        return None

    def _line(self, frame: FrameType, event: str, _arg: object) -> Any:
        if event == "line" and frame.f_lasti not in _without_cleanup(frame.f_code):
            self._count(frame)
        return self._line

    def _returned(self, frame: FrameType, event: str, _arg: object) -> Any:
        if event == "return":
            self._count(frame)
        return self._returned

    def _count(self, frame: FrameType) -> None:
        self.seen += 1
        if self.seen - 1 != self.at:
            return
        sys.settrace(None)
        code = frame.f_code
        self.fired = f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_qualname}"
        if self.kind == "driver short of memory":
            raise OutOfMemoryError("probe", 12, "ENOMEM")
        raise Interrupted


class Noise:
    """Collects what finalisers could not raise; an interrupt inside one is dropped by Python, and is none."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __enter__(self) -> Self:
        self._before = sys.unraisablehook
        sys.unraisablehook = self._hear
        return self

    def __exit__(self, *exc: object) -> None:
        sys.unraisablehook = self._before

    def _hear(self, told: sys.UnraisableHookArgs) -> None:
        if told.exc_type not in {Interrupted, OutOfMemoryError}:
            self.heard.append(f"in {told.object!r}: {told.exc_type.__name__}: {told.exc_value}")


def _alarmed(_number: int, _frame: FrameType | None) -> None:
    raise Hung


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """End what takes longer with `Hung`; for the main thread."""
    before = signal.signal(signal.SIGALRM, _alarmed)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Run:
    """All places of one probe."""

    def __init__(self, name: str, *, bound_s: float, make: Callable[[], Probe] | None = None) -> None:
        self.name = name
        self._make = make or PROBES[name]
        self.bound_s = bound_s
        self.places = 0
        self.refused = 0
        """After how many places the use raised an error of `hcq.errors`."""
        self.findings: list[Finding] = []
        self._probe: Probe | None = None

    def run(self, kind: Kind, *, every: int, first: int) -> None:
        """Interrupt at every `every`-th place, from the place `first` on."""
        at = first
        while True:
            probe = self._probe or self._made()
            tracer = Tracer(kind, at)
            outcome = self._interrupted(probe, tracer)
            if not tracer.fired:
                if outcome is not None:
                    raise RuntimeError(f"{self.name} fails without an interrupt: {outcome}")
                return
            self.places += 1
            if outcome is not None:
                verdict, what = outcome
                self.findings.append(Finding(self.name, kind, at, tracer.fired, verdict, what))
                self._probe = None
                self._let_go(probe)
            at += every

    def _made(self) -> Probe:
        """Return a new probe that ran once: what is made once is made."""
        probe = self._make()
        self._probe = probe
        probe.act()
        probe.check()
        return probe

    def _interrupted(
        self, probe: Probe, tracer: Tracer
    ) -> tuple[Literal["hang", "wrong", "untyped"], str] | None:
        gc.disable()
        with Noise() as noise:
            try:
                with bounded(self.bound_s), tracer:
                    probe.act()
            except (KeyboardInterrupt, HcqError):
                pass
            except Hung:
                return "hang", "the act itself"
            except Exception as error:  # noqa: BLE001 - the class is the result
                return "untyped", f"the act: {type(error).__name__}: {error}"
            finally:
                gc.enable()
            try:
                with bounded(self.bound_s):
                    probe.check()
            except Hung:
                return "hang", "the use after it"
            except AssertionError as error:
                return "wrong", str(error)
            except HcqError:
                self.refused += 1
            except Exception as error:  # noqa: BLE001 - as above
                return "untyped", f"the use after it: {type(error).__name__}: {error}"
        return ("untyped", noise.heard[0]) if noise.heard else None

    def _let_go(self, probe: Probe) -> None:
        """Close what may be broken: its threads must not stay."""
        with contextlib.suppress(Exception, Hung), bounded(max(self.bound_s, 5.0)), Noise():
            probe.close()

    def close(self) -> None:
        """Close the probe."""
        if self._probe is not None:
            self._probe.close()
            self._probe = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz.interrupts", description=__doc__)
    parser.add_argument("--probe", action="append", choices=sorted(PROBES), help="only this one; repeatable")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="only every K-th place (default 1)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first place (default 0)")
    parser.add_argument("--bound", type=float, default=20.0, metavar="S", help="seconds a use may take (20)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write counts and findings")
    options = parser.parse_args(arguments)
    counts: dict[str, int] = {}
    refused = 0
    findings: list[Finding] = []
    for name in options.probe or sorted(PROBES):
        run = Run(name, bound_s=options.bound)
        for kind in KINDS:
            run.run(kind, every=options.every, first=options.first)
            sys.stderr.write(f"\r{name}: {run.places} places, {len(run.findings)} not right ")
            sys.stderr.flush()
        run.close()
        sys.stderr.write("\n")
        counts[name] = run.places
        refused += run.refused
        findings += run.findings
        for one in run.findings:
            where = f"{one.probe}, {one.kind} {one.place} ({one.where})"
            sys.stdout.write(f"{where}: {one.outcome}: {one.what}\n")
            sys.stdout.flush()
    outcomes = Counter(one.outcome for one in findings)
    if options.json is not None:
        told = {"places": counts, "findings": [asdict(one) for one in findings]}
        options.json.write_text(json.dumps(told, indent=1))
    sys.stdout.write(
        f"{sum(counts.values())} places, {outcomes['hang']} hangs, "
        f"{outcomes['wrong']} wrong, {outcomes['untyped']} untyped errors, {refused} typed errors\n"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
