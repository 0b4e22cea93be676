"""Call PyTorch's operator database here and in PyTorch, and count the differences.

    python -m tests.oracles.opdb [--ops NAME,NAME] [--samples N] [--dtypes float32,int64] [--device nv-emu]

Needs PyTorch and its test requirement `expecttest`. Every entry of the database whose function exists here is
called with samples of each dtype: results and gradients, through slices with strides and lazy flips
(`views`), in place, with second derivatives, and with the inputs that PyTorch refuses (`errors`). It exits
with 1 if a value, derivative, shape, dtype or structure differs, or if an error is none of the project's own.

Not here: what the classes mean (`judge`), differences on purpose (`decisions`).
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from frontend import Device
from tests.oracles.opdb import archive, second, theirs
from tests.oracles.opdb.call import Given, leaves
from tests.oracles.opdb.judge import CLASSES, judged
from tests.oracles.opdb.ours import function
from tools.arguments import command, device_name, positive, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BAD: Final = frozenset({"value", "gradient", "shape", "dtype", "structure", "accident", "second"})
PARTS: Final = (*theirs.KINDS, "views", "in place", "second", "errors")


class Tally:
    """Outcomes by part and class, and one line for each that is not the same."""

    def __init__(self, show: frozenset[str]) -> None:
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.lines: list[dict[str, str]] = []
        self.show = show

    def add(self, part: str, kind: str, call: Any, text: str) -> None:
        """Count an outcome, and print it if it is of a class that is shown."""
        self.counts[part][kind] += 1
        if kind not in {"same", "left out", "both raise"}:
            line = {"part": part, "class": kind, "call": str(call), "text": " ".join(text.split())[:400]}
            self.lines.append(line)
            if kind in self.show:
                print(f"{part}: {kind}: {line['call']}\n    {line['text']}", file=sys.stderr, flush=True)


def run(torch: Any, entry: str, op: Any, tally: Tally, args: Any) -> None:
    """Judge the samples of one entry."""
    for dtype in args.dtypes:
        for n, call in enumerate(theirs.calls(torch, entry, op, dtype, args.samples, rounded=False)):
            if isinstance(call, str):
                tally.add(dtype, "left out", call, "")
                continue
            want = theirs.answer(torch, op, call)
            kind, text = judged(call, want)
            tally.add(dtype, kind, call, text)
            if kind != "same" or not leaves(call) or want.error:
                continue
            if "views" in args.parts:
                how = "slice" if n % 2 else "flip"
                tally.add("views", *_turned(judged(call, want, seen=how, gradients=False), f"{how} {call}"))
            if "second" in args.parts and dtype == "float32":
                tally.add("second", *_turned(second.compared(torch, op, call), call))
            if "in place" in args.parts and in_place(call, want):
                tally.add("in place", *_turned(judged(call, want, in_place=True), call))
    for call in theirs.wrong_calls(torch, entry, op) if "errors" in args.parts else ():
        if isinstance(call, str):
            tally.add("errors", "left out", call, "")
        else:
            tally.add("errors", *_turned(judged(call, theirs.answer(torch, op, call)), call))


def _turned(found: tuple[str, str], call: Any) -> tuple[str, Any, str]:
    return found[0], call, found[1]


RECORDED: Final = {"float32": 2, "int64": 1, "bool": 1, "bfloat16": 1, "int8": 1}
"""How many samples of an entry are kept, by dtype; and as many inputs that PyTorch refuses."""
LARGEST: Final = 400
"""The most elements of the tensors of a call that is kept."""
OF_MEMORY: Final = frozenset((
    "as_strided", "as_strided:partial_views", "as_strided_scatter", "new_empty_strided", "resize_",
    "resize_as_",
))  # fmt: skip
"""Entries that are not kept: they refuse views, or return memory with any contents."""


def recorded(torch: Any, entry: str, op: Any) -> Iterator[str]:
    """Yield the lines of the archive for an entry; print a difference that has no reason instead."""
    calls: list[Any] = []
    for dtype, most in RECORDED.items():
        every = theirs.calls(torch, entry, op, dtype, 1000, rounded=True)
        small = [c for c in every if not isinstance(c, str) and _elements(c) <= LARGEST]
        calls += small[:: max(1, len(small) // most)][:most]
    wrong = [c for c in theirs.wrong_calls(torch, entry, op) if not isinstance(c, str)]
    for call in [*calls, *[c for c in wrong if _elements(c) <= LARGEST][: RECORDED["float32"]]]:
        line = archive.line(call, theirs.answer(torch, op, call), "same")
        again, want = archive.parsed(line)
        kind, text = judged(again, want)
        if kind in BAD and kind != "accident":
            print(f"left out: {kind}: {call}\n    {text}", file=sys.stderr, flush=True)
        else:
            yield archive.line(call, want, kind) if kind not in {"same", "both raise", "decided"} else line


def _elements(call: Any) -> int:
    return sum(t.array.size for t in leaves(call))


def in_place(call: Any, want: Any) -> bool:
    """Return whether a call has a form in place whose result its first tensor can hold."""
    from frontend import Tensor  # noqa: PLC0415 - not needed by the command line

    first = next(iter(call.args), None)
    return isinstance(first, Given) and (
        "." not in call.entry
        and ":" not in call.entry
        and hasattr(Tensor, f"{call.name}_")
        and want.form == "T"
        and want.results[0].shape == first.array.shape
        and want.results[0].dtype == first.dtype
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the entries; return 1 if something differs, else 0."""
    parser = command("tests.oracles.opdb", __doc__)
    names = lambda text: tuple(text.split(","))  # noqa: E731 - a type of the command line
    parser.add_argument(
        "--ops", type=names, default=(), help="entries or names, such as std_mean,linalg.eigh"
    )
    parser.add_argument("--samples", type=positive, default=12, help="at most so many of an entry and dtype")
    parser.add_argument("--dtypes", type=names, default=theirs.KINDS)
    parser.add_argument(
        "--parts", type=names, default=PARTS, help="views, in place, errors beside the dtypes"
    )
    parser.add_argument("--show", type=names, default=tuple(sorted(BAD)), help="classes to print, or all")
    parser.add_argument("--device", type=device_name, default="auto", help="what computes (default auto)")
    parser.add_argument("--json", action="store_true", help="print counts and lines as JSON")
    parser.add_argument("--record", action="store_true", help="write the archive that the tests read")
    args = parser.parse_args(argv)
    torch = pytorch()
    if args.device != "auto":
        Device.DEFAULT = args.device
    known = theirs.entries()
    chosen = [e for e in known if not args.ops or e in args.ops or e.partition(":")[0] in args.ops]
    here = [e for e in chosen if function(e) is not None]
    tally = Tally(frozenset(CLASSES if "all" in args.show else args.show))
    start, last = time.monotonic(), 0.0
    lines: list[str] = []
    for n, entry in enumerate(here):
        if args.record and entry not in OF_MEMORY:
            lines += recorded(torch, entry, known[entry])
        elif not args.record:
            run(torch, entry, known[entry], tally, args)
        if time.monotonic() - last > 15:
            last = time.monotonic()
            print(
                f"{n + 1} of {len(here)} entries, {last - start:.0f} s: {entry}", file=sys.stderr, flush=True
            )
    if args.record:
        print(f"{len(lines)} calls in {archive.write(lines):,} bytes of {archive.PATH}")
        return 0
    missing = [e for e in chosen if e not in here]
    if args.json:
        found = {"entries": len(here), "missing": missing, "counts": tally.counts, "lines": tally.lines}
        print(json.dumps(found))
    else:
        print(f"{len(here)} entries exist here, {len(missing)} do not; PyTorch {torch.__version__}")
        print("| part | " + " | ".join(CLASSES) + " |\n|---|" + "---|" * len(CLASSES))
        for part, counts in tally.counts.items():
            print(f"| {part} | " + " | ".join([str(counts[c]) for c in CLASSES]) + " |")
    return int(any(counts[kind] for counts in tally.counts.values() for kind in BAD))


if __name__ == "__main__":
    sys.exit(reported(main))
