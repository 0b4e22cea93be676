"""`python -m tests.mutants.planted [--driver nv] [--only TEXT] [--device NAME] [--json FILE]`.

It runs a driver's program on each of its bugs in a child process: those of its source, planted in a copy of
the driver, then those on the wire, made between the driver and the emulated kernel. It prints a line for
each: `named` if the report identifies the bug, else the outcome; and the sum of both kinds. The exit status
is 1 if a smaller share of a kind than `--minimum` is named, and 2 if the unchanged driver does not pass.

Next: `catalogs`, the bugs; `run`, one of them.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING

from tests.mutants.planted.catalogs import CATALOGS, WIRES
from tests.mutants.planted.run import judge, judge_wire, unchanged, wired
from tools.arguments import command, device_name, output, reported, share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.mutants.planted.run import Verdict

SOURCE, WIRE = "by source", "on the wire"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = command("tests.mutants.planted", __doc__)
    parser.add_argument(
        "--driver", choices=tuple(CATALOGS), default=next(iter(CATALOGS)), help="(default %(default)s)"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only bugs whose name contains TEXT")
    parser.add_argument(
        "--device", type=device_name, metavar="NAME", help="run those of the source on this device"
    )
    parser.add_argument("--minimum", type=share, default=0.96, metavar="SHARE", help="(default 0.96)")
    parser.add_argument("--json", type=output, metavar="FILE", help="write every verdict with its message")
    options = parser.parse_args(argv)
    catalog, wires = CATALOGS[options.driver], WIRES[options.driver]
    sources = [bug for bug in catalog.bugs if options.only in bug.name]
    others = [bug for bug in wires.bugs if options.only in bug.name]
    if not sources and not others:
        names = "; ".join([*(bug.name for bug in catalog.bugs), *(bug.name for bug in wires.bugs)])
        parser.error(f"no bug is named {options.only!r}; there are: {names}")
    bare = [(name, partial(unchanged, catalog, name))
            for name in sorted({options.device or catalog.device_of(bug) for bug in sources})]  # fmt: skip
    bare += [(name, partial(wired, options.driver, name)) for name in sorted({bug.device for bug in others})]
    for name, run in bare:
        seen = run()
        if seen.outcome != "passed":
            sys.stderr.write(f"the unchanged driver on {name}: {seen.outcome} {seen.text}\n")
            return 2
    work: list[tuple[str, str, Callable[[], Verdict]]] = []
    work += [(SOURCE, bug.name, partial(judge, catalog, bug, device=options.device)) for bug in sources]
    work += [(WIRE, bug.name, partial(judge_wire, options.driver, bug)) for bug in others]
    rows = []
    for number, (kind, name, decide) in enumerate(work, 1):
        verdict = decide()
        rows.append(
            {"kind": kind, "bug": name, "verdict": verdict.word, "type": verdict.type, "text": verdict.text}
        )
        first = next((line for line in verdict.text.splitlines() if line.strip()), "")
        sys.stdout.write(f"{verdict.word:8} {kind}: {name}: {verdict.type} {first[:160]}\n")
        sys.stdout.flush()
        sys.stderr.write(f"\r{number} of {len(work)}")
    sys.stderr.write("\n")
    enough = [_summed(kind, [row["verdict"] for row in rows if row["kind"] == kind], options.minimum)
              for kind in (SOURCE, WIRE)]  # fmt: skip
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))
    return 0 if all(enough) else 1


def _summed(kind: str, words: Sequence[str], minimum: float) -> bool:
    """Print how many bugs of a kind are named; return whether they are enough."""
    if not words:
        return True
    others = "".join(f", {words.count(word)} {word}" for word in sorted({*words} - {"named"}))
    sys.stdout.write(f"{kind}: {words.count('named')} of {len(words)} named{others}\n")
    return words.count("named") >= minimum * len(words)


if __name__ == "__main__":
    sys.exit(reported(main))
