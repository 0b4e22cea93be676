"""`python -m tests.fuzz.interrupts [--probe NAME] [--every K] [--first N] [--bound S] [--json FILE]`.

It interrupts realize, replay, submit, wait, assign, alloc, free and close at every executed line, and at
every call into the driver, one place per run. The next use must give correct values or an error of
`hcq.errors`, and must end. The tool prints each place after which it does not, then the counts; the exit
status is 1 if there is such a place.

A place is the n-th line that an operation executes in the files of `hcq`, `drivers`, `frontend` and
`contextlib`. `KeyboardInterrupt` is raised there, as by Ctrl-C. At calls into the driver also
`OutOfMemoryError` is raised before the call, and `KeyboardInterrupt` after it. The end of a `with` block is
excluded: CPython delivers no signal there before `__exit__` has begun (bpo-29988), although tracing reports a
line. `--bound` is the limit in seconds of the use after an interrupt; an alarm ends it, and it counts as a
hang.

Not here: the operations (`interrupt_probes`).
"""

from __future__ import annotations

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
from tests.fuzz.interrupt_probes import PROBES, Probe
from tools.arguments import above_zero, command, natural, output, positive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import CodeType, FrameType

_ROOT: Final = Path(__file__).resolve().parents[2]
_FOLDERS: Final = tuple(f"{_ROOT / name}/" for name in ("hcq", "drivers", "emulator", "frontend"))
_DRIVERS: Final = f"{_ROOT / 'drivers'}/"
_HCQ: Final = f"{_ROOT / 'hcq'}/"
_CONTEXTLIB: Final = contextlib.__file__
Kind = Literal["line", "driver short of memory", "driver interrupted after"]
KINDS: Final[tuple[Kind, ...]] = ("line", "driver short of memory", "driver interrupted after")
_EXIT_BEGINS: Final = frozenset({"NOP", "SWAP"})


class Interrupted(KeyboardInterrupt):
    """The `KeyboardInterrupt` that the tool raises."""


class Hung(BaseException):
    """The operation, or the use after it, exceeded its time limit."""


@dataclass(frozen=True)
class Finding:
    """A place after which the next use failed; `what` describes the failure."""

    probe: str
    kind: Kind
    place: int
    where: str
    outcome: Literal["hang", "wrong", "untyped"]
    what: str


@cache
def _without_cleanup(code: CodeType) -> frozenset[int]:
    """Return the offsets at which an exception of a tracer skips a clean-up that one of a signal does not.

    These are the starts of the normal exit of `with` blocks, and from Python 3.12 on the steps of loops: in
    an inlined comprehension an exception of the tracer skips the exit of a surrounding `with`.
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
    """Counts the places of an operation, which it is a context manager around; raises at the place `at`."""

    def __init__(self, kind: Kind, at: int) -> None:
        self.kind = kind
        self.at = at
        self.seen = 0
        self.fired = ""
        """The line at which the interrupt was raised, or "" before it."""

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


class Unraisable:
    """Collects exceptions of finalizers, except the interrupt itself, which Python drops there."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def __enter__(self) -> Self:
        self._before = sys.unraisablehook
        sys.unraisablehook = self._record
        return self

    def __exit__(self, *exc: object) -> None:
        sys.unraisablehook = self._before

    def _record(self, args: sys.UnraisableHookArgs) -> None:
        if args.exc_type not in {Interrupted, OutOfMemoryError}:
            self.found.append(f"in {args.object!r}: {args.exc_type.__name__}: {args.exc_value}")


def _alarmed(_number: int, _frame: FrameType | None) -> None:
    raise Hung


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise `Hung` in the block after so many seconds; only in the main thread."""
    before = signal.signal(signal.SIGALRM, _alarmed)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Run:
    """The interrupts of one probe, at all its places."""

    def __init__(self, name: str, *, bound_s: float, make: Callable[[], Probe] | None = None) -> None:
        self.name = name
        self._make = make or PROBES[name]
        self.bound_s = bound_s
        self.places = 0
        self.refused = 0
        """Number of places after which the use raised an error of `hcq.errors`."""
        self.findings: list[Finding] = []
        self._probe: Probe | None = None

    def run(self, kind: Kind, *, every: int, first: int) -> None:
        """Interrupt at each `every`-th place from `first` on, until the operation ends before the place."""
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
                self._discard(probe)
            at += every

    def _made(self) -> Probe:
        """Return a new probe after one run, so that objects that are made once exist."""
        probe = self._make()
        self._probe = probe
        probe.act()
        probe.check()
        return probe

    def _interrupted(
        self, probe: Probe, tracer: Tracer
    ) -> tuple[Literal["hang", "wrong", "untyped"], str] | None:
        gc.disable()
        with Unraisable() as unraisable:
            try:
                with bounded(self.bound_s), tracer:
                    probe.act()
            except (KeyboardInterrupt, HcqError):
                pass
            except Hung:
                return "hang", "the operation itself"
            except Exception as error:  # noqa: BLE001 - the class is the result
                return "untyped", f"the operation: {type(error).__name__}: {error}"
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
        return ("untyped", unraisable.found[0]) if unraisable.found else None

    def _discard(self, probe: Probe) -> None:
        """Close a probe that may be broken, so that its threads end."""
        with contextlib.suppress(Exception, Hung), bounded(max(self.bound_s, 5.0)), Unraisable():
            probe.close()

    def close(self) -> None:
        """Close the probe."""
        if self._probe is not None:
            self._probe.close()
            self._probe = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = command("tests.fuzz.interrupts", __doc__)
    parser.add_argument("--probe", action="append", choices=sorted(PROBES), help="only this one; repeatable")
    parser.add_argument(
        "--every", type=positive, default=1, metavar="K", help="only every K-th place (default 1)"
    )
    parser.add_argument("--first", type=natural, default=0, metavar="N", help="the first place (default 0)")
    parser.add_argument(
        "--bound", type=above_zero, default=20.0, metavar="S", help="seconds a use may take (20)"
    )
    parser.add_argument("--json", type=output, metavar="FILE", help="write counts and findings")
    options = parser.parse_args(arguments)
    counts: dict[str, int] = {}
    refused = 0
    findings: list[Finding] = []
    for name in options.probe or sorted(PROBES):
        run = Run(name, bound_s=options.bound)
        for kind in KINDS:
            run.run(kind, every=options.every, first=options.first)
            sys.stderr.write(f"\r{name}: {run.places} places, {len(run.findings)} findings ")
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
        report = {"places": counts, "findings": [asdict(one) for one in findings]}
        options.json.write_text(json.dumps(report, indent=1))
    sys.stdout.write(
        f"{sum(counts.values())} places, {outcomes['hang']} hangs, "
        f"{outcomes['wrong']} wrong, {outcomes['untyped']} untyped errors, {refused} typed errors\n"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
